//! Checks a request against the configuration of its model. Triton calls this normalisation.
//!
//! The order of the rules and their texts follow Triton: infer_request.cc, Normalize. A backend may rely on exactly
//! what this check guarantees, see [`Execution`](crate::backend::Execution).
use std::{
    cell::OnceCell,
    collections::HashSet,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::LazyLock,
};

use config::{InputSpec, ModelConfig, Scheduling, SequenceControl};
use scheduling::{SchedulingAttributes, SequencePosition};
use smallvec::SmallVec;
use vocabulary::{
    DataType, Error, MAX_STORED_NAME, Name, Parameters, Shape, ShapeError, Tensor, TensorData, TensorMemory,
    bytes_elements, check_length, element_count, shape_text,
};

use crate::{
    Request, RequestInputs, SequenceId, did_you_mean, id_prefix,
    name_hints::{meant_or_free, misplaced_input, quoted},
    nearest,
};

/// Checks the requests of one model. Contains the parts of the configuration that the rules need, computed once.
#[derive(Debug)]
pub struct RequestValidator {
    required: usize,
    has_optional: bool,
    /// At least one input must have the same shape, or the same contents, in all requests of a batch.
    compares: bool,
    has_sequences: bool,
    /// The control input that receives correlation ids, and its datatype.
    correlation_id: Option<(Name, DataType)>,
    /// The memory that the model's backend can read.
    readable: ReadableMemory,
}

/// The memory that a backend can read besides memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadableMemory {
    /// Memory of devices.
    pub device: bool,
    /// Memory that others may write at any time.
    pub foreign: bool,
}

impl RequestValidator {
    /// A validator for a model with this configuration, whose backend can read this memory.
    #[must_use]
    pub fn new(config: &ModelConfig, readable: ReadableMemory) -> Self {
        let required = config.inputs.iter().filter(|input| !input.optional).count();
        Self {
            required,
            has_optional: required < config.inputs.len(),
            compares: config.inputs.iter().any(must_agree) || required < config.inputs.len(),
            has_sequences: matches!(config.scheduling, Scheduling::Sequence(_)),
            correlation_id: correlation_id(config),
            readable,
        }
    }

    /// Checks `request` against `config`, the configuration of [`new`](Self::new), gives raw bytes their shape, applies
    /// configured reshapes, and returns what the scheduler needs.
    ///
    /// # Errors
    /// INVALID_ARG for the first rule that the request breaks.
    pub fn check(&self, config: &ModelConfig, request: &mut Request) -> Result<SchedulingAttributes, Error> {
        let id = request.id.clone();
        let at = ErrorContext { model: &config.name, id: &id };
        if let RequestInputs::Raw(data) = &request.inputs {
            request.inputs = RequestInputs::Tensors(vec![deduce(config, data.clone(), &at)?]);
        }
        check_outputs(config, request.outputs.names(), &at)?;
        let RequestInputs::Tensors(tensors) = &mut request.inputs else {
            unreachable!("raw inputs were deduced above")
        };
        self.check_names(config, tensors, &request.parameters, &at)?;
        let rows = check_rows(config, tensors, &at)?;
        for tensor in &mut *tensors {
            let Some(spec) = config.input(tensor.name()) else { continue };
            check_tensor(spec, config, tensor, &at)?;
            self.check_memory(spec, tensor, &at)?;
        }
        // As Triton: infer_request.cc, Normalize. The check reads byte strings last, and starts with the last input.
        for tensor in tensors.iter().rev() {
            if let Some(spec) = config.input(tensor.name())
                && spec.datatype == DataType::Bytes
                // As Triton: the backend checks strings in memory of a device.
                && !matches!(tensor.memory(), TensorMemory::Device(_))
            {
                check_bytes(spec, tensor, &at)?;
            }
        }
        let shape_key = if self.compares { shape_key(config, tensors, self.has_optional)? } else { 0 };
        let sequence =
            if self.has_sequences { self.sequence_step(request, &at)? } else { SequencePosition::default() };
        Ok(SchedulingAttributes {
            batch_size: rows,
            priority: request.priority,
            timeout: request.timeout,
            waits_since: None,
            shape_key,
            sequence,
        })
    }

    /// The request's position in its sequence. The id must have the kind that the model's control input takes. A text is
    /// stored while its sequence lives, so its length has a limit.
    fn sequence_step(&self, request: &Request, at: &ErrorContext<'_>) -> Result<SequencePosition, Error> {
        if let Some(SequenceId::Text(id)) = &request.sequence.id {
            check_length("the correlation id", id, MAX_STORED_NAME)?;
        }
        if let (Some(id), Some((name, datatype))) = (&request.sequence.id, &self.correlation_id) {
            let (fits, got) = match id {
                SequenceId::Number(_) | SequenceId::ServerGenerated(_) => {
                    (*datatype != DataType::Bytes, "UINT64")
                }
                SequenceId::Text(_) => (*datatype == DataType::Bytes, "BYTES"),
            };
            if !fits {
                let (model, want) = (at.model, datatype.protocol_name());
                return Err(at.invalid(format!(
                    "sequence batching control '{name}' data-type is '{got}', but model '{model}' expects '{want}'"
                )));
            }
        }
        Ok(request.sequence.clone())
    }

    /// Requires memory that the backend can read. Foreign memory is copied first if the backend cannot read it, or if its
    /// content is checked: its owner may change it after the check.
    fn check_memory(
        &self,
        spec: &InputSpec,
        tensor: &mut Tensor,
        at: &ErrorContext<'_>,
    ) -> Result<(), Error> {
        match tensor.memory() {
            TensorMemory::Host(_) => Ok(()),
            TensorMemory::Foreign(_) if spec.datatype == DataType::Bytes || spec.is_shape_tensor => {
                tensor.bring_to_host()
            }
            TensorMemory::Foreign(memory) if self.readable.foreign || memory.may_be_used_in_place() => Ok(()),
            TensorMemory::Foreign(_) => tensor.bring_to_host(),
            TensorMemory::Device(_) if self.readable.device && !spec.is_shape_tensor => Ok(()),
            TensorMemory::Device(memory) => {
                let (kind, name, model) = (memory.kind().as_str(), &spec.name, at.model);
                Err(at.unsupported(format!(
                    "input '{name}' is in memory of type {kind}, which model '{model}' cannot read"
                )))
            }
        }
    }

    /// Requires each required input exactly once, and no input that the model lacks.
    fn check_names(
        &self,
        config: &ModelConfig,
        tensors: &[Tensor],
        parameters: &Parameters,
        at: &ErrorContext<'_>,
    ) -> Result<(), Error> {
        if let Some(name) = repeated(tensors.iter().map(Tensor::name)) {
            return Err(at.invalid(format!("input '{name}' already exists in request")));
        }
        let given = OnceCell::new();
        let has = |name: &Name| given.get_or_init(|| names_of(tensors)).contains(name);
        let left_out = || config.inputs.iter().filter(|spec| !has(&spec.name));
        let missing = || left_out().filter(|spec| !spec.optional);
        let unknown = || tensors.iter().find(|tensor| config.input(tensor.name()).is_none());
        if (self.required..=config.inputs.len()).contains(&tensors.len()) {
            if let Some(unknown) = unknown() {
                return Err(at.unexpected("input", unknown.name(), left_out().map(|spec| &spec.name)));
            }
            // Names that the model has, each once, and as many: none is missing.
            if tensors.len() == config.inputs.len() || missing().next().is_none() {
                return Ok(());
            }
        }
        let got = tensors.len();
        let expected = if self.has_optional {
            format!("number of inputs between {} and {} but got {got}", self.required, config.inputs.len())
        } else {
            format!("{} inputs but got {got}", self.required)
        };
        let given = quoted(tensors.iter().map(Tensor::name));
        let mut text = format!("expected {expected} inputs for model '{}'. Got input(s) [{given}]", at.model);
        let missing = missing().map(|spec| &spec.name);
        if missing.clone().next().is_none() {
            text.push('.');
        } else {
            let missing = quoted(missing.clone());
            text += &format!(
                ", but missing required input(s) [{missing}]. Please provide all required input(s)."
            );
        }
        if let Some(unknown) = unknown() {
            let name = unknown.name();
            let near = nearest(name, left_out().map(|spec| &spec.name));
            let end = if near.is_none() { "." } else { "" };
            text += &format!(" The model has no input '{name}'{}{end}", did_you_mean(near));
        }
        text.extend(misplaced_input(parameters, &missing));
        Err(at.invalid(text))
    }
}

fn correlation_id(config: &ModelConfig) -> Option<(Name, DataType)> {
    let Scheduling::Sequence(sequence) = &config.scheduling else { return None };
    sequence.controls.iter().find_map(|control| match control.control {
        SequenceControl::CorrelationId(datatype) => Some((control.name.clone(), datatype)),
        SequenceControl::Start(_) | SequenceControl::End(_) | SequenceControl::Ready(_) => None,
    })
}

/// Identifies the request and its model in error texts.
struct ErrorContext<'a> {
    model: &'a Name,
    id: &'a str,
}

impl ErrorContext<'_> {
    /// Builds an error. Most texts begin with the request's id.
    fn invalid(&self, text: impl AsRef<str>) -> Error {
        Error::invalid(id_prefix(self.id) + text.as_ref())
    }

    /// The error of a request that is valid, and that this model cannot execute.
    fn unsupported(&self, text: impl AsRef<str>) -> Error {
        Error::unsupported(id_prefix(self.id) + text.as_ref())
    }

    /// Builds an error about a name that the model does not have; `free` are those that it has and the request has not.
    /// Its text does not begin with the request's id.
    fn unexpected<'n>(&self, what: &str, name: &str, free: impl Iterator<Item = &'n Name> + Clone) -> Error {
        let meant = meant_or_free(what, name, free);
        Error::invalid(format!("unexpected inference {what} '{name}' for model '{}'{meant}", self.model))
    }
}

/// The first name that occurs twice. A client may send any number of names, so the function compares all pairs only
/// when there are few.
fn repeated<'a>(names: impl ExactSizeIterator<Item = &'a Name> + Clone) -> Option<&'a Name> {
    const FEW: usize = 16;
    if names.len() <= FEW {
        let earlier = names.clone();
        return names.enumerate().find_map(|(index, name)| {
            earlier.clone().take(index).any(|other| other == name).then_some(name)
        });
    }
    let mut seen = HashSet::with_capacity(names.len());
    names.into_iter().find(|name| !seen.insert(*name))
}

fn names_of(tensors: &[Tensor]) -> HashSet<&Name> {
    tensors.iter().map(Tensor::name).collect()
}

fn check_outputs(config: &ModelConfig, outputs: &[Name], at: &ErrorContext<'_>) -> Result<(), Error> {
    if let Some(name) = repeated(outputs.iter()) {
        return Err(at.invalid(format!("output '{name}' already exists in request")));
    }
    match outputs.iter().find(|name| config.output(name).is_none()) {
        Some(unknown) => {
            let known = config.outputs.iter().map(|spec| &spec.name);
            let asked: HashSet<_> = outputs.iter().collect();
            Err(at.unexpected("output", unknown, known.filter(|name| !asked.contains(name))))
        }
        None => Ok(()),
    }
}

/// The tensor of a model with one input, from raw bytes. The shape follows from the configuration.
fn deduce(config: &ModelConfig, data: TensorData, at: &ErrorContext<'_>) -> Result<Tensor, Error> {
    let [spec] = &config.inputs[..] else {
        let no_data = if data.is_empty() { ". The request has no data" } else { "" };
        return Err(at.invalid(format!(
            "Raw request must only have 1 input (found 1) to be deduced but got {} inputs in '{}' model \
             configuration{no_data}",
            config.inputs.len(),
            at.model
        )));
    };
    let batch: Shape = config.max_batch_size.map(|_| 1).into_iter().collect();
    let whole = |dims: Shape| batch.iter().copied().chain(dims).collect::<Shape>();
    let Some(element) = spec.datatype.byte_size() else {
        if spec.dims[..] != [1] {
            let text =
                format!("For BYTE datatype raw input '{}', the model must have input shape [1]", spec.name);
            return Err(at.invalid(text));
        }
        let len = u32::try_from(data.len())
            .map_err(|_| at.invalid("raw input is longer than a BYTES element can be"))?;
        let prefix = bytes::Bytes::copy_from_slice(&len.to_le_bytes());
        let prefixed = TensorData::from_pieces(std::iter::once(prefix).chain(data.pieces().iter().cloned()));
        return Ok(Tensor::new(spec.name.clone(), spec.datatype, whole(spec.dims.clone()), prefixed));
    };
    if spec.dims.iter().filter(|&&dim| dim == -1).count() > 1 {
        return Err(at.invalid(format!(
            "The shape of the raw input '{}' can not be deduced because there are more than one variable-sized dimension",
            spec.name
        )));
    }
    let fixed = spec.dims.iter().filter(|&&dim| dim != -1).fold(1_i64, |all, &dim| all.saturating_mul(dim));
    let row_bytes = usize::try_from(fixed.max(1)).unwrap_or(usize::MAX).saturating_mul(element);
    let variable = i64::try_from(data.len() / row_bytes).unwrap_or(i64::MAX);
    let dims: Shape = spec.dims.iter().map(|&dim| if dim == -1 { variable } else { dim }).collect();
    let shape = whole(dims);
    let expected = byte_size(&shape, element);
    if expected != Some(data.len()) {
        // As Triton: while the shape is being deduced, the text calls the input so.
        let mut error = at.size_mismatch("raw_input", expected.unwrap_or(usize::MAX), data.len());
        let whose = if data.is_empty() { "The request has no data for" } else { "The data are those of" };
        let meant = format!(". {whose} input '{}' of shape {}", spec.name, shape_text(&shape));
        error.message.to_mut().push_str(&meant);
        return Err(error);
    }
    Ok(Tensor::new(spec.name.clone(), spec.datatype, shape, data))
}

impl ErrorContext<'_> {
    fn size_mismatch(&self, input: &str, expected: usize, got: usize) -> Error {
        let model = self.model;
        self.invalid(format!(
            "input byte size mismatch for input '{input}' for model '{model}'. Expected {expected}, got {got}"
        ))
    }
}

/// The number of rows that all inputs agree on; 1 for models without a batch dimension.
fn check_rows(config: &ModelConfig, tensors: &[Tensor], at: &ErrorContext<'_>) -> Result<u32, Error> {
    let Some(max) = config.request_limit() else { return Ok(1) };
    let mut agreed = None;
    // As Triton: the check runs from the last input to the first, so that an error names the first of two inputs.
    for tensor in tensors.iter().rev() {
        if config.input(tensor.name()).is_some_and(|spec| spec.is_shape_tensor) {
            continue;
        }
        let Some(&rows) = tensor.shape().first() else {
            let (name, model) = (tensor.name(), at.model);
            return Err(at.invalid(format!(
                "input '{name}' has no shape but model requires batch dimension for '{model}'"
            )));
        };
        if *agreed.get_or_insert(rows) != rows {
            let (name, model) = (tensor.name(), at.model);
            return Err(
                at.invalid(format!("input '{name}' batch size does not match other inputs for '{model}'"))
            );
        }
    }
    match agreed {
        Some(rows) if rows > i64::from(max.get()) => {
            let refusal = format!("inference request batch-size must be <= {max} for '{}'", at.model);
            // Triton has no such limit.
            let remedy = match config.max_request_rows {
                Some(_) => {
                    format!(": {rows} rows are given; max_batch_size in config.pbtxt sets another limit")
                }
                None => String::new(),
            };
            Err(at.invalid(refusal + &remedy))
        }
        // Zero and negative numbers fail below, where the error can name the input.
        Some(rows) => Ok(u32::try_from(rows).unwrap_or(0)),
        None => Ok(1),
    }
}

/// Checks datatype, shape, reshape and bytes of one input.
fn check_tensor(
    spec: &InputSpec,
    config: &ModelConfig,
    tensor: &mut Tensor,
    at: &ErrorContext<'_>,
) -> Result<(), Error> {
    if tensor.datatype() != spec.datatype {
        let (got, want) = (tensor.datatype().protocol_name(), spec.datatype.protocol_name());
        let (name, model) = (&spec.name, at.model);
        return Err(at.invalid(format!(
            "inference input '{name}' data-type is '{got}', but model '{model}' expects '{want}'"
        )));
    }
    let batched = config.max_batch_size.is_some() && !spec.is_shape_tensor;
    let (batch, dims) = tensor.shape().split_at(usize::from(batched).min(tensor.shape().len()));
    if tensor.shape().iter().any(|&dim| dim < 0) {
        let shape = shape_text(tensor.shape());
        return Err(at.invalid(format!(
            "All input dimensions should be specified for input '{}' for model '{}', got {shape}",
            spec.name, at.model
        )));
    }
    let fits = dims.len() == spec.dims.len()
        && spec.dims.iter().zip(dims).all(|(&want, &got)| want == -1 || want == got);
    if !fits {
        return Err(shape_mismatch(spec, tensor, batched, at));
    }
    // A model cannot process a batch without rows (S-W3).
    let empty_batch = batch.first() == Some(&0);
    let shape = spec.backend_shape(tensor.shape(), batched);
    match spec.datatype.byte_size() {
        _ if empty_batch => {
            let row = spec.datatype.byte_size().and_then(|element| byte_size(dims, element)).unwrap_or(0);
            let mut error = at.size_mismatch(&spec.name, row, tensor.byte_size());
            error.message.to_mut().push_str(&format!(". Shape {} has no row", shape_text(tensor.shape())));
            return Err(error);
        }
        Some(element) => {
            let expected = byte_size_or_error(&spec.name, &shape, element)?;
            if expected != tensor.byte_size() {
                return Err(at.size_mismatch(&spec.name, expected, tensor.byte_size()));
            }
        }
        // The length of byte strings does not follow from the shape, see `check_bytes`.
        None => {}
    }
    tensor.reshape(shape);
    Ok(())
}

fn shape_mismatch(spec: &InputSpec, tensor: &Tensor, batched: bool, at: &ErrorContext<'_>) -> Error {
    let expected: Shape = batched.then_some(-1).into_iter().chain(spec.dims.iter().copied()).collect();
    let note = if batched {
        "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each \
         input shape. If you want to specify the full shape including the batch dim in your input dims config, try \
         setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
    } else {
        ""
    };
    at.invalid(format!(
        "unexpected shape for input '{}' for model '{}'. Expected {}, got {}. {note}",
        spec.name,
        at.model,
        shape_text(&expected),
        shape_text(tensor.shape()),
    ))
}

/// Requires as many length-prefixed elements as the shape has. The last element must be complete (S-W2).
fn check_bytes(spec: &InputSpec, tensor: &Tensor, at: &ErrorContext<'_>) -> Result<(), Error> {
    let expected =
        element_count(tensor.shape()).map_err(|error| count_error(&spec.name, tensor.shape(), error))?;
    let (name, model) = (&spec.name, at.model);
    let data = tensor.host()?.contiguous();
    let mut found = 0_i64;
    for element in bytes_elements(&data) {
        // As Triton: infer_request.cc, ValidateBytesInputs. The first element too many is refused before it is read.
        if found == expected && element.map_or_else(|rest| rest.len() >= 4, |_| true) {
            return Err(at.invalid(format!(
                "unexpected number of string elements {} for inference input '{name}' for model '{model}', expecting \
                 {expected}",
                found + 1
            )));
        }
        match element {
            Ok(_) => found += 1,
            Err(rest) => {
                return Err(match rest.split_first_chunk::<4>() {
                    None => at.invalid(format!(
                        "incomplete string length indicator for inference input '{name}' for model '{model}', expecting 4 \
                         bytes but only {} bytes available. Please make sure the string length indicator is in one \
                         buffer.",
                        rest.len()
                    )),
                    Some((prefix, payload)) => Error::invalid(format!(
                        "incomplete string data for inference input '{name}', expecting string of length {} but only {} \
                         bytes available",
                        u32::from_le_bytes(*prefix),
                        payload.len()
                    )),
                });
            }
        }
    }
    if found < expected {
        return Err(at.invalid(format!(
            "expected {expected} string elements for inference input '{name}' for model '{model}', got {found}"
        )));
    }
    Ok(())
}

fn byte_size(shape: &[i64], element: usize) -> Option<usize> {
    usize::try_from(element_count(shape).ok()?).ok()?.checked_mul(element)
}

fn byte_size_or_error(name: &str, shape: &[i64], element: usize) -> Result<usize, Error> {
    let count = element_count(shape).map_err(|error| count_error(name, shape, error))?;
    let size = usize::try_from(count).ok().and_then(|count| count.checked_mul(element));
    size.filter(|&size| i64::try_from(size).is_ok()).ok_or_else(|| {
        Error::invalid(format!("byte size for tensor '{name}' exceeds maximum size of {}", i64::MAX))
    })
}

fn count_error(name: &str, shape: &[i64], error: ShapeError) -> Error {
    Error::invalid(match error {
        ShapeError::Negative => {
            format!("tensor '{name}' contains an invalid dimension in shape {}", shape_text(shape))
        }
        ShapeError::TooLarge => {
            format!("element count for tensor '{name}' exceeds maximum size of {}", i64::MAX)
        }
    })
}

/// Whether the requests of a batch must agree in this input. As Triton: inputs of fixed shape are never compared.
fn must_agree(input: &InputSpec) -> bool {
    input.is_shape_tensor || (!input.allow_ragged_batch && input.dims.contains(&-1))
}

/// Random keys, so that a client cannot construct different shapes with equal hashes.
static SHAPE_KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A key that is equal for requests that may share a batch. It covers the shapes without the batch dimension, the whole
/// contents of shape tensors (S-W11), and, where inputs are optional, the names of the inputs that are present.
fn shape_key(config: &ModelConfig, tensors: &[Tensor], has_optional: bool) -> Result<u64, Error> {
    let mut hasher = SHAPE_KEYS.build_hasher();
    let place = |tensor| Some((config.input_place(Tensor::name(tensor))?, tensor));
    let mut given: SmallVec<[_; 8]> = tensors.iter().filter_map(place).collect();
    given.sort_unstable_by_key(|(index, _)| *index);
    for (index, tensor) in given {
        let input = &config.inputs[index];
        if has_optional {
            index.hash(&mut hasher);
        }
        if must_agree(input) {
            let batch = usize::from(config.max_batch_size.is_some() && !input.is_shape_tensor);
            tensor.shape()[batch..].hash(&mut hasher);
            if input.is_shape_tensor {
                tensor.host()?.contiguous().hash(&mut hasher);
            }
        }
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests;
