//! A load generator that uses only the network protocols: `nereid perf`. The benchmarks measure with it.
//!
//! It reads the inputs from the model's metadata, prepares its requests, and sends them repeatedly over HTTP or gRPC,
//! in a closed loop or by a Poisson schedule. It runs on one thread and prepares each request only once, because it
//! often shares the processor with the server that it measures. The `client` column shows its own processor time.
//!
//! It deliberately does not depend on the engine, so that it measures all servers of the protocol in the same way.

#![forbid(unsafe_code)]

mod arrivals;
mod call_failure;
mod caller;
mod chain;
mod endpoint;
pub mod fetch;
mod grpc;
mod histogram;
mod http;
mod load;
mod model;
mod options;
mod payload;
mod processor_time;
mod report;
mod shared_memory;
mod tensors;
mod timer;

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::call_failure::CallFailure;
use crate::caller::{Prepared, Turns};
use crate::chain::ChainedModel;
use crate::endpoint::ServerEndpoint;
use crate::load::{Measured, MeasurementPlan};
use crate::model::TargetModel;
use crate::options::{Load, PerfOptions, Protocol};
use crate::report::ReportRow;
use crate::shared_memory::SharedTensors;

/// Runs the load generator to its end; blocks. The first argument is the program's name.
///
/// Writes the table or the help to `out`, row by row, and errors to `errors`. Returns the exit status: 0 for success, 1
/// if the server is not reachable or no request of a row succeeded, 2 if the command line is wrong.
pub fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let (written, status) = match options::parse(arguments) {
        Err(error) if error.use_stderr() => (write!(errors, "{error}"), 2),
        Err(help) => (write!(out, "{help}"), 0),
        Ok(options) => match run_with(&options, out) {
            Ok(()) => (Ok(()), 0),
            Err(error) => (writeln!(errors, "error: {error:#}"), 1),
        },
    };
    // Writing fails only if the reader has closed the output. Then no message can reach the user.
    written.map_or(1, |()| status)
}

fn run_with(options: &PerfOptions, out: &mut dyn Write) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = tokio::task::LocalSet::new().block_on(&runtime, measure(options, out))?;
    if let Some(path) = &options.csv {
        let file = std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        report::write_csv(&mut std::io::BufWriter::new(file), options, &rows)?;
    }
    ensure!(rows.iter().all(|row| row.measured.latencies.count() > 0), "no request succeeded");
    Ok(())
}

async fn measure(options: &PerfOptions, out: &mut dyn Write) -> Result<Vec<ReportRow>> {
    let endpoint = ServerEndpoint::new(options)?;
    let (prepared, shared) = prepare(&endpoint, options).await?;
    let rows = measure_rows(options, &prepared, out).await;
    if let Some(shared) = shared {
        shared.unregister(&endpoint, options.protocol).await?;
    }
    rows
}

async fn measure_rows(
    options: &PerfOptions,
    prepared: &Prepared,
    out: &mut dyn Write,
) -> Result<Vec<ReportRow>> {
    let plan = MeasurementPlan {
        warm_up: options.warm_up,
        until: options.until,
        server_pids: options.server_pids.clone(),
    };
    report::write_headings(out, options)?;
    let mut rows = Vec::new();
    let steps: Vec<(usize, Option<f64>)> = match &options.load {
        Load::Closed(counts) => counts.iter().map(|&callers| (callers, None)).collect(),
        Load::Open { rates, callers } => rates.iter().map(|&rate| (*callers, Some(rate))).collect(),
    };
    for (callers, rate) in steps {
        let connections = caller::connection_count(options, callers);
        let measured = row(callers, rate, prepared, options, &plan).await?;
        let row = ReportRow { callers, connections, rate, measured };
        report::write_row(out, &row, options)?;
        rows.push(row);
    }
    Ok(rows)
}

async fn row(
    callers: usize,
    rate: Option<f64>,
    prepared: &Prepared,
    options: &PerfOptions,
    plan: &MeasurementPlan,
) -> Result<Measured> {
    let callers = caller::open(callers, prepared, options).await?;
    match rate {
        None => load::closed(callers, plan).await,
        Some(rate) => load::open(callers, rate, options.seed, plan).await,
    }
}

/// Reads the models' inputs from the server and prepares the requests of the run, and their shared memory.
async fn prepare(
    endpoint: &ServerEndpoint,
    options: &PerfOptions,
) -> Result<(Prepared, Option<SharedTensors>)> {
    let described = describe(endpoint, options).await?;
    let inputs = described.resolve(options.batch, &options.shapes)?;
    let requests = tensors::fill(&inputs, &options.content, options.seed)?;
    let shared = match options.shared_memory {
        Some(output_byte_size) => {
            let shared = SharedTensors::create(&requests, &described.outputs, output_byte_size)?;
            shared.register(endpoint, options.protocol).await?;
            Some(shared)
        }
        None => None,
    };
    let places = |index: usize| shared.as_ref().map(|shared| shared.of_request(index));
    let requests = requests.iter().enumerate();
    let mut chain = Vec::new();
    for model in &options.then {
        let options = PerfOptions { model: model.clone(), version: None, ..options.clone() };
        let described = describe(endpoint, &options).await?;
        chain.push(ChainedModel::new(options, described)?);
    }
    let chain = chain.into();
    let prepared = match options.protocol {
        Protocol::HttpJson | Protocol::HttpBinary => {
            let requests =
                requests.map(|(index, tensors)| payload::http_infer(options, tensors, places(index)));
            let requests = Turns::of(requests)?;
            Prepared::Http { endpoint: endpoint.clone(), requests, chain }
        }
        Protocol::Grpc => {
            let method = if options.streaming { "ModelStreamInfer" } else { "ModelInfer" };
            let calls = requests.map(|(index, tensors)| {
                let message = payload::grpc_infer(options, tensors, places(index));
                grpc::GrpcCall::new(&endpoint.address, method, message)
            });
            let calls = Turns::of(calls)?;
            Prepared::Grpc { endpoint: endpoint.clone(), calls, streaming: options.streaming, chain }
        }
    };
    Ok((prepared, shared))
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
            Err(error) if speaks_http(endpoint).await => {
                let text = "speaks HTTP/1.1 and not gRPC: name the gRPC port, or leave out --protocol grpc";
                Err(error.context(format!("{} {text}", options.address)))
            }
            described => described,
        },
    };
    model.with_context(asking)
}

/// How long the generator tries to find out the protocol of a port that gave no valid response.
const PROBE: Duration = Duration::from_secs(2);

/// Tells whether a gRPC call to this address gets a response, even a refusal.
async fn speaks_grpc(endpoint: &ServerEndpoint) -> bool {
    let asking = async {
        let connection = grpc::GrpcConnection::open(endpoint).await?;
        connection.fetch::<proto::ServerLiveResponse>("ServerLive", &proto::ServerLiveRequest {}).await
    };
    tokio::time::timeout(PROBE, asking).await.is_ok_and(|answer| answer.is_ok())
}

/// Tells whether a request to this address gets a response of HTTP/1.1.
async fn speaks_http(endpoint: &ServerEndpoint) -> bool {
    let asking = async {
        let mut connection = http::HttpConnection::open(endpoint).await?;
        let request = payload::http_get(&endpoint.address, "/v2/health/live");
        Ok::<_, anyhow::Error>(connection.exchange(&request).await)
    };
    match tokio::time::timeout(PROBE, asking).await {
        Ok(Ok(Ok(()) | Err(CallFailure::Refused(_) | CallFailure::Closed))) => true,
        Ok(Ok(Err(CallFailure::Broken(_))) | Err(_)) | Err(_) => false,
    }
}

async fn describe_over_http(endpoint: &ServerEndpoint, options: &PerfOptions) -> Result<TargetModel> {
    let mut connection = http::HttpConnection::open(endpoint).await?;
    let path = payload::model_path(options);
    let metadata = connection.fetch(&payload::http_get(&options.address, &path)).await?;
    let config = connection.fetch(&payload::http_get(&options.address, &format!("{path}/config"))).await?;
    TargetModel::from_json(&metadata, &config)
}

async fn describe_over_grpc(endpoint: &ServerEndpoint, options: &PerfOptions) -> Result<TargetModel> {
    let connection = grpc::GrpcConnection::open(endpoint).await?;
    let (name, version) = (options.model.clone(), options.version.clone().unwrap_or_default());
    let metadata = proto::ModelMetadataRequest { name: name.clone(), version: version.clone() };
    let config = proto::ModelConfigRequest { name, version };
    Ok(TargetModel::from_messages(
        connection.fetch("ModelMetadata", &metadata).await?,
        &connection.fetch("ModelConfig", &config).await?,
    ))
}
