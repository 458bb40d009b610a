//! Prepares the requests of a run, so that sending one costs little.
//!
//! A request whose parameters never change is prepared as a whole. A request of a sequence differs from the others in the
//! id and the flags, so it is put together from prepared parts.

mod generate;

use anyhow::{Context, Result};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use proto::infer_parameter::ParameterChoice;

pub(crate) use self::generate::GenerateTemplate;
use crate::framing::frame;
use crate::http_request::{headers, model_path};
use crate::options::{GivenParameter, MessageCompression, PerfOptions, Protocol};
use crate::sequences::SequencePosition;
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
        })
    }

    /// The whole request, head and body.
    pub(crate) fn request(&self, position: Option<&SequencePosition>) -> Bytes {
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

/// The place of a request that begins and ends its sequence.
const ONLY: SequencePosition = SequencePosition { id: 1, start: true, end: true };

/// The parameters of a sequence, as members of an object.
fn json_of_sequence(SequencePosition { id, start, end }: &SequencePosition) -> String {
    format!(r#""sequence_id":{id},"sequence_start":{start},"sequence_end":{end}"#)
}

/// The members of the parameters object of every request.
fn json_parameters(options: &PerfOptions, binary_outputs: bool) -> Result<String> {
    let mut members = Vec::new();
    // Without this parameter the outputs would come back as JSON numbers.
    if binary_outputs && options.protocol != Protocol::Grpc {
        members.push(r#""binary_data_output":true"#.to_owned());
    }
    // The request begins and ends the sequence. So the next request can use the same id at once.
    if options.sequences.of_one_request {
        members.push(json_of_sequence(&ONLY));
    }
    for (name, value) in &options.parameters {
        let value = match value {
            GivenParameter::Bool(value) => value.to_string(),
            GivenParameter::Int(value) => value.to_string(),
            GivenParameter::Text(value) => serde_json::to_string(value)?,
        };
        members.push(format!("{}:{value}", serde_json::to_string(name)?));
    }
    Ok(members.join(","))
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

/// An inference request of gRPC: the encoded message without the parameters of a sequence.
pub(crate) struct GrpcTemplate {
    message: Vec<u8>,
    compression: Option<MessageCompression>,
}

impl GrpcTemplate {
    /// A request with raw tensors, or with the places of the tensors.
    pub(crate) fn new(
        options: &PerfOptions,
        tensors: &[InputTensor],
        places: Option<RequestPlaces<'_>>,
    ) -> GrpcTemplate {
        let inputs = tensors.iter().enumerate().map(|(index, InputTensor { input, .. })| {
            proto::model_infer_request::InferInputTensor {
                name: input.name.clone(),
                datatype: input.datatype.clone(),
                shape: input.shape.clone(),
                parameters: places
                    .map(|places| placed(places.region, &places.inputs[index]).into())
                    .unwrap_or_default(),
                ..Default::default()
            }
        });
        let outputs = places.into_iter().flat_map(|places| {
            places.outputs.iter().map(move |(name, place)| {
                proto::model_infer_request::InferRequestedOutputTensor {
                    name: name.clone(),
                    parameters: placed(places.region, place).into(),
                }
            })
        });
        let raw = tensors.iter().filter(|_| places.is_none());
        let request = proto::ModelInferRequest {
            parameters: grpc_parameters(options).collect(),
            model_name: options.model.clone(),
            model_version: options.version.clone().unwrap_or_default(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            raw_input_contents: raw.map(|tensor| tensor.bytes.clone()).collect(),
            ..Default::default()
        };
        GrpcTemplate { message: request.encode_to_vec(), compression: options.compression }
    }

    /// The framed request.
    pub(crate) fn request(&self, position: Option<&SequencePosition>) -> Bytes {
        match position {
            None => frame(&[&self.message], self.compression),
            Some(position) => {
                // Encoded messages that follow each other are one message with the fields of both.
                let parameters = of_sequence(position).map(|(key, value)| (key.to_owned(), value)).into();
                let more = proto::ModelInferRequest { parameters, ..Default::default() };
                frame(&[&self.message, &more.encode_to_vec()], self.compression)
            }
        }
    }
}

type NamedParameter = (String, proto::InferParameter);

fn choice(choice: ParameterChoice) -> proto::InferParameter {
    proto::InferParameter { parameter_choice: Some(choice) }
}

fn placed(region: &str, place: &TensorPlace) -> [NamedParameter; 3] {
    let number = |number: u64| choice(ParameterChoice::Int64Param(number.cast_signed()));
    let region = choice(ParameterChoice::StringParam(region.to_owned()));
    let parameters = [
        ("shared_memory_region", region),
        ("shared_memory_offset", number(place.offset)),
        ("shared_memory_byte_size", number(place.byte_size)),
    ];
    parameters.map(|(key, value)| (key.to_owned(), value))
}

fn of_sequence(position: &SequencePosition) -> [(&'static str, proto::InferParameter); 3] {
    [
        ("sequence_id", choice(ParameterChoice::Int64Param(position.id.cast_signed()))),
        ("sequence_start", choice(ParameterChoice::BoolParam(position.start))),
        ("sequence_end", choice(ParameterChoice::BoolParam(position.end))),
    ]
}

/// The parameters of every request.
fn grpc_parameters(options: &PerfOptions) -> impl Iterator<Item = NamedParameter> {
    let sequence = of_sequence(&ONLY).into_iter().filter(|_| options.sequences.of_one_request);
    let own = options.parameters.iter().map(|(name, value)| {
        let value = match value {
            GivenParameter::Bool(value) => ParameterChoice::BoolParam(*value),
            GivenParameter::Int(value) => ParameterChoice::Int64Param(*value),
            GivenParameter::Text(value) => ParameterChoice::StringParam(value.clone()),
        };
        (name.clone(), choice(value))
    });
    sequence.map(|(key, value)| (key.to_owned(), value)).chain(own)
}

#[cfg(test)]
mod tests;
