//! Runs the load generator against a small server that answers with server-sent events, written byte by byte as HTTP/1.1
//! allows.
//!
//! The first number of a request says what the answer is. See [`answer`].

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::tool::{perf, rows};

/// A running server. Its threads end with the process.
struct EventServer {
    address: String,
    counters: Arc<EventCounters>,
}

#[derive(Default)]
struct EventCounters {
    connections: AtomicU64,
    requests: AtomicU64,
}

impl EventServer {
    fn start() -> EventServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counters = Arc::new(EventCounters::default());
        let shared = counters.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let (stream, counters) = (stream.unwrap(), shared.clone());
                thread::spawn(move || serve(&stream, &counters));
            }
        });
        EventServer { address, counters }
    }

    /// The options of a run that sends requests with these first numbers in turn, by one caller.
    fn requests(&self, firsts: &[i32], count: usize, folder: &tempfile::TempDir) -> String {
        let file = folder.path().join("input.json");
        let requests: Vec<Value> = firsts.iter().map(|first| json!({ "IN": [first, 1] })).collect();
        std::fs::write(&file, json!({ "data": requests }).to_string()).unwrap();
        format!(
            "-m counted -u {} --streaming --input-data {} --concurrency 1 --warm-up 0 --request-count {count}",
            self.address,
            file.display()
        )
    }
}

fn serve(mut stream: &TcpStream, counters: &EventCounters) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((path, headers, body)) = request(&mut reader) {
        let answer = match path.as_str() {
            "/v2/models/counted" => {
                let tensor =
                    |name: &str, size: i64| json!({ "name": name, "datatype": "INT32", "shape": [-1, size] });
                stated(&json!({ "inputs": [tensor("IN", 2)], "outputs": [tensor("OUT", 1)] }).to_string())
            }
            "/v2/models/counted/config" => stated(r#"{"max_batch_size":8}"#),
            "/v2/models/counted/generate_stream" => {
                counters.requests.fetch_add(1, Ordering::Relaxed);
                assert!(headers.contains("accept: text/event-stream"), "{headers:?}");
                let numbers = serde_json::from_slice::<Value>(&body).unwrap()["IN"].clone();
                assert_eq!(numbers.as_array().unwrap().len(), 2);
                answer(numbers[0].as_i64().unwrap())
            }
            _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
        };
        let is_cut = answer.ends_with(CUT);
        let answer = answer.strip_suffix(CUT).unwrap_or(&answer);
        // Small pieces, so that ends of lines, chunks and events are in different ones.
        for piece in answer.chunks(answer.len().div_ceil(40)) {
            stream.write_all(piece).unwrap();
        }
        if is_cut {
            return;
        }
    }
}

/// The path, the headers in lower case and the body of the next request. `None` if the client has closed the connection.
fn request(reader: &mut impl BufRead) -> Option<(String, HashSet<String>, Vec<u8>)> {
    let mut line = String::new();
    // A client that ends its run breaks its connections.
    reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
    let path = line.split(' ').nth(1).unwrap().to_owned();
    let (mut headers, mut length) = (HashSet::new(), 0);
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let header = line.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(number) = header.strip_prefix("content-length: ") {
            length = number.parse().unwrap();
        }
        headers.insert(header);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Some((path, headers, body))
}

/// After an answer with this end, the server closes the connection. The end is not sent.
const CUT: &[u8] = b"<cut>";

/// A positive number: so many events, in chunks of five bytes. 0: no event. -1: an event, and then an error. -2: an error as
/// the first event. -3: a refusal before the model. -4: an answer that is no stream. -5: an answer that ends early. -6: an
/// event, and the end of the connection is announced. -7: a stream of a stated length.
fn answer(number: i64) -> Vec<u8> {
    let event = "data: {\"model_name\":\"counted\",\ndata: \"OUT\":1}\n\n";
    let error = "data: {\"error\":\"out of numbers\"}\n\n";
    let type_line = "Content-Type: text/event-stream; charset=utf-8\r\n";
    let ok = format!("HTTP/1.1 200 OK\r\n{type_line}Transfer-Encoding: chunked\r\n");
    match number {
        -1 => chunked(&ok, &format!("{event}{error}")),
        -2 => {
            let bad = ok.replace("200 OK", "500 Internal Server Error");
            chunked(&bad, error)
        }
        -3 => {
            let body = r#"{"error":"no such input"}"#;
            format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
        }
        -4 => stated("{}"),
        -5 => {
            let mut answer = chunked(&ok, event);
            answer.truncate(answer.len() - 40);
            [&answer, CUT].concat()
        }
        -6 => [&chunked(&format!("{ok}Connection: close\r\n"), event), CUT].concat(),
        -7 => {
            let events = event.repeat(3).replace('\n', "\r");
            let length = events.len();
            format!("HTTP/1.1 200 OK\r\n{type_line}Content-Length: {length}\r\n\r\n{events}").into_bytes()
        }
        count => {
            let events: String = (0..count).map(|_| format!(": comment\n{event}")).collect();
            chunked(&ok, &events.replace('\n', "\r\n"))
        }
    }
}

/// The head, the body in chunks of five bytes, and trailers.
fn chunked(head: &str, body: &str) -> Vec<u8> {
    let mut answer = format!("{head}\r\n").into_bytes();
    for part in body.as_bytes().chunks(5) {
        answer.extend_from_slice(format!("{:x};part\r\n", part.len()).as_bytes());
        answer.extend_from_slice(part);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"0\r\nServer-Timing: queue;dur=0.1\r\n\r\n");
    answer
}

fn stated(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn events_are_counted_and_connections_kept() {
    let (server, folder) = (EventServer::start(), tempfile::tempdir().unwrap());
    let rows = rows(&server.requests(&[2, 5, 0, -7], 400, &folder));
    let number = |name: &str| rows[0][name].parse::<f64>().unwrap();
    assert_eq!((number("requests"), number("errors")), (400.0, 0.0));
    assert_eq!(rows[0]["protocol"], "http-json");
    let responses = number("responses_per_second") / number("requests_per_second") * 400.0;
    assert!((responses - 1000.0).abs() < 1.0, "{responses} responses");
    assert!(number("first_p50_us") > 0.0 && number("first_p99_us") <= number("max_us"));
    assert_eq!(server.counters.requests.load(Ordering::Relaxed), 400);
    // One for the caller, one for the metadata, and one for statistics.
    assert_eq!(server.counters.connections.load(Ordering::Relaxed), 3);
}

#[test]
fn errors_fail_their_request_only_and_keep_the_connection() {
    let (server, folder) = (EventServer::start(), tempfile::tempdir().unwrap());
    let line = server.requests(&[1, -1, -2, -3], 100, &folder);
    let (status, out, errors) = perf(&line);
    assert_eq!((status, errors.as_str()), (0, ""), "{out}");
    for text in [
        "25 times: out of numbers",
        "25 times: 500 out of numbers",
        "25 times: 400 no such input",
        "Request count: 25\n",
        // Those of the requests that fail later count, too.
        "Responses: 50 (",
    ] {
        assert!(out.contains(text), "{text}: {out}");
    }
    assert_eq!(server.counters.connections.load(Ordering::Relaxed), 3);
}

#[test]
fn a_connection_that_cannot_be_used_again_is_replaced() {
    let (server, folder) = (EventServer::start(), tempfile::tempdir().unwrap());
    let (status, out, _) = perf(&server.requests(&[1, -4, -5, -6], 40, &folder));
    assert_eq!(status, 0, "{out}");
    for text in [
        "10 times: the answer is not of the type text/event-stream",
        "10 times: the server closed the connection",
        "Request count: 20\n",
        "Responses: 20 (",
    ] {
        assert!(out.contains(text), "{text}: {out}");
    }
    // Three of four answers end their connection. The last one is not replaced.
    assert_eq!(server.counters.connections.load(Ordering::Relaxed), 2 + 30);
}

#[test]
fn an_open_loop_and_a_profile_have_the_responses_of_streams() {
    let (server, folder) = (EventServer::start(), tempfile::tempdir().unwrap());
    let profile = folder.path().join("profile.json");
    let line = server.requests(&[3], 50, &folder).replace("--concurrency 1", "--concurrency 4");
    let rows = rows(&format!("{line} --request-rate 500 --profile-export-file {}", profile.display()));
    assert_eq!((rows[0]["requests"].as_str(), rows[0]["errors"].as_str()), ("50", "0"));
    let profile: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    let requests = profile["experiments"][0]["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 50);
    for request in requests {
        assert_eq!(request["response_timestamps"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn inputs_that_a_generate_request_cannot_have_end_the_run_before_it_begins() {
    let (server, folder) = (EventServer::start(), tempfile::tempdir().unwrap());
    let line = server.requests(&[1], 10, &folder);
    let (status, _, errors) = perf(&format!("{line} --request-parameter IN:1:int"));
    assert_eq!(status, 1);
    assert!(errors.contains("a generate request cannot have two inputs or parameters 'IN'"), "{errors}");
    let file = folder.path().join("answers.json");
    let content = json!({"data": [{"IN": [1, 1]}], "validation_data": [{"OUT": [1]}]});
    std::fs::write(&file, content.to_string()).unwrap();
    let line = format!("-m counted -u {} --streaming --input-data {}", server.address, file.display());
    let (status, _, errors) = perf(&line);
    assert_eq!(status, 1);
    assert!(errors.contains("validation data is compared with single responses"), "{errors}");
    assert_eq!(server.counters.requests.load(Ordering::Relaxed), 0);
}
