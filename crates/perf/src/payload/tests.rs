//! What the requests hold, over both protocols.

use bytes::Bytes;
use prost::Message;
use proto::infer_parameter::ParameterChoice;
use serde_json::Value;

use super::grpc::{GrpcTemplate, choice};
use super::http::HttpTemplate;
use crate::model::ModelInput;
use crate::options::{self, PerfOptions};
use crate::sequences::PlannedPosition;
use crate::shared_memory::{RequestPlaces, TensorPlace};
use crate::tensors::InputTensor;

fn options(line: &str) -> PerfOptions {
    options::parse(["perf"].into_iter().chain(line.split_whitespace()).map(Into::into)).unwrap()
}

fn tensor() -> InputTensor {
    let input = ModelInput { name: "I\"N".into(), datatype: "UINT8".into(), shape: vec![1, 2] };
    InputTensor { input, bytes: Bytes::from_static(&[7, 9]) }
}

fn http_infer(options: &PerfOptions, places: Option<RequestPlaces<'_>>) -> Bytes {
    HttpTemplate::new(options, &[tensor()], places).unwrap().request(None)
}

fn grpc_infer(options: &PerfOptions, places: Option<RequestPlaces<'_>>) -> Bytes {
    GrpcTemplate::new(options, &[tensor()], places).request(None)
}

const MIDDLE: PlannedPosition = PlannedPosition { id: 7, start: false, end: true };

#[test]
fn requests_of_a_sequence_differ_in_their_parameters() {
    let template = HttpTemplate::new(&options("-m m"), &[tensor()], None).unwrap();
    let (head, body) = head_and_body(&template.request(Some(&MIDDLE)));
    let length = body.len() - 2;
    assert!(head.contains(&format!("Inference-Header-Content-Length: {length}\r\n")), "{head}");
    let json: Value = serde_json::from_slice(&body[..length]).unwrap();
    assert_eq!(json["parameters"]["sequence_id"], 7);
    assert_eq!(json["parameters"]["sequence_start"], false);
    assert_eq!(json["parameters"]["sequence_end"], true);
    let template = GrpcTemplate::new(&options("-m m -i grpc"), &[tensor()], None);
    let framed = template.request(Some(&MIDDLE));
    let request = proto::ModelInferRequest::decode(framed.slice(5..)).unwrap();
    assert_eq!(request.raw_input_contents, [&[7, 9][..]]);
    assert_eq!(request.parameters["sequence_id"], choice(ParameterChoice::Int64Param(7)));
    assert_eq!(request.parameters["sequence_end"], choice(ParameterChoice::BoolParam(true)));
}

#[test]
fn a_header_tells_the_sequence_of_a_request() {
    let options = options("-m m --sequence-header X-Sequence-Id");
    let template = HttpTemplate::new(&options, &[tensor()], None).unwrap();
    let (head, _) = head_and_body(&template.request(Some(&MIDDLE)));
    assert!(head.contains("\r\nx-sequence-id: 7\r\n"), "{head}");
    let (head, _) = head_and_body(&template.request(None));
    assert!(!head.contains("x-sequence-id"), "{head}");
}

#[test]
fn headers_and_parameters_of_the_command_line_are_in_each_request() {
    let line = "-m m -H Token:x --request-parameter a:1:int --request-parameter b:t:string \
                --request-parameter c:true:bool";
    let (head, body) = head_and_body(&http_infer(&options(&format!("{line} --payload json")), None));
    assert!(head.contains("\r\nToken: x\r\n"), "{head}");
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["parameters"], serde_json::json!({"a": 1, "b": "t", "c": true}));
    let framed = grpc_infer(&options(&format!("{line} -i grpc")), None);
    let request = proto::ModelInferRequest::decode(framed.slice(5..)).unwrap();
    assert_eq!(request.parameters["b"], choice(ParameterChoice::StringParam("t".into())));
    assert_eq!(request.parameters.len(), 3);
}

#[test]
fn outputs_have_a_format_of_their_own() {
    let parameters = |line: &str| {
        let (_, body) = head_and_body(&http_infer(&options(line), None));
        let end = body.iter().rposition(|&byte| byte == b'}').unwrap() + 1;
        serde_json::from_slice::<Value>(&body[..end]).unwrap()["parameters"].clone()
    };
    let binary = serde_json::json!({"binary_data_output": true});
    assert_eq!(parameters("-m m --input-tensor-format json"), binary);
    assert_eq!(parameters("-m m --output-tensor-format json"), serde_json::json!({}));
}

fn head_and_body(request: &[u8]) -> (String, Vec<u8>) {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8(request[..end].to_vec()).unwrap(), request[end + 4..].to_vec())
}

#[test]
fn a_json_request_holds_its_numbers() {
    let request = http_infer(&options("-m m --payload json -u host:1"), None);
    let (head, body) = head_and_body(&request);
    assert!(head.starts_with("POST /v2/models/m/infer HTTP/1.1\r\nHost: host:1\r\n"), "{head}");
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["inputs"][0]["name"], "I\"N");
    assert_eq!(body["inputs"][0]["data"], serde_json::json!([7, 9]));
}

#[test]
fn a_binary_request_holds_its_bytes_behind_the_header() {
    let request = http_infer(&options("-m m -x 2"), None);
    let (head, body) = head_and_body(&request);
    assert!(head.starts_with("POST /v2/models/m/versions/2/infer "), "{head}");
    let (json, tail) = body.split_at(body.len() - 2);
    assert_eq!(tail, [7, 9]);
    assert!(head.contains(&format!("Inference-Header-Content-Length: {}\r\n", json.len())), "{head}");
    let json: Value = serde_json::from_slice(json).unwrap();
    assert_eq!(json["inputs"][0]["parameters"]["binary_data_size"], 2);
    assert_eq!(json["parameters"]["binary_data_output"], true);
}

#[test]
fn each_request_may_be_its_own_sequence() {
    let request = http_infer(&options("-m m --payload json --sequences"), None);
    let body: Value = serde_json::from_slice(&head_and_body(&request).1).unwrap();
    let expected = serde_json::json!({"sequence_id": 1, "sequence_start": true, "sequence_end": true});
    assert_eq!(body["parameters"], expected);
    let framed = grpc_infer(&options("-m m -i grpc --sequences"), None);
    assert_eq!(proto::ModelInferRequest::decode(framed.slice(5..)).unwrap().parameters.len(), 3);
}

#[test]
fn a_request_names_the_places_of_its_tensors() {
    let outputs = [("Y".to_owned(), TensorPlace { offset: 64, byte_size: 100 })];
    let inputs = [TensorPlace { offset: 0, byte_size: 2 }];
    let places = Some(RequestPlaces { region: "r", inputs: &inputs, outputs: &outputs });
    let line = "-m m --shared-memory system";
    let request = http_infer(&options(line), places);
    let (head, body) = head_and_body(&request);
    assert!(!head.contains("Inference-Header-Content-Length"), "{head}");
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["inputs"][0]["parameters"]["shared_memory_byte_size"], 2);
    assert_eq!(body["outputs"][0]["parameters"]["shared_memory_offset"], 64);
    let framed = grpc_infer(&options(&format!("{line} -i grpc")), places);
    let request = proto::ModelInferRequest::decode(framed.slice(5..)).unwrap();
    assert!(request.raw_input_contents.is_empty());
    assert_eq!(request.outputs[0].name, "Y");
    let region = &request.inputs[0].parameters["shared_memory_region"];
    assert_eq!(region.parameter_choice, Some(ParameterChoice::StringParam("r".into())));
}

#[test]
fn a_grpc_request_decodes_to_what_was_meant() {
    let framed = grpc_infer(&options("-m m -i grpc"), None);
    assert_eq!(framed[..5], [0, 0, 0, 0, (framed.len() - 5) as u8]);
    let request = proto::ModelInferRequest::decode(framed.slice(5..)).unwrap();
    assert_eq!(request.model_name, "m");
    assert_eq!(request.inputs[0].shape, [1, 2]);
    assert_eq!(request.raw_input_contents, [&[7, 9][..]]);
}
