//! Clients that take nothing although responses wait for them.
use std::thread;

use serde_json::json;
use testing::{
    eventually,
    grpc::{self, framed},
    http::{Connection, request},
    schema,
};

use crate::adversarial::{
    SERVER_METADATA, STREAM_INFER, Served,
    peer::{DATA, END_STREAM, HEADERS, Peer, RESET, call, frame},
};

const SHORT: &str = "--client-write-timeout-secs=0.5";

/// The setting for the initial window size of streams.
const WINDOW: u16 = 4;

/// More responses than fit into the buffers between server and client.
const RESPONSES: usize = 50_000;

/// The request id, which every response repeats: few responses fill the buffers.
fn long_id() -> String {
    "i".repeat(1000)
}

#[test]
fn a_client_that_sends_and_never_reads_loses_its_connection() {
    let mut served = Served::empty(&[SHORT]);
    let before = served.mebibytes();
    for address in [served.http, served.metrics] {
        let requests = request("GET", "/v2", &[], b"").repeat(1000);
        Peer::silent(address).send_until_closed(&requests);
    }
    served.assert_others_are_answered();
    // The client requests metadata until the answers fill all buffers.
    let mut peer = Peer::open(served.grpc, &[]);
    for round in 0.. {
        let calls: Vec<u8> = (0..100)
            .flat_map(|index| {
                let stream = 2 * (round * 100 + index) + 1;
                [call(stream, SERVER_METADATA, 0), frame(DATA, END_STREAM, stream, &[0; 5])].concat()
            })
            .collect();
        if peer.send(&calls).is_err() {
            break;
        }
    }
    served.assert_others_are_answered();
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown < 96, "what nobody reads takes {grown} MiB");
}

#[test]
fn a_client_that_opens_no_window_loses_its_call_only() {
    let mut served = Served::empty(&[SHORT]);
    let mut peer = Peer::open(served.grpc, &[(WINDOW, 0)]);
    peer.send(&call(1, SERVER_METADATA, 0)).unwrap();
    peer.send(&frame(DATA, END_STREAM, 1, &[0; 5])).unwrap();
    assert!(peer.wait_for(|frame| frame.kind == HEADERS && frame.stream == 1).is_some());
    assert!(peer.wait_for(|frame| frame.kind == RESET && frame.stream == 1).is_some());
    assert!(peer.wait_until_read(), "the connection goes on");
    served.assert_others_are_answered();
}

#[test]
fn a_stream_whose_client_has_stopped_reading_is_cancelled() {
    let mut served = Served::repeating(&[SHORT]);
    let before = served.mebibytes();
    let mut peer = Peer::open(served.grpc, &[(WINDOW, 1000)]);
    let message = question(RESPONSES);
    assert!(peer.wait_until_read());
    peer.send(&call(1, STREAM_INFER, 0)).unwrap();
    for piece in message.chunks(16 << 10) {
        peer.send(&frame(DATA, 0, 1, piece)).unwrap();
    }
    assert!(peer.wait_for(|frame| frame.kind == DATA && frame.stream == 1).is_some());
    assert!(peer.wait_for(|frame| frame.kind == RESET && frame.stream == 1).is_some());
    served.assert_others_are_answered();
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown < 512, "what nobody reads takes {grown} MiB");
    drop(peer);
    // The model waits until its request is cancelled. Without the cancellation the server would wait for the model, and
    // exit with 1.
    served.stop();
}

#[test]
fn events_whose_client_has_stopped_reading_are_cancelled() {
    let mut served = Served::repeating(&[SHORT]);
    let before = served.mebibytes();
    let body = serde_json::to_vec(&json!({"id": long_id(), "IN": vec![7; RESPONSES]})).unwrap();
    let mut peer = Peer::silent(served.http);
    peer.send(&request("POST", "/v2/models/m/generate_stream", &[], &body)).unwrap();
    served.assert_others_are_answered();
    // The bytes that the client sends after its request show when the connection is closed.
    peer.send_until_closed(&request("GET", "/v2", &[], b""));
    served.assert_others_are_answered();
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown < 96, "what nobody reads takes {grown} MiB");
    served.stop();
}

/// Asks for so many responses.
fn question(responses: usize) -> bytes::Bytes {
    let request = json!({
        "model_name": "m",
        "id": long_id(),
        "inputs": [{
            "name": "IN", "datatype": "INT32", "shape": [responses.to_string()],
            "contents": {"int_contents": vec![7; responses]}
        }]
    });
    framed(&schema::encode("inference.ModelInferRequest", &request).unwrap())
}

/// Responses that each of those gets who reads.
const ENOUGH: usize = 100;

/// Two stop reading; the others ask afterwards and read.
#[test]
fn only_clients_that_stop_reading_lose_their_requests() {
    // More than what all those have unread who read.
    let served = Served::repeating_with("", &["--max-unread-response-bytes=4194304"]);
    let before = served.mebibytes();
    let words = "(--max-unread-response-bytes)";
    let events = |count: usize| {
        let body = serde_json::to_vec(&json!({"id": long_id(), "IN": vec![7; count]})).unwrap();
        let mut connection = Connection::open_with_small_buffer(served.http).unwrap();
        connection.send(&request("POST", "/v2/models/m/generate_stream", &[], &body)).unwrap();
        connection
    };
    let mut stopped_events = events(RESPONSES);
    let (connection, mut stopped_stream) = served
        .runtime
        .block_on(async {
            let connection = grpc::Connection::open(served.grpc).await?;
            let metadata = [("triton_grpc_error".to_owned(), "true".to_owned())];
            let mut call = connection.call(STREAM_INFER, &metadata).await?;
            call.send(question(RESPONSES));
            // It has begun, and now nobody asks for more.
            call.next().await?;
            Ok::<_, String>((connection, call))
        })
        .unwrap();

    let streams: Vec<_> = (0..32)
        .map(|_| {
            let address = served.grpc;
            served.runtime.spawn(async move {
                let connection = grpc::Connection::open(address).await?;
                connection.unary(STREAM_INFER, &[], question(ENOUGH)).await
            })
        })
        .collect();
    thread::scope(|scope| {
        let read = || events(ENOUGH).receive("POST").unwrap();
        let others: Vec<_> = (0..31).map(|_| scope.spawn(read)).collect();
        for other in others {
            let answer = other.join().unwrap();
            assert_eq!((answer.status, answer.text().matches("data: ").count()), (200, ENOUGH));
            assert!(!answer.text().contains("error"), "{}", answer.text());
        }
    });
    for stream in streams {
        let (messages, status) = served.runtime.block_on(stream).unwrap().unwrap();
        assert_eq!((messages.len(), status.name()), (ENOUGH, "OK"), "{}", status.message);
    }
    eventually("both to lose their requests", || served.refused_requests("m") >= 2);
    let grown = served.mebibytes().saturating_sub(before);
    assert!(grown < 128, "what nobody reads takes {grown} MiB");

    // They learn why when they read on.
    let answer = stopped_events.receive("POST").unwrap();
    let events: Vec<_> = answer.text().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    assert!(events.len() < RESPONSES && events.last().unwrap().contains(words), "{:?}", events.last());
    stopped_stream.finish();
    let (messages, status) = served.runtime.block_on(stopped_stream.rest()).unwrap();
    assert!(messages.len() < RESPONSES);
    assert_eq!(status.name(), "RESOURCE_EXHAUSTED");
    assert!(status.message.contains(words), "{}", status.message);
    assert_eq!(served.refused_requests("m"), 2);
    drop(connection);
    served.stop();
}
