//! Sends a number of mutated requests. The seed is fixed, so the sequence of requests is the same each time.
//!
//! Each gets an answer of its protocol, or none, and then the end of its connection. The parsers themselves have fuzzers
//! of their own, which count memory: the package `fuzz`.
use std::{env, net::SocketAddr};

use serde_json::json;
use testing::{
    grpc::{self, framed},
    http::{Connection, request},
    schema,
};
use tokio::runtime::Runtime;

use super::INFER;
use crate::support::Served;

/// A random generator (xorshift64*). It gives the same numbers on every machine.
struct TestRandom(u64);

impl TestRandom {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap().max(1);
        usize::try_from(self.next() % bound).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }

    /// Changes some bytes: sets other values, removes, repeats or moves a piece, or cuts off the end.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let len = self.below(bytes.len() - at).min(32);
            match self.below(6) {
                0 if !bytes.is_empty() => bytes[at] = self.byte(),
                1 => bytes.insert(at, self.byte()),
                2 => drop(bytes.drain(at..at + len)),
                3 => {
                    let piece = bytes[at..at + len].to_vec();
                    let place = self.below(bytes.len());
                    bytes.splice(place..place, piece);
                }
                4 => bytes.truncate(at),
                _ => {
                    const DIGITS: [&[u8]; 5] =
                        [b"-1", b"4294967296", b"99999999999999999999", b"1e999", b"null"];
                    let odd = DIGITS[self.below(DIGITS.len())];
                    bytes.splice(at..at, odd.iter().copied());
                }
            }
        }
    }
}

fn http_seeds() -> Vec<Vec<u8>> {
    let json = br#"{"id":"1","inputs":[{"name":"IN","datatype":"INT32","shape":[1,2],"data":[[1,2]]}],"parameters":{"a":1.5}}"#;
    let binary = [
        &br#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}}],"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}"#[..],
        &[1, 0, 0, 0, 2, 0, 0, 0],
    ]
    .concat();
    let length = (binary.len() - 8).to_string();
    vec![
        request("GET", "/v2/models/simple/versions/1/config", &[("Accept-Encoding", "gzip;q=0.5")], b""),
        request("POST", "/v2/models/id_int32/infer", &[], json),
        request("POST", "/v2/models/id_int32/infer", &[("Inference-Header-Content-Length", &length)], &binary),
        request("POST", "/v2/models/gens/generate_stream", &[], br#"{"text_input":"hi","n":3}"#),
        request("POST", "/v2/repository/index", &[], br#"{"ready":true}"#),
        b"POST /v2/models/id_string/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"inp\r\n0\r\n\r\n".to_vec(),
    ]
}

fn grpc_seed() -> Vec<u8> {
    let request = json!({
        "model_name": "id_int32",
        "parameters": {"sequence_id": {"int64_param": "1"}},
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": ["2"], "parameters": {"x": {"bool_param": true}}}],
        "outputs": [{"name": "OUT", "parameters": {"classification": {"int64_param": "1"}}}],
        "raw_input_contents": ["AQAAAAIAAAA="]
    });
    schema::encode("inference.ModelInferRequest", &request).unwrap()
}

/// The rounds without `NEREID_FUZZ_ROUNDS`. Each has a request for each kind of port.
const ROUNDS: usize = 1000;

/// Sends all requests.
pub(crate) fn throw(served: &Served) {
    let rounds = env::var("NEREID_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let runtime = Runtime::new().unwrap();
    let (http, grpc) = (http_seeds(), grpc_seed());
    let mut chance = TestRandom(0x6e65_7265_6964);
    for _ in 0..rounds {
        let mut bytes = http[chance.below(http.len())].clone();
        chance.mutate(&mut bytes);
        let port = if chance.below(10) == 0 { served.metrics } else { served.http };
        let answer = answer_to(port, &bytes);
        assert!(
            answer.is_empty() || is_status_line(&answer),
            "b\"{}\" gets b\"{}\"",
            bytes.escape_ascii(),
            answer.escape_ascii()
        );

        let mut message = grpc.clone();
        chance.mutate(&mut message);
        let answer = runtime.block_on(async {
            let connection = grpc::Connection::open(served.grpc).await?;
            connection.unary(INFER, &[], framed(&message)).await
        });
        // The frame is whole, so the message gets a status, whatever is in it.
        let (messages, status) =
            answer.unwrap_or_else(|error| panic!("b\"{}\" gets no status: {error}", message.escape_ascii()));
        assert!(
            if status.name() == "OK" { messages.len() == 1 } else { messages.is_empty() },
            "b\"{}\" gets {} messages and {}",
            message.escape_ascii(),
            messages.len(),
            status.name()
        );

        // After the preface come bytes that are no HTTP/2 frames.
        let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        frames.extend((0..chance.below(64)).map(|_| chance.byte()));
        let answer = answer_to(served.grpc, &frames);
        // The first frame of a server has its settings.
        assert!(
            answer.get(3).is_none_or(|kind| *kind == 4),
            "b\"{}\" gets b\"{}\"",
            frames.escape_ascii(),
            answer.escape_ascii()
        );
    }
}

/// Sends the bytes and ends the sending side. Returns what the server sends before it closes the connection.
fn answer_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut connection = Connection::open(address).expect("the server accepts connections");
    // The server may close the connection earlier.
    let _ = connection.send(bytes).and_then(|()| connection.finish());
    connection.rest().expect("the server closes a connection whose client has ended")
}

/// Whether an answer begins as one of HTTP/1, with a status that has a meaning.
fn is_status_line(answer: &[u8]) -> bool {
    let Some((b"HTTP/1.0 " | b"HTTP/1.1 ", rest)) = answer.split_at_checked(9) else { return false };
    let status = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u16>().ok());
    status.is_some_and(|status| (100..600).contains(&status))
}
