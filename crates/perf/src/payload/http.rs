//! The inference requests over HTTP/1.1.

use anyhow::{Context, Result};
use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderName;

use super::members::{json_of_sequence, json_parameters};
use crate::http_request::{headers, model_path, sequence_header};
use crate::options::{PerfOptions, Protocol};
use crate::sequences::PlannedPosition;
use crate::shared_memory::{RequestPlaces, TensorPlace};
use crate::tensors::InputTensor;

/// An inference request over HTTP/1.1 in its parts.
pub(crate) struct HttpTemplate {
    /// The request line and the headers that do not depend on the body.
    head: String,
    /// The members of the parameters object.
    parameters: String,
    /// The JSON after the parameters object, with the last brace.
    rest: String,
    /// What follows the JSON. Empty if no tensor is binary.
    tail: Bytes,
    is_binary: bool,
    sequence_header: Option<HeaderName>,
}

impl HttpTemplate {
    /// # Errors
    /// A tensor has no JSON form.
    pub(crate) fn new(
        options: &PerfOptions,
        tensors: &[InputTensor],
        places: Option<RequestPlaces<'_>>,
    ) -> Result<HttpTemplate> {
        // Without tensors after it, the JSON part is the whole body.
        let is_binary = options.protocol == Protocol::HttpBinary && places.is_none();
        let rest = match places {
            Some(places) => json_of_places(tensors, places)?,
            None => json_of_tensors(tensors, is_binary)?,
        };
        let mut tail = BytesMut::new();
        if is_binary {
            tensors.iter().for_each(|tensor| tail.put_slice(&tensor.bytes));
        }
        Ok(HttpTemplate {
            head: format!("POST {}/infer HTTP/1.1\r\n{}", model_path(options), headers(options)),
            parameters: json_parameters(options, places.is_none() && options.binary_outputs)?,
            rest,
            tail: tail.freeze(),
            is_binary,
            sequence_header: options.sequences.header.clone(),
        })
    }

    /// The whole request, head and body.
    pub(crate) fn request(&self, position: Option<&PlannedPosition>) -> Bytes {
        let mut json = String::with_capacity(self.parameters.len() + self.rest.len() + 128);
        json.push_str(r#"{"parameters":{"#);
        json.push_str(&self.parameters);
        if let Some(position) = position {
            let comma = if self.parameters.is_empty() { "" } else { "," };
            json.push_str(comma);
            json.push_str(&json_of_sequence(position));
        }
        json.push_str("},");
        json.push_str(&self.rest);
        let mut request = BytesMut::with_capacity(self.head.len() + 160 + json.len() + self.tail.len());
        request.put_slice(self.head.as_bytes());
        request.put_slice(sequence_header(self.sequence_header.as_ref(), position).as_bytes());
        if self.is_binary {
            request.put_slice(b"Content-Type: application/octet-stream\r\n");
            request.put_slice(format!("Inference-Header-Content-Length: {}\r\n", json.len()).as_bytes());
        } else {
            request.put_slice(b"Content-Type: application/json\r\n");
        }
        request.put_slice(format!("Content-Length: {}\r\n\r\n", json.len() + self.tail.len()).as_bytes());
        request.put_slice(json.as_bytes());
        request.put_slice(&self.tail);
        request.freeze()
    }
}

/// The inputs and outputs of a request whose tensors are in shared memory.
fn json_of_places(tensors: &[InputTensor], places: RequestPlaces<'_>) -> Result<String> {
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
    let inputs = serde_json::to_string(&inputs.collect::<Vec<_>>())?;
    let outputs = serde_json::to_string(&outputs.collect::<Vec<_>>())?;
    Ok(format!(r#""inputs":{inputs},"outputs":{outputs}}}"#))
}

fn json_of_tensors(tensors: &[InputTensor], is_binary: bool) -> Result<String> {
    let mut inputs = Vec::new();
    for tensor in tensors {
        let input = &tensor.input;
        let content = if is_binary {
            format!(r#""parameters":{{"binary_data_size":{}}}"#, tensor.bytes.len())
        } else {
            let cannot = || format!("input '{}' cannot be JSON: use --payload binary or grpc", input.name);
            format!(r#""data":{}"#, tensor.to_json().with_context(cannot)?)
        };
        inputs.push(format!(
            r#"{{"name":{},"datatype":"{}","shape":{},{content}}}"#,
            serde_json::to_string(&input.name)?,
            input.datatype,
            serde_json::to_string(&input.shape)?
        ));
    }
    Ok(format!(r#""inputs":[{}]}}"#, inputs.join(",")))
}
