//! Calls over a real connection to a server. The server has the models of the recorded exchanges and a few others.
use std::{collections::BTreeMap, net::SocketAddr, ops::RangeInclusive, sync::Arc, time::Duration};

use bytes::Bytes;
use engine::{Engine, MetricsOptions, ModelControl, ServerMetadata};
use prost::Message;
use proto::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse,
    infer_parameter::ParameterChoice, model_infer_request::InferInputTensor,
};
use testing::{
    Gate, Identity, Repository, fixtures,
    grpc::{Broken, Call, Connection, Status, framed},
};
use tokio::{task::JoinHandle, time::timeout};

use super::{GrpcContext, GrpcOptions, serve};
use crate::port::{BoundSocket, Drain};

mod access_log;
mod connection;
mod reflection;
mod stream;
mod unary;
mod versions;

/// Longer than any step of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(60);

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// A served endpoint.
struct Server {
    address: SocketAddr,
    engine: Engine,
    drain: Drain,
    serving: JoinHandle<Result<(), vocabulary::Error>>,
    /// Executions of model `gated` wait here.
    gate: Arc<Gate>,
    repository: Repository,
}

impl Server {
    async fn start(options: GrpcOptions) -> Self {
        Self::start_within(options, host::MemoryLimits::default()).await
    }

    async fn start_within(options: GrpcOptions, limits: host::MemoryLimits) -> Self {
        Self::start_controlled(options, limits, ModelControl::None, &[]).await
    }

    /// A server that loads models as `control` says. `more` models have a name and a configuration.
    async fn start_controlled(
        options: GrpcOptions,
        limits: host::MemoryLimits,
        control: ModelControl,
        more: &[(&str, &str)],
    ) -> Self {
        let repository = Repository::golden().unwrap();
        repository.add("gated", [("config.pbtxt", Identity::config("").as_str())]).unwrap();
        let several = r#"backend: "python"
            input [{ name: "IN" data_type: TYPE_INT32 dims: 1 }]
            output [{ name: "OUT" data_type: TYPE_INT32 dims: 1 }]"#;
        repository.add("repeat_and_fail", [("config.pbtxt", several), ("1/model.py", "")]).unwrap();
        for (name, config) in more {
            repository.add(name, [("config.pbtxt", *config)]).unwrap();
        }
        let gate = Gate::shut();
        let backends: Vec<Arc<dyn inference::backend::Backend>> =
            vec![Arc::new(fixtures::Python), Arc::new(Identity::behind(gate.clone()))];
        let engine_options = engine::EngineOptions {
            control,
            namespacing: false,
            sequence_limit: std::time::Duration::from_secs(60),
            server: ServerMetadata { name: "triton".into(), ..ServerMetadata::default() },
            repositories: vec![repository.path().to_owned()],
            readiness: engine::ReadinessRule::NoModel,
            load_threads: 1,
            load_retries: 0,
            auto_complete: true,
            config_name: None,
            agent_directory: Default::default(),
            backend_settings: Vec::new(),
            on_demand: None,
            limits,
            metrics: MetricsOptions { host: false, ..MetricsOptions::default() },
            hold_until_queued: 0,
            hold_until_backlogged: 0,
            rate_limit: None,
            host_policies: Default::default(),
            load_policy: Default::default(),
        };
        let engine = Engine::start(engine_options, backends).await.unwrap();
        let drain = Drain::new();
        let endpoint = Arc::new(GrpcContext::new(engine.clone(), options, drain.clone()).unwrap());
        let listener = BoundSocket::bind("127.0.0.1", 0, false).unwrap().listen().unwrap();
        let address = listener.address().unwrap().port().unwrap();
        let serving = tokio::spawn(serve(listener, endpoint));
        Self { address, engine, drain, serving, gate, repository }
    }

    async fn connect(&self) -> Connection {
        Connection::open(self.address).await.unwrap()
    }

    /// Waits until this many requests are in flight.
    async fn in_flight(&self, count: usize) {
        let reached = async {
            while self.engine.in_flight() != count {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, reached).await.expect("the number of requests is reached in time");
    }
}

/// A connection to a server with default options.
async fn connected() -> (Server, Connection) {
    let server = Server::start(GrpcOptions::default()).await;
    let connection = server.connect().await;
    (server, connection)
}

/// A request of `model` with `values` as its input `IN`.
fn request(model: &str, id: &str, values: &[i32]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: model.to_owned(),
        id: id.to_owned(),
        inputs: vec![InferInputTensor {
            name: "IN".to_owned(),
            datatype: "INT32".to_owned(),
            shape: vec![i64::try_from(values.len()).unwrap()],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![bytes_of(values)],
        ..ModelInferRequest::default()
    }
}

/// The same request with its values as typed contents.
fn typed(mut request: ModelInferRequest) -> ModelInferRequest {
    let raw = std::mem::take(&mut request.raw_input_contents);
    for (input, raw) in request.inputs.iter_mut().zip(raw) {
        let values = raw.chunks(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()));
        input.contents = Some(InferTensorContents { int_contents: values.collect(), ..Default::default() });
    }
    request
}

fn with(mut request: ModelInferRequest, key: &str, choice: ParameterChoice) -> ModelInferRequest {
    request.parameters.insert(key.to_owned(), InferParameter { parameter_choice: Some(choice) });
    request
}

/// Waits until the server counts so many bytes.
async fn counted(server: &Server, bytes: RangeInclusive<usize>) {
    let reached = async {
        while !bytes.contains(&server.engine.inflight_bytes().used()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, reached).await.expect("the bytes are counted in time");
}

fn bytes_of(values: &[i32]) -> Bytes {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn sent(message: &impl Message) -> Bytes {
    framed(&message.encode_to_vec())
}

fn metadata(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Makes a unary call. Returns its decoded message or its status.
async fn infer(
    connection: &Connection,
    headers: &[(&str, &str)],
    request: &ModelInferRequest,
) -> Result<ModelInferResponse, Status> {
    let headers = metadata(headers);
    let call = connection.unary(INFER, &headers, sent(request));
    let (messages, status) = timeout(TIMEOUT, call).await.unwrap().unwrap();
    match &messages[..] {
        [message] if status.code == 0 => Ok(ModelInferResponse::decode(message.clone()).unwrap()),
        [] => Err(status),
        _ => panic!("{messages:?} {status:?}"),
    }
}

/// The status that ends a unary call of `path`.
async fn status_of(connection: &Connection, path: &str, message: Bytes) -> (u32, String) {
    let (_, status) = timeout(TIMEOUT, connection.unary(path, &[], message)).await.unwrap().unwrap();
    (status.code, status.message)
}

fn expect(code: u32, message: &str) -> (u32, String) {
    (code, message.to_owned())
}

fn no_parameters() -> BTreeMap<String, InferParameter> {
    BTreeMap::new()
}
