//! Prepares the request of a run.

use anyhow::Result;
use bytes::{BufMut, Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;
use proto::infer_parameter::ParameterChoice;

use crate::options::{PerfOptions, Protocol};
use crate::shared_memory::{RequestPlaces, TensorPlace};
use crate::tensors::InputTensor;

/// Path of the gRPC service.
pub(crate) const SERVICE: &str = "inference.GRPCInferenceService";

/// The characters that must be escaped in a path.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'/').add(b'?');

/// `/v2/models/M[/versions/V]`, with the name escaped where the path needs it.
pub(crate) fn model_path(options: &PerfOptions) -> String {
    let name = utf8_percent_encode(&options.model, ESCAPED);
    match &options.version {
        Some(version) => format!("/v2/models/{name}/versions/{version}"),
        None => format!("/v2/models/{name}"),
    }
}

/// A whole HTTP/1.1 GET request.
pub(crate) fn http_get(address: &str, path: &str) -> Bytes {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").into()
}

/// A whole HTTP/1.1 inference request, head and body.
///
/// # Errors
/// A tensor has no JSON form.
pub(crate) fn http_infer(
    options: &PerfOptions,
    tensors: &[InputTensor],
    places: Option<RequestPlaces<'_>>,
) -> Result<Bytes> {
    // Without tensors after it, the JSON part is the whole body.
    let binary = options.protocol == Protocol::HttpBinary && places.is_none();
    let header = match places {
        Some(places) => json_header_of_places(tensors, places, options.sequences)?,
        None => json_header(tensors, binary, options.sequences)?,
    };
    let tail: usize = if binary { tensors.iter().map(|tensor| tensor.bytes.len()).sum() } else { 0 };

    let mut request = BytesMut::with_capacity(512 + header.len() + tail);
    request.put_slice(format!("POST {}/infer HTTP/1.1\r\n", model_path(options)).as_bytes());
    request.put_slice(format!("Host: {}\r\n", options.address).as_bytes());
    if binary {
        request.put_slice(b"Content-Type: application/octet-stream\r\n");
        request.put_slice(format!("Inference-Header-Content-Length: {}\r\n", header.len()).as_bytes());
    } else {
        request.put_slice(b"Content-Type: application/json\r\n");
    }
    request.put_slice(format!("Content-Length: {}\r\n\r\n", header.len() + tail).as_bytes());
    request.put_slice(header.as_bytes());
    if binary {
        tensors.iter().for_each(|tensor| request.put_slice(&tensor.bytes));
    }
    Ok(request.freeze())
}

/// A whole HTTP/1.1 POST request.
pub(crate) fn http_post(address: &str, path: &str, body: &str) -> Bytes {
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json");
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into()
}

/// The body of a request whose tensors are in shared memory.
fn json_header_of_places(
    tensors: &[InputTensor],
    places: RequestPlaces<'_>,
    sequences: bool,
) -> Result<String> {
    let of = |place: &TensorPlace| {
        serde_json::json!({
            "shared_memory_region": places.region,
            "shared_memory_offset": place.offset,
            "shared_memory_byte_size": place.byte_size,
        })
    };
    let inputs = tensors.iter().zip(places.inputs).map(|(InputTensor { input, .. }, place)| {
        serde_json::json!({
            "name": input.name, "datatype": input.datatype, "shape": input.shape, "parameters": of(place),
        })
    });
    let outputs = places.outputs.iter();
    let outputs = outputs.map(|(name, place)| serde_json::json!({"name": name, "parameters": of(place)}));
    let mut request = serde_json::json!({
        "inputs": inputs.collect::<Vec<_>>(), "outputs": outputs.collect::<Vec<_>>(),
    });
    if sequences {
        request["parameters"] =
            serde_json::json!({"sequence_id": 1, "sequence_start": true, "sequence_end": true});
    }
    Ok(serde_json::to_string(&request)?)
}

fn json_header(tensors: &[InputTensor], binary: bool, sequences: bool) -> Result<String> {
    let mut inputs = Vec::new();
    for tensor in tensors {
        let input = &tensor.input;
        let content = if binary {
            format!(r#""parameters":{{"binary_data_size":{}}}"#, tensor.bytes.len())
        } else {
            format!(r#""data":{}"#, tensor.to_json()?)
        };
        inputs.push(format!(
            r#"{{"name":{},"datatype":"{}","shape":{},{content}}}"#,
            serde_json::to_string(&input.name)?,
            input.datatype,
            serde_json::to_string(&input.shape)?
        ));
    }
    // Without this parameter the outputs would come back as JSON numbers.
    let outputs = binary.then_some(r#""binary_data_output":true"#);
    // The request begins and ends the sequence. So the next request can use the same id at once.
    let sequence = sequences.then_some(r#""sequence_id":1,"sequence_start":true,"sequence_end":true"#);
    let parameters = outputs.into_iter().chain(sequence).collect::<Vec<_>>().join(",");
    Ok(format!(r#"{{"parameters":{{{parameters}}},"inputs":[{}]}}"#, inputs.join(",")))
}

/// A gRPC inference request: one length-prefixed message with raw tensors, or with the places of the tensors.
pub(crate) fn grpc_infer(
    options: &PerfOptions,
    tensors: &[InputTensor],
    places: Option<RequestPlaces<'_>>,
) -> Bytes {
    let choice = |choice| proto::InferParameter { parameter_choice: Some(choice) };
    let number = |number: u64| choice(ParameterChoice::Int64Param(number.cast_signed()));
    let placed = |region: &str, place: &TensorPlace| {
        let region = choice(ParameterChoice::StringParam(region.to_owned()));
        let parameters = [
            ("shared_memory_region", region),
            ("shared_memory_offset", number(place.offset)),
            ("shared_memory_byte_size", number(place.byte_size)),
        ];
        parameters.map(|(key, value)| (key.to_owned(), value)).into()
    };
    let inputs = tensors.iter().enumerate().map(|(index, InputTensor { input, .. })| {
        proto::model_infer_request::InferInputTensor {
            name: input.name.clone(),
            datatype: input.datatype.clone(),
            shape: input.shape.clone(),
            parameters: places.map(|places| placed(places.region, &places.inputs[index])).unwrap_or_default(),
            ..Default::default()
        }
    });
    let outputs = places.into_iter().flat_map(|places| {
        places.outputs.iter().map(move |(name, place)| {
            proto::model_infer_request::InferRequestedOutputTensor {
                name: name.clone(),
                parameters: placed(places.region, place),
            }
        })
    });
    let raw = tensors.iter().filter(|_| places.is_none());
    let sequence = [
        ("sequence_id", choice(ParameterChoice::Int64Param(1))),
        ("sequence_start", choice(ParameterChoice::BoolParam(true))),
        ("sequence_end", choice(ParameterChoice::BoolParam(true))),
    ];
    let parameters =
        sequence.into_iter().filter(|_| options.sequences).map(|(key, value)| (key.to_owned(), value));
    grpc_message(&proto::ModelInferRequest {
        parameters: parameters.collect(),
        model_name: options.model.clone(),
        model_version: options.version.clone().unwrap_or_default(),
        inputs: inputs.collect(),
        outputs: outputs.collect(),
        raw_input_contents: raw.map(|tensor| tensor.bytes.clone()).collect(),
        ..Default::default()
    })
}

/// Frames a message: a zero byte for "uncompressed", the length in big endian, and the message.
pub(crate) fn grpc_message(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(5 + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).expect("a message of over 4 GiB does not fit the memory set aside"));
    message.encode_raw(&mut framed);
    framed.freeze()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::model::ModelInput;
    use crate::options;

    fn options(line: &str) -> PerfOptions {
        options::parse(["perf"].into_iter().chain(line.split(' ')).map(Into::into)).unwrap()
    }

    fn tensor() -> InputTensor {
        let input = ModelInput { name: "I\"N".into(), datatype: "UINT8".into(), shape: vec![1, 2] };
        InputTensor { input, bytes: Bytes::from_static(&[7, 9]) }
    }

    fn head_and_body(request: &[u8]) -> (String, Vec<u8>) {
        let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        (String::from_utf8(request[..end].to_vec()).unwrap(), request[end + 4..].to_vec())
    }

    #[test]
    fn a_json_request_holds_its_numbers() {
        let request = http_infer(&options("-m m --payload json -u host:1"), &[tensor()], None).unwrap();
        let (head, body) = head_and_body(&request);
        assert!(head.starts_with("POST /v2/models/m/infer HTTP/1.1\r\nHost: host:1\r\n"), "{head}");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["inputs"][0]["name"], "I\"N");
        assert_eq!(body["inputs"][0]["data"], serde_json::json!([7, 9]));
    }

    #[test]
    fn a_binary_request_holds_its_bytes_behind_the_header() {
        let request = http_infer(&options("-m m -x 2"), &[tensor()], None).unwrap();
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
        let request = http_infer(&options("-m m --payload json --sequences"), &[tensor()], None).unwrap();
        let body: Value = serde_json::from_slice(&head_and_body(&request).1).unwrap();
        let expected = serde_json::json!({"sequence_id": 1, "sequence_start": true, "sequence_end": true});
        assert_eq!(body["parameters"], expected);
        let framed = grpc_infer(&options("-m m -i grpc --sequences"), &[tensor()], None);
        assert_eq!(proto::ModelInferRequest::decode(framed.slice(5..)).unwrap().parameters.len(), 3);
    }

    #[test]
    fn a_request_names_the_places_of_its_tensors() {
        let outputs = [("Y".to_owned(), TensorPlace { offset: 64, byte_size: 100 })];
        let inputs = [TensorPlace { offset: 0, byte_size: 2 }];
        let places = Some(RequestPlaces { region: "r", inputs: &inputs, outputs: &outputs });
        let line = "-m m --shared-memory system";
        let request = http_infer(&options(line), &[tensor()], places).unwrap();
        let (head, body) = head_and_body(&request);
        assert!(!head.contains("Inference-Header-Content-Length"), "{head}");
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["inputs"][0]["parameters"]["shared_memory_byte_size"], 2);
        assert_eq!(body["outputs"][0]["parameters"]["shared_memory_offset"], 64);
        let framed = grpc_infer(&options(&format!("{line} -i grpc")), &[tensor()], places);
        let request = proto::ModelInferRequest::decode(framed.slice(5..)).unwrap();
        assert!(request.raw_input_contents.is_empty());
        assert_eq!(request.outputs[0].name, "Y");
        let region = &request.inputs[0].parameters["shared_memory_region"];
        assert_eq!(region.parameter_choice, Some(ParameterChoice::StringParam("r".into())));
    }

    #[test]
    fn a_grpc_request_decodes_to_what_was_meant() {
        let framed = grpc_infer(&options("-m m -i grpc"), &[tensor()], None);
        assert_eq!(framed[..5], [0, 0, 0, 0, (framed.len() - 5) as u8]);
        let request = proto::ModelInferRequest::decode(framed.slice(5..)).unwrap();
        assert_eq!(request.model_name, "m");
        assert_eq!(request.inputs[0].shape, [1, 2]);
        assert_eq!(request.raw_input_contents, [&[7, 9][..]]);
    }
}
