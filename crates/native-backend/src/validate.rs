//! Checks whether a complete configuration agrees with its graph.
//!
//! Clients know every text of this module, and their tests compare them.

use config::{BatchInput, ConfigErrors, ControlInput, InputSpec, ModelConfig, OutputSpec, StateSpec, rule};
use inference::nearest;
use vocabulary::{DataType, Error, shape_text};

use crate::{
    ElementType, GraphValue, Signature, ValueKind,
    plan::{control_datatype, sequence_inputs},
};

/// Checks all inputs and outputs, also those that only the server sees.
///
/// # Errors
/// INVALID_ARGUMENT for the first disagreement, UNSUPPORTED for a value that is not a tensor, INTERNAL for a control
/// that the graph lacks.
pub(crate) fn validate(config: &ModelConfig, signature: &Signature) -> Result<(), Error> {
    let mut errors = ConfigErrors::default();
    check_config(config, signature, DimsRule::Exact, &mut errors);
    errors.first().map_or(Ok(()), Err)
}

/// Adds every disagreement. `outputs` says how the dims of outputs must agree.
pub fn check_config(
    config: &ModelConfig,
    signature: &Signature,
    outputs: DimsRule,
    errors: &mut ConfigErrors,
) {
    errors.begin(rule::GRAPH);
    if let Err(error) = signature.require_tensors() {
        return errors.push_error("", &error);
    }
    let mut note = |field: String, near: Option<String>, checked: Result<(), Error>| {
        if let Err(error) = checked {
            errors.push_meaning(error.code, &field, error.message.to_string(), near);
        }
    };
    let (controls, states) = sequence_inputs(config);
    for (position, control) in controls.iter().enumerate() {
        let field = format!("sequence_batching.control_input[{position}]");
        let near = near(signature.inputs.iter(), &control.name);
        note(field, near, validate_control(config, signature, control));
    }
    note(String::new(), None, validate_count(config, signature));
    for (position, input) in config.inputs.iter().enumerate() {
        let near = near(signature.feeds(), &input.name);
        note(format!("input[{position}]"), near, validate_input(config, signature, input));
    }
    for (position, input) in config.batch_inputs.iter().enumerate() {
        let checked = validate_batch_input(config, signature, input);
        note(format!("batch_input[{position}]"), None, checked);
    }
    for (position, output) in config.outputs.iter().enumerate() {
        let near = near(signature.outputs.iter(), &output.name);
        note(format!("output[{position}]"), near, validate_output(config, signature, output, outputs));
    }
    for (position, state) in states.iter().enumerate() {
        let checked = validate_state(config, signature, state);
        note(format!("sequence_batching.state[{position}]"), None, checked);
    }
}

/// The name of the graph that a name probably means, if the graph does not have the name itself.
fn near<'a>(slots: impl Iterator<Item = &'a GraphValue> + Clone, name: &str) -> Option<String> {
    if slots.clone().any(|slot| slot.name == *name) {
        return None;
    }
    nearest(name, slots.map(|slot| slot.name.to_string()))
}

fn validate_count(config: &ModelConfig, signature: &Signature) -> Result<(), Error> {
    let (controls, states) = sequence_inputs(config);
    let required = config.inputs.iter().filter(|input| !input.optional).count();
    let made: usize = config.batch_inputs.iter().map(|input| input.target_names.len()).sum();
    let expected = required + made + controls.len() + states.len();
    let provided = signature.inputs.len();
    if expected == provided {
        return Ok(());
    }
    Err(unable(config, format!("configuration expects {expected} inputs, model provides {provided}")))
}

fn validate_control(
    config: &ModelConfig,
    signature: &Signature,
    control: &ControlInput,
) -> Result<(), Error> {
    let name = &control.name;
    let Some(slot) = signature.inputs.iter().find(|slot| slot.name == *name) else {
        return Err(Error::internal(format!(
            "configuration specified sequence control '{name}', but model does not provide that input"
        )));
    };
    let (element, shape) = tensor(slot);
    let dims = if config.max_batch_size.is_some() { shape.get(1..).unwrap_or(&[]) } else { shape };
    if dims != [1] {
        let dims = shape_text(dims);
        let text = format!("sequence control '{name}' in model has dims {dims} but dims [1] is expected");
        return Err(unable(config, text));
    }
    let datatype = control_datatype(&control.control);
    if element.datatype() != Some(datatype) {
        let (model, configured) = (element.library_name(), datatype.config_name());
        let text = format!(
            "sequence control '{name}', the model expects data-type {model} but the model configuration specifies \
             data-type {configured}"
        );
        return Err(unable(config, text));
    }
    check_dims(config, name, shape, dims, DimsRule::Covered)
}

/// Checks that a state is an input and an output of the same datatype and dims. Unlike outputs for clients, the
/// configuration may set dims that the graph leaves open, because exporters often lose the dims of an output state.
fn validate_state(config: &ModelConfig, signature: &Signature, state: &StateSpec) -> Result<(), Error> {
    let input = find(signature.inputs.iter(), &state.input_name, "input")?;
    let output = find(signature.outputs.iter(), &state.output_name, "output")?;
    for (slot, side) in [(input, "input"), (output, "output")] {
        let (name, (element, shape)) = (&slot.name, tensor(slot));
        check_datatype(config, element, state.datatype, &format!("{side} '{name}'"))?;
        if shape.is_empty() {
            // A single value for a whole batch belongs to no sequence, and a configuration cannot describe a tensor
            // without dims.
            if config.max_batch_size.is_some() {
                return Err(no_batching(config, name, shape));
            }
            if state.dims.is_empty() {
                return Err(no_scalar(config, name, &state.dims));
            }
        }
        check_dims(config, name, shape, &state.dims, DimsRule::Covered)?;
    }
    Ok(())
}

fn validate_input(config: &ModelConfig, signature: &Signature, input: &InputSpec) -> Result<(), Error> {
    let name = &input.name;
    if input.optional && config.max_batch_size.is_some() {
        let text = format!("optional input '{name}' is not supported for models that support batching");
        return Err(unable(config, text));
    }
    let slot = find(signature.feeds(), name, "input")?;
    let (element, model_shape) = tensor(slot);
    check_datatype(config, element, input.datatype, &format!("input '{name}'"))?;
    if input.allow_ragged_batch {
        let expectation = "configuration expects model provides input with shape [-1] ";
        if input.optional {
            let text =
                format!("{expectation}for ragged input '{name}', which is not supported for optional input");
            return Err(unable(config, text));
        }
        if model_shape != [-1] {
            let shape = shape_text(model_shape);
            return Err(unable(
                config,
                format!("{expectation} for ragged input '{name}', model provides {shape}"),
            ));
        }
        return Ok(());
    }
    let dims = input.reshape.as_ref().unwrap_or(&input.dims);
    check_dims(config, name, model_shape, dims, DimsRule::Covered)
}

fn validate_batch_input(
    config: &ModelConfig,
    signature: &Signature,
    input: &BatchInput,
) -> Result<(), Error> {
    for name in &input.target_names {
        let (element, _) = tensor(find(signature.inputs.iter(), name, "input")?);
        check_datatype(config, element, input.datatype, &format!("input '{name}'"))?;
    }
    Ok(())
}

fn validate_output(
    config: &ModelConfig,
    signature: &Signature,
    output: &OutputSpec,
    rule: DimsRule,
) -> Result<(), Error> {
    let name = &output.name;
    let (element, model_shape) = tensor(find(signature.outputs.iter(), name, "output")?);
    check_datatype(config, element, output.datatype, &format!("output '{name}'"))?;
    // An output that is scattered by the shape of an input may have another shape than the graph's output.
    if config.batch_outputs.iter().any(|scattered| scattered.target_names.contains(name)) {
        return Ok(());
    }
    let dims = output.reshape.as_ref().unwrap_or(&output.dims);
    check_dims(config, name, model_shape, dims, rule)
}

/// How configured dims and the dims of the graph must agree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DimsRule {
    /// -1 in the graph stands for any dim.
    Covered,
    /// Every dim must be the same, -1 included.
    Exact,
}

// As Triton: onnxruntime_utils.cc, CompareDimsSupported.
fn check_dims(
    config: &ModelConfig,
    tensor: &str,
    model: &[i64],
    dims: &[i64],
    rule: DimsRule,
) -> Result<(), Error> {
    let name = &config.name;
    if model.is_empty() {
        let is_one = dims.iter().all(|&dim| dim == 1);
        return if is_one { Ok(()) } else { Err(no_scalar(config, tensor, dims)) };
    }
    let model_text = shape_text(model);
    let batched = config.max_batch_size.is_some();
    if batched && model[0] != -1 {
        return Err(no_batching(config, tensor, model));
    }
    let full = config.client_dims(dims);
    let agrees = |(&model, &dim): (&i64, &i64)| model == dim || (rule == DimsRule::Covered && model == -1);
    if model.len() == full.len() && model.iter().zip(&full).all(agrees) {
        return Ok(());
    }
    let (rank, count, full) = (model.len(), full.len(), shape_text(&full));
    let specified = if batched {
        format!(
            "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making \
             complete shape {full}"
        )
    } else {
        format!("shape {full}")
    };
    Err(Error::invalid(format!(
        "model '{name}', tensor '{tensor}': the model expects {rank} dimensions (shape {model_text}) but the model \
         configuration specifies {count} dimensions ({specified})"
    )))
}

fn no_batching(config: &ModelConfig, tensor: &str, model: &[i64]) -> Error {
    let (name, model) = (&config.name, shape_text(model));
    Error::invalid(format!(
        "model '{name}', tensor '{tensor}': for the model to support batching the shape should have at least 1 \
         dimension and the first dimension must be -1; but shape expected by the model is {model}"
    ))
}

fn no_scalar(config: &ModelConfig, tensor: &str, dims: &[i64]) -> Error {
    let text = format!(
        "scalar tensor '{tensor}', should only provide 1 in the model configuration when the model doesn't support \
         batching. Model configuration provided: {}.",
        shape_text(dims)
    );
    unable(config, text)
}

fn check_datatype(
    config: &ModelConfig,
    model: &ElementType,
    configured: DataType,
    what: &str,
) -> Result<(), Error> {
    if model.datatype() == Some(configured) {
        return Ok(());
    }
    let (expected, provided) = (configured.config_name(), model.name());
    Err(unable(
        config,
        format!("configuration expects datatype {expected} for {what}, model provides TYPE_{provided}"),
    ))
}

fn find<'a>(
    mut slots: impl Iterator<Item = &'a GraphValue> + Clone,
    name: &str,
    side: &str,
) -> Result<&'a GraphValue, Error> {
    let all = slots.clone();
    slots.find(|slot| slot.name == *name).ok_or_else(|| {
        let mut allowed: Vec<_> = all.map(|slot| slot.name.as_str()).collect();
        allowed.sort_unstable();
        Error::invalid(format!(
            "unexpected inference {side} '{name}', allowed {side}s are: {}",
            allowed.join(", ")
        ))
    })
}

fn tensor(slot: &GraphValue) -> (&ElementType, &[i64]) {
    match &slot.kind {
        ValueKind::Tensor(element, shape) => (element, shape),
        ValueKind::Other(_) => unreachable!("kinds have been checked"),
    }
}

fn unable(config: &ModelConfig, why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("unable to load model '{}', {why}", config.name))
}
