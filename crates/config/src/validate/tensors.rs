//! The rules of `input`, `output`, `batch_input` and `batch_output`.
use std::collections::HashSet;

use proto::nearest;
use proto::{
    DataType, ModelConfig, ModelTensorReshape, batch_input::Kind as InputKind,
    batch_output::Kind as OutputKind, model_input::Format,
};
use vocabulary::{ErrorCode, ShapeError, element_count};

use super::super::{ConfigErrors, rule};

/// The fields that inputs and outputs share.
struct TensorField<'a> {
    /// `input` or `output`.
    side: &'static str,
    field: String,
    name: &'a str,
    datatype: DataType,
    dims: &'a [i64],
    reshape: Option<&'a ModelTensorReshape>,
    is_shape_tensor: bool,
    is_non_linear: bool,
    format: Format,
}

/// Checks inputs, then outputs, then batch inputs and batch outputs (model_config_utils.cc, ValidateModelIOConfig).
pub(in super::super) fn check_tensors(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::TENSOR);
    for tensor in tensors(config) {
        for text in problems(config, &tensor) {
            errors.invalid(&tensor.field, format!("{text} for {}", config.name));
        }
    }
    check_batch_inputs(config, errors);
    check_batch_outputs(config, errors);
    names_are_unique(config, errors);
}

fn tensors(config: &ModelConfig) -> impl Iterator<Item = TensorField<'_>> {
    let inputs = config.input.iter().enumerate().map(|(position, input)| TensorField {
        side: "input",
        field: format!("input[{position}]"),
        name: &input.name,
        datatype: input.data_type(),
        dims: &input.dims,
        reshape: input.reshape.as_ref(),
        is_shape_tensor: input.is_shape_tensor,
        is_non_linear: input.is_non_linear_format_io,
        format: input.format(),
    });
    let outputs = config.output.iter().enumerate().map(|(position, output)| TensorField {
        side: "output",
        field: format!("output[{position}]"),
        name: &output.name,
        datatype: output.data_type(),
        dims: &output.dims,
        reshape: output.reshape.as_ref(),
        is_shape_tensor: output.is_shape_tensor,
        is_non_linear: output.is_non_linear_format_io,
        format: Format::None,
    });
    inputs.chain(outputs)
}

fn problems(config: &ModelConfig, tensor: &TensorField<'_>) -> Vec<String> {
    let TensorField { side, name, dims, .. } = tensor;
    if name.is_empty() {
        return vec![format!("model {side} must specify 'name'")];
    }
    let mut problems = Vec::new();
    let mut says = |what: &str| problems.push(format!("model {side} '{name}' {what}"));
    if tensor.datatype == DataType::TypeInvalid {
        says("must specify 'data_type'");
    }
    if dims.is_empty() {
        says("must specify 'dims'");
    }
    if let Some(what) = shape_problem(config, tensor) {
        says(what);
    }
    for (field, shape) in
        [("dims", Some(*dims)), ("reshape", tensor.reshape.map(|reshape| &reshape.shape[..]))]
    {
        if shape.is_some_and(|shape| element_count(shape) == Err(ShapeError::TooLarge)) {
            let largest = i64::MAX;
            problems
                .push(format!("element count for tensor '{name} {field}' exceeds maximum size of {largest}"));
        }
    }
    if [Format::Nhwc, Format::Nchw].contains(&tensor.format) && dims.len() != 3 {
        problems.push("model input NHWC/NCHW require 3 dims".to_owned());
    }
    let is_tensorrt = config.platform == "tensorrt_plan";
    if tensor.is_shape_tensor && !is_tensorrt {
        problems.push("shape tensors are only supported for TensorRT platform".to_owned());
    }
    if tensor.is_non_linear {
        if !is_tensorrt {
            problems.push("Non-linear IO format is only supported for the TensorRT platform".to_owned());
        } else if dims.len() != 3 {
            problems.push(format!("Non-linear IO format {side} requires 3 dims"));
        }
    }
    problems
}

/// The first broken rule about dims and reshape. Later rules have no meaning if an earlier one is broken.
fn shape_problem(config: &ModelConfig, tensor: &TensorField<'_>) -> Option<&'static str> {
    let possible = |shape: &[i64]| shape.iter().all(|dim| *dim >= 1 || *dim == -1);
    let reshape = tensor.reshape.map(|reshape| &reshape.shape[..]);
    if reshape.is_some_and(<[i64]>::is_empty) && config.max_batch_size == 0 {
        return Some("cannot have empty reshape for non-batching model as scalar tensors are not supported");
    }
    if !possible(tensor.dims) {
        return Some("dimension must be integer >= 1, or -1 to indicate a variable-size dimension");
    }
    let reshape = reshape?;
    if !possible(reshape) {
        return Some("reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension");
    }
    if tensor.dims.is_empty() {
        return None;
    }
    if reshape.is_empty() {
        let scalar = tensor.dims.iter().all(|dim| *dim == 1);
        return (!scalar).then_some("has different size for dims and reshape");
    }
    let (dims_parts, reshape_parts) = (fixed_parts(tensor.dims), fixed_parts(reshape));
    if (dims_parts.len() > 1) != (reshape_parts.len() > 1) {
        return Some("has different size for dims and reshape");
    }
    if dims_parts.len() != reshape_parts.len() {
        return Some("has different number of variable-size dimensions for dims and reshape");
    }
    (dims_parts != reshape_parts).then_some("has different size for dims and reshape")
}

/// The products of the dims before, between and after the variable ones.
fn fixed_parts(shape: &[i64]) -> Vec<u128> {
    let product = |part: &[i64]| {
        part.iter().fold(1_u128, |size, dim| size.saturating_mul((*dim).unsigned_abs().into()))
    };
    shape.split(|dim| *dim == -1).map(product).collect()
}

fn check_batch_inputs(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::BATCH_TENSOR);
    for (position, batch_input) in config.batch_input.iter().enumerate() {
        let field = &format!("batch_input[{position}]");
        let mut says = |what: String, near: Option<String>| {
            let text = format!("{what} for {}", config.name);
            errors.push_meaning(ErrorCode::InvalidArgument, field, text, near);
        };
        match InputKind::try_from(batch_input.kind) {
            Ok(kind) if batch_input.source_input.len() != 1 => {
                let (kind, sources) = (kind.as_str_name(), batch_input.source_input.len());
                says(format!("batch input kind '{kind}' expects 1 source input, got {sources}"), None);
            }
            Ok(_) => {}
            Err(_) => says(format!("unknown batch input kind '{}'", batch_input.kind), None),
        }
        if ![DataType::TypeInt32, DataType::TypeFp32].contains(&batch_input.data_type()) {
            says("batch input data type must be TYPE_INT32 or TYPE_FP32".to_owned(), None);
        }
        for source in unknown_sources(config, &batch_input.source_input) {
            let near = nearest(source, config.input.iter().map(|input| input.name.clone()));
            says(format!("unknown source input name '{source}'"), near);
        }
    }
}

fn check_batch_outputs(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::BATCH_TENSOR);
    for (position, batch_output) in config.batch_output.iter().enumerate() {
        let field = &format!("batch_output[{position}]");
        let mut says = |what: String, near: Option<String>| {
            let text = format!("{what} for {}", config.name);
            errors.push_meaning(ErrorCode::InvalidArgument, field, text, near);
        };
        match OutputKind::try_from(batch_output.kind) {
            Ok(kind) if batch_output.source_input.len() != 1 => {
                let (kind, sources) = (kind.as_str_name(), batch_output.source_input.len());
                says(format!("batch output kind '{kind}' expects 1 source input, got {sources}"), None);
            }
            Ok(_) => {}
            Err(_) => says(format!("unknown batch output kind '{}'", batch_output.kind), None),
        }
        for source in unknown_sources(config, &batch_output.source_input) {
            let near = nearest(source, config.input.iter().map(|input| input.name.clone()));
            says(format!("unknown source input name '{source}'"), near);
        }
        let known = |target: &str| config.output.iter().any(|output| output.name == target);
        for target in batch_output.target_name.iter().filter(|target| !known(target)) {
            let near = nearest(target, config.output.iter().map(|output| output.name.clone()));
            says(format!("unknown target output name '{target}'"), near);
        }
    }
    let targets = config.batch_output.iter().flat_map(|batch_output| &batch_output.target_name);
    for target in repeated(targets.map(String::as_str)) {
        let text = format!("target output name '{target}' can only be specified once for {}", config.name);
        errors.invalid("batch_output", text);
    }
}

fn unknown_sources<'a>(config: &ModelConfig, sources: &'a [String]) -> impl Iterator<Item = &'a String> {
    sources.iter().filter(|source| !config.input.iter().any(|input| input.name == **source))
}

/// Triton accepts a repeated name, and then uses the tensor that it finds first.
fn names_are_unique(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::TENSOR);
    let model = &config.name;
    let inputs = config.input.iter().map(|input| input.name.as_str()).filter(|name| !name.is_empty());
    for name in repeated(inputs) {
        errors.invalid("input", format!("model input '{name}' is specified more than once for {model}"));
    }
    let outputs = config.output.iter().map(|output| output.name.as_str()).filter(|name| !name.is_empty());
    for name in repeated(outputs) {
        errors.invalid("output", format!("model output '{name}' is specified more than once for {model}"));
    }
}

/// The names that appeared earlier in the list, each once.
fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let (mut seen, mut twice) = (HashSet::new(), Vec::new());
    for name in names {
        if !seen.insert(name) && !twice.contains(&name) {
            twice.push(name);
        }
    }
    twice
}
