//! Generate endpoints on real sockets: framing, the form of responses and errors, and clients that are slow or
//! disconnect.
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
};

use bytes::Bytes;
use config::ModelConfig;
use frontend::http::{self, HttpEndpoint};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use inference::{
    Response,
    backend::{Backend, BackendInstance, BackendModel, Batch, BuiltInstance, InstanceSpec, ModelSource},
};
use testing::{
    Repository, fixtures,
    http::{Connection, request},
};
use vocabulary::{DataType, Error, Tensor};

use super::Server;

const EXACTLY_ONE: &str = r#"{"error":"generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"}"#;

/// The model waits while a client has not read so many responses.
const SLOWED_DOWN: &str = "\nparameters { key: 'MAX_UNREAD_RESPONSES' value: { string_value: '256' } }";

/// The models of the recordings that generate, and `endless`, which counts from 0 until its client goes.
fn server() -> (Server, Arc<AtomicUsize>) {
    let repository = Repository::empty().unwrap();
    let config = |decoupled: bool, input: &str, output: &str, backend: &str| {
        format!(
            "backend: \"{backend}\"\nmodel_transaction_policy {{decoupled: {decoupled}}}\n\
             input [{input}]\noutput [{output}]\ninstance_group [{{kind: KIND_CPU}}]\n"
        )
    };
    let number = "{name: \"IN\" data_type: TYPE_INT32 dims: [1]}";
    let out = |datatype: &str| format!("{{name: \"OUT\" data_type: {datatype} dims: [1]}}");
    let texts = "{name: \"text_input\" data_type: TYPE_STRING dims: [1]}, \
                 {name: \"n\" data_type: TYPE_INT32 dims: [1] optional: true}";
    let text = "{name: \"text_output\" data_type: TYPE_STRING dims: [1]}";
    let table = [
        ("gens", config(true, texts, text, "python")),
        ("gen", config(false, texts, text, "python")),
        ("repeat", config(true, number, &out("TYPE_INT32"), "python")),
        ("errs", config(false, number, &out("TYPE_INT32"), "python")),
        ("params", config(false, number, &out("TYPE_STRING"), "python")),
        // Slowed down by its clients: it would fill memory for a client that does not read.
        ("endless", format!("{}{SLOWED_DOWN}", config(true, number, &out("TYPE_INT32"), "endless"))),
    ];
    for (name, text) in &table {
        repository.add(name, [("config.pbtxt", text.as_str())]).unwrap();
    }
    let sent = Arc::<AtomicUsize>::default();
    let backends: Vec<Arc<dyn Backend>> =
        vec![Arc::new(fixtures::Python), Arc::new(EndlessStream(sent.clone()))];
    (Server::of(repository, backends, http::HttpOptions::default()), sent)
}

/// A backend that counts how many responses it has sent.
#[derive(Clone)]
struct EndlessStream(Arc<AtomicUsize>);

impl Backend for EndlessStream {
    fn name(&self) -> &str {
        "endless"
    }

    fn open(&self, _: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl BackendModel for EndlessStream {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(self.clone())))
    }
}

impl BackendInstance for EndlessStream {
    fn execute(&mut self, batch: Batch) {
        for execution in batch.executions {
            while !execution.responder.is_cancelled() {
                let number = self.0.load(Ordering::SeqCst);
                let bytes = i32::try_from(number).unwrap().to_le_bytes().to_vec();
                let output = Tensor::new("OUT".into(), DataType::Int32, [1].as_slice().into(), bytes);
                execution.responder.send(Response::of(vec![output]));
                self.0.fetch_add(1, Ordering::SeqCst);
            }
            execution.responder.finish();
        }
    }
}

fn generate(connection: &mut Connection, model: &str, body: &str) -> (u16, String) {
    let path = format!("/v2/models/{model}/generate");
    let answer = connection.ask("POST", &path, &[], body.as_bytes()).unwrap();
    (answer.status, answer.text())
}

fn stream(connection: &mut Connection, model: &str, body: &str) -> (u16, String) {
    let path = format!("/v2/models/{model}/generate_stream");
    let answer = connection.ask("POST", &path, &[], body.as_bytes()).unwrap();
    let headers = [("Content-Type", "text/event-stream; charset=utf-8"), ("Transfer-Encoding", "chunked")];
    assert_eq!(answer.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    (answer.status, answer.text())
}

#[test]
fn one_response_is_one_chunk_of_json() {
    let (server, _) = server();
    let mut connection = server.connect();
    let answer =
        connection.ask("POST", "/v2/models/gen/generate", &[], br#"{"text_input":"hi","id":"7"}"#).unwrap();
    assert_eq!(answer.status_line, "HTTP/1.1 200 OK");
    let headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")];
    assert_eq!(answer.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let text = answer.text();
    let expected =
        r#"{"id":"7","model_name":"gen","model_version":"1","text_output":"echo:hi {\"id\":\"7\"}","#;
    assert!(text.starts_with(expected), "{text}");
    let body = r#"{"text_input":"hi"}"#;
    let expected = r#"{"model_name":"gens","model_version":"1","text_output":"hi0"}"#;
    assert_eq!(generate(&mut connection, "gens", body), (200, expected.into()), "also of a decoupled model");
}

#[test]
fn each_response_of_a_stream_is_one_chunk() {
    let (server, _) = server();
    let mut connection = server.connect();
    let body = br#"{"text_input": "hi", "n": 3}"#;
    let path = "/v2/models/gens/versions/1/generate_stream";
    connection.send(&request("POST", path, &[("Connection", "close")], body)).unwrap();
    let answer = String::from_utf8(connection.rest().unwrap()).unwrap();
    let (head, chunks) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let mut expected = String::new();
    for index in 0..3 {
        let event = format!(
            "data: {{\"model_name\":\"gens\",\"model_version\":\"1\",\"text_output\":\"hi{index}\"}}\n\n"
        );
        expected += &format!("{:X}\r\n{event}\r\n", event.len());
    }
    assert_eq!(chunks, expected + "0\r\n\r\n");
}

#[test]
fn a_stream_may_have_any_number_of_responses_and_generate_only_one() {
    let (server, _) = server();
    let mut connection = server.connect();
    assert_eq!(stream(&mut connection, "gens", r#"{"text_input": "hi", "n": 0}"#), (200, String::new()));
    let (status, text) = stream(&mut connection, "repeat", r#"{"IN": 5000}"#);
    assert_eq!((status, text.matches("\n\n").count()), (200, 5000));
    assert!(text.ends_with("data: {\"OUT\":4999,\"model_name\":\"repeat\",\"model_version\":\"1\"}\n\n"));
    for count in [0, 2, 5000] {
        let body = format!(r#"{{"IN": {count}}}"#);
        assert_eq!(generate(&mut connection, "repeat", &body), (400, EXACTLY_ONE.into()), "{count}");
    }
    let body = r#"{"text_input": "hi"}"#;
    let (status, text) = stream(&mut connection, "gen", body);
    assert_eq!(status, 200, "a model that is not decoupled has a stream of one");
    assert!(text.starts_with("data: {\"model_name\":\"gen\""), "{text}");
    super::assert_live(&mut connection);
}

#[test]
fn an_error_before_any_response_has_the_status_of_its_code() {
    let (server, _) = server();
    let mut connection = server.connect();
    for (code, status) in [400, 500, 404, 400, 503, 501, 400, 400].into_iter().enumerate() {
        let body = format!(r#"{{"IN": {code}}}"#);
        let told = format!(r#"{{"error":"code {code}"}}"#);
        let event = format!("data: {told}\n\n");
        assert_eq!(generate(&mut connection, "errs", &body), (status, told));
        assert_eq!(stream(&mut connection, "errs", &body), (status, event));
    }
    let told = r#"{"error":"neg input"}"#;
    assert_eq!(generate(&mut connection, "repeat", r#"{"IN": -1}"#), (500, told.into()));
    super::assert_live(&mut connection);
}

#[test]
fn an_error_behind_a_response_is_an_event() {
    let (server, _) = server();
    let expected = concat!(
        "data: {\"model_name\":\"gens\",\"model_version\":\"1\",\"text_output\":\"ERR0\"}\n\n",
        "data: {\"error\":\"mid-stream fail\"}\n\n"
    );
    let mut connection = server.connect();
    let body = r#"{"text_input": "ERR", "n": 1}"#;
    assert_eq!(stream(&mut connection, "gens", body), (200, expected.into()));
    assert_eq!(generate(&mut connection, "gens", body), (400, EXACTLY_ONE.into()));
}

#[test]
fn a_request_refused_before_the_model_has_a_content_length() {
    let (server, _) = server();
    let mut connection = server.connect();
    for (path, headers, body, status, text) in [
        ("none/generate", &[][..], r"{}", 404, "Request for unknown model: 'none' is not found"),
        (
            "gen/generate",
            &[("Content-Encoding", "gzip")],
            "x",
            400,
            "Unsupported content-encoding, only 'identity' is supported.",
        ),
        (
            "gens/generate_stream",
            &[],
            r#"{"text_input": ["hi", "yo"]}"#,
            400,
            "The schema can not convert input 'text_input' to tensor with proper shape",
        ),
        (
            "gens/generate_stream",
            &[],
            "",
            500,
            "failed to parse the request JSON buffer: The document is empty. at 0",
        ),
    ] {
        let answer = connection.ask("POST", &format!("/v2/models/{path}"), headers, body.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.text()), (status, format!(r#"{{"error":"{text}"}}"#)), "{path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(answer.header("content-length").is_some());
    }
    let identity = [("Content-Encoding", "identity")];
    let answer = connection.ask("POST", "/v2/models/errs/generate", &identity, br#"{"IN": 2}"#).unwrap();
    assert_eq!(answer.text(), r#"{"error":"code 2"}"#);
}

#[test]
fn sequence_and_timeout_have_their_meaning_and_reach_the_model() {
    let (server, _) = server();
    let body = r#"{"IN": 1, "sequence_id": 5, "sequence_end": true, "timeout": 30000000}"#;
    let (status, text) = generate(&mut server.connect(), "params", body);
    let seen = concat!(
        r#"{\"corr\": 5, \"flags\": 2, \"id\": \"\", \"params\": "#,
        r#"{\"sequence_end\": true, \"sequence_id\": 5, \"timeout\": 30000000}, \"timeout\": 30000000}"#
    );
    let expected = format!(r#"{{"OUT":"{seen}","model_name":"params","model_version":"1"}}"#);
    assert_eq!((status, text), (200, expected));
}

#[test]
fn an_http_1_0_client_reads_events_until_the_connection_closes() {
    let (server, _) = server();
    let mut connection = server.connect();
    connection
        .send(b"POST /v2/models/repeat/generate_stream HTTP/1.0\r\nContent-Length: 8\r\n\r\n{\"IN\":2}")
        .unwrap();
    let answer = String::from_utf8(connection.rest().unwrap()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("chunked"), "{head}");
    assert!(body.starts_with("data: {\"OUT\":0,") && body.ends_with("}\n\n"), "{body}");
}

#[test]
fn a_disconnected_client_cancels_its_stream() {
    let (server, sent) = server();
    let mut connection = server.connect();
    let path = "/v2/models/endless/generate_stream";
    connection.send(&request("POST", path, &[], br#"{"IN": 1}"#)).unwrap();
    server.until("the model has something to say", |_| sent.load(Ordering::SeqCst) > 0);
    assert_eq!(server.engine.in_flight(), 1);
    connection.reset().unwrap();
    server.until("the model has stopped", |server| server.engine.in_flight() == 0);
}

#[test]
fn a_disconnected_client_removes_its_request_from_the_queue() {
    let (server, _) = server();
    let mut first = server.connect();
    let body = br#"{"IN": 1}"#;
    first.send(&request("POST", "/v2/models/endless/generate_stream", &[], body)).unwrap();
    server.until("the first request runs", |server| server.engine.in_flight() == 1);
    let mut second = server.connect();
    second.send(&request("POST", "/v2/models/endless/generate", &[], body)).unwrap();
    server.until("the second request waits", |server| server.engine.in_flight() == 2);
    second.reset().unwrap();
    server.until("the second request is given up", |server| server.engine.in_flight() == 1);
}

#[test]
fn generate_does_not_wait_for_a_third_response() {
    let (server, _) = server();
    assert_eq!(generate(&mut server.connect(), "endless", r#"{"IN": 1}"#), (400, EXACTLY_ONE.into()));
    server.until("the model has stopped", |server| server.engine.in_flight() == 0);
}

#[test]
fn a_model_may_be_configured_to_wait_for_a_slow_client() {
    let (server, sent) = server();
    let ask = ::http::Request::post("/v2/models/endless/generate_stream");
    let (mut head, ()) = ask.body(()).unwrap().into_parts();
    let mut body =
        Full::new(Bytes::from_static(br#"{"IN": 1}"#)).map_err(|never| -> hyper::Error { match never {} });
    let mut call = http::HttpCall::new(&mut head, &mut body, None);
    let mut body = server.runtime.block_on(server.service.answer(&mut call)).into_body();
    let mut context = Context::from_waker(Waker::noop());
    for taken in 0..2000 {
        let ahead = sent.load(Ordering::SeqCst).saturating_sub(taken);
        // Beside the unread ones, one response was taken before the answer began, and one may be on its way.
        assert!(ahead <= 256 + 2, "{ahead} responses wait for the client");
        let event = loop {
            match Pin::new(&mut body).poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => break frame.into_data().unwrap(),
                Poll::Ready(None) => panic!("the model is endless"),
                Poll::Pending => thread::yield_now(),
            }
        };
        assert!(
            event.starts_with(format!("data: {{\"OUT\":{taken},").as_bytes()),
            "{}",
            event.escape_ascii()
        );
    }
    drop(body);
    server.until("the model has stopped", |server| server.engine.in_flight() == 0);
}
