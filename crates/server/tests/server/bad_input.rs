//! Bad input of every kind gets the documented error, and the server continues to serve.
//!
//! These tests do not repeat the recorded exchanges; see `golden`. The last test sends mutated requests to all ports,
//! in `NEREID_FUZZ_ROUNDS` rounds.
mod fuzz;

use std::{io::Write, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use testing::{
    Repository,
    fixtures::Python,
    grpc::{self, framed},
    http::{Connection, TIMEOUT},
    schema,
};
use tokio::runtime::Runtime;

use crate::support::Served;

fn served(arguments: &[&str]) -> Served {
    let repository = Arc::new(Repository::golden().unwrap());
    let tolerant = ["--exit-on-error=false", "--strict-readiness=false"];
    Served::start(&repository, &[&tolerant, arguments].concat(), vec![Arc::new(Python)]).unwrap()
}

/// Checks that a correct request still gets its response, over both protocols.
fn assert_serving(served: &Served) {
    let mut connection = Connection::open(served.http).unwrap();
    assert_eq!(connection.ask("GET", "/v2/health/live", &[], b"").unwrap().status, 200);
    let body = br#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[2],"data":[7,8]}]}"#;
    let response = connection.ask("POST", "/v2/models/id_int32/infer", &[], body).unwrap();
    assert!(response.text().contains("[7,8]"), "{}", response.text());
    let (_, status) = infer(served, &int32("id_int32", &json!(["1"]), &[7]));
    assert_eq!(status.name(), "OK", "{}", status.message);
}

fn int32(model: &str, shape: &Value, values: &[i32]) -> Value {
    json!({
        "model_name": model,
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": shape, "contents": {"int_contents": values}}]
    })
}

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

fn infer(served: &Served, request: &Value) -> (Vec<bytes::Bytes>, grpc::Status) {
    let message = schema::encode("inference.ModelInferRequest", request).unwrap();
    call(served, INFER, framed(&message)).unwrap()
}

fn call(
    served: &Served,
    path: &str,
    message: bytes::Bytes,
) -> Result<(Vec<bytes::Bytes>, grpc::Status), String> {
    Runtime::new().unwrap().block_on(async {
        let connection = grpc::Connection::open(served.grpc).await?;
        connection.unary(path, &[], message).await
    })
}

/// A wrong request: model, body, status, and the error without the prefix with the request's id.
type Wrong<'w> = (&'w str, &'w str, u16, &'w str);

/// Sends the bodies over one connection. Each is refused, and the connection stays open.
fn assert_refused(served: &Served, wrong: &[Wrong<'_>]) {
    let mut connection = Connection::open(served.http).unwrap();
    for (model, body, status, error) in wrong {
        let path = format!("/v2/models/{model}/infer");
        let response = connection.ask("POST", &path, &[], body.as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&response.body).unwrap();
        let text = answer["error"].as_str().unwrap_or_default();
        let text = text.strip_prefix("[request id: <id_unknown>] ").unwrap_or(text);
        assert_eq!((response.status, text), (*status, *error), "{body}");
        assert_eq!(response.header("Content-Type"), Some("application/json"), "{body}");
    }
    assert_serving(served);
}

#[test]
fn wrong_shapes_counts_and_types_are_named() {
    let served = served(&[]);
    assert_refused(
        &served,
        &[
            (
                "id2d",
                r#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2,3],"data":[1,2,3,4,5,6]}]}"#,
                400,
                "unexpected shape for input 'IN' for model 'id2d'. Expected [-1,-1,2], got [1,2,3]. NOTE: Setting a non-zero \
                 max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you \
                 want to specify the full shape including the batch dim in your input dims config, try setting \
                 max_batch_size to zero. See the model configuration docs for more info on max_batch_size.",
            ),
            (
                "id2d",
                r#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[5,1,2],"data":[1,2,3,4,5,6,7,8,9,10]}]}"#,
                400,
                "inference request batch-size must be <= 4 for 'id2d'",
            ),
            (
                "id_int32",
                r#"{"inputs":[{"name":"IN","datatype":"INT64","shape":[1],"data":[1]}]}"#,
                400,
                "inference input 'IN' data-type is 'INT64', but model 'id_int32' expects 'INT32'",
            ),
            (
                "id_int32",
                r#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[3],"data":[1,2]}]}"#,
                500,
                "Unable to parse 'data': Shape does not match true shape of 'data' field: input 'IN' of shape [3] needs 3 values, 2 are \
                 given",
            ),
            (
                "id_int32",
                r#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[1,2]}]}"#,
                500,
                "Unable to parse 'data': Shape does not match true shape of 'data' field: input 'IN' of shape [1] needs 1 \
                 values, 2 are given",
            ),
            (
                "id_int32",
                r#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[1]}],"outputs":[{"name":"NOPE"}]}"#,
                400,
                "unexpected inference output 'NOPE' for model 'id_int32'. Available output(s): ['OUT']",
            ),
            (
                "id_int32",
                r#"{"inputs":[{"name":"NOPE","datatype":"INT32","shape":[1],"data":[1]}]}"#,
                400,
                "unexpected inference input 'NOPE' for model 'id_int32'. Available input(s): ['IN']",
            ),
            (
                "id_bool",
                r#"{"inputs":[{"name":"IN","datatype":"BOOL","shape":[1],"data":[null]}]}"#,
                500,
                "Unable to parse 'data': attempt to access JSON non-boolean as boolean: input 'IN' has null at [0], where \
                 BOOL is needed",
            ),
        ],
    );
}

#[test]
fn negative_and_overflowing_dims_are_refused() {
    let served = served(&[]);
    let overflow = "invalid shape for input 'IN': shape [4294967296,4294967296] causes total element count to exceed \
                    maximum size of 9223372036854775807";
    assert_refused(
        &served,
        &[
            (
                "id_int32",
                r#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[-1],"data":[1]}]}"#,
                500,
                "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
            ),
            (
                "id_int32",
                r#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[4294967296,4294967296],"data":[1]}]}"#,
                400,
                overflow,
            ),
        ],
    );
    for shape in [json!(["-1"]), json!(["9223372036854775807", "2"]), json!(["-9223372036854775808"])] {
        let (messages, status) = infer(&served, &int32("id_int32", &shape, &[1]));
        assert_eq!((messages.len(), status.name()), (0, "INVALID_ARGUMENT"), "{shape}: {}", status.message);
    }
    assert_serving(&served);
}

#[test]
fn malformed_json_is_refused_with_its_place() {
    let served = served(&[]);
    let syntax = |text: &str| format!("failed to parse the request JSON buffer: {text}");
    let wrong = [
        ("hello", "Invalid value. at 0"),
        ("{\"inputs\" 1}", "Missing a colon after a name of object member. at 10"),
        ("{\"a\":1 \"b\":2}", "Missing a comma or '}' after an object member. at 7"),
        ("{\"a\":[1 2]}", "Missing a comma or ']' after an array element. at 8"),
        ("{\"a\":\"x", "Missing a closing quotation mark in string. at 7"),
        ("{\"a\":\"\\q\"}", "Invalid escape character in string. at 6"),
        ("{\"a\":\"\\u12g4\"}", "Incorrect hex digit after \\u escape in string. at 6"),
        ("{\"a\":1.}", "Miss fraction part in number. at 7"),
        ("{\"a\":1e}", "Miss exponent in number. at 7"),
        ("{\"a\":1e400}", "Number too big to be stored in double. at 5"),
        ("{} {}", "The document root must not be followed by other values. at 3"),
    ];
    let errors: Vec<_> = wrong.iter().map(|(body, text)| (*body, syntax(text))).collect();
    let wrong: Vec<Wrong<'_>> =
        errors.iter().map(|(body, text)| ("id_int32", *body, 500, text.as_str())).collect();
    assert_refused(&served, &wrong);
}

#[test]
fn deep_nesting_is_refused_wherever_it_is() {
    let served = served(&[]);
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let data = |depth| {
        format!(r#"{{"inputs":[{{"name":"IN","datatype":"INT32","shape":[1],"data":{}}}]}}"#, nested(depth))
    };
    let mut connection = Connection::open(served.http).unwrap();
    let mut ask = |body: &str| {
        let response = connection.ask("POST", "/v2/models/id_int32/infer", &[], body.as_bytes()).unwrap();
        (response.status, response.text())
    };
    assert_eq!(ask(&data(50)).0, 200);
    let refused = (
        400,
        "{\"error\":\"Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)\"}"
            .to_owned(),
    );
    assert_eq!(ask(&data(150)), refused);
    assert_eq!(ask(&data(200_000)).0, 400);
    // The decoder skips an unknown member, but checks its grammar.
    let (status, text) = ask(&format!(r#"{{"x":{},"inputs":[]}}"#, nested(200_000)));
    assert!(status >= 400, "{status} {text}");
    assert_serving(&served);
}

/// The binary section is too short or too long, or its stated length is wrong.
#[test]
fn binary_sections_must_have_the_lengths_they_claim() {
    let served = served(&[]);
    let head = |size: usize, shape: usize| {
        format!(
            r#"{{"inputs":[{{"name":"IN","datatype":"INT32","shape":[{shape}],"parameters":{{"binary_data_size":{size}}}}}]}}"#
        )
    };
    let mut connection = Connection::open(served.http).unwrap();
    let mut ask = |json: String, tail: &[u8], length: &str| {
        let length = if length.is_empty() { json.len().to_string() } else { length.to_owned() };
        let body = [json.as_bytes(), tail].concat();
        let headers = [("Inference-Header-Content-Length", length.as_str())];
        let response = connection.ask("POST", "/v2/models/id_int32/infer", &headers, &body).unwrap();
        let answer: Value = serde_json::from_slice(&response.body).unwrap();
        let text = answer["error"].as_str().unwrap_or_default().replace("[request id: <id_unknown>] ", "");
        (response.status, text)
    };
    let refused = |text: &str| (400, text.to_owned());
    assert_eq!(
        ask(head(8, 2), &[0; 4], ""),
        refused("unexpected size for input 'IN', expecting 4 additional bytes for model 'id_int32'")
    );
    assert_eq!(
        ask(head(8, 2), &[0; 12], ""),
        refused("unexpected additional input data for model 'id_int32'")
    );
    assert_eq!(
        ask(head(4, 2), &[0; 4], ""),
        refused("input byte size mismatch for input 'IN' for model 'id_int32'. Expected 8, got 4")
    );
    let whole = head(8, 2).len() + 8;
    assert_eq!(
        ask(head(8, 2), &[0; 8], "100000"),
        refused(&format!("inference header size should be in range (0, {whole}), got: 100000"))
    );
    assert_eq!(
        ask(head(8, 2), &[0; 8], "-1"),
        refused(&format!("inference header size should be in range (0, {whole}), got: -1"))
    );
    assert_eq!(
        ask(head(8, 2), &[0; 8], "abc"),
        refused("Unable to parse Inference-Header-Content-Length, got: abc")
    );
    assert_serving(&served);
}

#[test]
fn byte_strings_must_have_the_elements_they_claim() {
    let served = served(&[]);
    let mut connection = Connection::open(served.http).unwrap();
    let mut ask = |shape: usize, tensor: &[u8]| {
        let json = format!(
            r#"{{"inputs":[{{"name":"IN","datatype":"BYTES","shape":[{shape}],"parameters":{{"binary_data_size":{}}}}}]}}"#,
            tensor.len()
        );
        let length = json.len().to_string();
        let headers = [("Inference-Header-Content-Length", length.as_str())];
        let body = [json.as_bytes(), tensor].concat();
        let response = connection.ask("POST", "/v2/models/id_string/infer", &headers, &body).unwrap();
        let answer: Value = serde_json::from_slice(&response.body).unwrap();
        (
            response.status,
            answer["error"].as_str().unwrap_or_default().replace("[request id: <id_unknown>] ", ""),
        )
    };
    let element = b"\x01\0\0\0a";
    assert_eq!(
        ask(1, &element.repeat(2)),
        (400, "unexpected number of string elements 2 for inference input 'IN' for model 'id_string', expecting 1".into())
    );
    assert_eq!(
        ask(3, &element.repeat(2)),
        (400, "expected 3 string elements for inference input 'IN' for model 'id_string', got 2".into())
    );
    let (status, text) = ask(2, b"\x01\0\0\0a\x01\0");
    assert!(status == 400 && text.starts_with("incomplete string length indicator"), "{status} {text}");
    let (status, text) = ask(1, b"\xff\xff\xff\xffa");
    assert!(status == 400 && text.starts_with("incomplete string data"), "{status} {text}");
    assert_serving(&served);
}

#[test]
fn bodies_larger_than_allowed_are_refused() {
    let served = served(&["--http-max-input-size=2000"]);
    let big = format!(
        r#"{{"inputs":[{{"name":"IN","datatype":"INT32","shape":[1000],"data":[{}]}}]}}"#,
        vec!["1"; 1000].join(",")
    );
    let ask = |headers: &[(&str, &str)], body: &[u8]| {
        let mut connection = Connection::open(served.http).unwrap();
        let response = connection.ask("POST", "/v2/models/id_int32/infer", headers, body).unwrap();
        (response.status, response.text())
    };
    let (status, text) = ask(&[], big.as_bytes());
    let expected = format!(
        "{{\"error\":\"request JSON size of {} bytes exceeds the maximum allowed input size of 2000 bytes. Use \
         --http-max-input-size to increase the limit.\"}}",
        big.len()
    );
    assert_eq!((status, text), (400, expected));

    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![b' '; 4 << 20]).unwrap();
    let (status, text) = ask(&[("Content-Encoding", "gzip")], &bomb.finish().unwrap());
    assert_eq!(status, 400);
    assert!(
        text.contains("Decompressed data size exceeds the maximum allowed value of 2000 bytes."),
        "{text}"
    );
    assert_serving(&served);
}

#[test]
fn bytes_that_are_not_text_are_refused_or_passed_on_but_never_fatal() {
    let served = served(&[]);
    for path in
        ["/v2/models/\u{ff}\u{fe}", "/v2/models/%ff%fe/infer", "/v2/models/%00", "/v2/models/%", "/%2e%2e/"]
    {
        let mut connection = Connection::open(served.http).unwrap();
        // The server may also close the connection after a path that is not ASCII.
        if let Ok(response) = connection.ask("GET", path, &[], b"") {
            assert!((400..500).contains(&response.status), "{path}: {}", response.status_line);
        }
    }
    let mut connection = Connection::open(served.http).unwrap();
    let body = b"{\"inputs\":[{\"name\":\"\xff\xfe\",\"datatype\":\"INT32\",\"shape\":[1],\"data\":[1]}]}";
    let response = connection.ask("POST", "/v2/models/id_int32/infer", &[], body).unwrap();
    assert!(response.status >= 400, "{}", response.status_line);
    // A message whose model name, field 1, is not UTF-8.
    let (_, status) = call(&served, INFER, framed(b"\x0a\x02\xff\xfe")).unwrap();
    assert_eq!((status.name(), status.message.as_str()), ("INTERNAL", "Unable to parse request"));
    assert_serving(&served);
}

#[test]
fn frames_and_calls_that_are_no_grpc_are_refused() {
    let served = served(&[]);
    let (messages, status) = call(&served, "/inference.GRPCInferenceService/Nope", framed(b"")).unwrap();
    assert_eq!((messages.len(), status.name()), (0, "UNIMPLEMENTED"));
    // A length of four gigabytes without content; an incomplete frame; a compressed frame without a stated encoding.
    for wrong in [&b"\0\xff\xff\xff\xff"[..], b"\0\0", b"\x01\0\0\0\x01a", b""] {
        match call(&served, INFER, bytes::Bytes::copy_from_slice(wrong)) {
            Ok((messages, status)) => {
                assert_eq!(messages.len(), 0, "{wrong:?}");
                assert_ne!(status.name(), "OK", "{wrong:?}");
            }
            // A broken stream is also acceptable.
            Err(broken) => assert!(!broken.is_empty()),
        }
    }
    assert_serving(&served);
}

#[test]
fn wrong_grpc_inputs_are_named() {
    let served = served(&[]);
    let input = |datatype: &str, rest: Value| {
        let mut input = json!({"name": "IN", "datatype": datatype, "shape": ["1"]});
        input.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        json!({"model_name": "id_int32", "inputs": [input]})
    };
    let mut raw_short = input("INT32", json!({}));
    raw_short["raw_input_contents"] = json!(["AAA="]);
    let cases = [
        (
            input("INT32", json!({"contents": {"fp32_contents": [1.0]}})),
            "unexpected explicit tensor data for input tensor 'IN' for model 'id_int32' of type 'FP32', expected datatype 'INT32'",
        ),
        (
            input("INT32", json!({})),
            "unable to find data for input tensor 'IN' for model 'id_int32' in request.",
        ),
        (
            input("INT64", json!({"contents": {"int64_contents": ["1"]}})),
            "inference input 'IN' data-type is 'INT64', but model 'id_int32' expects 'INT32'",
        ),
        (raw_short, "input byte size mismatch for input 'IN' for model 'id_int32'. Expected 4, got 2"),
    ];
    for (request, expected) in cases {
        let (messages, status) = infer(&served, &request);
        let text = status.message.replace("[request id: <id_unknown>] ", "");
        assert_eq!(
            (messages.len(), status.name(), text.as_str()),
            (0, "INVALID_ARGUMENT", expected),
            "{request}"
        );
    }
    assert_serving(&served);
}

#[test]
fn a_client_that_announces_more_than_it_sends_affects_only_itself() {
    let served = served(&[]);
    for promise in [
        "POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
        "POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n{",
        "POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET /v2/health/live HTTP/1.1\r\nHost",
    ] {
        let mut connection = Connection::open(served.http).unwrap();
        connection.send(promise.as_bytes()).unwrap();
        connection.finish().unwrap();
        let answer = String::from_utf8(connection.rest().unwrap()).unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{promise}: {answer}");
    }
    assert_serving(&served);
}

#[test]
fn a_body_in_too_many_chunks_is_refused() {
    let served = served(&[]);
    let mut bytes =
        b"POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    bytes.extend(b"1\r\n \r\n".repeat(65_537));
    let mut connection = Connection::open(served.http).unwrap();
    connection.send(&bytes).unwrap();
    let response = connection.receive("POST").unwrap();
    assert_eq!((response.status, response.header("Connection")), (400, Some("close")), "{}", response.text());
    assert!(connection.is_closed_within(TIMEOUT));
    assert_serving(&served);
}

#[test]
fn mutated_requests_do_not_stop_the_server() {
    let served = served(&["--http-max-input-size=1000000"]);
    fuzz::throw(&served);
    assert_serving(&served);
    served.stop().unwrap();
}
