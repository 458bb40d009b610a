//! An inference request in the form of HTTP: a JSON part, and after it the bytes of the inputs that the JSON part does
//! not contain.
//!
//! Order of the rules and texts: as Triton's http_server.cc, ParseJsonTritonIO and its callers. This module does not
//! check the request against the model's configuration.
use std::num::NonZeroU64;

use config::InputSpec;
use inference::{Request, RequestInputs, did_you_mean, nearest};
use kserve::{
    lengths,
    output::{Placement, RequestedOutput, RequestedOutputs},
    parameters,
    shared_memory::RegionRange,
};
use shared_memory::ClientRegions;
use smallvec::SmallVec;
use vocabulary::{
    DataType, Error, ErrorCode, ForeignMemory, Name, Parameter, Shape, ShapeError, Tensor, TensorData,
    TensorMemory, element_count, shape_text,
};

use super::json::{Document, JsonText, JsonValue, Number, during};
use crate::cursor::Cursor;

/// A request, and the requested form of its outputs.
#[derive(Debug)]
pub struct DecodedRequest {
    /// The request for the engine.
    pub request: Request,
    /// How the server writes the response.
    pub requested_outputs: RequestedOutputs,
}

/// What a decoder needs in addition to the bytes.
#[derive(Debug, Clone, Copy)]
pub struct DecodeContext<'m> {
    /// The name of the model. Some errors contain it.
    pub model: &'m str,
    /// `--http-max-input-size`, in bytes.
    pub max_input_size: usize,
    /// The inputs of the model. Errors name the one that is probably meant.
    pub inputs: &'m [InputSpec],
    /// The regions of shared memory that tensors may be in.
    pub regions: &'m ClientRegions,
}

/// Decodes a request whose JSON part is `json` and whose binary tensors are `binary`.
///
/// # Errors
/// INTERNAL for JSON of the wrong structure (500, as in the reference), INVALID_ARG for a request that contradicts
/// itself,
/// NOT_FOUND for a shared memory region.
pub fn decode(json: &[u8], binary: &TensorData, context: DecodeContext<'_>) -> Result<DecodedRequest, Error> {
    decode_text(json.into(), binary, context)
}

/// As [`decode`], for a text that may be long.
///
/// # Errors
/// As there, and without room for what is made of a long text.
pub(super) fn decode_text(
    json: JsonText<'_>,
    binary: &TensorData,
    context: DecodeContext<'_>,
) -> Result<DecodedRequest, Error> {
    let mut document = Document::parse_tensors(json)?;
    let mut decoded =
        DecodedRequest { request: Request::default(), requested_outputs: RequestedOutputs::default() };
    let inputs = {
        let root = document.root();
        if let Some(id) = root.find("id") {
            decoded.request.id = lengths::id(&id.as_text().map_err(during("Unable to parse 'id'"))?)?;
        }
        if let Some(parameters) = root.find("parameters") {
            read_parameters(parameters, &mut decoded)?;
        }
        let inputs = root
            .member("inputs")
            .and_then(JsonValue::elements)
            .map_err(during("Unable to parse 'inputs'"))?;
        let mut binary = Cursor::new(binary.pieces());
        let inputs =
            inputs.map(|input| read_input(input, &mut binary, context)).collect::<SmallVec<[_; 2]>>();
        (inputs, binary.left() == 0)
    };
    let (inputs, nothing_left) = inputs;
    // Inputs with unread JSON data are completed here, in their order, so that the first error counts.
    let mut tensors = Vec::with_capacity(inputs.len());
    for input in inputs {
        let input = input?;
        if let InputSource::Region(memory) = &input.source {
            decoded.requested_outputs.regions().reads(memory.clone());
        }
        tensors.push(input.finish(&mut document, context)?);
    }
    if !nothing_left {
        return Err(Error::invalid(format!(
            "unexpected additional input data for model '{}'",
            context.model
        )));
    }
    decoded.request.inputs = RequestInputs::Tensors(tensors);
    if let Some(outputs) = document.root().find("outputs") {
        let mut names = Vec::new();
        for output in outputs.elements().map_err(during("Unable to parse 'outputs'"))? {
            let (name, requested, memory) = read_output(output, context)?;
            names.push(name.clone());
            if let Some(memory) = memory {
                decoded.requested_outputs.regions().writes(name.clone(), memory);
            }
            decoded.requested_outputs.add(name, requested);
        }
        decoded.request.outputs = names.into();
        decoded.request.output_placement = decoded.requested_outputs.placement();
    }
    Ok(decoded)
}

/// A request whose body contains only the bytes of the only input. Its outputs are binary.
///
/// # Errors
/// INVALID_ARG if the body exceeds the limit.
pub fn raw(body: TensorData, context: DecodeContext<'_>) -> Result<DecodedRequest, Error> {
    if body.len() > context.max_input_size {
        return Err(raw_too_large(body.len(), context.max_input_size));
    }
    let request = Request { inputs: RequestInputs::Raw(body), ..Request::default() };
    Ok(DecodedRequest { request, requested_outputs: RequestedOutputs::all(Placement::Binary) })
}

pub(super) fn raw_too_large(len: usize, limit: usize) -> Error {
    Error::invalid(format!(
        "Raw input has a byte_size ({len} bytes) that exceeds the maximum allowed value of {limit} bytes. Use \
         --http-max-input-size to increase the limit."
    ))
}

fn read_parameters(parameters: JsonValue<'_>, decoded: &mut DecodedRequest) -> Result<(), Error> {
    for (key, value) in parameters.distinct_members().map_err(during("failed to get request params."))? {
        read_parameter(&String::from_utf8_lossy(key), value, decoded)?;
    }
    Ok(())
}

fn read_parameter(key: &str, value: JsonValue<'_>, decoded: &mut DecodedRequest) -> Result<(), Error> {
    if read_control(key, value, &mut decoded.request)? {
        return Ok(());
    }
    match key {
        "binary_data_output" => {
            let failure = during("Unable to parse 'binary_data_output'");
            let binary = value.as_bool().map_err(failure)?;
            decoded.requested_outputs.default = if binary { Placement::Binary } else { Placement::Json };
        }
        key if key.starts_with(parameters::OWN_PREFIX) => return Err(parameters::own_prefix()),
        key => {
            let name = lengths::name("the key of a parameter", key)?;
            decoded.request.parameters.push((name, custom(key, value)?));
        }
    }
    Ok(())
}

/// Reads a parameter that controls the request. Returns false if `key` is not such a parameter.
pub(super) fn read_control(key: &str, value: JsonValue<'_>, request: &mut Request) -> Result<bool, Error> {
    let failure = |error: Error| Error::new(error.code, format!("Unable to parse '{key}': {error}"));
    match key {
        "sequence_id" => match value.as_uint() {
            Ok(id) => parameters::set_correlation_number(request, id),
            Err(_) => {
                // Replaced bytes would make one sequence of several.
                let text = std::str::from_utf8(value.as_bytes().map_err(failure)?);
                let text = text.map_err(|_| failure(Error::invalid("the text is not UTF-8")))?;
                parameters::set_correlation_text(request, text);
            }
        },
        "sequence_start" => request.sequence.start = value.as_bool().map_err(failure)?,
        "sequence_end" => request.sequence.end = value.as_bool().map_err(failure)?,
        "priority" => request.priority = value.as_uint().map_err(failure)?,
        "timeout" => parameters::set_timeout_us(request, value.as_uint().map_err(failure)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// The value of a parameter for the model.
pub(super) fn custom(key: &str, value: JsonValue<'_>) -> Result<Parameter, Error> {
    if let Ok(text) = value.as_text() {
        return Ok(Parameter::String(Name::new(&text)));
    }
    if let Ok(value) = value.as_bool() {
        return Ok(Parameter::Bool(value));
    }
    match value.as_number() {
        Some(Number::Int(value)) => Ok(Parameter::Int(value)),
        Some(number) => Ok(Parameter::Double(number.as_double())),
        None => Err(Error::invalid(format!(
            "parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
        ))),
    }
}

/// An input whose JSON data may be missing so far.
struct PendingInput {
    name: Name,
    /// What is wrong with the datatype, if there is none of this name.
    datatype: Result<DataType, Box<str>>,
    shape: Shape,
    source: InputSource,
}

enum InputSource {
    Bytes(TensorData),
    Region(ForeignMemory),
    /// An index into the document's tensors, and the number of elements to read.
    Json {
        index: usize,
        count: usize,
    },
}

fn read_input(
    input: JsonValue<'_>,
    binary: &mut Cursor<'_>,
    context: DecodeContext<'_>,
) -> Result<PendingInput, Error> {
    let parameters = input.find("parameters");
    let parameter = |name: &str| parameters.and_then(|parameters| parameters.find(name));
    only_one_source(input, &parameter)?;
    let text = |name: &'static str| {
        let value = input.member(name).and_then(JsonValue::as_text);
        value.map_err(|error| Error::new(error.code, format!("Unable to parse '{name}': {error}")))
    };
    let name = lengths::name("the name of an input", &text("name")?)?;
    let datatype = text("datatype")?;
    let datatype = DataType::from_protocol_name(&datatype)
        .ok_or_else(|| config::unknown_datatype(&datatype).into_boxed_str());
    let shape = read_shape(input).map_err(during("Unable to parse 'shape'"))?;

    if let Some(size) = parameter("binary_data_size") {
        let size = size.as_uint().map_err(during("Unable to parse 'binary_data_size'"))?;
        let left = binary.left();
        let data = usize::try_from(size).ok().and_then(|size| binary.data(size)).ok_or_else(|| {
            let missing = size - left as u64;
            Error::invalid(format!(
                "unexpected size for input '{name}', expecting {missing} additional bytes for model '{}'",
                context.model
            ))
        })?;
        return PendingInput { name, datatype, shape, source: InputSource::Bytes(data) }.named();
    }
    if let Some(range) = find_region(&parameter, &name)? {
        let memory = range.memory(context.regions)?;
        return PendingInput { name, datatype, shape, source: InputSource::Region(memory) }.named();
    }
    let Some(count) = json_count(&name, datatype.as_ref().ok().copied(), &shape, context)? else {
        return PendingInput { name, datatype, shape, source: InputSource::Bytes(TensorData::default()) }
            .named();
    };
    let data = input.member("data").map_err(during("Unable to parse 'data'"))?;
    let Some(index) = data.tensor() else {
        return Err(Error::internal(format!("Unable to parse 'data': {}", super::json::access::ARRAY)));
    };
    Ok(PendingInput { name, datatype, shape, source: InputSource::Json { index, count } })
}

impl PendingInput {
    /// Checks the datatype: an input needs one to become a tensor, even if none of its elements is ever read.
    fn named(self) -> Result<Self, Error> {
        match &self.datatype {
            Ok(_) => Ok(self),
            Err(unknown) => Err(invalid_datatype(&self.name, unknown)),
        }
    }

    fn finish(self, document: &mut Document<'_>, context: DecodeContext<'_>) -> Result<Tensor, Error> {
        let Self { name, datatype, shape, source } = self;
        let datatype = datatype.map_err(|unknown| invalid_datatype(&name, &unknown))?;
        let memory: TensorMemory = match source {
            InputSource::Bytes(data) => data.into(),
            InputSource::Region(memory) => memory.into(),
            InputSource::Json { index, count } => {
                let datatype = json_datatype(&name, datatype)?;
                let elements = document.take_elements(index, datatype)?;
                let bytes = elements
                    .into_bytes(datatype, count)
                    .map_err(|error| unlike_input(error.explain(datatype, &name, &shape), &name, context))?;
                if bytes.len() > context.max_input_size {
                    return Err(json_too_large(&name, bytes.len(), context.max_input_size));
                }
                bytes.into()
            }
        };
        Ok(Tensor::new(name, datatype, shape, memory))
    }
}

fn invalid_datatype(name: &Name, unknown: &str) -> Error {
    Error::invalid(format!("invalid datatype for input {name}: {unknown}"))
}

/// Adds to an error about the data of an input that the model has no such input.
fn unlike_input(mut error: Error, name: &Name, context: DecodeContext<'_>) -> Error {
    let names = context.inputs.iter().map(|input| &input.name);
    if !context.inputs.is_empty() && !names.clone().any(|known| known == name) {
        let meant = did_you_mean(nearest(name, names));
        error.message.to_mut().push_str(&format!(". Model '{}' has no input '{name}'{meant}", context.model));
    }
    error
}

/// A datatype whose elements JSON can have.
pub(super) fn json_datatype(name: &Name, datatype: DataType) -> Result<DataType, Error> {
    match datatype {
        DataType::Fp16 | DataType::Bf16 => Err(Error::invalid(format!(
            "receiving {} data via JSON is not supported. Please use the binary data format for input {name}",
            datatype.protocol_name()
        ))),
        datatype => Ok(datatype),
    }
}

fn only_one_source<'d>(
    input: JsonValue<'d>,
    parameter: &impl Fn(&str) -> Option<JsonValue<'d>>,
) -> Result<(), Error> {
    let sources = [
        ("data", input.find("data").is_some()),
        ("binary_data_size", parameter("binary_data_size").is_some()),
        ("shared_memory_region", parameter("shared_memory_region").is_some()),
    ];
    let set = sources.iter().filter(|(_, set)| *set);
    let count = set.clone().count();
    if count == 1 {
        return Ok(());
    }
    let mut text =
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
                    'shared_memory_region' in 'parameters'. But"
            .to_owned();
    text.push_str(if count == 0 { " no field is set" } else { " set" });
    for (name, _) in set {
        text.push_str(&format!(" '{name}'"));
    }
    Err(Error::invalid(text))
}

fn read_shape(input: JsonValue<'_>) -> Result<Shape, Error> {
    let dims = input.member("shape")?.elements()?;
    // A dimension beyond i64 wraps to a negative number. The rules for shapes refuse that.
    #[expect(clippy::cast_possible_wrap, reason = "as the comment says")]
    dims.map(|dim| dim.as_uint().map(|dim| dim as i64)).collect()
}

/// The number of elements that the JSON data must have. `None` for a tensor without elements: its data are not read.
fn json_count(
    name: &Name,
    datatype: Option<DataType>,
    shape: &Shape,
    context: DecodeContext<'_>,
) -> Result<Option<usize>, Error> {
    let refuse = |why: &str| {
        Error::invalid(format!("invalid shape for input '{name}': shape {} {why}", shape_text(shape)))
    };
    let count = element_count(shape).map_err(|error| match error {
        ShapeError::Negative => refuse("contains one or more invalid dimensions"),
        ShapeError::TooLarge => {
            refuse("causes total element count to exceed maximum size of 9223372036854775807")
        }
    })?;
    if count == 0 {
        return Ok(None);
    }
    let size = datatype.and_then(DataType::byte_size).unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    match count.checked_mul(size).filter(|bytes| i64::try_from(*bytes).is_ok()) {
        None => Err(Error::invalid(format!(
            "byte size overflow for input '{name}': element count ({count}) * data type size ({size}) exceeds maximum \
             allowed size (9223372036854775807)"
        ))),
        Some(bytes) if bytes > context.max_input_size => {
            Err(json_too_large(name, bytes, context.max_input_size))
        }
        Some(_) => Ok(Some(count)),
    }
}

fn json_too_large(name: &Name, bytes: usize, limit: usize) -> Error {
    Error::invalid(format!(
        "JSON input '{name}' has a byte_size ({bytes} bytes) that exceeds the maximum allowed value of {limit} bytes. \
         Use --http-max-input-size to increase the limit."
    ))
}

/// The name of an output, its form, and its memory if the client wants the output in a region.
fn read_output(
    output: JsonValue<'_>,
    context: DecodeContext<'_>,
) -> Result<(Name, RequestedOutput, Option<ForeignMemory>), Error> {
    let parameters = output.find("parameters");
    let parameter = |name: &str| parameters.and_then(|parameters| parameters.find(name));
    let exclusive = |other: &str| {
        Error::new(
            ErrorCode::InvalidArgument,
            format!("Output can't set both 'shared_memory_region' and '{other}'"),
        )
    };
    if parameter("shared_memory_region").is_some() {
        if parameter("classification").is_some() {
            return Err(exclusive("classification"));
        }
        let binary = parameter("binary_data").map(JsonValue::as_bool).transpose();
        if binary.map_err(during("Unable to set 'binary_data'"))? == Some(true) {
            return Err(exclusive("binary_data"));
        }
    }
    let name =
        output.member("name").and_then(JsonValue::as_text).map_err(during("Unable to parse 'name'"))?;
    let name = lengths::name("the name of an output", &name)?;
    let classes = parameter("classification").map(JsonValue::as_uint).transpose();
    let classes = classes.map_err(during("Unable to set 'classification'"))?;
    if let Some(range) = find_region(&parameter, &name)? {
        let memory = range.memory(context.regions)?;
        return Ok((name, RequestedOutput { placement: Placement::Region, classes: None }, Some(memory)));
    }
    let binary = parameter("binary_data").map(JsonValue::as_bool).transpose();
    let placement = match binary.map_err(during("Unable to parse 'binary_data'"))? {
        Some(true) => Placement::Binary,
        Some(false) | None => Placement::Json,
    };
    Ok((name, RequestedOutput { placement, classes: classes.and_then(NonZeroU64::new) }, None))
}

/// The part of a shared memory region that a tensor names. Called when all parameters of the tensor have been read.
fn find_region<'d>(
    parameter: &impl Fn(&str) -> Option<JsonValue<'d>>,
    tensor: &Name,
) -> Result<Option<RegionRange<'d>>, Error> {
    let region = parameter("shared_memory_region").map(JsonValue::as_text).transpose();
    let region = region.map_err(during("Unable to parse 'shared_memory_region'"))?;
    let number = |key: &str| {
        let value = parameter(key).map(JsonValue::as_uint).transpose();
        value.map_err(|error| Error::new(error.code, format!("Unable to parse '{key}': {error}")))
    };
    let offset = number("shared_memory_offset")?;
    let byte_size = number("shared_memory_byte_size")?;
    match (region, byte_size) {
        (None, _) => Ok(None),
        (Some(region), Some(byte_size)) => {
            Ok(Some(RegionRange { region, offset: offset.unwrap_or(0), byte_size }))
        }
        // The reference would continue with a size that it has not set.
        (Some(_), None) => Err(Error::invalid(format!(
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor \
             '{tensor}'"
        ))),
    }
}
