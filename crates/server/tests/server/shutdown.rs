//! A server that stops loses no accepted request, and does not wait for clients without requests.
//!
//! A request is accepted if the backend has executed it. The response of each execution must reach its client. A
//! connection may close before the first byte of a response. Then the backend must not have executed the request.

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;
use testing::{
    Gate, Identity, Program, Repository, eventually,
    grpc::{self, framed},
    http::{Connection, TIMEOUT},
    plugins::{Kind, Plugin},
    schema,
};
use tokio::runtime::Runtime;

use crate::support::Served;

const INFER: &str = "/v2/models/m/infer";
const BODY: &[u8] = br#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[2],"data":[7,8]}]}"#;
const UNARY: &str = "/inference.GRPCInferenceService/ModelInfer";
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// A server with the model `m`. Its executions wait at the gate.
fn served(gate: &Arc<Gate>, instances: usize, rest: &str, arguments: &[&str]) -> Served {
    let repository = Repository::empty().unwrap();
    let config =
        Identity::config(rest).replace("{kind: KIND_CPU}", &format!("{{kind: KIND_CPU count: {instances}}}"));
    repository.add("m", [("config.pbtxt", config.as_str())]).unwrap();
    Served::start(&Arc::new(repository), arguments, vec![Arc::new(Identity::behind(gate.clone()))]).unwrap()
}

fn message() -> bytes::Bytes {
    let request = json!({
        "model_name": "m",
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": ["1"], "contents": {"int_contents": [7]}}]
    });
    framed(&schema::encode("inference.ModelInferRequest", &request).unwrap())
}

/// Waits until the port refuses connections.
fn wait_until_refused(address: SocketAddr) {
    eventually("the port to refuse connections", || TcpStream::connect(address).is_err());
}

#[test]
fn requests_in_flight_are_answered_and_later_requests_are_refused() {
    let gate = Gate::shut();
    let served = served(&gate, 3, "", &[]);
    let (http, grpc) = (served.http, served.grpc);
    let runtime = Runtime::new().unwrap();

    let mut asking = Connection::open(http).unwrap();
    asking.send(&testing::http::request("POST", INFER, &[], BODY)).unwrap();
    let unary = runtime.spawn(async move {
        let connection = grpc::Connection::open(grpc).await?;
        connection.unary(UNARY, &[], message()).await
    });
    let stream = runtime.spawn(async move {
        let connection = grpc::Connection::open(grpc).await?;
        let mut call = connection.call(STREAM, &[]).await?;
        call.send(message());
        call.finish();
        call.rest().await
    });
    assert!(gate.wait_for(3, TIMEOUT), "all three are being executed");

    let stopping = thread::spawn(move || served.stop());
    wait_until_refused(http);
    wait_until_refused(grpc);
    assert!(!stopping.is_finished(), "the server waits for what is in flight");
    gate.open();

    let response = asking.receive("POST").unwrap();
    assert!(response.status == 200 && response.text().contains("[7,8]"), "{}", response.text());
    for call in [unary, stream] {
        let (messages, status) = runtime.block_on(call).unwrap().unwrap();
        assert_eq!((messages.len(), status.name()), (1, "OK"), "{}", status.message);
    }
    stopping.join().unwrap().unwrap();
    assert!(asking.is_closed_within(TIMEOUT));
}

#[test]
fn idle_connections_do_not_delay_the_stop() {
    let served = served(&Gate::opened(), 1, "", &["--exit-timeout-secs=3600"]);
    let runtime = Runtime::new().unwrap();
    let mut used = Connection::open(served.http).unwrap();
    assert_eq!(used.ask("GET", "/v2/health/live", &[], b"").unwrap().status, 200);
    let mut unused = Connection::open(served.http).unwrap();
    let mut scraped = Connection::open(served.metrics).unwrap();
    assert_eq!(scraped.ask("GET", "/metrics", &[], b"").unwrap().status, 200);
    let channel = runtime.block_on(async {
        let channel = grpc::Connection::open(served.grpc).await.unwrap();
        let (_, status) = channel.unary(UNARY, &[], message()).await.unwrap();
        assert_eq!(status.name(), "OK");
        channel
    });

    // The exit timeout is far longer than the test may take: a stop that waited for one of them would never end in time.
    served.stop().unwrap();
    assert!(
        used.is_closed_within(TIMEOUT)
            && unused.is_closed_within(TIMEOUT)
            && scraped.is_closed_within(TIMEOUT)
    );
    runtime.block_on(async {
        let refused = channel.unary(UNARY, &[], message()).await;
        assert!(refused.is_err(), "{refused:?}");
    });
}

#[test]
fn an_expired_exit_timeout_is_an_error() {
    let gate = Gate::shut();
    let served = served(&gate, 1, "", &["--exit-timeout-secs=1"]);
    let mut asking = Connection::open(served.http).unwrap();
    asking.send(&testing::http::request("POST", INFER, &[], BODY)).unwrap();
    assert!(gate.wait_for(1, TIMEOUT));
    let error = served.stop().unwrap_err();
    assert!(error.contains("Exit timeout expired. Exiting immediately."), "{error}");
    gate.open();
}

/// The observations of the clients.
#[derive(Debug, Default)]
struct Seen {
    answered: AtomicUsize,
}

impl Seen {
    fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends requests until one is refused. Every response must be complete.
fn ask_over_http(address: SocketAddr, seen: &Seen) {
    while let Ok(mut connection) = Connection::open(address) {
        while connection.send(&testing::http::request("POST", INFER, &[], BODY)).is_ok() {
            match connection.receive("POST") {
                Ok(response) if response.status == 200 => {
                    assert!(response.text().contains("[7,8]"), "{}", response.text());
                    seen.answered();
                }
                Ok(response) => {
                    assert_eq!(response.status, 503, "{}", response.text());
                    return;
                }
                Err(error) => {
                    // The connection closes before the first byte of a response, never within it.
                    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                    assert!(kinds.contains(&error.kind()), "{error}");
                    assert!(!error.to_string().starts_with("closed"), "{error}");
                    break;
                }
            }
        }
    }
}

async fn ask_over_grpc(address: SocketAddr, streams: bool, seen: Arc<Seen>) {
    let Ok(connection) = grpc::Connection::open(address).await else { return };
    let path = if streams { STREAM } else { UNARY };
    loop {
        match connection.unary(path, &[], message()).await {
            Ok((messages, status)) if status.name() == "OK" => {
                assert_eq!(messages.len(), 1);
                if streams && is_refusal(&messages[0]) {
                    return;
                }
                seen.answered();
            }
            Ok((messages, status)) => {
                assert_eq!((messages.len(), status.name()), (0, "UNAVAILABLE"), "{}", status.message);
                return;
            }
            Err(_) => return,
        }
    }
}

fn is_refusal(message: &[u8]) -> bool {
    let message = schema::decode("inference.ModelStreamInferResponse", message).unwrap();
    message["error_message"].is_string()
}

/// Clients of both protocols send requests as fast as they can while the server stops. The number of responses equals
/// the number of executions.
#[test]
fn a_stop_under_load_loses_no_request() {
    const CLIENTS: usize = 8;
    let gate = Gate::opened();
    let served = served(&gate, 2, r#"parameters {key: "delay_us" value {string_value: "2000"}}"#, &[]);
    let (http, grpc) = (served.http, served.grpc);
    let seen = Arc::new(Seen::default());
    let runtime = Runtime::new().unwrap();
    let threads: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let seen = seen.clone();
            thread::spawn(move || ask_over_http(http, &seen))
        })
        .collect();
    let tasks: Vec<_> =
        (0..CLIENTS).map(|index| runtime.spawn(ask_over_grpc(grpc, index % 2 == 0, seen.clone()))).collect();
    // The load has begun when every client has received several responses.
    assert!(gate.wait_for(CLIENTS * 10, TIMEOUT));

    served.stop().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let answered = seen.answered.load(Ordering::Relaxed);
    assert_eq!(answered, gate.arrived(), "answers and executions");
}

/// The program itself, with a repository without models. The program needs the repository while it starts.
fn program(arguments: &[&str]) -> (Program, Repository) {
    let repository = Repository::empty().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_nereid"));
    (Program::start(binary, repository.path(), arguments).unwrap(), repository)
}

/// It waits for nothing: not for its client, and not for its exit timeout.
#[test]
fn an_idle_program_ends_at_a_signal() {
    let (program, _repository) = program(&["--exit-timeout-secs=3600"]);
    let http = program.address_of("HTTPService");
    let mut connection = Connection::open(http).unwrap();
    assert_eq!(connection.ask("GET", "/v2/health/live", &[], b"").unwrap().status, 200);
    program.signal(Signal::TERM).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(0));
    assert!(connection.is_closed_within(TIMEOUT));
}

#[test]
fn a_repeated_request_to_stop_changes_nothing() {
    let (program, _repository) = program(&[]);
    program.address_of("HTTPService");
    // No SIGINT among them: the system may deliver it after a later SIGTERM, and then it counts as the second.
    for _ in 0..3 {
        program.signal(Signal::TERM).unwrap();
    }
    assert_eq!(program.wait().unwrap().code(), Some(0));
}

/// A request waits for others to share its batch. When the program stops, no others come, so the request runs at once.
#[test]
fn a_delayed_batch_runs_when_the_program_stops() {
    let plugins = tempfile::tempdir().unwrap();
    let directory = plugins.path().join("identity");
    fs::create_dir(&directory).unwrap();
    Plugin::new(Kind::Backend, "identity").build(&directory).unwrap();
    let repository = Repository::empty().unwrap();
    let config = "backend: 'identity' max_batch_size: 8
        input [ { name: 'INPUT0' data_type: TYPE_INT32 dims: [ 1 ] } ]
        output [ { name: 'OUTPUT0' data_type: TYPE_INT32 dims: [ 1 ] } ]
        dynamic_batching { max_queue_delay_microseconds: 3600000000 }";
    repository.add("m", [("config.pbtxt", config)]).unwrap();
    let backends = format!("--backend-directory={}", plugins.path().display());
    let program =
        Program::start(Path::new(env!("CARGO_BIN_EXE_nereid")), repository.path(), &[&backends]).unwrap();
    let mut asking = Connection::open(program.address_of("HTTPService")).unwrap();
    let body = br#"{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,1],"data":[7]}]}"#;
    asking.send(&testing::http::request("POST", INFER, &[], body)).unwrap();
    let mut metrics = Connection::open(program.address_of("Metrics Service")).unwrap();
    let pending = r#"nv_inference_pending_request_count{model="m",version="1"} 1"#;
    eventually("the request to wait", || {
        metrics.ask("GET", "/metrics", &[], b"").unwrap().text().contains(pending)
    });
    program.signal(Signal::TERM).unwrap();
    let response = asking.receive("POST").unwrap();
    assert!(response.status == 200 && response.text().contains("[7]"), "{}", response.text());
    assert_eq!(program.wait().unwrap().code(), Some(0));
}

/// The first signal asks for an orderly stop, which waits for the request. SIGTERM changes nothing then, as supervisors
/// may repeat it. SIGINT, such as a second Ctrl-C, ends the program at once.
#[test]
fn a_second_interrupt_ends_a_program_that_waits() {
    let (program, _repository) = program(&["--exit-timeout-secs=3600"]);
    let mut connection = Connection::open(program.address_of("HTTPService")).unwrap();
    connection.send(b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n").unwrap();
    assert_eq!(connection.receive("POST").unwrap().status, 100);
    program.signal(Signal::INT).unwrap();
    program.wait_for("Found 1 HTTP service connections");
    program.signal(Signal::TERM).unwrap();
    program.signal(Signal::INT).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(130));
}

/// A program whose exit timeout is shorter than its patience with a client exits with 1: here, with the body of a
/// request that never comes.
#[test]
fn a_program_that_runs_out_of_time_exits_with_one() {
    let (program, _repository) = program(&["--exit-timeout-secs=1"]);
    let mut connection = Connection::open(program.address_of("HTTPService")).unwrap();
    connection.send(b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n").unwrap();
    // The interim response shows that the server has read the head.
    assert_eq!(connection.receive("POST").unwrap().status, 100);
    let begin = Instant::now();
    program.signal(Signal::TERM).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(1));
    assert!(begin.elapsed() >= Duration::from_millis(900), "it waited for {:?} only", begin.elapsed());
}
