//! Completes a configuration from its graph.
//!
//! A missing list of inputs or outputs is written from the graph, in the graph's order. A given list stays, and the
//! backend only sets datatypes and dims that an entry lacks. So labels, reshapes and flags survive.
use std::{collections::BTreeSet, num::NonZeroU32};

use proto::model_config::SchedulingChoice;
use vocabulary::{Error, ErrorCode};

use crate::{
    GraphValue, Rows, Signature, ValueKind,
    batch_size::{DefaultBatchSize, complete_batching},
    iteration::DONE_OUTPUT,
};

/// Whether there is nothing left to complete.
pub fn is_complete(config: &proto::ModelConfig) -> bool {
    let inputs = !config.input.is_empty() || !config.batch_input.is_empty();
    let whole = |data_type: i32, dims: &[i64]| data_type != 0 && !dims.is_empty();
    inputs
        && !config.output.is_empty()
        && config.input.iter().all(|input| whole(input.data_type, &input.dims))
        && config.output.iter().all(|output| whole(output.data_type, &output.dims))
}

/// Completes what the configuration leaves open. `default_max_batch_size` is for models that can batch and set no size.
/// `probe` runs before such a model may get batches of several requests. Returns how many rows single requests may have
/// instead of `max_batch_size`.
///
/// # Errors
/// INVALID_ARGUMENT if the graph cannot batch as configured; UNSUPPORTED for an input or output that is not a tensor;
/// INTERNAL for a datatype that the protocols lack.
pub fn complete(
    config: &mut proto::ModelConfig,
    signature: &Signature,
    default_max_batch_size: DefaultBatchSize,
    probe: impl FnOnce() -> Rows,
) -> Result<Option<NonZeroU32>, Error> {
    signature.require_tensors()?;
    let request_rows = complete_batching(config, signature, default_max_batch_size, probe)?;
    let (model, batched) = (config.name.clone(), config.max_batch_size > 0);
    let completed = |slot: &GraphValue, side| Completed::of(slot, side, &model, batched);

    if config.input.is_empty() && config.batch_input.is_empty() {
        let made = made_by_server(config);
        for slot in signature.inputs.iter().filter(|slot| !made.contains(slot.name.as_str())) {
            let Completed { name, data_type, dims, reshape } = completed(slot, "input")?;
            config.input.push(proto::ModelInput { name, data_type, dims, reshape, ..Default::default() });
        }
    }
    for input in &mut config.input {
        if let Some(slot) = signature.feeds().find(|slot| slot.name == *input.name) {
            completed(slot, "input")?.fill(&mut input.data_type, &mut input.dims, &mut input.reshape);
        }
    }
    if config.output.is_empty() {
        let inward = inward(config);
        for slot in signature.outputs.iter().filter(|slot| !inward.contains(slot.name.as_str())) {
            let Completed { name, data_type, dims, reshape } = completed(slot, "output")?;
            config.output.push(proto::ModelOutput { name, data_type, dims, reshape, ..Default::default() });
        }
    }
    for output in &mut config.output {
        if let Some(slot) = signature.outputs.iter().find(|slot| slot.name == *output.name) {
            completed(slot, "output")?.fill(&mut output.data_type, &mut output.dims, &mut output.reshape);
        }
    }
    Ok(request_rows)
}

/// Graph inputs that the server makes and no client sends.
fn made_by_server(config: &proto::ModelConfig) -> BTreeSet<String> {
    let mut names: BTreeSet<String> =
        config.batch_input.iter().flat_map(|input| input.target_name.iter().cloned()).collect();
    if let Some(SchedulingChoice::SequenceBatching(sequence)) = &config.scheduling_choice {
        names.extend(sequence.control_input.iter().map(|control| control.name.clone()));
        names.extend(sequence.state.iter().map(|state| state.input_name.clone()));
    }
    names
}

/// Graph outputs that only the server reads: states for the next request of a sequence, and the output of finished
/// requests. A configuration that lists them shows them to clients.
fn inward(config: &proto::ModelConfig) -> BTreeSet<String> {
    let Some(SchedulingChoice::SequenceBatching(sequence)) = &config.scheduling_choice else {
        return BTreeSet::new();
    };
    let states = sequence.state.iter().map(|state| state.output_name.clone());
    let done = config.parameters.get(DONE_OUTPUT).map(|done| done.string_value.clone());
    states.chain(done).collect()
}

/// One entry, as the graph describes it.
struct Completed {
    name: String,
    data_type: i32,
    dims: Vec<i64>,
    reshape: Option<proto::ModelTensorReshape>,
}

impl Completed {
    fn of(slot: &GraphValue, side: &str, model: &str, batched: bool) -> Result<Self, Error> {
        let ValueKind::Tensor(element, shape) = &slot.kind else { unreachable!("kinds have been checked") };
        let Some(datatype) = element.datatype() else {
            let (element, name) = (element.name(), &slot.name);
            let text = format!("unsupported datatype {element} for {side} '{name}' for model '{model}'");
            return Err(Error::new(ErrorCode::Internal, text));
        };
        let data_type = proto::DataType::from_str_name(datatype.config_name())
            .expect("the schema has every datatype of the vocabulary")
            .into();
        let name = slot.name.to_string();
        let dims = if batched { shape.get(1..).unwrap_or(&[]) } else { &shape[..] };
        if !dims.is_empty() {
            return Ok(Self { name, data_type, dims: dims.to_vec(), reshape: None });
        }
        // A configuration cannot express "no dimensions". One element for each row has the same bytes.
        let reshape = batched.then(proto::ModelTensorReshape::default);
        Ok(Self { name, data_type, dims: vec![1], reshape })
    }

    fn fill(self, data_type: &mut i32, dims: &mut Vec<i64>, reshape: &mut Option<proto::ModelTensorReshape>) {
        if *data_type == 0 {
            *data_type = self.data_type;
        }
        if dims.is_empty() {
            *dims = self.dims;
            *reshape = reshape.take().or(self.reshape);
        }
    }
}

#[cfg(test)]
mod tests {
    use config::KEEP_BATCH_PARAMETER as KEEP_BATCH;
    use vocabulary::DataType;

    use super::*;
    use crate::OtherKind;

    const DEFAULT: DefaultBatchSize = DefaultBatchSize { rows: 4, request_rows: Some(NonZeroU32::MAX) };

    fn signature(inputs: &[(&str, &[i64])], outputs: &[(&str, &[i64])]) -> Signature {
        let slots = |sides: &[(&str, &[i64])]| {
            sides
                .iter()
                .map(|(name, dims)| GraphValue::tensor(name, DataType::Fp32.into(), dims))
                .collect::<Vec<_>>()
        };
        Signature { inputs: slots(inputs), overridable: Vec::new(), outputs: slots(outputs) }
    }

    fn named(name: &str) -> proto::ModelConfig {
        proto::ModelConfig { name: name.to_owned(), ..Default::default() }
    }

    #[test]
    fn a_graph_that_can_batch_gets_the_default_size_and_dynamic_batching() {
        let mut config = named("m");
        complete(
            &mut config,
            &signature(&[("B", &[-1, 16]), ("A", &[-1, 2])], &[("Y", &[-1, -1])]),
            DEFAULT,
            || Rows::Independent,
        )
        .unwrap();
        assert_eq!(config.max_batch_size, 4);
        assert!(matches!(config.scheduling_choice, Some(SchedulingChoice::DynamicBatching(_))));
        let inputs: Vec<_> =
            config.input.iter().map(|input| (input.name.as_str(), &input.dims[..])).collect();
        assert_eq!(inputs, [("B", &[16][..]), ("A", &[2][..])]);
        assert_eq!(config.output[0].dims, [-1]);
        assert_eq!(config.output[0].data_type, i32::from(proto::DataType::TypeFp32));
    }

    #[test]
    fn a_fixed_first_dimension_is_kept_as_a_dimension() {
        let mut config = named("m");
        complete(&mut config, &signature(&[("X", &[1, 16])], &[("Y", &[1, 16])]), DEFAULT, || {
            Rows::Independent
        })
        .unwrap();
        assert_eq!((config.max_batch_size, &config.scheduling_choice), (0, &None));
        assert_eq!(config.input[0].dims, [1, 16]);
    }

    #[test]
    fn a_batch_size_that_the_graph_cannot_have_is_refused() {
        let mut config = proto::ModelConfig { max_batch_size: 4, ..named("m") };
        let error =
            complete(&mut config, &signature(&[("X", &[1, 16])], &[("Y", &[-1, 16])]), DEFAULT, || {
                Rows::Independent
            })
            .unwrap_err();
        assert_eq!(
            error.with_code(),
            "Invalid argument: autofill failed for model 'm': model does not support batching while non-zero \
             max_batch_size is specified: 'X' has shape [1,16], and its first dimension is not open. Set \
             max_batch_size to 0"
        );
    }

    #[test]
    fn a_scalar_becomes_one_element() {
        let mut config = named("m");
        complete(&mut config, &signature(&[("X", &[])], &[("Y", &[])]), DEFAULT, || Rows::Independent)
            .unwrap();
        assert_eq!(
            (config.max_batch_size, &config.input[0].dims[..], &config.input[0].reshape),
            (0, &[1][..], &None)
        );

        let mut config = named("m");
        complete(&mut config, &signature(&[("X", &[-1])], &[("Y", &[-1, 2])]), DEFAULT, || Rows::Independent)
            .unwrap();
        assert_eq!(config.input[0].dims, [1]);
        assert_eq!(config.input[0].reshape, Some(proto::ModelTensorReshape { shape: vec![] }));
    }

    #[test]
    fn a_default_of_zero_and_a_parameter_keep_batching_off() {
        let graph = signature(&[("X", &[-1, 16])], &[("Y", &[-1, 16])]);
        let mut config = named("m");
        complete(&mut config, &graph, DefaultBatchSize { rows: 0, ..DEFAULT }, || Rows::Independent).unwrap();
        assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (0, &[-1, 16][..]));

        let mut config = named("m");
        let keep = proto::ModelParameter { string_value: "no".to_owned() };
        config.parameters.insert(KEEP_BATCH.to_owned(), keep);
        complete(&mut config, &graph, DEFAULT, || Rows::Independent).unwrap();
        assert_eq!((config.max_batch_size, &config.scheduling_choice), (0, &None));
    }

    #[test]
    fn a_graph_that_mixes_rows_is_not_batched_unless_its_configuration_asks_for_it() {
        let graph = signature(&[("X", &[-1, 16])], &[("Y", &[-1, 16])]);
        let completed = |declared: proto::ModelConfig| {
            let mut config = declared;
            complete(&mut config, &graph, DEFAULT, || Rows::Mixed("output 'Y' differs".to_owned())).unwrap();
            let is_dynamic = matches!(config.scheduling_choice, Some(SchedulingChoice::DynamicBatching(_)));
            (config.max_batch_size, is_dynamic, config.input[0].dims.clone())
        };
        assert_eq!(completed(named("m")), (0, false, vec![-1, 16]));
        let dims = |dims: &[i64]| {
            let input = proto::ModelInput { name: "X".to_owned(), dims: dims.into(), ..Default::default() };
            proto::ModelConfig { input: vec![input], ..named("m") }
        };
        assert_eq!(completed(dims(&[16])), (1, false, vec![16]));
        assert_eq!(completed(dims(&[-1, 16])), (0, false, vec![-1, 16]));
        let config = proto::ModelConfig { max_batch_size: 8, ..named("m") };
        assert_eq!(completed(config), (8, true, vec![16]));
        let dynamic = SchedulingChoice::DynamicBatching(proto::ModelDynamicBatching::default());
        let config = proto::ModelConfig { scheduling_choice: Some(dynamic), ..named("m") };
        assert_eq!(completed(config), (4, true, vec![16]));
    }

    #[test]
    fn requests_may_have_more_rows_only_if_nobody_has_set_a_size() {
        let graph = signature(&[("X", &[-1, 16])], &[("Y", &[-1, 16])]);
        let rows = |mut config: proto::ModelConfig, default| {
            complete(&mut config, &graph, default, || Rows::Independent).unwrap()
        };
        assert_eq!(rows(named("m"), DEFAULT), DEFAULT.request_rows);
        assert_eq!(rows(named("m"), DefaultBatchSize { request_rows: None, ..DEFAULT }), None);
        assert_eq!(rows(proto::ModelConfig { max_batch_size: 8, ..named("m") }, DEFAULT), None);
        let sequence = SchedulingChoice::SequenceBatching(proto::ModelSequenceBatching::default());
        assert_eq!(
            rows(proto::ModelConfig { scheduling_choice: Some(sequence), ..named("m") }, DEFAULT),
            None
        );
    }

    #[test]
    fn a_graph_that_no_probe_can_run_is_batched() {
        let mut config = named("m");
        let graph = signature(&[("X", &[-1, 16])], &[("Y", &[-1, 16])]);
        complete(&mut config, &graph, DEFAULT, || Rows::Unknown("it does not run".to_owned())).unwrap();
        assert_eq!(config.max_batch_size, 4);
    }

    #[test]
    fn a_choice_of_the_user_is_left_alone() {
        let mut config = proto::ModelConfig { max_batch_size: 8, ..named("m") };
        let sequence = proto::ModelSequenceBatching {
            control_input: vec![proto::model_sequence_batching::ControlInput {
                name: "START".to_owned(),
                control: vec![],
            }],
            state: vec![proto::model_sequence_batching::State {
                input_name: "SUM".to_owned(),
                output_name: "NEXT".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        config.scheduling_choice = Some(SchedulingChoice::SequenceBatching(sequence));
        let inputs: [(&str, &[i64]); 3] = [("X", &[-1, 16]), ("START", &[-1, 1]), ("SUM", &[-1, 16])];
        let graph = signature(&inputs, &[("Y", &[-1, 16]), ("NEXT", &[-1, 16])]);
        complete(&mut config, &graph, DEFAULT, || Rows::Independent).unwrap();
        assert_eq!(config.max_batch_size, 8);
        assert!(matches!(config.scheduling_choice, Some(SchedulingChoice::SequenceBatching(_))));
        assert_eq!(config.input.len(), 1, "what the server makes is no input of the client");
        assert_eq!(config.output.len(), 1, "what the server keeps is no output for the client");
    }

    #[test]
    fn given_entries_keep_their_labels_and_get_what_they_lack() {
        let mut config = named("m");
        config.output.push(proto::ModelOutput {
            name: "Y".to_owned(),
            label_filename: "labels.txt".to_owned(),
            ..Default::default()
        });
        assert!(!is_complete(&config));
        complete(
            &mut config,
            &signature(&[("X", &[-1, 16])], &[("Y", &[-1, 2]), ("Z", &[-1, 3])]),
            DEFAULT,
            || Rows::Independent,
        )
        .unwrap();
        assert_eq!(config.output.len(), 1, "outputs that are not configured stay out");
        assert_eq!(
            (config.output[0].label_filename.as_str(), &config.output[0].dims[..]),
            ("labels.txt", &[2][..])
        );
        assert!(is_complete(&config));
    }

    #[test]
    fn what_is_no_tensor_is_refused_by_name() {
        let mut graph = signature(&[("X", &[-1])], &[("Y", &[-1])]);
        graph.outputs[0].kind = ValueKind::Other(OtherKind {
            name: "ONNX_TYPE_SEQUENCE".into(),
            noun: "ONNX Type",
            tensor: "ONNX_TYPE_TENSOR",
        });
        assert_eq!(
            complete(&mut named("m"), &graph, DEFAULT, || Rows::Independent).unwrap_err().with_code(),
            "Unsupported: Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'Y', expected 'ONNX_TYPE_TENSOR'."
        );
    }
}
