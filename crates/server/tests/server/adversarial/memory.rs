//! Requests that take memory: those that arrive slowly, that unfold, and that repeat themselves.
use std::{
    io::Write,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{AcqRel, Acquire, Release},
    },
    thread,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use testing::{
    eventually,
    grpc::{self, framed},
    http::{Connection, Response, request},
};

use crate::adversarial::{
    SERVER_LIVE, STREAM_INFER, Served, live,
    peer::{Peer, call},
};

const INFER: &str = "/v2/models/echo/infer";

/// The part of a refusal that tells which limit is meant.
const NO_ROOM: &str = "(--max-inflight-bytes)";

/// Whether the server takes a request of so many bytes now. It refuses the request for its content if it does.
fn accepts_bytes(address: std::net::SocketAddr, bytes: usize) -> bool {
    let mut body = b"{}".to_vec();
    body.resize(bytes, 0);
    let headers = [("Inference-Header-Content-Length", "2")];
    let answer = Connection::open(address).unwrap().ask("POST", INFER, &headers, &body).unwrap();
    match answer.status {
        500 => assert!(answer.text().contains("Unable to parse 'inputs'"), "{}", answer.text()),
        status => assert!(status == 503 && answer.text().contains(NO_ROOM), "{status} {}", answer.text()),
    }
    answer.status != 503
}

/// Waits until the server takes, or no longer takes, a request of so many bytes.
fn wait_until_accepts(served: &Served, bytes: usize, wanted: bool) {
    let what = format!("room for {bytes} bytes to be {wanted}");
    eventually(&what, || accepts_bytes(served.http, bytes) == wanted);
}

/// A client that sends 800,000 bytes of a request and then nothing, when the server counts them. The requests that look for
/// that may take the room while the bytes arrive. The server then refuses the client, which begins again.
fn arriving(served: &Served, send: impl Fn(&Served) -> Peer) -> Peer {
    const LOOKS: usize = 50;
    let refuses = || !accepts_bytes(served.http, 300_000);
    let mut counted = None;
    eventually("800,000 bytes to be counted", || {
        // A client whose bytes are not counted ends before the next one begins.
        counted = None;
        counted = Some(send(served));
        (0..LOOKS).any(|_| refuses()) && refuses()
    });
    counted.unwrap()
}

/// A message of so many bytes in a field that nobody knows.
fn unknown_field(bytes: usize) -> Bytes {
    let mut message = vec![0x7a];
    let mut len = bytes;
    while len >= 0x80 {
        message.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    message.push(len as u8);
    message.resize(message.len() + bytes, 0);
    framed(&message)
}

#[test]
fn bytes_of_requests_count_from_their_arrival() {
    let mut served = Served::echoing(&["--max-inflight-bytes=1000000"]);
    let unary = |served: &Served, bytes: usize| {
        let call = served.old_grpc.unary(SERVER_LIVE, &[], unknown_field(bytes));
        served.runtime.block_on(call).unwrap().1
    };
    assert!(accepts_bytes(served.http, 999_000) && !accepts_bytes(served.http, 1_000_001));
    wait_until_accepts(&served, 999_000, true);

    let http = arriving(&served, |served| {
        let mut http = Peer::silent(served.http);
        let begun = request("POST", INFER, &[("Content-Length", "900000")], b"");
        http.send(&[&begun, &[b' '; 800_000][..]].concat()).unwrap();
        http
    });
    let refused = unary(&served, 300_000);
    assert_eq!(refused.name(), "RESOURCE_EXHAUSTED");
    assert!(refused.message.contains(NO_ROOM), "{}", refused.message);
    served.assert_others_are_answered();
    drop(http);
    wait_until_accepts(&served, 999_000, true);

    for path in [SERVER_LIVE, STREAM_INFER] {
        let grpc = arriving(&served, |served| {
            let mut grpc = Peer::open(served.grpc, &[]);
            assert!(grpc.wait_until_read());
            grpc.send(&call(1, path, 0)).unwrap();
            grpc.send_data(1, &unknown_field(900_000)[..800_000]);
            grpc
        });
        served.assert_others_are_answered();
        drop(grpc);
        wait_until_accepts(&served, 999_000, true);
    }
    assert_eq!(unary(&served, 999_000).name(), "OK");
}

/// A request that is answered was counted once, from its arrival to its answer.
#[test]
fn bytes_of_requests_count_once() {
    let served = Served::echoing(&["--max-inflight-bytes=1000000"]);
    let head = serde_json::to_vec(&json!({
        "parameters": {"binary_data_output": true},
        "inputs": [{
            "name": "INPUT0", "datatype": "INT32", "shape": [1, 225_000],
            "parameters": {"binary_data_size": 900_000}
        }]
    }));
    let head = head.unwrap();
    let body = [&head[..], &[1; 900_000]].concat();
    let len = head.len().to_string();
    for _ in 0..3 {
        wait_until_accepts(&served, 999_000, true);
        let headers = [("Inference-Header-Content-Length", len.as_str())];
        let answer = Connection::open(served.http).unwrap().ask("POST", INFER, &headers, &body).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.body.ends_with(&[1; 900_000]));
    }
}

/// Gzip of so many mebibytes of zeros: a thousandth of them.
fn bomb(mebibytes: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![0; 1 << 20]).unwrap();
    encoder.finish().unwrap().repeat(mebibytes)
}

/// What bombs over HTTP and gRPC, so many at a time over each, are answered.
fn send_bombs(served: &Served, count: usize) -> (Vec<Response>, Vec<grpc::Status>) {
    let bomb = bomb(64);
    let (http, grpc) = (served.http, served.grpc);
    let mut message = vec![1];
    message.extend(u32::try_from(bomb.len()).unwrap().to_be_bytes());
    message.extend_from_slice(&bomb);
    let message = Bytes::from(message);
    let over_grpc: Vec<_> = (0..count)
        .map(|_| {
            let message = message.clone();
            served.runtime.spawn(async move {
                let metadata = [("grpc-encoding".to_owned(), "gzip".to_owned())];
                let connection = grpc::Connection::open(grpc).await?;
                Ok::<_, String>(connection.unary(SERVER_LIVE, &metadata, message).await?.1)
            })
        })
        .collect();
    let over_http = thread::scope(|scope| {
        let one = || {
            let headers = [("Content-Encoding", "gzip")];
            Connection::open(http).unwrap().ask("POST", INFER, &headers, &bomb).unwrap()
        };
        let all: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let over_grpc =
        over_grpc.into_iter().map(|call| served.runtime.block_on(call).unwrap().unwrap()).collect();
    (over_http, over_grpc)
}

fn assert_bombs_took_little_memory(served: &Served, before: u64) {
    let peak = served.program.peak_resident_bytes().unwrap() >> 20;
    assert!(peak - before < 32, "4 bombs of 64 MiB take {} MiB", peak - before);
}

#[test]
fn a_request_that_inflates_beyond_its_limit_is_refused_and_takes_little_memory() {
    let mut served = Served::echoing(&["--http-max-input-size=131072", "--max-request-byte-size=131072"]);
    let before = served.mebibytes();
    let (over_http, over_grpc) = send_bombs(&served, 2);
    for answer in over_http {
        let text = "Decompressed data size exceeds the maximum allowed value of 131072 bytes";
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(text), "{}", answer.text());
    }
    for status in over_grpc {
        assert_eq!(status.name(), "RESOURCE_EXHAUSTED");
        assert_eq!(status.message, "Received message larger than max (131073 vs. 131072)");
    }
    served.assert_others_are_answered();
    assert_bombs_took_little_memory(&served, before);
}

#[test]
fn a_request_that_inflates_beyond_the_budget_is_refused_and_releases_its_bytes() {
    let mut served = Served::echoing(&["--http-max-input-size=2147483647", "--max-inflight-bytes=400000"]);
    let before = served.mebibytes();
    let (over_http, over_grpc) = send_bombs(&served, 2);
    for answer in over_http {
        assert!(answer.status == 503 && answer.text().contains(NO_ROOM), "{}", answer.text());
    }
    for status in over_grpc {
        assert_eq!(status.name(), "RESOURCE_EXHAUSTED");
        assert!(status.message.contains(NO_ROOM), "{}", status.message);
    }
    served.assert_others_are_answered();
    assert_bombs_took_little_memory(&served, before);
    wait_until_accepts(&served, 390_000, true);
}

/// Answers that another client gets while requests with repeated members are decoded.
const ANSWERS: usize = 200;

/// Neither side may get so many answers while the other one waits. The time for such a request grows with its length: were it
/// with the square, the other client would have many more answers before the first of them.
const FAR_AHEAD: usize = 20_000;

#[test]
fn requests_with_a_repeated_member_delay_no_other_client() {
    let mut served = Served::echoing(&[]);
    let body = format!(
        r#"{{"inputs":[{{"name":"INPUT0","datatype":"INT32","shape":[1,1]{}}}]}}"#,
        r#","data":[]"#.repeat(66_000)
    );
    assert!(body.len() > 660_000 - 66_000);
    let address = served.http;
    let stopping = AtomicBool::new(false);
    let answered: [AtomicUsize; 4] = Default::default();
    thread::scope(|scope| {
        for answered in &answered {
            scope.spawn(|| {
                let mut connection = Connection::open(address).unwrap();
                while !stopping.load(Acquire) {
                    let answer = connection.ask("POST", INFER, &[], body.as_bytes()).unwrap();
                    assert_eq!(answer.status, 400, "{}", answer.text());
                    answered.fetch_add(1, AcqRel);
                }
            });
        }
        let mut others = 0;
        while others < ANSWERS || answered.iter().any(|answered| answered.load(Acquire) == 0) {
            if others >= FAR_AHEAD {
                break;
            }
            assert_eq!(live(&mut served.old_http).status, 200);
            assert_eq!(served.live_over_grpc(), "OK");
            others += 1;
        }
        stopping.store(true, Release);
        let greedy: Vec<usize> = answered.iter().map(|answered| answered.load(Acquire)).collect();
        assert!(
            others < FAR_AHEAD && greedy.iter().all(|&greedy| greedy < FAR_AHEAD),
            "{others} and {greedy:?}"
        );
    });
}
