//! Runs the load generator against a small server of the protocol in the same process, over both protocols.
//!
//! The server has one model and answers every request in the same way. If the model is called `moody`, the server
//! refuses every second request. The model `giving` has its input as its output, which the model `taking` takes. The server checks that each request is valid.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::tool::{perf, rows};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A running server. Dropping it ends the server.
struct Echo {
    http: String,
    grpc: String,
    counters: Arc<Counters>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    /// Requests of the model `taking` that have what the model `giving` gave.
    passed_on: AtomicU64,
}

impl Echo {
    fn start() -> Echo {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let counters = Arc::new(Counters::default());
        let listen = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (http, grpc) = (listen(), listen());
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let (http_address, grpc_address) = (address(&http), address(&grpc));
        runtime.spawn(accept(http, counters.clone(), serve_http));
        runtime.spawn(accept(grpc, counters.clone(), serve_grpc));
        Echo { http: http_address, grpc: grpc_address, counters, _runtime: runtime }
    }
}

async fn accept(listener: TcpListener, counters: Arc<Counters>, serve: fn(TcpStream, Arc<Counters>)) {
    while let Ok((stream, _)) = listener.accept().await {
        counters.connections.fetch_add(1, Ordering::Relaxed);
        serve(stream, counters.clone());
    }
}

fn serve_http(stream: TcpStream, counters: Arc<Counters>) {
    let service = service_fn(move |request| answer_http(request, counters.clone()));
    tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
}

async fn answer_http(
    request: Request<Incoming>,
    counters: Arc<Counters>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let json_length = head.headers.get("inference-header-content-length").map(|value| {
        let length: usize = value.to_str().unwrap().parse().unwrap();
        length
    });
    let (status, answer) = match head.uri.path() {
        "/v2/models/echo" | "/v2/models/moody" => {
            (200, r#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[-1,4]}]}"#.to_owned())
        }
        "/v2/models/echo/config" | "/v2/models/moody/config" => (200, r#"{"max_batch_size":8}"#.to_owned()),
        "/v2/models/echo/infer" => {
            counters.requests.fetch_add(1, Ordering::Relaxed);
            let json: serde_json::Value =
                serde_json::from_slice(&body[..json_length.unwrap_or(body.len())]).unwrap();
            let elements = match json_length {
                Some(length) => (body.len() - length) / 4,
                None => json["inputs"][0]["data"].as_array().unwrap().len(),
            };
            assert_eq!(json["inputs"][0]["shape"], serde_json::json!([elements / 4, 4]));
            (200, format!(r#"{{"outputs":[],"padding":"{}"}}"#, "x".repeat(elements)))
        }
        "/v2/models/giving" => {
            (200, r#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[-1,4]}]}"#.to_owned())
        }
        "/v2/models/taking" => {
            (200, r#"{"inputs":[{"name":"OUT","datatype":"FP32","shape":[-1,4]}]}"#.to_owned())
        }
        "/v2/models/giving/config" | "/v2/models/taking/config" => {
            (200, r#"{"max_batch_size":8}"#.to_owned())
        }
        "/v2/models/giving/infer" => {
            counters.requests.fetch_add(1, Ordering::Relaxed);
            let tensor = body.slice(json_length.unwrap()..);
            return Ok(binary_response("OUT", &tensor));
        }
        "/v2/models/taking/infer" => {
            counters.requests.fetch_add(1, Ordering::Relaxed);
            let (json, tensor) = body.split_at(json_length.unwrap());
            let json: serde_json::Value = serde_json::from_slice(json).unwrap();
            let passed = json["inputs"][0]["name"] == "OUT" && tensor.iter().any(|&byte| byte != 0);
            counters.passed_on.fetch_add(u64::from(passed && tensor.len() == 32), Ordering::Relaxed);
            (200, "{}".into())
        }
        "/v2/models/moody/infer" if counters.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
            (200, "{}".into())
        }
        "/v2/models/moody/infer" => (503, r#"{"error":"not today"}"#.to_owned()),
        path => (404, format!(r#"{{"error":"nothing at {path}"}}"#)),
    };
    Ok(Response::builder().status(status).body(Full::new(answer.into()).boxed_unsync()).unwrap())
}

/// A response with one binary output of two rows.
fn binary_response(name: &str, tensor: &[u8]) -> Response<Body> {
    let size = tensor.len();
    let json = format!(
        r#"{{"outputs":[{{"name":"{name}","datatype":"FP32","shape":[2,4],"parameters":{{"binary_data_size":{size}}}}}]}}"#
    );
    let response = Response::builder().header("Inference-Header-Content-Length", json.len());
    let body: Bytes = [json.as_bytes(), tensor].concat().into();
    response.body(Full::new(body).boxed_unsync()).unwrap()
}

fn serve_grpc(stream: TcpStream, counters: Arc<Counters>) {
    let service = service_fn(move |request| answer_grpc(request, counters.clone()));
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
}

async fn answer_grpc(
    request: Request<Incoming>,
    counters: Arc<Counters>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let mut body = body.collect().await.unwrap().to_bytes();
    assert_eq!((body.get_u8(), body.get_u32() as usize), (0, body.remaining()));
    let mut failure = None;
    let message = match head.uri.path().rsplit('/').next().unwrap() {
        "ModelMetadata" => {
            let model = proto::ModelMetadataRequest::decode(body).unwrap().name;
            let input = proto::model_metadata_response::TensorMetadata {
                name: if model == "taking" { "OUT".into() } else { "IN".into() },
                datatype: "FP32".into(),
                shape: vec![-1, 4],
            };
            proto::ModelMetadataResponse { inputs: vec![input], ..Default::default() }.encode_to_vec()
        }
        "ModelConfig" => {
            let config = Some(proto::ModelConfig { max_batch_size: 8, ..Default::default() });
            proto::ModelConfigResponse { config }.encode_to_vec()
        }
        "ServerLive" => proto::ServerLiveResponse { live: true }.encode_to_vec(),
        "ModelStreamInfer" => {
            let request = proto::ModelInferRequest::decode(body).unwrap();
            return Ok(grpc_stream(request.raw_input_contents[0][0]));
        }
        "ModelStatistics" => return Ok(grpc_response(&[], Some(("12", "no%20statistics")))),
        method => {
            assert_eq!(method, "ModelInfer");
            let request = proto::ModelInferRequest::decode(body).unwrap();
            assert_eq!(request.inputs[0].shape[0] * 16, request.raw_input_contents[0].len() as i64);
            let odd = counters.requests.fetch_add(1, Ordering::Relaxed) % 2 == 1;
            failure = (request.model_name == "moody" && odd).then_some(("14", "not%20today"));
            let passed = request.inputs[0].name == "OUT"
                && request.raw_input_contents[0].iter().any(|&byte| byte != 0);
            counters.passed_on.fetch_add(u64::from(passed), Ordering::Relaxed);
            let output = proto::model_infer_response::InferOutputTensor {
                name: "OUT".into(),
                datatype: "FP32".into(),
                shape: vec![2, 4],
                ..Default::default()
            };
            let (outputs, raw_output_contents) = (vec![output], request.raw_input_contents);
            proto::ModelInferResponse { outputs, raw_output_contents, ..Default::default() }.encode_to_vec()
        }
    };
    Ok(grpc_response(&message, failure))
}

/// A response of a message and its trailers. For a failure, a response of headers only.
fn grpc_response(message: &[u8], failure: Option<(&'static str, &'static str)>) -> Response<Body> {
    let response = Response::builder().header("content-type", "application/grpc");
    if let Some((status, text)) = failure {
        let response = response.header("grpc-status", status).header("grpc-message", text);
        return response.body(Full::default().boxed_unsync()).unwrap();
    }
    let trailers: HeaderMap =
        [("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))].into_iter().collect();
    let frames = [Frame::data(framed(message)), Frame::trailers(trailers)].map(Ok);
    response.body(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()).unwrap()
}

/// As many responses with an output as the first byte of the input says, and one without. For 0 an error.
fn grpc_stream(count: u8) -> Response<Body> {
    let output = proto::model_infer_response::InferOutputTensor::default();
    let good = |outputs| proto::ModelStreamInferResponse {
        infer_response: Some(proto::ModelInferResponse { outputs, ..Default::default() }),
        ..Default::default()
    };
    let mut messages: Vec<_> = (0..count).map(|_| good(vec![output.clone()])).collect();
    messages.push(match count {
        0 => proto::ModelStreamInferResponse { error_message: "no answer".into(), ..Default::default() },
        _ => good(Vec::new()),
    });
    let trailers: HeaderMap =
        [("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))].into_iter().collect();
    // All bytes come in one piece except the last byte, because messages need not come one by one.
    let mut bytes: Vec<u8> = messages.iter().flat_map(|message| framed(&message.encode_to_vec())).collect();
    let end = bytes.split_off(bytes.len() - 1);
    let frames = [Frame::data(bytes.into()), Frame::data(end.into()), Frame::trailers(trailers)].map(Ok);
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()).unwrap()
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

#[test]
fn a_closed_loop_counts_every_request_once() {
    let echo = Echo::start();
    for (options, callers) in [
        (format!("-u {} --payload json -b 2", echo.http), "1"),
        (format!("-u {} --input-data random", echo.http), "3"),
        (format!("-u {} -i grpc", echo.grpc), "5"),
    ] {
        let before = echo.counters.requests.load(Ordering::Relaxed);
        let rows =
            rows(&format!("-m echo {options} --concurrency {callers} --warm-up 0 --request-count 200"));
        let served = echo.counters.requests.load(Ordering::Relaxed) - before;
        assert_eq!((rows.len(), rows[0]["requests"].as_str(), rows[0]["errors"].as_str()), (1, "200", "0"));
        assert_eq!(served, 200, "{options}");
        assert!(rows[0]["p50_us"].parse::<f64>().unwrap() > 0.0);
    }
}

#[test]
fn a_chain_is_a_request_whose_calls_follow_each_other() {
    for protocol in ["http", "grpc"] {
        let echo = Echo::start();
        let address = if protocol == "grpc" { &echo.grpc } else { &echo.http };
        let chain = format!("-m giving --then taking -i {protocol} -u {address} -b 2 --input-data random");
        let rows = rows(&format!("{chain} --concurrency 3 --warm-up 0 --request-count 50"));
        assert_eq!((rows[0]["requests"].as_str(), rows[0]["errors"].as_str()), ("50", "0"));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(count(&echo.counters.requests), 100, "{protocol}");
        assert_eq!(count(&echo.counters.passed_on), 50, "{protocol}");
    }
}

#[test]
fn a_chain_whose_models_do_not_fit_is_an_error_of_each_request() {
    let echo = Echo::start();
    let line = format!("-m giving --then giving -u {} -b 2 --warm-up 0 --request-count 5", echo.http);
    let (status, out, _) = perf(&line);
    assert_eq!(status, 1);
    assert!(out.contains("5 times: no output 'IN' for model 'giving'"), "{out}");
}

#[test]
fn responses_of_streams_are_counted_and_requests_taken_in_turn() {
    let echo = Echo::start();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    // The first byte of each request: 2, 5, 0. The third request gets an error.
    let requests = [2, 5, 0].map(|count| serde_json::json!({ "IN": [f32::from_bits(count)] }));
    serde_json::to_writer(&mut file, &requests).unwrap();
    let rows = rows(&format!(
        "-m echo -i grpc -u {} --streaming --input-data {} --concurrency 1 --warm-up 0 --request-count 300",
        echo.grpc,
        file.path().display()
    ));
    let number = |name: &str| rows[0][name].parse::<f64>().unwrap();
    assert_eq!((number("requests"), number("errors")), (200.0, 100.0));
    let responses = number("responses_per_second") / number("requests_per_second") * 200.0;
    assert!((responses - 700.0).abs() < 1.0, "{responses} responses");
    assert!(number("first_p99_us") > 0.0);
}

#[test]
fn http_callers_have_a_connection_each_and_keep_it() {
    let echo = Echo::start();
    rows(&format!("-m echo -u {} --concurrency 4 --warm-up 0 --request-count 100", echo.http));
    // One more connection was used to request the metadata, and one for statistics.
    assert_eq!(echo.counters.connections.load(Ordering::Relaxed), 6);
}

#[test]
fn grpc_callers_share_connections() {
    let echo = Echo::start();
    let rows = rows(&format!(
        "-m echo -i grpc -u {} --concurrency 6,12 --connections 2 --warm-up 0 --request-count 100",
        echo.grpc
    ));
    assert_eq!(rows.iter().map(|row| row["connections"].as_str()).collect::<Vec<_>>(), ["2", "2"]);
    // One more connection was used to request the metadata, and one for statistics.
    assert_eq!(echo.counters.connections.load(Ordering::Relaxed), 6);
}

#[test]
fn refusals_are_counted_by_their_text_and_do_not_end_the_run() {
    let echo = Echo::start();
    for (options, text) in [
        (format!("-u {}", echo.http), "50 times: 503 not today"),
        (format!("-i grpc -u {}", echo.grpc), "50 times: status 14 not today"),
    ] {
        let (status, out, errors) = perf(&format!("-m moody {options} --warm-up 0 --request-count 100"));
        assert_eq!((status, errors.as_str()), (0, ""));
        assert!(out.contains(text), "{out}");
    }
}

#[test]
fn an_open_loop_sends_at_its_rate_whatever_the_callers_do() {
    let echo = Echo::start();
    for options in [format!("-u {}", echo.http), format!("-i grpc -u {}", echo.grpc)] {
        let rows = rows(&format!(
            "-m echo {options} --request-rate 400 --warm-up 0.1 --request-count 200 --concurrency 8"
        ));
        assert_eq!((rows[0]["requests"].as_str(), rows[0]["request_rate"].as_str()), ("200", "400.00"));
        // 200 gaps of 2.5 ms. Their sum is seeded, so only the machine can make the run longer.
        assert!(rows[0]["seconds"].parse::<f64>().unwrap() > 0.3);
    }
}

#[test]
fn the_processor_time_of_a_process_can_be_measured() {
    let echo = Echo::start();
    let pid = std::process::id();
    let rows = rows(&format!("-m echo -u {} --server-pid {pid} --request-count 100 --warm-up 0", echo.http));
    assert!(rows[0]["server_us_per_request"].parse::<f64>().is_ok());
}

#[test]
fn options_that_cannot_work_are_refused_at_the_start() {
    let echo = Echo::start();
    for (line, expected, text) in [
        (format!("-m gone -u {}", echo.http), 1, "model 'gone': 404 nothing at /v2/models/gone"),
        ("-m echo -u 127.0.0.1:1".to_owned(), 1, "cannot connect to 127.0.0.1:1"),
        (
            format!("-m echo -i grpc -u http://{}", echo.http),
            1,
            "speaks HTTP/1.1 and not gRPC: name the gRPC port, or leave out --protocol grpc",
        ),
        (format!("-m echo -u {}", echo.grpc), 1, "speaks gRPC: add --protocol grpc, or name the HTTP port"),
        (format!("-m echo -b 9 -u {}", echo.http), 1, "at most 8"),
        (format!("-m echo -u {} --server-pid 4294967295", echo.http), 1, "no process 4294967295"),
        ("-m echo --nonsense".to_owned(), 2, "--nonsense"),
    ] {
        let (status, _, errors) = perf(&line);
        assert_eq!(status, expected, "{line}");
        assert!(errors.contains(text), "{line}: {errors}");
    }
    let (status, out, _) = perf("--help");
    assert_eq!(status, 0);
    assert!(out.contains("--request-rate"), "{out}");
}
