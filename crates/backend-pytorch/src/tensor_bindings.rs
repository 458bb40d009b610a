//! Which input and output of a configuration is which tensor of a call.
//!
//! Names are paths of the exported program, such as `ARGS[0]` and `RESULT[sum]`, or `INPUT__<index>` and
//! `OUTPUT__<index>`. A package tells neither datatypes nor dims, so those of the configuration count.
//!
//! As Triton: pytorch_backend, src/pt2/call_spec.cc.
use config::{ModelConfig, Scheduling, SequenceScheduling};
use native_backend::{GraphValue, Signature, control_datatype};
use vocabulary::{DataType, Error, Name, Shape};

/// The tensors of a call by the names of a configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TensorBindings {
    /// The inputs in the order of the call, and the outputs of the configuration, those of states included.
    pub(crate) signature: Signature,
    /// For each output of the signature its place among those of the call.
    pub(crate) output_places: Vec<usize>,
}

/// A tensor that the configuration names.
struct NamedTensor<'a> {
    name: &'a Name,
    datatype: DataType,
    /// Without the batch dimension.
    dims: &'a [i64],
}

impl TensorBindings {
    /// Binds the tensors of a complete configuration to those of a call, which have these paths.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the configuration names other tensors, or has a feature or a datatype that the backend does
    /// not support.
    pub(crate) fn of(config: &ModelConfig, inputs: &[String], outputs: &[String]) -> Result<Self, Error> {
        refuse_features(config)?;
        let (named_inputs, named_outputs) = (all_inputs(config), all_outputs(config));
        if named_inputs.len() != inputs.len() {
            return Err(Error::invalid(format!(
                "unable to load model '{}', configuration expects {} inputs, model provides {}",
                config.name,
                named_inputs.len(),
                inputs.len()
            )));
        }
        let input_places = places(config, ("input", "INPUT"), &named_inputs, inputs)?;
        let output_places = places(config, ("output", "OUTPUT"), &named_outputs, outputs)?;
        let mut in_order: Vec<_> = input_places.into_iter().zip(&named_inputs).collect();
        in_order.sort_by_key(|(place, _)| *place);
        let value = |tensor: &NamedTensor<'_>| tensor.value(config.max_batch_size.is_some());
        Ok(Self {
            signature: Signature {
                inputs: in_order.into_iter().map(|(_, tensor)| value(tensor)).collect(),
                overridable: Vec::new(),
                outputs: named_outputs.iter().map(value).collect(),
            },
            output_places,
        })
    }
}

impl NamedTensor<'_> {
    fn value(&self, is_batched: bool) -> GraphValue {
        let dims: Shape = is_batched.then_some(-1).into_iter().chain(self.dims.iter().copied()).collect();
        GraphValue::tensor(self.name, self.datatype.into(), &dims)
    }
}

/// Refuses what no tensor of a call can be.
fn refuse_features(config: &ModelConfig) -> Result<(), Error> {
    let ragged = config.inputs.iter().any(|input| input.allow_ragged_batch);
    for (field, is_there) in [
        ("batch_input", !config.batch_inputs.is_empty()),
        ("batch_output", !config.batch_outputs.is_empty()),
        ("allow_ragged_batch", ragged),
    ] {
        if is_there {
            return Err(Error::invalid(format!(
                "model '{}' has {field}, which the built-in backend 'pytorch' does not support",
                config.name
            )));
        }
    }
    match config.inputs.iter().find(|input| input.optional) {
        None => Ok(()),
        Some(input) => Err(Error::invalid(format!(
            "input '{}' of model '{}' is optional, but compiled code needs all inputs",
            input.name, config.name
        ))),
    }
}

fn sequence(config: &ModelConfig) -> Option<&SequenceScheduling> {
    match &config.scheduling {
        Scheduling::Sequence(sequence) => Some(sequence),
        Scheduling::Unbatched | Scheduling::Dynamic(_) | Scheduling::Ensemble(_) => None,
    }
}

/// The inputs of clients, and those that the server makes for sequences.
fn all_inputs(config: &ModelConfig) -> Vec<NamedTensor<'_>> {
    let inputs = config.inputs.iter().map(|input| NamedTensor {
        name: &input.name,
        datatype: input.datatype,
        dims: input.reshape.as_ref().unwrap_or(&input.dims),
    });
    let sequence = sequence(config);
    let controls = sequence.into_iter().flat_map(|sequence| &sequence.controls).map(|control| NamedTensor {
        name: &control.name,
        datatype: control_datatype(&control.control),
        dims: &[1],
    });
    let states = sequence.into_iter().flat_map(|sequence| &sequence.states).map(|state| NamedTensor {
        name: &state.input_name,
        datatype: state.datatype,
        dims: &state.dims,
    });
    inputs.chain(controls).chain(states).collect()
}

/// The outputs of clients, and the states that are none of them.
fn all_outputs(config: &ModelConfig) -> Vec<NamedTensor<'_>> {
    let outputs = config.outputs.iter().map(|output| NamedTensor {
        name: &output.name,
        datatype: output.datatype,
        dims: output.reshape.as_ref().unwrap_or(&output.dims),
    });
    let states = sequence(config).into_iter().flat_map(|sequence| &sequence.states);
    let states = states.filter(|state| config.output(&state.output_name).is_none());
    let states = states.map(|state| NamedTensor {
        name: &state.output_name,
        datatype: state.datatype,
        dims: &state.dims,
    });
    outputs.chain(states).collect()
}

/// The place of each tensor among those with the paths. No two have the same.
fn places(
    config: &ModelConfig,
    (kind, prefix): (&str, &str),
    tensors: &[NamedTensor<'_>],
    paths: &[String],
) -> Result<Vec<usize>, Error> {
    let model = &config.name;
    let mut taken: Vec<Option<&Name>> = vec![None; paths.len()];
    let mut places = Vec::with_capacity(tensors.len());
    for NamedTensor { name, datatype, .. } in tensors {
        if *datatype == DataType::Bytes {
            return Err(Error::invalid(format!(
                "unsupported datatype TYPE_STRING for {kind} '{name}' for model '{model}'"
            )));
        }
        let place = place(name, prefix, paths).ok_or_else(|| {
            let known = paths.iter().enumerate().map(|(place, path)| format!("{prefix}__{place} or {path}"));
            Error::invalid(format!(
                "{kind} '{name}' of model '{model}' is no {kind} of the exported program, which has: {}",
                known.collect::<Vec<_>>().join(", ")
            ))
        })?;
        if let Some(other) = taken[place].replace(name) {
            return Err(Error::invalid(format!(
                "{kind}s '{other}' and '{name}' of model '{model}' mean the same tensor"
            )));
        }
        places.push(place);
    }
    Ok(places)
}

fn place(name: &str, prefix: &str, paths: &[String]) -> Option<usize> {
    if let Some(place) = paths.iter().position(|path| path == name) {
        return Some(place);
    }
    let index = name.strip_prefix(prefix)?.strip_prefix("__")?;
    // As many names as in Python: one for each index.
    let is_plain = index == "0" || !index.starts_with('0') && index.bytes().all(|byte| byte.is_ascii_digit());
    index.parse().ok().filter(|&index: &usize| is_plain && index < paths.len())
}

#[cfg(test)]
mod tests {
    use config::{Completion, CompletionContext, ConfigSource, ModelLayout, declare, finish};

    use super::*;

    fn config(text: &str) -> ModelConfig {
        let layout = ModelLayout { name: "m".to_owned(), ..ModelLayout::default() };
        let content = format!("backend: 'pytorch' {text}");
        let source = ConfigSource::Text { path: "config.pbtxt".as_ref(), content: content.as_bytes() };
        let declared = declare(source, &layout, Completion::Auto).unwrap();
        finish(&declared, declared.config.clone(), &CompletionContext::default()).unwrap().typed
    }

    fn bind(text: &str, inputs: &[&str], outputs: &[&str]) -> Result<TensorBindings, String> {
        let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        TensorBindings::of(&config(text), &paths(inputs), &paths(outputs))
            .map_err(|error| error.message.into_owned())
    }

    fn io(inputs: &[&str], outputs: &[&str]) -> String {
        let side = |side: &str, names: &[&str]| {
            names
                .iter()
                .map(|name| format!("{side} {{ name: '{name}' data_type: TYPE_FP32 dims: 4 }} "))
                .collect::<String>()
        };
        side("input", inputs) + &side("output", outputs)
    }

    #[test]
    fn tensors_are_bound_by_path_or_index_whatever_their_order() {
        let text =
            format!("max_batch_size: 8 {}", io(&["KWARGS[b]", "INPUT__0"], &["OUTPUT__1", "RESULT[sum]"]));
        let bound = bind(&text, &["ARGS[0]", "KWARGS[b]"], &["RESULT[sum]", "RESULT[difference]"]).unwrap();
        let names =
            |values: &[GraphValue]| values.iter().map(|value| value.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&bound.signature.inputs), ["INPUT__0", "KWARGS[b]"]);
        assert_eq!(names(&bound.signature.outputs), ["OUTPUT__1", "RESULT[sum]"]);
        assert_eq!(bound.output_places, [1, 0]);
        assert_eq!(
            bound.signature.inputs[0],
            GraphValue::tensor("INPUT__0", DataType::Fp32.into(), &[-1, 4])
        );
    }

    #[test]
    fn states_and_controls_of_sequences_are_inputs_and_outputs_of_the_call() {
        let text = format!(
            "max_batch_size: 4 {} sequence_batching {{
               control_input {{ name: 'INPUT__2' control {{ kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }} }}
               state {{ input_name: 'INPUT__1' output_name: 'OUTPUT__1' data_type: TYPE_INT64 dims: 2 }} }}",
            io(&["INPUT__0"], &["OUTPUT__0"])
        );
        let bound = bind(&text, &["ARGS[0]", "ARGS[1]", "ARGS[2]"], &["RESULT[0]", "RESULT[1]"]).unwrap();
        assert_eq!(
            bound.signature.inputs[1],
            GraphValue::tensor("INPUT__1", DataType::Int64.into(), &[-1, 2])
        );
        assert_eq!(
            bound.signature.inputs[2],
            GraphValue::tensor("INPUT__2", DataType::Fp32.into(), &[-1, 1])
        );
        assert_eq!(bound.output_places, [0, 1]);
    }

    #[test]
    fn a_tensor_that_the_call_lacks_is_told_with_those_that_it_has() {
        let error = bind(&io(&["x"], &["RESULT"]), &["ARGS[0]"], &["RESULT"]).unwrap_err();
        assert_eq!(
            error,
            "input 'x' of model 'm' is no input of the exported program, which has: INPUT__0 or ARGS[0]"
        );
        for name in ["OUTPUT__1", "OUTPUT__", "OUTPUT__00", "OUTPUT__+0", "OUTPUT_0"] {
            let error = bind(&io(&["ARGS[0]"], &[name]), &["ARGS[0]"], &["RESULT"]).unwrap_err();
            assert!(error.starts_with(&format!("output '{name}' of model 'm' is no output")), "{error}");
        }
        let error = bind(&io(&["ARGS[0]"], &["RESULT"]), &["ARGS[0]", "ARGS[1]"], &["RESULT"]).unwrap_err();
        assert_eq!(error, "unable to load model 'm', configuration expects 1 inputs, model provides 2");
        let error = bind(&io(&["ARGS[0]", "INPUT__0"], &["RESULT"]), &["ARGS[0]", "ARGS[1]"], &["RESULT"]);
        assert_eq!(error.unwrap_err(), "inputs 'ARGS[0]' and 'INPUT__0' of model 'm' mean the same tensor");
    }

    #[test]
    fn what_no_tensor_of_a_call_can_be_is_refused() {
        let text = io(&["INPUT__0"], &["OUTPUT__0"]);
        let refusal = |from: &str, to: &str| {
            let text = format!("max_batch_size: 4 {}", text.replacen(from, to, 1));
            bind(&text, &["ARGS[0]"], &["RESULT"]).unwrap_err()
        };
        let strings = refusal("TYPE_FP32", "TYPE_STRING");
        assert_eq!(strings, "unsupported datatype TYPE_STRING for input 'INPUT__0' for model 'm'");
        let ragged = refusal("dims: 4", "dims: 4 allow_ragged_batch: true");
        assert_eq!(
            ragged,
            "model 'm' has allow_ragged_batch, which the built-in backend 'pytorch' does not support"
        );
        let optional = refusal("dims: 4", "dims: 4 optional: true");
        assert_eq!(optional, "input 'INPUT__0' of model 'm' is optional, but compiled code needs all inputs");
    }
}
