//! Answers that come before the client has sent everything, and clients that send nothing more.
use std::sync::Arc;

use frontend::{
    access::{Category, Restrictions},
    http::{self, OriginRules},
    metrics::MetricsService,
    port::ClientLimits,
};
use testing::{
    Gate,
    http::{Connection, Response, TIMEOUT, request},
};

use crate::{INFER, Server, assert_in_step, assert_live, limited, ones, web_pages::open};

/// A body that no server reads to its end before it answers, and more than sockets hold.
const LONG: usize = 16 << 20;

/// Sends a request with a body of zeros, the whole of it before it reads the answer.
fn upload(connection: &mut Connection, (method, path): (&str, &str), headers: &[(&str, &str)]) -> Response {
    let length = LONG.to_string();
    let headers = [headers, &[("Content-Length", length.as_str())]].concat();
    connection.send(&request(method, path, &headers, b"")).unwrap();
    let piece = vec![0; 64 << 10];
    (0..LONG / piece.len()).for_each(|_| connection.send(&piece).unwrap());
    connection.receive(method).unwrap()
}

/// Method and path, headers, and the status of the refusal.
type RefusedUpload<'r> = ((&'r str, &'r str), &'r [(&'r str, &'r str)], u16);

/// Checks an answer before the end of a body.
fn assert_last(mut connection: Connection, answer: &Response, status: u16) {
    assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{}", answer.text());
    assert!(connection.is_closed_within(TIMEOUT));
}

#[test]
fn every_refusal_of_an_upload_is_read_by_its_client() {
    let mut restrictions = Restrictions::default();
    restrictions.require(Category::ModelRepository, "adminkey", "secret");
    let limits = ClientLimits { max_request_bytes: 1000, ..ClientLimits::default() };
    let server = Server::start(Gate::opened(), http::HttpOptions { restrictions, ..limited(limits) });
    let binary = [("Inference-Header-Content-Length", "5")];
    let foreign = [("Origin", "http://evil.example")];
    let table: [RefusedUpload; 6] = [
        (("POST", "/nope"), &[], 404),
        (("POST", "/v2/models/x/infer"), &[], 404),
        (("PUT", "/v2/logging"), &[], 405),
        (("POST", INFER), &binary, 400),
        (("POST", "/v2/repository/index"), &[], 403),
        (("POST", INFER), &foreign, 403),
    ];
    for (call, headers, status) in table {
        let mut connection = server.connect();
        let answer = upload(&mut connection, call, headers);
        assert_last(connection, &answer, status);
    }
    let metrics = open(&server, MetricsService::new(server.engine.clone(), true), OriginRules::default());
    let mut connection = Connection::open(metrics).unwrap();
    let answer = upload(&mut connection, ("POST", "/metrics"), &[]);
    assert_last(connection, &answer, 405);
}

#[test]
fn a_refusal_does_not_wait_for_the_body() {
    let server = Server::usual();
    let mut connection = server.connect();
    let headers = [("Content-Length", "1000000000000")];
    connection.send(&request("POST", "/nope", &headers, b"")).unwrap();
    let answer = connection.receive("POST").unwrap();
    // The client goes on for a while, as many do that read only at the end.
    (0..LONG >> 16).for_each(|_| connection.send(&[0; 64 << 10]).unwrap());
    assert_last(connection, &answer, 404);
}

#[test]
fn a_chunked_upload_is_refused_in_the_same_way() {
    let server = Server::usual();
    let head = b"POST /nope HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = [b"10000\r\n".as_slice(), &[0; 64 << 10], b"\r\n"].concat();
    let mut connection = server.connect();
    connection.send(head).unwrap();
    (0..LONG >> 16).for_each(|_| connection.send(&chunk).unwrap());
    connection.send(b"0\r\n\r\n").unwrap();
    let answer = connection.receive("POST").unwrap();
    assert_last(connection, &answer, 404);
    // A short one is read to its end.
    let mut connection = server.connect();
    connection.send(&[head.as_slice(), b"3\r\nabc\r\n0\r\n\r\n"].concat()).unwrap();
    assert_eq!(connection.receive("POST").unwrap().status, 404);
    assert_in_step(&mut connection);
}

#[test]
fn a_client_that_waits_for_the_word_of_the_server_hears_only_the_refusal() {
    let server = Server::usual();
    let mut connection = server.connect();
    let headers = [("Content-Length", "100"), ("Expect", "100-continue")];
    connection.send(&request("POST", "/nope", &headers, b"")).unwrap();
    let answer = connection.receive("POST").unwrap();
    assert_last(connection, &answer, 404);
}

#[test]
fn the_answer_to_a_head_that_is_too_long_is_read_by_its_client() {
    let server = Server::usual();
    let mut connection = server.connect();
    connection.send(b"POST /v2 HTTP/1.1\r\nX-Long: ").unwrap();
    (0..LONG >> 16).for_each(|_| connection.send(&[b'x'; 64 << 10]).unwrap());
    assert_eq!(connection.receive("POST").unwrap().status, 431);
    assert!(connection.is_closed_within(TIMEOUT));
}

/// A client whose request runs, and one whose request waits.
fn two_clients(gate: &Arc<Gate>) -> (Server, Connection, Connection) {
    let server = Server::behind(gate.clone());
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(&request("POST", INFER, &[], &ones(1))).unwrap();
    assert!(gate.wait_for(1, TIMEOUT));
    second.send(&request("POST", INFER, &[], &ones(1))).unwrap();
    server.until("the second request is queued", |server| server.engine.in_flight() == 2);
    first.finish().unwrap();
    second.finish().unwrap();
    // The server is told of both ends before it answers this.
    (0..20).for_each(|_| assert_live(&mut server.connect()));
    (server, first, second)
}

#[test]
fn clients_that_send_nothing_more_get_their_answers() {
    let gate = Gate::shut();
    let (server, first, second) = two_clients(&gate);
    assert_eq!(server.engine.in_flight(), 2);
    gate.open();
    for mut connection in [first, second] {
        assert_eq!(connection.receive("POST").unwrap().status, 200);
        assert!(connection.is_closed_within(TIMEOUT));
    }
}

#[test]
fn a_client_that_sends_nothing_more_and_then_goes_cancels_its_request() {
    let gate = Gate::shut();
    let (server, mut first, second) = two_clients(&gate);
    second.reset().unwrap();
    server.until("the second request is given up", |server| server.engine.in_flight() == 1);
    gate.open();
    assert_eq!(first.receive("POST").unwrap().status, 200);
    assert_eq!(gate.arrived(), 1, "nobody computed for a client that had gone");
}

#[test]
fn pipelined_requests_are_answered_although_nothing_more_comes() {
    let server = Server::usual();
    let mut connection = server.connect();
    let both = [request("GET", "/v2/models/id", &[], b""), request("POST", INFER, &[], &ones(1))].concat();
    connection.send(&both).unwrap();
    connection.finish().unwrap();
    assert!(connection.receive("GET").unwrap().text().starts_with(r#"{"name":"id""#));
    assert!(connection.receive("POST").unwrap().text().contains("OUT"));
    assert!(connection.is_closed_within(TIMEOUT));
}
