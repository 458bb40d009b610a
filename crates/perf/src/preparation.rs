//! Prepares a run: asks the server about the model, makes the requests, and registers shared memory.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::call_outcome::CallFailure;
use client::endpoint::ServerEndpoint;
use client::grpc::{GrpcCall, GrpcConnection};
use client::http::HttpConnection;

use crate::caller::{Prepared, PreparedRequests};
use crate::chain::ChainedModel;
use crate::endpoint::endpoint;
use crate::feed::SharedFeed;
use crate::inputs::{self, RunInputs};
use crate::model::{ModelTraits, TargetModel};
use crate::options::{Load, PerfOptions, Protocol};
use crate::payload::{GenerateTemplate, GrpcTemplate, HttpTemplate};
use crate::sequences::SequenceSource;
use crate::shared_memory::SharedTensors;
use crate::statistics::StatisticsReader;
use crate::{arrivals, http_request};

/// Everything that points need.
pub(crate) struct PreparedRun {
    pub(crate) requests: Rc<Prepared>,
    pub(crate) traits: ModelTraits,
    pub(crate) statistics: StatisticsReader,
    /// The requests form sequences of several requests.
    pub(crate) has_sequences: bool,
    /// The gaps of `--request-intervals`.
    pub(crate) gaps: Vec<Duration>,
    streams: Vec<Vec<usize>>,
    from_files: bool,
    request_count: usize,
    shared: Option<SharedTensors>,
}

impl PreparedRun {
    /// The feed of a point with that many callers.
    ///
    /// # Errors
    /// There are too few ids for the sequences.
    pub(crate) fn feed(&self, options: &PerfOptions, callers: usize) -> Result<Rc<SharedFeed>> {
        let sequences = match self.has_sequences {
            true => Some(SequenceSource::new(
                &options.sequences,
                self.streams.clone(),
                self.from_files,
                options.seed,
                callers,
            )?),
            false => None,
        };
        Ok(SharedFeed::new(self.request_count, sequences))
    }

    /// The mean rate of `--request-intervals`, in requests per second.
    ///
    /// # Errors
    /// There are no intervals.
    pub(crate) fn interval_rate(&self) -> Result<f64> {
        let sum: Duration = self.gaps.iter().sum();
        ensure!(!sum.is_zero(), "the request intervals have no gap above zero");
        Ok(self.gaps.len() as f64 / sum.as_secs_f64())
    }

    /// Gives back what the run has at the server.
    ///
    /// # Errors
    /// The server is not reachable.
    pub(crate) async fn release(&self, options: &PerfOptions) -> Result<()> {
        match &self.shared {
            Some(shared) => shared.unregister(&self.requests.endpoint, options).await,
            None => Ok(()),
        }
    }
}

/// Reads the models' inputs from the server and prepares the requests of the run, and their shared memory.
///
/// # Errors
/// The server is not reachable, or the options do not fit the model.
pub(crate) async fn prepare(options: &PerfOptions) -> Result<PreparedRun> {
    let gaps = match &options.load {
        Load::Intervals { file, .. } => arrivals::read_gaps(file)?,
        Load::Closed(_) | Load::Open { .. } => Vec::new(),
    };
    let endpoint = endpoint(options)?;
    let mut described = describe(&endpoint, options).await?;
    if !described.traits.has_sequences {
        described.traits.has_sequences = has_sequence_member(&endpoint, options, &described).await;
    }
    let has_sequences = described.traits.has_sequences && !options.sequences.of_one_request;
    ensure!(!has_sequences || options.batch == 1, "requests of sequences have one row: --batch must be 1");
    ensure!(!has_sequences || options.then.is_empty(), "--then takes models without sequences");
    let inputs = inputs::prepare(&described, options)?;
    check_expected(&inputs, options)?;
    let shared = share(&inputs, &described, &endpoint, options).await?;
    let mut chain = Vec::new();
    for model in &options.then {
        let options = PerfOptions { model: model.clone(), version: None, ..options.clone() };
        let described = describe(&endpoint, &options).await?;
        chain.push(ChainedModel::new(options, &endpoint, described)?);
    }
    let requests = requests(&inputs, &endpoint, &described, shared.as_ref(), options)?;
    let statistics = StatisticsReader::new(&endpoint, options, &described);
    let RunInputs { requests: tensors, expected, streams, from_files } = inputs;
    Ok(PreparedRun {
        requests: Rc::new(Prepared { endpoint, requests, chain, expected }),
        traits: described.traits,
        statistics,
        has_sequences,
        gaps,
        streams,
        from_files,
        request_count: tensors.len(),
        shared,
    })
}

/// Refuses validation data where outputs cannot be compared.
fn check_expected(inputs: &RunInputs, options: &PerfOptions) -> Result<()> {
    let is_binary = options.protocol == Protocol::Grpc || options.binary_outputs;
    ensure!(
        inputs.expected.is_empty() || (is_binary && !options.streaming && options.shared_memory.is_none()),
        "validation data is compared with single responses that hold binary outputs: without --streaming, \
         --shared-memory and JSON outputs"
    );
    Ok(())
}

async fn share(
    inputs: &RunInputs,
    described: &TargetModel,
    endpoint: &ServerEndpoint,
    options: &PerfOptions,
) -> Result<Option<SharedTensors>> {
    let Some(output_byte_size) = options.shared_memory else { return Ok(None) };
    let outputs: Vec<String> = described.outputs.iter().map(|output| output.name.clone()).collect();
    // As perf_analyzer: the room is for a row.
    let room =
        output_byte_size.checked_mul(options.batch).context("--output-shared-memory-size is too large")?;
    let shared = SharedTensors::create(&inputs.requests, &outputs, room)?;
    shared.register(endpoint, options).await?;
    Ok(Some(shared))
}

fn requests(
    inputs: &RunInputs,
    endpoint: &ServerEndpoint,
    model: &TargetModel,
    shared: Option<&SharedTensors>,
    options: &PerfOptions,
) -> Result<PreparedRequests> {
    let places = |index: usize| shared.map(|shared| shared.of_request(index));
    let requests = inputs.requests.iter().enumerate();
    match options.protocol {
        Protocol::HttpJson | Protocol::HttpBinary if options.streaming => {
            let request = |(_, tensors): (usize, &Vec<_>)| {
                let template = GenerateTemplate::new(options, model, tensors)?;
                let whole = template.request(None);
                Ok((template, whole))
            };
            Ok(PreparedRequests::Generate(requests.map(request).collect::<Result<_>>()?))
        }
        Protocol::HttpJson | Protocol::HttpBinary => {
            let request = |(index, tensors): (usize, &Vec<_>)| {
                let template = HttpTemplate::new(options, tensors, places(index))?;
                let whole = template.request(None);
                Ok((template, whole))
            };
            Ok(PreparedRequests::Http(requests.map(request).collect::<Result<_>>()?))
        }
        Protocol::Grpc => {
            let method = if options.streaming { "ModelStreamInfer" } else { "ModelInfer" };
            let request = |(index, tensors): (usize, &Vec<_>)| {
                let template = GrpcTemplate::new(options, tensors, places(index));
                let whole = template.request(None);
                (template, whole)
            };
            let call = Box::new(GrpcCall::new(endpoint, method, bytes::Bytes::new())?);
            Ok(PreparedRequests::Grpc {
                requests: requests.map(request).collect(),
                call,
                streaming: options.streaming,
                sequence_header: options.sequences.header.clone(),
            })
        }
    }
}

/// Reads the model's inputs from the server.
async fn describe(endpoint: &ServerEndpoint, options: &PerfOptions) -> Result<TargetModel> {
    let asking = || format!("asking the server about model '{}'", options.model);
    let model = match options.protocol {
        Protocol::HttpJson | Protocol::HttpBinary => match describe_over_http(endpoint, options).await {
            Err(error) if speaks_grpc(endpoint).await => Err(error.context(format!(
                "{} speaks gRPC: add --protocol grpc, or name the HTTP port",
                options.address
            ))),
            described => described,
        },
        Protocol::Grpc => match describe_over_grpc(endpoint, options).await {
            Err(error) if speaks_http(endpoint, options).await => {
                let text = "speaks HTTP/1.1 and not gRPC: name the gRPC port, or leave out --protocol grpc";
                Err(error.context(format!("{} {text}", options.address)))
            }
            described => described,
        },
    };
    model.with_context(asking)
}

/// The most models that an ensemble may have, its own ensembles included.
const MOST_MEMBERS: usize = 1000;

/// Whether a model of an ensemble takes sequences. Then the requests of the ensemble must form sequences.
async fn has_sequence_member(
    endpoint: &ServerEndpoint,
    options: &PerfOptions,
    ensemble: &TargetModel,
) -> bool {
    let mut members = ensemble.traits.composing_models.clone();
    let mut next = 0;
    while let Some(model) = members.get(next).cloned() {
        next += 1;
        let options = PerfOptions { model, version: None, ..options.clone() };
        // Who may not see a member can measure the ensemble all the same.
        let Ok(member) = describe(endpoint, &options).await else { continue };
        if member.traits.has_sequences {
            return true;
        }
        for name in member.traits.composing_models {
            if !members.contains(&name) && members.len() < MOST_MEMBERS {
                members.push(name);
            }
        }
    }
    false
}

/// How long the generator tries to find out the protocol of a port that gave no valid response.
const PROBE: Duration = Duration::from_secs(2);

/// Tells whether a gRPC call to this address gets a response, even a refusal.
async fn speaks_grpc(endpoint: &ServerEndpoint) -> bool {
    let asking = async {
        let connection = GrpcConnection::open(endpoint).await?;
        connection.fetch::<proto::ServerLiveResponse>("ServerLive", &proto::ServerLiveRequest {}).await
    };
    tokio::time::timeout(PROBE, asking).await.is_ok_and(|answer| answer.is_ok())
}

/// Tells whether a request to this address gets a response of HTTP/1.1.
async fn speaks_http(endpoint: &ServerEndpoint, options: &PerfOptions) -> bool {
    let asking = async {
        let mut connection = HttpConnection::open(endpoint).await?;
        let request = http_request::get(options, "/v2/health/live");
        Ok::<_, anyhow::Error>(connection.exchange(&request).await)
    };
    match tokio::time::timeout(PROBE, asking).await {
        Ok(Ok(Ok(_) | Err(CallFailure::Refused(_)))) => true,
        Ok(Ok(Err(CallFailure::Broken(_))) | Err(_)) | Err(_) => false,
    }
}

async fn describe_over_http(endpoint: &ServerEndpoint, options: &PerfOptions) -> Result<TargetModel> {
    let mut connection = HttpConnection::open(endpoint).await?;
    let path = http_request::model_path(options);
    let metadata = connection.fetch(&http_request::get(options, &path)).await?;
    let config = connection.fetch(&http_request::get(options, &format!("{path}/config"))).await?;
    TargetModel::from_json(&metadata, &config)
}

async fn describe_over_grpc(endpoint: &ServerEndpoint, options: &PerfOptions) -> Result<TargetModel> {
    let connection = GrpcConnection::open(endpoint).await?;
    let (name, version) = (options.model.clone(), options.version.clone().unwrap_or_default());
    let metadata = proto::ModelMetadataRequest { name: name.clone(), version: version.clone() };
    let config = proto::ModelConfigRequest { name, version };
    Ok(TargetModel::from_messages(
        connection.fetch("ModelMetadata", &metadata).await?,
        connection.fetch("ModelConfig", &config).await?,
    ))
}
