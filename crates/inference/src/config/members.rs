//! Whether the members of an ensemble fit: their inputs and outputs, datatypes, shapes and batch sizes.
//!
//! As Triton: ensemble_utils.cc, ValidateEnsembleConfig. Triton compares the latest version of each member; this module
//! compares the version that the step names (S-W51).
use std::{collections::BTreeMap, sync::Arc};

use scheduling::{EnsembleGraph, GraphStep, StepInput};

use super::{EnsembleScheduling, EnsembleStep, ModelConfig};
use crate::{DataType, Error, Name, Shape};

/// What follows from an ensemble together with its members.
#[derive(Debug)]
pub struct FittedEnsemble {
    /// The steps and tensors. Inputs and outputs have the order of the ensemble's configuration. Those of a step have
    /// the order of [`EnsembleStep::inputs`] and [`EnsembleStep::outputs`].
    pub graph: EnsembleGraph,
    /// A request may have any number of responses.
    pub decoupled: bool,
    /// Responses may depend on earlier requests of a sequence.
    pub has_sequences: bool,
    /// The labels of each output of the ensemble. An output without its own has those of the member that gives it.
    pub labels: Vec<Arc<[String]>>,
}

/// Checks an ensemble against its members. `members` has the configuration of the member of each step.
///
/// # Errors
/// INVALID_ARG for the first rule that is broken.
pub fn fit_members(
    config: &ModelConfig,
    scheduling: &EnsembleScheduling,
    members: &[&ModelConfig],
) -> Result<FittedEnsemble, Error> {
    let steps = || scheduling.steps.iter().zip(members.iter().copied());
    for (step, member) in steps() {
        check_mapping(config, step, member)?;
    }
    check_consistency(config, steps())?;
    let numbers = number_tensors(config, &scheduling.steps);
    let number = |tensor: &Name| numbers.get(tensor).copied().unwrap_or_default();
    let graph_step = |(step, member): (&EnsembleStep, &ModelConfig)| GraphStep {
        inputs: step
            .inputs
            .iter()
            .map(|input| StepInput {
                tensor: number(&input.tensor),
                is_optional: member.input(&input.name).is_some_and(|spec| spec.optional),
            })
            .collect(),
        outputs: step.outputs.iter().map(|output| number(&output.tensor)).collect(),
        is_decoupled: member.decoupled,
    };
    let inputs = config.inputs.iter().map(|input| number(&input.name)).collect();
    let outputs = config.outputs.iter().map(|output| number(&output.name)).collect();
    let graph = EnsembleGraph::new(numbers.len(), inputs, outputs, steps().map(graph_step).collect());
    check_streams(config, scheduling, &graph)?;
    let labels = config.outputs.iter().map(|output| {
        let inherited = steps().find_map(|(step, member)| {
            let mapped = step.outputs.iter().find(|mapped| mapped.tensor == output.name)?;
            Some(member.output(&mapped.name)?.labels.clone())
        });
        if output.label_filename.is_some() { output.labels.clone() } else { inherited.unwrap_or_default() }
    });
    let labels = labels.collect();
    let decoupled = members.iter().any(|member| member.decoupled);
    check_cache(config, decoupled, members)?;
    let has_sequences = members.iter().any(|member| member.has_sequences);
    Ok(FittedEnsemble { graph, decoupled, has_sequences, labels })
}

/// Requires that a step names inputs and outputs that its member has, and leaves out optional inputs only.
fn check_mapping(config: &ModelConfig, step: &EnsembleStep, member: &ModelConfig) -> Result<(), Error> {
    let (ensemble, name) = (&config.name, &member.name);
    if let Some(most) = member.max_batch_size
        && let allowed = config.max_batch_size.map_or(0, u32::from)
        && most.get() < allowed
    {
        return Err(Error::invalid(format!(
            "ensemble {ensemble} allows maximum batch size {allowed}, but it contains model {name} which only allows \
             maximum batch size to be {most}"
        )));
    }
    if let Some(mapped) = step.inputs.iter().find(|mapped| member.input(&mapped.name).is_none()) {
        return Err(Error::invalid(format!(
            "in ensemble {ensemble}, ensemble tensor {} is mapping to non-existing input {} in model {name}",
            mapped.tensor, mapped.name
        )));
    }
    let is_mapped = |input: &Name| step.inputs.iter().any(|mapped| mapped.name == *input);
    if let Some(missing) = member.inputs.iter().find(|input| !input.optional && !is_mapped(&input.name)) {
        return Err(Error::invalid(format!(
            "in ensemble {ensemble}, input {} in model {name} is not mapped to any ensemble tensors",
            missing.name
        )));
    }
    match step.outputs.iter().find(|mapped| member.output(&mapped.name).is_none()) {
        Some(mapped) => Err(Error::invalid(format!(
            "in ensemble {ensemble}, ensemble tensor {} is mapped from non-existing output {} in model {name}",
            mapped.tensor, mapped.name
        ))),
        None => Ok(()),
    }
}

/// What one model says of a tensor.
struct TensorUse<'a> {
    model: &'a Name,
    datatype: DataType,
    dims: &'a [i64],
    /// `dims` with the batch dimension, if the model has one.
    batched: Shape,
}

impl<'a> TensorUse<'a> {
    fn new(model: &'a ModelConfig, datatype: DataType, dims: &'a [i64]) -> Self {
        Self { model: &model.name, datatype, dims, batched: model.client_dims(dims) }
    }

    fn check(&self, tensor: &Name, ensemble: &Name, other: &Self) -> Result<(), Error> {
        let inconsistent = |what: &str, one: String, two: String| {
            Error::invalid(format!(
                "in ensemble {ensemble}, ensemble tensor {tensor}: inconsistent {what}: {one} is inferred from model {} \
                 while {two} is inferred from model {}",
                self.model, other.model
            ))
        };
        if self.datatype != other.datatype {
            let [one, two] = [self, other].map(|used| used.datatype.config_name().to_owned());
            return Err(inconsistent("data type", one, two));
        }
        if agree(self.dims, other.dims) || agree(&self.batched, &other.batched) {
            return Ok(());
        }
        let [one, two] = [self, other].map(|used| shown(&used.batched));
        Err(inconsistent("shape", one, two))
    }
}

/// Whether two shapes can be the same; -1 is any size.
fn agree(one: &[i64], other: &[i64]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a == b || *a == -1 || *b == -1)
}

fn shown(dims: &[i64]) -> String {
    let dims: Vec<_> = dims.iter().map(i64::to_string).collect();
    format!("[{}]", dims.join(","))
}

/// Requires that all models agree on the datatype and the shape of each tensor.
fn check_consistency<'a>(
    config: &'a ModelConfig,
    steps: impl Iterator<Item = (&'a EnsembleStep, &'a ModelConfig)>,
) -> Result<(), Error> {
    let mut uses: BTreeMap<&Name, TensorUse<'_>> = BTreeMap::new();
    for input in &config.inputs {
        let dims = input.reshape.as_deref().unwrap_or(&input.dims);
        uses.insert(&input.name, TensorUse::new(config, input.datatype, dims));
    }
    for output in &config.outputs {
        let dims = output.reshape.as_deref().unwrap_or(&output.dims);
        uses.insert(&output.name, TensorUse::new(config, output.datatype, dims));
    }
    for (step, member) in steps {
        let inputs = step.inputs.iter().filter_map(|mapped| {
            let input = member.input(&mapped.name)?;
            Some((&mapped.tensor, TensorUse::new(member, input.datatype, &input.dims)))
        });
        let outputs = step.outputs.iter().filter_map(|mapped| {
            let output = member.output(&mapped.name)?;
            Some((&mapped.tensor, TensorUse::new(member, output.datatype, &output.dims)))
        });
        for (tensor, used) in inputs.chain(outputs) {
            match uses.get(tensor) {
                Some(first) => first.check(tensor, &config.name, &used)?,
                None => drop(uses.insert(tensor, used)),
            }
        }
    }
    Ok(())
}

fn number_tensors(config: &ModelConfig, steps: &[EnsembleStep]) -> BTreeMap<Name, usize> {
    let of_steps = steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs));
    let names = config.inputs.iter().map(|input| &input.name).chain(of_steps.map(|mapped| &mapped.tensor));
    let mut numbers = BTreeMap::new();
    for name in names {
        let next = numbers.len();
        numbers.entry(name.clone()).or_insert(next);
    }
    numbers
}

/// Requires that no step joins the responses of different decoupled steps, or such responses and single tensors: there
/// would be no rule which of them belong together.
fn check_streams(
    config: &ModelConfig,
    scheduling: &EnsembleScheduling,
    graph: &EnsembleGraph,
) -> Result<(), Error> {
    // The decoupled step whose responses a tensor follows; `None` inside: no such step.
    let mut sources: Vec<Option<Option<usize>>> = vec![None; graph.tensors];
    graph.inputs.iter().for_each(|&input| sources[input] = Some(None));
    let mut left: Vec<usize> = (0..graph.steps.len()).collect();
    while let Some(place) = left
        .iter()
        .position(|&step| graph.steps[step].inputs.iter().all(|input| sources[input.tensor].is_some()))
    {
        let index = left.remove(place);
        let step = &graph.steps[index];
        let mut of_inputs = step.inputs.iter().filter_map(|input| sources[input.tensor]);
        let source = of_inputs.next().unwrap_or_default();
        if of_inputs.any(|other| other != source) {
            return Err(Error::invalid(format!(
                "in ensemble {}, step of model '{}' receives inputs originated from different decoupled models",
                config.name, scheduling.steps[index].model
            )));
        }
        let follows = if step.is_decoupled { Some(index) } else { source };
        step.outputs.iter().for_each(|&output| sources[output] = Some(follows));
    }
    Ok(())
}

/// Refuses a response cache for an ensemble whose answers depend on more than the request (S-W36).
fn check_cache(config: &ModelConfig, decoupled: bool, members: &[&ModelConfig]) -> Result<(), Error> {
    let name = &config.name;
    let Some(caching) = &config.response_cache else { return Ok(()) };
    if decoupled && !caching.decoupled {
        return Err(Error::invalid(format!(
            "Response Cache does not currently support model {name} with 'decoupled' transaction policy. Please disable \
             the response cache."
        )));
    }
    if members.iter().any(|member| member.has_sequences) {
        return Err(Error::invalid(format!(
            "Response Cache does not currently support model {name} with sequence batching scheduler. Please disable the \
             response cache."
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        super::{
            Completion, CompletionContext, ConfigSource, FileEntry, ModelLayout, Scheduling, declare, finish,
        },
        *,
    };

    fn resolved(name: &str, text: &str) -> ModelConfig {
        let entry = FileEntry { name: "model".to_owned(), is_directory: false };
        let layout = ModelLayout { name: name.to_owned(), versions: [(1, vec![entry])].into() };
        let source = ConfigSource::Text { path: Path::new("config.pbtxt"), content: text.as_bytes() };
        let declared = declare(source, &layout, Completion::Auto).unwrap();
        finish(&declared, declared.config.clone(), &CompletionContext::default()).unwrap().typed
    }

    const MEMBER: &str =
        "name: 'a' backend: 'b' max_batch_size: 4 input { name: 'X' data_type: TYPE_FP32 dims: 4 }
        output { name: 'Y' data_type: TYPE_FP32 dims: 4 }";

    fn fit(ensemble: &str, members: &[&str]) -> Result<FittedEnsemble, String> {
        let io = "platform: 'ensemble' input { name: 'IN' data_type: TYPE_FP32 dims: 4 }
            output { name: 'OUT' data_type: TYPE_FP32 dims: 4 }";
        let chain = "ensemble_scheduling {
            step { model_name: 'a' input_map { key: 'X' value: 'IN' } output_map { key: 'Y' value: 't' } }
            step { model_name: 'a' input_map { key: 'X' value: 't' } output_map { key: 'Y' value: 'OUT' } } }";
        let config = resolved("e", &format!("name: 'e' {io} {chain} {ensemble}"));
        let members: Vec<_> = members.iter().map(|member| resolved("a", member)).collect();
        let Scheduling::Ensemble(scheduling) = &config.scheduling else { panic!("an ensemble") };
        let members: Vec<_> = members.iter().collect();
        fit_members(&config, scheduling, &members).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn members_that_fit_give_the_graph() {
        let fitted = fit("max_batch_size: 4", &[MEMBER, MEMBER]).unwrap();
        let graph = &fitted.graph;
        assert_eq!((graph.tensors, &graph.inputs[..], &graph.outputs[..]), (3, &[0][..], &[2][..]));
        assert!(!fitted.decoupled && !fitted.has_sequences);
        // Shapes may agree with the batch dimension on one side only.
        assert!(fit("", &[&MEMBER.replace("4 input", "0 input"), MEMBER]).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_told() {
        for (from, to, wanted) in [
            (
                "max_batch_size: 4",
                "max_batch_size: 2",
                "ensemble e allows maximum batch size 4, but it contains model a \
              which only allows maximum batch size to be 2",
            ),
            (
                "name: 'X'",
                "name: 'Z'",
                "in ensemble e, ensemble tensor IN is mapping to non-existing input X in model a",
            ),
            (
                "name: 'Y'",
                "name: 'Z'",
                "in ensemble e, ensemble tensor t is mapped from non-existing output Y in model a",
            ),
            (
                "output {",
                "input { name: 'Z' data_type: TYPE_FP32 dims: 1 } output {",
                "in ensemble e, input Z in model a is not mapped to any ensemble tensors",
            ),
            (
                "FP32 dims: 4 }\n",
                "INT8 dims: 4 }\n",
                "in ensemble e, ensemble tensor IN: inconsistent data type: \
              TYPE_FP32 is inferred from model e while TYPE_INT8 is inferred from model a",
            ),
            (
                "dims: 4 }\n",
                "dims: 5 }\n",
                "in ensemble e, ensemble tensor IN: inconsistent shape: [-1,4] is inferred \
              from model e while [-1,5] is inferred from model a",
            ),
        ] {
            let member = MEMBER.replacen(from, to, 1);
            assert_ne!(member, MEMBER);
            assert_eq!(fit("max_batch_size: 4", &[&member, MEMBER]).unwrap_err(), wanted);
        }
    }

    #[test]
    fn an_optional_input_need_not_be_mapped() {
        let optional = MEMBER
            .replace("output {", "input { name: 'Z' data_type: TYPE_FP32 dims: 1 optional: true } output {");
        assert!(fit("", &[&optional, MEMBER]).is_ok());
    }

    #[test]
    fn a_decoupled_member_makes_the_ensemble_decoupled() {
        let decoupled = format!("{MEMBER} model_transaction_policy {{ decoupled: true }}");
        assert!(fit("", &[MEMBER, &decoupled]).unwrap().decoupled);
        let cached = fit("response_cache { enable: true }", &[MEMBER, &decoupled]).unwrap_err();
        assert!(
            cached.starts_with("Response Cache does not currently support model e with 'decoupled'"),
            "{cached}"
        );
    }

    #[test]
    fn an_ensemble_whose_answers_depend_on_a_sequence_cannot_be_cached() {
        let sequence = format!("{MEMBER} sequence_batching {{}}");
        assert!(fit("", &[MEMBER, &sequence]).unwrap().has_sequences);
        let cached = fit("response_cache { enable: true }", &[MEMBER, &sequence]).unwrap_err();
        assert!(
            cached.starts_with("Response Cache does not currently support model e with sequence batching"),
            "{cached}"
        );
    }
}
