//! Heads and bodies that come byte by byte, connections without requests, and more connections than the limit.
use std::net::SocketAddr;

use testing::{
    eventually,
    grpc::{self, framed},
    http::{Connection, TIMEOUT, request},
};

use crate::adversarial::{
    LIVE, SERVER_LIVE, SERVER_METADATA, STREAM_INFER, Served, asked, live,
    peer::{DATA, END_STREAM, GO_AWAY, HEADERS, PING, PREFACE, Peer, SETTINGS, call, frame},
};

#[test]
fn a_request_head_that_comes_byte_by_byte_ends_its_connection() {
    let mut served = Served::empty(&["--client-header-timeout-secs=0.3"]);
    let http = b"GET /v2/health/live HTTP/1.1\r\nX-Long: ";
    let endless = || std::iter::repeat(b'x');
    for address in [served.http, served.metrics] {
        let answer = Peer::silent(address).drip_until_answered(http.iter().copied().chain(endless()));
        assert!(answer.is_empty(), "{}", answer.escape_ascii());
    }
    // The first bytes of HTTP/2, and nothing more.
    Peer::silent(served.grpc).drip_until_answered(PREFACE.iter().copied().take(20));
    // A HEADERS frame whose content comes byte by byte.
    let mut peer = Peer::open(served.grpc, &[]);
    let begin = frame(HEADERS, 0, 1, &[0; 16000]);
    assert!(peer.wait_until_read());
    peer.drip_until_answered(begin.into_iter());
    served.assert_others_are_answered();
}

#[test]
fn a_silent_client_loses_its_connection() {
    let mut served = Served::empty(&["--client-header-timeout-secs=0.3"]);
    for address in [served.http, served.metrics] {
        assert!(Connection::open(address).unwrap().is_closed_within(TIMEOUT));
    }
    assert_eq!(Peer::silent(served.grpc).next(), None);
    // The time limit of the first head also covers the settings.
    let mut half = Peer::silent(served.grpc);
    half.send(PREFACE).unwrap();
    while half.next().is_some() {}
    served.assert_others_are_answered();
}

#[test]
fn connections_without_requests_are_closed() {
    let served = Served::empty(&["--client-idle-timeout-secs=0.2"]);
    assert!(asked(served.http, LIVE, 200).is_closed_within(TIMEOUT));
    let mut grpc = Peer::open(served.grpc, &[]);
    assert!(grpc.wait_for(|frame| frame.kind == GO_AWAY).is_some());
    // As gRPC clients do: the client answers the server's ping before its second GOAWAY.
    let ping = grpc.wait_for(|frame| frame.kind == PING).unwrap();
    grpc.send(&frame(PING, 1, 0, &ping.payload)).unwrap();
    while grpc.next().is_some() {}
    // The server serves a new connection normally.
    asked(served.http, LIVE, 200);
}

#[test]
fn a_silent_grpc_client_is_pinged_and_disconnected_without_an_acknowledgement() {
    let served = Served::empty(&[
        "--grpc-keepalive-time=100",
        "--grpc-keepalive-timeout=100",
        "--grpc-keepalive-permit-without-calls=true",
    ]);
    let mut silent = Peer::open(served.grpc, &[]);
    let ping = silent.wait_for(|frame| frame.kind == PING).unwrap();
    assert_eq!((ping.flags, ping.payload.len()), (0, 8));
    while silent.next().is_some() {}
    // The first client sends a request and keeps its connection.
    assert_eq!(served.live_over_grpc(), "OK");
}

#[test]
fn connections_beyond_the_limit_are_refused_until_others_close() {
    let limits = ["--max-connections=8", "--metrics-max-connections=1", "--max-connections-per-address=8"];
    let mut served = Served::empty(&limits);
    // The first clients have two connections.
    let mut others: Vec<_> = (0..6).map(|_| Connection::open(served.http).unwrap()).collect();
    others.iter_mut().for_each(|other| assert_eq!(live(other).status, 200));

    let mut surplus = Connection::open(served.http).unwrap();
    let answer = live(&mut surplus);
    let text = r#"{"error":"the server has reached its limit of 8 connections"}"#;
    assert_eq!((answer.status, answer.text().as_str()), (503, text));
    assert!(surplus.is_closed_within(TIMEOUT));
    let reason = Peer::open(served.grpc, &[]).reason_of_close();
    assert_eq!(reason.as_deref(), Some("the server has reached its limit of 8 connections"));
    let mut scrape = Connection::open(served.metrics).unwrap();
    assert_eq!(scrape.ask("GET", "/metrics", &[], b"").unwrap().status, 200);
    let mut surplus = Connection::open(served.metrics).unwrap();
    assert_eq!(surplus.ask("GET", "/metrics", &[], b"").unwrap().status, 503);
    served.assert_others_are_answered();

    drop(others.pop());
    // The server may need a moment to notice the closed connection.
    eventually("a free place", || live(&mut Connection::open(served.http).unwrap()).status == 200);
    served.assert_others_are_answered();
}

#[test]
fn one_address_leaves_connections_to_others() {
    let mut served = Served::empty(&["--max-connections=16", "--metrics-max-connections=1"]);
    // The first clients have two connections.
    let mut others: Vec<_> = (0..2).map(|_| Connection::open(served.http).unwrap()).collect();
    others.iter_mut().for_each(|other| assert_eq!(live(other).status, 200));
    let mut surplus = Connection::open(served.http).unwrap();
    let answer = live(&mut surplus);
    let text = r#"{"error":"the server has reached its limit of 4 connections from one address"}"#;
    assert_eq!((answer.status, answer.text().as_str()), (503, text));
    assert!(surplus.is_closed_within(TIMEOUT));
    let reason = Peer::open(served.grpc, &[]).reason_of_close();
    assert_eq!(reason.as_deref(), Some("the server has reached its limit of 4 connections from one address"));
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], 0));
    let mut elsewhere = Connection::open_from(elsewhere, served.http).unwrap();
    assert_eq!(live(&mut elsewhere).status, 200);
    served.assert_others_are_answered();
    drop(others.pop());
    // The server may need a moment to notice the closed connection.
    eventually("a free place", || live(&mut Connection::open(served.http).unwrap()).status == 200);
    served.assert_others_are_answered();
}

#[test]
fn each_port_may_have_its_own_limit() {
    let limits = ["--http-max-connections=2", "--grpc-max-connections=1", "--max-connections-per-address=9"];
    let served = Served::empty(&limits);
    let mut second = Connection::open(served.http).unwrap();
    assert_eq!(live(&mut second).status, 200);
    assert_eq!(live(&mut Connection::open(served.http).unwrap()).status, 503);
    let reason = Peer::open(served.grpc, &[]).reason_of_close();
    assert_eq!(reason.as_deref(), Some("the server has reached its limit of 1 connections"));
}

/// The test simulates a system without free descriptors, far below the configured limit.
#[test]
fn connections_that_cannot_be_accepted_wait_and_others_are_answered() {
    let mut served = Served::empty(&[]);
    let limit = served.program.open_files().unwrap() + 4;
    served.program.limit_open_files(limit).unwrap();
    let waiting: Vec<_> = (0..20).map(|_| Peer::silent(served.http)).collect();
    eventually("the server to accept as many as it can", || {
        served.assert_others_are_answered();
        served.program.open_files().unwrap() >= limit
    });
    for _ in 0..20 {
        served.assert_others_are_answered();
    }
    drop(waiting);
    // The server may need a moment to notice the closed connections.
    eventually("a free descriptor", || live(&mut Connection::open(served.http).unwrap()).status == 200);
    served.assert_others_are_answered();
}

#[test]
fn a_body_that_comes_byte_by_byte_ends_its_request() {
    let mut served = Served::empty(&["--client-body-timeout-secs=0.3", "--client-body-min-byte-size=1000"]);
    let mut peer = Peer::silent(served.http);
    peer.send(&request("POST", "/v2/repository/index", &[("Content-Length", "100000")], b"")).unwrap();
    let answer = peer.drip_until_answered(std::iter::repeat(b' '));
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", answer.escape_ascii());

    // A message that stops, on a unary call and on a stream. And a call that never begins its message.
    let mut peer = Peer::open(served.grpc, &[]);
    for (stream, path) in [(1, SERVER_LIVE), (3, STREAM_INFER)] {
        peer.send(&call(stream, path, 0)).unwrap();
        peer.send(&frame(DATA, 0, stream, &[0, 0, 0, 1, 0, 7])).unwrap();
    }
    peer.send(&call(5, SERVER_METADATA, 0)).unwrap();
    // A stream without a begun message may stay open.
    peer.send(&call(7, STREAM_INFER, 0)).unwrap();
    let mut ended = Vec::new();
    while ended.len() < 3 {
        let frame = peer.next().unwrap();
        if frame.kind == HEADERS && frame.flags & END_STREAM != 0 {
            ended.push(frame.stream);
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 3, 5]);
    assert!(peer.wait_until_read());
    served.assert_others_are_answered();
}

#[test]
fn requests_have_a_largest_size_over_both_protocols() {
    let mut served = Served::empty(&["--max-request-byte-size=1000"]);
    let mut connection = Connection::open(served.http).unwrap();
    let headers = [("Inference-Header-Content-Length", "10")];
    let answer = connection.ask("POST", "/v2/models/m/infer", &headers, &[b' '; 2000]).unwrap();
    // The model does not exist. The server refuses a body only where it would read it.
    assert_eq!(answer.status, 404);
    let status = served.runtime.block_on(async {
        let connection = grpc::Connection::open(served.grpc).await?;
        Ok::<_, String>(connection.unary(SERVER_LIVE, &[], framed(&[0; 2000])).await?.1)
    });
    let status = status.unwrap();
    assert_eq!(status.name(), "RESOURCE_EXHAUSTED");
    assert_eq!(status.message, "Received message larger than max (2000 vs. 1000)");
    served.assert_others_are_answered();
}

/// The server reads the start of a connection only until it can recognise the protocol, and waits for no more.
#[test]
fn a_client_without_http2_is_refused_at_its_first_byte() {
    let served = Served::empty(&[]);
    let mut peer = Peer::silent(served.grpc);
    peer.send(b"G").unwrap();
    let answer = peer.drip_until_answered(std::iter::empty());
    assert!(answer.starts_with(b"HTTP/1.1 415 "), "{}", answer.escape_ascii());
    // The server accepts a preface that comes in pieces.
    let mut peer = Peer::silent(served.grpc);
    for piece in PREFACE.chunks(5) {
        peer.send(piece).unwrap();
    }
    peer.send(&frame(SETTINGS, 0, 0, &[])).unwrap();
    assert!(peer.wait_until_read());
}
