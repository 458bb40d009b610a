//! Clients that stall hold up no stop. The exit timeout is an hour: a program that waited for such a client would not end
//! within the time of a test. It ends with 0, because no accepted request is lost.
use std::{net::SocketAddr, path::Path};

use rustix::process::Signal;
use testing::{
    Program, Repository,
    grpc::framed,
    http::{Connection, request},
};

use crate::adversarial::peer::{DATA, END_STREAM, HEADERS, Peer, call, call_headers, frame};

const LIVE: &str = "/v2/health/live";
const INDEX: &str = "/v2/repository/index";
const SERVER_LIVE: &str = "/inference.GRPCInferenceService/ServerLive";
const SERVER_METADATA: &str = "/inference.GRPCInferenceService/ServerMetadata";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// A server without models.
struct Stopping {
    program: Program,
    http: SocketAddr,
    grpc: SocketAddr,
    metrics: SocketAddr,
    _repository: Repository,
}

impl Stopping {
    fn start(arguments: &[&str]) -> Self {
        let repository = Repository::empty().unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_nereid"));
        let arguments = [&["--exit-timeout-secs=3600"], arguments].concat();
        let program = Program::start(binary, repository.path(), &arguments).unwrap();
        let [http, grpc, metrics] = ["HTTPService", "GRPCInferenceService", "Metrics Service"]
            .map(|service| program.address_of(service));
        Self { program, http, grpc, metrics, _repository: repository }
    }

    /// Stops the program while `client` is connected.
    fn ends_beside<C>(self, client: C) {
        self.program.signal(Signal::TERM).unwrap();
        let status = self.program.wait().unwrap();
        assert_eq!(status.code(), Some(0), "the program ended with {status}");
        drop(client);
    }
}

/// A connection that is accepted, because it has had an answer, and then sends these bytes.
fn answered(address: SocketAddr, path: &str, then: &[u8]) -> Connection {
    let mut connection = Connection::open(address).unwrap();
    assert_eq!(connection.ask("GET", path, &[], b"").unwrap().status, 200);
    connection.send(then).unwrap();
    connection
}

#[test]
fn half_a_head() {
    let stopping = Stopping::start(&[]);
    let half = b"POST /v2/repository/index HT";
    let first = [stopping.http, stopping.metrics].map(|address| {
        let mut client = Peer::silent(address);
        client.send(half).unwrap();
        client
    });
    // These come after the first ones, so those are accepted when these are answered.
    let later = [answered(stopping.http, LIVE, half), answered(stopping.metrics, "/metrics", half)];
    stopping.ends_beside((first, later));
}

/// Without limits of their own, bodies and heads have that of the stop.
#[test]
fn half_a_body() {
    for limits in [&[][..], &["--client-body-timeout-secs=0", "--client-header-timeout-secs=0"]] {
        let stopping = Stopping::start(limits);
        let head =
            format!("POST {INDEX} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
        let mut clients =
            [answered(stopping.http, LIVE, head.as_bytes()), answered(stopping.metrics, "/metrics", b"")];
        // The interim response shows that the server waits for the body.
        assert_eq!(clients[0].receive("POST").unwrap().status, 100);
        clients[0].send(b"{").unwrap();
        clients[1].send(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").unwrap();
        stopping.ends_beside(clients);
    }
}

/// The client sends requests without end, and never reads an answer.
#[test]
fn answers_that_nobody_reads() {
    for limits in [&[][..], &["--client-write-timeout-secs=0"]] {
        let stopping = Stopping::start(limits);
        let requests = request("GET", "/v2", &[], b"").repeat(1000);
        let mut clients = [stopping.http, stopping.metrics].map(Peer::silent);
        clients.iter_mut().for_each(|client| client.send_until_full(&requests));
        // A client of gRPC that opens no window.
        let mut narrow = Peer::open(stopping.grpc, &[(4, 0)]);
        narrow.send(&call(1, SERVER_METADATA, 0)).unwrap();
        narrow.send(&frame(DATA, END_STREAM, 1, &framed(b""))).unwrap();
        assert!(narrow.wait_for(|frame| frame.kind == HEADERS && frame.stream == 1).is_some());
        stopping.ends_beside((clients, narrow));
    }
}

#[test]
fn a_grpc_client_that_does_not_answer_a_ping() {
    let stopping = Stopping::start(&[]);
    let mut silent = Peer::open(stopping.grpc, &[]);
    assert!(silent.wait_until_read());
    // One that has had an answer.
    let mut used = Peer::open(stopping.grpc, &[]);
    used.send(&call(1, SERVER_LIVE, 0)).unwrap();
    used.send(&frame(DATA, END_STREAM, 1, &framed(b""))).unwrap();
    assert!(used.wait_for(|frame| frame.flags & END_STREAM != 0 && frame.stream == 1).is_some());
    stopping.ends_beside((silent, used));
}

#[test]
fn half_a_call() {
    let stopping = Stopping::start(&["--client-body-timeout-secs=0"]);
    // Its head is not whole, its message is not whole, its message does not come, or does not end the call.
    let mut clients: Vec<_> = (0..5).map(|_| Peer::open(stopping.grpc, &[])).collect();
    clients[0].send(&frame(HEADERS, 0, 1, &call_headers(SERVER_LIVE))).unwrap();
    clients[1].send(&call(1, SERVER_LIVE, 0)).unwrap();
    clients[1].send(&frame(DATA, 0, 1, &[0, 0, 0, 0, 9, 1])).unwrap();
    clients[2].send(&call(1, SERVER_LIVE, 0)).unwrap();
    clients[3].send(&call(1, SERVER_LIVE, 0)).unwrap();
    clients[3].send(&frame(DATA, 0, 1, &framed(b""))).unwrap();
    clients[4].send(&call(1, REFLECTION, 0)).unwrap();
    for client in &mut clients[1..] {
        assert!(client.wait_until_read());
    }
    stopping.ends_beside(clients);
}
