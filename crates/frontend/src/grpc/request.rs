//! Makes a request of a decoded `ModelInferRequest`.
//!
//! This module checks only the message itself. The engine checks whether the request fits the model. The checks have
//! the reference's order, so that both servers refuse a request with two errors for the same one.
use std::{num::NonZeroU64, sync::Arc};

use engine::Model;
use http::HeaderMap;
use inference::{Request, RequestInputs, id_prefix};
use kserve::{
    lengths::MAX_ID,
    output::{Placement, RequestedOutput, RequestedOutputs},
    shared_memory::RegionRange,
    version,
};
use shared_memory::ClientRegions;
use trace::RequestTrace;
use vocabulary::{
    ByteBudget, ByteReservation, DataType, Error, Name, Tensor, TensorData, TensorMemory, check_length,
};

use super::{
    call::CallHead,
    grpc_context::GrpcContext,
    message::{
        contents::{self, ContentsRoom},
        decode::{
            self, GrpcParameter, InferInput, InferMessage, InferRequestedOutput, InvalidMessage, MAX_DIMS,
        },
        encode::InferResponse,
        framing::ReceivedMessage,
        parameters,
    },
    status::Status,
};
use crate::{
    access::{Category, is_key_header},
    cache_headers,
    decode_pool::{self, PooledResult, Written},
    tracing::MessageTimes,
};

/// A response that gets the form that the client asked for, in the pool.
pub(crate) type FinishWork = PooledResult<Result<Written<inference::Response>, Error>>;

/// What the server keeps of a running request, to answer it.
pub(crate) struct RequestContext {
    pub(crate) model: Arc<Model>,
    pub(crate) id: Name,
    /// The client asked for a final response even if it is empty.
    pub(crate) empty_final: bool,
    requested_outputs: RequestedOutputs,
    /// The trace of the request, if it is sampled.
    pub(crate) trace: Option<RequestTrace>,
}

/// Checks that the id and the names of a message are not too long, and that its sender may use the model that it asks for,
/// which need not exist.
///
/// # Errors
/// A text is too long, or the API key does not permit it.
pub(crate) fn check(call: &CallHead, message: &InferMessage<'_>) -> Result<(), Status> {
    check_length("the id of the request", &message.id, MAX_ID)?;
    check_length("the name of the model", &message.model_name, MAX_ID)?;
    check_length("the version of the model", &message.model_version, MAX_ID)?;
    Ok(call.access.check(Category::Inference, Some(&message.model_name))?)
}

/// Waits for the load of the model that a message asks for, if that is not in memory and models are loaded on demand. `None`
/// if there is nothing to wait for: what is wrong with the message is said when it is decoded.
pub(crate) fn load_before(
    endpoint: &Arc<GrpcContext>,
    call: &CallHead,
    message: &ReceivedMessage,
) -> Option<impl Future<Output = Result<(), Error>> + Send + use<>> {
    if !endpoint.engine.demands().load_models() {
        return None;
    }
    let message = InferMessage::decode(&message.frames).ok()?;
    let version = version::parse(&message.model_version).ok()?;
    if check(call, &message).is_err() || !endpoint.engine.demands().must_wait(&message.model_name, version) {
        return None;
    }
    let (endpoint, call, name) = (endpoint.clone(), call.clone(), message.model_name.into_owned());
    Some(async move { endpoint.demand(&call, &name, version).await.map(drop) })
}

/// Reserves the copies that the decoding of a message may make of its texts: those that lie in several frames are joined,
/// and those that the request keeps are copied.
///
/// # Errors
/// The budget would be exceeded.
pub(crate) fn reserve_copies(
    endpoint: &GrpcContext,
    message: &ReceivedMessage,
) -> Result<ByteReservation, Error> {
    let texts = decode::bytes_besides_contents(&message.frames);
    Ok(endpoint.engine.inflight_bytes().reserve(texts.saturating_mul(2))?)
}

/// Writes what the message of a call asks for into `request`, which must be empty. `reservation` has the bytes of the message;
/// `times` says when it came, if requests are traced.
///
/// # Errors
/// The message contradicts itself, the schema or the model, exceeds a limit, or there is no room for its inputs.
// The caller supplies the memory, because a request is moved as seldom as possible.
pub(crate) fn decode(
    endpoint: &GrpcContext,
    call: &CallHead,
    (model, message): (Arc<Model>, InferMessage<'_>),
    (mut reservation, times): (ByteReservation, Option<MessageTimes>),
    request: &mut Request,
) -> Result<RequestContext, InvalidMessage> {
    let headers = &call.headers;
    let trace = times.and_then(|times| times.sample(&endpoint.options.tracer, model.name(), headers));
    request.trace = trace.as_ref().map(RequestTrace::context);
    let id = Name::new(&message.id);
    request.id = id.clone();
    request.model_version = version::parse(&message.model_version)?;
    if call.stream.is_some() {
        request.client = call.stream;
        request.most_unread = endpoint.options.most_unread_responses;
    }
    let empty_final = parameters::read(&message.parameters, request)?;
    forward(endpoint, headers, request)?;
    request.cache_control = cache_headers::of_request(headers);
    let mut raw = Raw { any: !message.raw_contents.is_empty(), rest: message.raw_contents.into_iter() };
    let mut room = ContentsRoom::new(&mut reservation);
    let regions = &endpoint.options.regions;
    let tensors: Result<Vec<_>, _> = message
        .inputs
        .into_iter()
        .map(|input| tensor(input, (&mut raw, &mut room), &model, &id, regions))
        .collect();
    let tensors = tensors?;
    room.release_written();
    let mut requested_outputs = RequestedOutputs::all(Placement::Binary);
    for tensor in &tensors {
        if let TensorMemory::Foreign(memory) = tensor.memory() {
            requested_outputs.regions().reads(memory.clone());
        }
    }
    request.inputs = RequestInputs::Tensors(tensors);
    let mut names = Vec::with_capacity(message.outputs.len());
    for output in &message.outputs {
        check_length("the name of an output", &output.name, MAX_ID)?;
        let spec = model.config().output(&output.name);
        let name = spec.map_or_else(|| Name::new(&output.name), |spec| spec.name.clone());
        match output_form(output)? {
            OutputForm::Elements => {}
            OutputForm::Classes(classes) => requested_outputs
                .add(name.clone(), RequestedOutput { placement: Placement::Binary, classes: Some(classes) }),
            OutputForm::Region(range) => {
                requested_outputs.regions().writes(name.clone(), range.memory(regions)?);
            }
        }
        names.push(name);
    }
    request.outputs = names.into();
    request.output_placement = requested_outputs.placement();
    request.count_in(reservation)?;
    Ok(RequestContext { model, id, empty_final, requested_outputs, trace })
}

impl RequestContext {
    /// Converts the outputs of a response into the form that the client asked for.
    ///
    /// # Errors
    /// An output cannot be classified, or does not fit into its region.
    pub(crate) fn finish(&self, response: &mut inference::Response) -> Result<(), Error> {
        self.requested_outputs.finish_for(self.model.config(), &mut response.outputs, None)
    }

    /// As [`RequestContext::finish`], for a response that takes long. What is written meanwhile counts in `budget`.
    pub(crate) fn finish_in_pool(
        &self,
        mut response: inference::Response,
        budget: &Arc<ByteBudget>,
    ) -> FinishWork {
        let (model, requested_outputs) = (self.model.clone(), self.requested_outputs.clone());
        decode_pool::write_in_pool(budget.reservation(), move |long| {
            requested_outputs.finish_for(model.config(), &mut response.outputs, Some(long))?;
            Ok(response)
        })
    }

    /// Whether [`RequestContext::finish`] would take long.
    pub(crate) fn takes_long(&self, response: &inference::Response) -> bool {
        self.requested_outputs.is_long(&response.outputs)
    }

    /// No further response is written: the regions of shared memory are free before the client has the last one.
    pub(crate) fn release_regions(&mut self) {
        self.requested_outputs = RequestedOutputs::default();
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

/// Turns metadata into parameters, as the server's options say. Headers that gRPC itself needs are never forwarded, nor
/// are API keys.
fn forward(endpoint: &GrpcContext, headers: &HeaderMap, request: &mut Request) -> Result<(), Error> {
    let Some(forward) = &endpoint.options.forward else { return Ok(()) };
    let has_keys = endpoint.options.api_keys.is_some();
    for (name, value) in headers {
        let name = name.as_str();
        if has_keys && is_key_header(name) {
            continue;
        }
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
fn tensor(
    input: InferInput<'_>,
    (raw, room): (&mut Raw, &mut ContentsRoom<'_>),
    model: &Model,
    id: &Name,
    regions: &ClientRegions,
) -> Result<Tensor, InvalidMessage> {
    check_length("the name of an input", &input.name, MAX_ID)?;
    let spec = model.config().input(&input.name);
    let name = spec.map_or_else(|| Name::new(&input.name), |spec| spec.name.clone());
    let model_name = model.name();
    if input.shape.len() > MAX_DIMS {
        return Err(Error::invalid(format!(
            "the shape of input '{name}' for model '{model_name}' has more than {MAX_DIMS} dimensions"
        ))
        .into());
    }
    let range = contents::region(&input.parameters, &name)?;
    let contents = &input.contents[..];
    let memory: TensorMemory = match (contents.is_empty(), range) {
        (false, Some(_)) => {
            return Err(Error::invalid(format!(
                "unexpected 'content' provided when using shared memory for input tensor '{name}' for model \
                 '{model_name}'"
            ))
            .into());
        }
        (true, Some(range)) => range.memory(regions)?.into(),
        (false, None) if raw.any => {
            return Err(Error::invalid(format!(
                "contents field must not be specified when using raw_input_contents for '{name}' for model \
                 '{model_name}'"
            ))
            .into());
        }
        (false, None) => {
            let bytes = contents::bytes(contents, input.datatype, &name, model_name, room);
            bytes.map_err(|invalid| invalid.about_datatype(&input))?.into()
        }
        (true, None) => {
            let data = raw.rest.next().ok_or_else(|| {
                Error::invalid(format!(
                    "unable to find data for input tensor '{name}' for model '{model_name}' in request."
                ))
            })?;
            data.into()
        }
    };
    let datatype = match (input.datatype, spec) {
        (Some(datatype), _) => datatype,
        (None, Some(spec)) => {
            let refused = InvalidMessage::Refused(Error::invalid(format!(
                "{}inference input '{name}' data-type is '{}', but model '{model_name}' expects '{}'",
                id_prefix(id),
                contents::INVALID,
                spec.datatype.protocol_name()
            )));
            return Err(refused.about_datatype(&input));
        }
        // The model has no such input. The engine refuses the input by its name, so the datatype does not matter.
        (None, None) => DataType::Bytes,
    };
    Ok(Tensor::new(name, datatype, input.shape, memory))
}

/// What the client wants of an output.
enum OutputForm<'a> {
    /// Its elements in the response.
    Elements,
    /// So many of its best classes in the response.
    Classes(NonZeroU64),
    /// Its elements in a region of shared memory.
    Region(RegionRange<'a>),
}

fn output_form<'a>(output: &'a InferRequestedOutput<'_>) -> Result<OutputForm<'a>, Error> {
    let range = contents::region(&output.parameters, &output.name)?;
    let choice = output.parameters.iter().find(|(key, _)| key == "classification").map(|(_, choice)| choice);
    let classes = match choice {
        None => None,
        Some(Some(GrpcParameter::Int64(count))) => {
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
    match (range, classes) {
        (Some(_), Some(_)) => {
            Err(Error::invalid("output can't set both 'shared_memory_region' and 'classification'"))
        }
        (Some(range), None) => Ok(OutputForm::Region(range)),
        (None, Some(classes)) => Ok(OutputForm::Classes(classes)),
        (None, None) => Ok(OutputForm::Elements),
    }
}
