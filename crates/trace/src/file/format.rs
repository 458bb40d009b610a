//! The text of traces, as Triton's tools read it.
use inference::TensorActivity;
use serde_json::Value;

use super::numbers;
use crate::record::{FinishedRequest, TraceElement, TraceTensor, TracedModel};

/// Appends the elements of the requests of a trace, separated by commas.
pub(super) fn append_trace(text: &mut Vec<u8>, requests: &[FinishedRequest]) {
    for request in requests {
        for element in &request.elements {
            if !text.is_empty() {
                text.push(b',');
            }
            append_element(text, request, element);
        }
    }
}

fn append_element(text: &mut Vec<u8>, request: &FinishedRequest, element: &TraceElement) {
    put(text, "{\"id\":");
    put_number(text, request.identity.id);
    match element {
        TraceElement::Accepted => append_model(text, request),
        TraceElement::Time(name, at) => append_time(text, name, *at),
        TraceElement::Custom(name, at) => append_time(text, name, *at),
        TraceElement::Tensor(tensor) => append_tensor(text, tensor),
        TraceElement::Batch(_) => {}
    }
    text.push(b'}');
}

fn append_model(text: &mut Vec<u8>, request: &FinishedRequest) {
    let Some(TracedModel { name, version, request_id }) = &request.about else { return };
    put(text, ",\"model_name\":");
    put_text(text, name);
    put(text, ",\"model_version\":");
    put(text, itoa::Buffer::new().format(*version));
    if !request_id.is_empty() {
        put(text, ",\"request_id\":");
        put_text(text, request_id);
    }
    if request.identity.parent_id != 0 {
        put(text, ",\"parent_id\":");
        put_number(text, request.identity.parent_id);
    }
}

fn append_time(text: &mut Vec<u8>, name: &str, at: u64) {
    put(text, ",\"timestamps\":[{\"name\":");
    put_text(text, name);
    put(text, ",\"ns\":");
    put_number(text, at);
    put(text, "}]");
}

fn append_tensor(text: &mut Vec<u8>, tensor: &TraceTensor) {
    put(text, ",\"activity\":");
    put_text(
        text,
        match tensor.activity {
            TensorActivity::QueueInput => "TENSOR_QUEUE_INPUT",
            TensorActivity::BackendOutput => "TENSOR_BACKEND_OUTPUT",
        },
    );
    put(text, ",\"tensor\":{\"name\":");
    put_text(text, &tensor.name);
    put(text, ",\"data\":");
    put_text(text, &numbers::text(tensor.datatype, &tensor.data));
    put(text, ",\"shape\":");
    let shape: Vec<_> = tensor.shape.iter().map(i64::to_string).collect();
    put_text(text, &shape.join(","));
    put(text, ",\"dtype\":");
    put_text(text, tensor.datatype.protocol_name());
    text.push(b'}');
}

fn put(text: &mut Vec<u8>, part: &str) {
    text.extend_from_slice(part.as_bytes());
}

fn put_number(text: &mut Vec<u8>, number: u64) {
    put(text, itoa::Buffer::new().format(number));
}

/// A JSON string, with everything escaped that must be (P-W33).
fn put_text(text: &mut Vec<u8>, content: &str) {
    put(text, &Value::from(content).to_string());
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use inference::TraceIdentity;
    use vocabulary::{ByteBudget, DataType};

    use super::*;
    use crate::record::ModelSpans;

    fn request(parent_id: u64, request_id: &str, elements: Vec<TraceElement>) -> FinishedRequest {
        FinishedRequest {
            identity: TraceIdentity { id: 3, parent_id },
            spans: ModelSpans::default(),
            about: Some(TracedModel { name: "m\"n".into(), version: 2, request_id: request_id.into() }),
            elements,
            _reservation: ByteBudget::new(0).reservation(),
        }
    }

    fn formatted(requests: &[FinishedRequest]) -> String {
        let mut text = Vec::new();
        append_trace(&mut text, requests);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn each_kind_of_element_has_its_form() {
        let tensor = TraceTensor {
            activity: TensorActivity::QueueInput,
            name: "IN".into(),
            datatype: DataType::Int32,
            shape: vec![1, 2],
            data: Bytes::from_static(&[1, 0, 0, 0, 255, 255, 255, 255]),
        };
        let elements = vec![
            TraceElement::Time("HTTP_RECV_START", 5),
            TraceElement::Accepted,
            TraceElement::Tensor(tensor),
            TraceElement::Custom("a\nb".into(), 6),
        ];
        assert_eq!(
            formatted(&[request(0, "", elements), request(9, "r", vec![TraceElement::Accepted])]),
            concat!(
                r#"{"id":3,"timestamps":[{"name":"HTTP_RECV_START","ns":5}]},"#,
                r#"{"id":3,"model_name":"m\"n","model_version":2},"#,
                r#"{"id":3,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"IN","data":"1,-1","shape":"1,2","dtype":"INT32"}},"#,
                r#"{"id":3,"timestamps":[{"name":"a\nb","ns":6}]},"#,
                r#"{"id":3,"model_name":"m\"n","model_version":2,"request_id":"r","parent_id":9}"#,
            )
        );
    }
}
