//! Calls of server reflection: the limits of all calls hold for them.
use super::*;
use crate::access::{Category, Restrictions};

const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// `list_services: ""` (field 7).
const LIST: &[u8] = &[0x3a, 0x00];

async fn open(connection: &Connection, path: &str, headers: &[(&str, &str)]) -> Call {
    timeout(TIMEOUT, connection.call(path, &metadata(headers))).await.unwrap().unwrap()
}

/// The number of answers, and the status.
async fn rest(call: Call) -> (usize, u32, String) {
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    (messages.len(), status.code, status.message)
}

#[tokio::test]
async fn each_question_has_its_answer() {
    let (_server, connection) = connected().await;
    for path in PATHS {
        let mut call = open(&connection, path, &[]).await;
        for _ in 0..3 {
            call.send(framed(LIST));
            let answer = timeout(TIMEOUT, call.next()).await.unwrap().unwrap().unwrap();
            let names = String::from_utf8_lossy(&answer).into_owned();
            for name in ["inference.GRPCInferenceService", "grpc.health.v1.Health"] {
                assert!(names.contains(name), "{names}");
            }
        }
        call.finish();
        assert_eq!(rest(call).await, (0, 0, String::new()));
    }
}

#[tokio::test]
async fn a_question_is_short_and_well_formed() {
    let (_server, connection) = connected().await;
    for path in PATHS {
        let long = [&[0x22, 0x84, 0x20][..], &[b'x'; 4100]].concat();
        let text = "Received message larger than max (4103 vs. 4096)";
        assert_eq!(status_of(&connection, path, framed(&long)).await, expect(8, text));
        let nothing = status_of(&connection, path, framed(b"")).await;
        assert_eq!(nothing, expect(3, "invalid MessageRequest"));
        let malformed = status_of(&connection, path, framed(&[0xff])).await;
        assert_eq!(malformed, expect(13, "Unable to parse request"));
    }
}

#[tokio::test]
async fn an_open_call_takes_room_until_it_ends() {
    let limits = host::MemoryLimits { inflight_bytes: 5000, ..host::MemoryLimits::default() };
    let server = Server::start_within(GrpcOptions::default(), limits).await;
    let connection = server.connect().await;
    let mut first = open(&connection, PATHS[0], &[]).await;
    first.send(framed(LIST));
    timeout(TIMEOUT, first.next()).await.unwrap().unwrap().unwrap();
    let (code, text) = status_of(&connection, PATHS[1], framed(LIST)).await;
    assert!(code == 8 && text.starts_with("the server has no room for 4096 more bytes"), "{text}");
    drop(first);
    while server.engine.inflight_bytes().used() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(status_of(&connection, PATHS[1], framed(LIST)).await, expect(0, ""));
}

#[tokio::test]
async fn reflection_belongs_to_the_metadata_and_can_be_switched_off() {
    let mut restrictions = Restrictions::default();
    restrictions.require(Category::Metadata, "triton-grpc-protocol-adm", "gsecret");
    let server = Server::start(GrpcOptions { restrictions, ..GrpcOptions::default() }).await;
    let connection = server.connect().await;
    let text = "This protocol is restricted, expecting header 'triton-grpc-protocol-adm'";
    assert_eq!(status_of(&connection, PATHS[0], framed(LIST)).await, expect(14, text));
    let mut call = open(&connection, PATHS[0], &[("triton-grpc-protocol-adm", "gsecret")]).await;
    call.send(framed(LIST));
    call.finish();
    assert_eq!(rest(call).await, (1, 0, String::new()));

    let server = Server::start(GrpcOptions { reflection: false, ..GrpcOptions::default() }).await;
    let connection = server.connect().await;
    assert_eq!(status_of(&connection, PATHS[0], framed(LIST)).await, expect(12, ""));
}

#[tokio::test]
async fn a_deadline_ends_a_call() {
    let (_server, connection) = connected().await;
    let call = open(&connection, PATHS[0], &[("grpc-timeout", "50m")]).await;
    assert_eq!(rest(call).await, (0, 4, "Deadline Exceeded".to_owned()));
}

#[tokio::test]
async fn an_idle_call_ends_when_the_server_stops() {
    let (server, connection) = connected().await;
    let mut call = open(&connection, PATHS[0], &[]).await;
    call.send(framed(LIST));
    timeout(TIMEOUT, call.next()).await.unwrap().unwrap().unwrap();
    server.drain.begin();
    let text = "GRPC server is shutting down and has stopped accepting new requests.";
    assert_eq!(rest(call).await, (0, 14, text.to_owned()));
    timeout(TIMEOUT, server.serving).await.unwrap().unwrap().unwrap();
}
