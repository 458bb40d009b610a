//! The inference requests of gRPC.

use bytes::Bytes;
use client::framing::{MessageCompression, frame};
use prost::Message;
use proto::infer_parameter::ParameterChoice;

use crate::options::{GivenParameter, PerfOptions};
use crate::sequences::PlannedPosition;
use crate::shared_memory::{RequestPlaces, TensorPlace};
use crate::tensors::InputTensor;

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
    pub(crate) fn request(&self, position: Option<&PlannedPosition>) -> Bytes {
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

pub(super) fn choice(choice: ParameterChoice) -> proto::InferParameter {
    proto::InferParameter { parameter_choice: Some(choice) }
}

fn placed(region: &str, place: &TensorPlace) -> [(String, proto::InferParameter); 3] {
    let number = |number: u64| choice(ParameterChoice::Int64Param(number.cast_signed()));
    let region = choice(ParameterChoice::StringParam(region.to_owned()));
    let parameters = [
        ("shared_memory_region", region),
        ("shared_memory_offset", number(place.offset)),
        ("shared_memory_byte_size", number(place.byte_size)),
    ];
    parameters.map(|(key, value)| (key.to_owned(), value))
}

fn of_sequence(position: &PlannedPosition) -> [(&'static str, proto::InferParameter); 3] {
    [
        ("sequence_id", choice(ParameterChoice::Int64Param(position.id.cast_signed()))),
        ("sequence_start", choice(ParameterChoice::BoolParam(position.start))),
        ("sequence_end", choice(ParameterChoice::BoolParam(position.end))),
    ]
}

/// The parameters of every request.
fn grpc_parameters(options: &PerfOptions) -> impl Iterator<Item = (String, proto::InferParameter)> {
    let sequence =
        of_sequence(&PlannedPosition::ONLY).into_iter().filter(|_| options.sequences.of_one_request);
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
