//! Makes a request of a decoded `ModelInferRequest`.
//!
//! This module checks only the message itself. The engine checks whether the request fits the model. The checks have
//! the reference's order, so that both servers refuse a request with two errors for the same one.
use std::{num::NonZeroU64, sync::Arc};

use engine::Model;
use http::HeaderMap;
use inference::{
    ByteReservation, ClientId, DataType, Error, Name, Request, RequestInputs, Tensor, TensorData, id_prefix,
};

use super::{
    contents,
    decode::{Choice, InferInput, InferMessage, InferRequestedOutput},
    encode::InferResponse,
    parameters,
    state::GrpcState,
};
use crate::cache_headers;
use crate::kserve::{
    output::{Placement, RequestedOutput, RequestedOutputs},
    shared_memory, version,
};

/// What the server keeps of a running request, to answer it.
pub(crate) struct RequestContext {
    pub(crate) model: Arc<Model>,
    pub(crate) id: Name,
    /// The client asked for a final response even if it is empty.
    pub(crate) empty_final: bool,
    requested_outputs: RequestedOutputs,
}

/// How a message came.
pub(crate) struct MessageOrigin<'h> {
    /// The headers of its call.
    pub(crate) headers: &'h HeaderMap,
    /// Holds its bytes.
    pub(crate) reservation: ByteReservation,
    /// The client, if it came on a stream.
    pub(crate) stream: Option<ClientId>,
}

/// The model that a message asks for.
///
/// # Errors
/// The version is not a number, or the model does not exist.
pub(crate) fn model(state: &GrpcState, message: &InferMessage<'_>) -> Result<Arc<Model>, Error> {
    let version = version::parse(&message.model_version)?;
    state.engine.model(&message.model_name, version)
}

/// Writes what the message asks for into `request`, which must be empty.
///
/// # Errors
/// The message contradicts itself, the schema or the model, or there is no room for its inputs.
// The caller supplies the memory, because a request is moved as seldom as possible.
pub(crate) fn decode(
    state: &GrpcState,
    model: Arc<Model>,
    message: InferMessage<'_>,
    origin: MessageOrigin<'_>,
    request: &mut Request,
) -> Result<RequestContext, Error> {
    let MessageOrigin { headers, reservation, stream } = origin;
    let id = Name::new(&message.id);
    request.id = id.clone();
    request.model_version = version::parse(&message.model_version)?;
    if stream.is_some() {
        request.client = stream;
        request.most_unread = state.options.most_unread_responses;
    }
    let empty_final = parameters::read(&message.parameters, request)?;
    forward(state, headers, request)?;
    request.cache_control = cache_headers::of_request(headers);
    let mut raw = Raw { any: !message.raw_contents.is_empty(), rest: message.raw_contents.into_iter() };
    let tensors: Result<_, _> =
        message.inputs.into_iter().map(|input| tensor(input, &mut raw, &model, &id)).collect();
    request.inputs = RequestInputs::Tensors(tensors?);
    let mut requested_outputs = RequestedOutputs::all(Placement::Binary);
    let mut names = Vec::with_capacity(message.outputs.len());
    for output in &message.outputs {
        let spec = model.config().output(&output.name);
        let name = spec.map_or_else(|| Name::new(&output.name), |spec| spec.name.clone());
        if let Some(classes) = classes(output)? {
            requested_outputs
                .add(name.clone(), RequestedOutput { placement: Placement::Binary, classes: Some(classes) });
        }
        names.push(name);
    }
    request.outputs = names.into();
    request.count_in(reservation)?;
    Ok(RequestContext { model, id, empty_final, requested_outputs })
}

impl RequestContext {
    /// Converts the outputs of a response into the form that the client asked for.
    ///
    /// # Errors
    /// An output cannot be classified.
    pub(crate) fn finish(&self, response: &mut inference::Response) -> Result<(), Error> {
        self.requested_outputs.classify_for(self.model.config(), &mut response.outputs)
    }

    /// The message for a response. Streams set `last`.
    pub(crate) fn message<'a>(
        &'a self,
        response: &'a inference::Response,
        version: &'a str,
        last: Option<bool>,
    ) -> InferResponse<'a> {
        InferResponse {
            model_name: self.model.name(),
            model_version: version,
            id: &self.id,
            parameters: &response.parameters,
            last,
            outputs: &response.outputs,
        }
    }
}

/// Turns metadata into parameters, as the server's options say. Headers that gRPC itself needs are never forwarded.
fn forward(state: &GrpcState, headers: &HeaderMap, request: &mut Request) -> Result<(), Error> {
    let Some(forward) = &state.options.forward else { return Ok(()) };
    for (name, value) in headers {
        let name = name.as_str();
        if !name.starts_with("grpc-") && !matches!(name, "te" | "content-type") {
            forward.forward(name, value.as_bytes(), &mut request.parameters)?;
        }
    }
    Ok(())
}

/// The raw contents of a message. They belong to the inputs without typed contents.
struct Raw {
    any: bool,
    rest: smallvec::IntoIter<[TensorData; 2]>,
}

/// An input with its bytes: its typed contents, or the next raw contents.
fn tensor(input: InferInput<'_>, raw: &mut Raw, model: &Model, id: &Name) -> Result<Tensor, Error> {
    let spec = model.config().input(&input.name);
    let name = spec.map_or_else(|| Name::new(&input.name), |spec| spec.name.clone());
    let model_name = model.name();
    let region = contents::region(&input.parameters, &name)?;
    if let Some(region) = region {
        return Err(if input.contents.is_some() {
            Error::invalid(format!(
                "unexpected 'content' provided when using shared memory for input tensor '{name}' for model \
                 '{model_name}'"
            ))
        } else {
            shared_memory::unknown_region(region)
        });
    }
    let data = match input.contents {
        Some(_) if raw.any => {
            return Err(Error::invalid(format!(
                "contents field must not be specified when using raw_input_contents for '{name}' for model \
                 '{model_name}'"
            )));
        }
        Some(contents) => contents::bytes(*contents, input.datatype, &name, model_name)?,
        None => raw.rest.next().ok_or_else(|| {
            Error::invalid(format!(
                "unable to find data for input tensor '{name}' for model '{model_name}' in request."
            ))
        })?,
    };
    let datatype = match (input.datatype, spec) {
        (Some(datatype), _) => datatype,
        (None, Some(spec)) => {
            return Err(Error::invalid(format!(
                "{}inference input '{name}' data-type is '{}', but model '{model_name}' expects '{}'",
                id_prefix(id),
                contents::INVALID,
                spec.datatype.protocol_name()
            )));
        }
        // The model has no such input. The engine refuses the input by its name, so the datatype does not matter.
        (None, None) => DataType::Bytes,
    };
    Ok(Tensor::new(name, datatype, input.shape, data))
}

/// How many of the best classes of an output the client wants.
fn classes(output: &InferRequestedOutput<'_>) -> Result<Option<NonZeroU64>, Error> {
    let region = contents::region(&output.parameters, &output.name)?;
    let choice = output.parameters.iter().find(|(key, _)| key == "classification").map(|(_, choice)| choice);
    let classes = match choice {
        None => None,
        Some(Some(Choice::Int64(count))) => {
            let count = u64::try_from(*count).ok().and_then(NonZeroU64::new);
            Some(count.ok_or_else(|| {
                Error::invalid("invalid value for 'classification' parameter, expected >= 0")
            })?)
        }
        Some(_) => {
            return Err(Error::invalid(
                "invalid value type for 'classification' parameter, expected int64_param",
            ));
        }
    };
    match region {
        Some(_) if classes.is_some() => {
            Err(Error::invalid("output can't set both 'shared_memory_region' and 'classification'"))
        }
        Some(region) => Err(shared_memory::unknown_region(region)),
        None => Ok(classes),
    }
}
