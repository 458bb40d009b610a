//! Clients that are slow, idle or greedy, against the program itself. Each such client loses its own connection or
//! call. The server continues to answer the other clients, and the program's memory stays bounded.
//!
//! Time limits are configured short. A test waits for the server to close a connection, and never for a time to pass.
mod connections;
mod encryption;
mod floods;
mod idle;
mod memory;
pub(crate) mod peer;
mod readers;
mod uploads;

use std::{fs, net::SocketAddr, path::Path};

use tempfile::TempDir;
use testing::{
    Program, Repository, eventually,
    grpc::{self, framed},
    http::{Connection, Response},
    plugins::{Kind, Plugin},
};
use tokio::runtime::Runtime;

const LIVE: &str = "/v2/health/live";
const SERVER_LIVE: &str = "/inference.GRPCInferenceService/ServerLive";
const SERVER_METADATA: &str = "/inference.GRPCInferenceService/ServerMetadata";
const STREAM_INFER: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// The program, and one client for each protocol. Both clients connect first, and send requests during the test.
struct Served {
    program: Program,
    http: SocketAddr,
    grpc: SocketAddr,
    metrics: SocketAddr,
    old_http: Connection,
    old_grpc: grpc::Connection,
    runtime: Runtime,
    _repository: Repository,
    _plugins: TempDir,
}

impl Served {
    /// A server without models.
    fn empty(arguments: &[&str]) -> Self {
        Self::with(Repository::empty().unwrap(), &[], arguments)
    }

    /// With the model `echo`, which answers with its input.
    fn echoing(arguments: &[&str]) -> Self {
        let repository = Repository::empty().unwrap();
        let config = "backend: 'identity' max_batch_size: 8
             input [ { name: 'INPUT0' data_type: TYPE_INT32 dims: [ -1 ] } ]
             output [ { name: 'OUTPUT0' data_type: TYPE_INT32 dims: [ -1 ] } ]
             instance_group [ { kind: KIND_CPU } ]";
        repository.add("echo", [("config.pbtxt", config)]).unwrap();
        Self::with(repository, &["identity"], arguments)
    }

    /// With the model `m`, which gives a response for each value of its input and then waits until it is cancelled.
    fn repeating(arguments: &[&str]) -> Self {
        Self::repeating_with(
            "parameters { key: 'until_cancelled' value { string_value: 'true' } }",
            arguments,
        )
    }

    /// With the model `m`, which gives a response for each value of its input, and `rest` in its configuration.
    fn repeating_with(rest: &str, arguments: &[&str]) -> Self {
        let repository = Repository::empty().unwrap();
        let config = "backend: 'repeat' max_batch_size: 0
             input [ { name: 'IN' data_type: TYPE_INT32 dims: [ -1 ] } ]
             output [ { name: 'OUT' data_type: TYPE_INT32 dims: [ 1 ] },
                      { name: 'IDX' data_type: TYPE_UINT32 dims: [ 1 ] } ]
             model_transaction_policy { decoupled: true }
             instance_group [ { kind: KIND_CPU } ]";
        repository.add("m", [("config.pbtxt", format!("{config} {rest}").as_str())]).unwrap();
        Self::with(repository, &["repeat"], arguments)
    }

    fn with(repository: Repository, backends: &[&str], arguments: &[&str]) -> Self {
        let plugins = tempfile::tempdir().unwrap();
        for source in backends {
            let directory = plugins.path().join(source);
            fs::create_dir_all(&directory).unwrap();
            Plugin::new(Kind::Backend, source).build(&directory).unwrap();
        }
        let directory = format!("--backend-directory={}", plugins.path().display());
        let all = [&[directory.as_str()], arguments].concat();
        let program =
            Program::start(Path::new(env!("CARGO_BIN_EXE_nereid")), repository.path(), &all).unwrap();
        let [http, grpc, metrics] = ["HTTPService", "GRPCInferenceService", "Metrics Service"]
            .map(|service| program.address_of(service));
        let runtime = Runtime::new().unwrap();
        let old_http = asked(http, LIVE, 200);
        let old_grpc = runtime.block_on(grpc::Connection::open(grpc)).unwrap();
        let mut served = Self {
            program,
            http,
            grpc,
            metrics,
            old_http,
            old_grpc,
            runtime,
            _repository: repository,
            _plugins: plugins,
        };
        // A connection that has its first answer is accepted, whatever the test does to the server.
        served.assert_others_are_answered();
        served
    }

    /// Checks that the server still answers both first clients.
    fn assert_others_are_answered(&mut self) {
        assert_eq!(live(&mut self.old_http).status, 200);
        assert_eq!(self.live_over_grpc(), "OK");
    }

    /// The status of a call on the first gRPC connection.
    fn live_over_grpc(&self) -> &'static str {
        let call = self.old_grpc.unary(SERVER_LIVE, &[], framed(b""));
        self.runtime.block_on(call).unwrap().1.name()
    }

    /// The memory of the program, in MiB.
    fn mebibytes(&self) -> u64 {
        self.program.resident_bytes().unwrap() >> 20
    }

    /// Requests to the model that were refused, or ended by the server for a limit.
    fn refused_requests(&self, model: &str) -> u64 {
        let mut connection = Connection::open(self.metrics).unwrap();
        let metrics = connection.ask("GET", "/metrics", &[], b"").unwrap().text();
        let labels = [format!("model=\"{model}\""), "reason=\"REJECTED\"".to_owned()];
        let line = metrics.lines().find(|line| {
            line.starts_with("nv_inference_request_failure{")
                && labels.iter().all(|label| line.contains(label))
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }

    /// Ends the program, which has nothing left to wait for.
    fn stop(self) {
        drop((self.old_http, self.old_grpc));
        let status = self.program.terminate().unwrap();
        assert_eq!(status.code(), Some(0), "the program ended with {status}");
    }
}

/// A connection whose first request has got this answer. Where the limits of a test are short, a slow machine may lose a
/// connection before its first request; then the client connects again.
fn asked(address: SocketAddr, path: &str, status: u16) -> Connection {
    let mut asked = None;
    eventually("an answer", || {
        let mut connection = Connection::open(address).unwrap();
        let answer = connection.ask("GET", path, &[], b"");
        let is_answered = answer.is_ok_and(|answer| answer.status == status);
        asked = is_answered.then_some(connection);
        is_answered
    });
    asked.unwrap()
}

fn live(connection: &mut Connection) -> Response {
    connection.ask("GET", LIVE, &[], b"").unwrap()
}
