//! Whether the members of an ensemble fit: their inputs and outputs, datatypes, shapes and batch sizes.
//!
//! As Triton: ensemble_utils.cc, ValidateEnsembleConfig. Triton compares the latest version of each member; this module
//! compares the version that the step names (S-W51).
use std::{collections::BTreeMap, sync::Arc};

use proto::nearest;
use scheduling::{EnsembleGraph, GraphStep, StepInput};
use vocabulary::{DataType, Error, ErrorCode, Name, Shape, shape_text};

use super::{ConfigErrors, EnsembleScheduling, EnsembleStep, ModelConfig, rule};

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
    let known: Vec<_> = members.iter().copied().map(Some).collect();
    let mut errors = ConfigErrors::default();
    check_members(config, scheduling, &known, &mut errors);
    if let Some(error) = errors.first() {
        return Err(error);
    }
    let steps = || scheduling.steps.iter().zip(members.iter().copied());
    let labels = config.outputs.iter().map(|output| {
        let inherited = steps().find_map(|(step, member)| {
            let mapped = step.outputs.iter().find(|mapped| mapped.tensor == output.name)?;
            Some(member.output(&mapped.name)?.labels.clone())
        });
        if output.label_filename.is_some() { output.labels.clone() } else { inherited.unwrap_or_default() }
    });
    Ok(FittedEnsemble {
        graph: ensemble_graph(config, scheduling, members),
        decoupled: members.iter().any(|member| member.decoupled),
        has_sequences: members.iter().any(|member| member.has_sequences),
        labels: labels.collect(),
    })
}

/// Adds every rule that an ensemble breaks together with its members. `members` has the configuration of the member of
/// each step; `None` for a member that is not known. Rules about it are not checked.
pub fn check_members(
    config: &ModelConfig,
    scheduling: &EnsembleScheduling,
    members: &[Option<&ModelConfig>],
    errors: &mut ConfigErrors,
) {
    errors.begin(rule::ENSEMBLE_MEMBERS);
    let steps = || {
        let steps = scheduling.steps.iter().zip(members.iter().copied()).enumerate();
        steps.filter_map(|(position, (step, member))| Some(EnsembleUse { position, step, member: member? }))
    };
    steps().for_each(|used| used.check(config, errors));
    check_consistency(config, steps(), errors);
    let known: Vec<_> = members.iter().copied().flatten().collect();
    if !errors.is_empty() || known.len() < scheduling.steps.len() {
        return;
    }
    check_streams(config, scheduling, &ensemble_graph(config, scheduling, &known), errors);
    let decoupled = known.iter().any(|member| member.decoupled);
    check_cache(config, decoupled, &known, errors);
}

fn ensemble_graph(
    config: &ModelConfig,
    scheduling: &EnsembleScheduling,
    members: &[&ModelConfig],
) -> EnsembleGraph {
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
    let steps = scheduling.steps.iter().zip(members.iter().copied()).map(graph_step).collect();
    EnsembleGraph::new(numbers.len(), inputs, outputs, steps)
}

/// A step with the configuration of its member.
struct EnsembleUse<'a> {
    position: usize,
    step: &'a EnsembleStep,
    member: &'a ModelConfig,
}

impl EnsembleUse<'_> {
    fn field(&self, map: &str, name: &Name) -> String {
        format!("ensemble_scheduling.step[{}].{map}.{name}", self.position)
    }

    /// Requires that the step names inputs and outputs that its member has, and leaves out optional inputs only.
    fn check(&self, config: &ModelConfig, errors: &mut ConfigErrors) {
        let Self { position, step, member } = self;
        let (ensemble, name) = (&config.name, &member.name);
        if let Some(most) = member.request_limit()
            && let allowed = config.max_batch_size.map_or(0, u32::from)
            && most.get() < allowed
        {
            let text = format!(
                "ensemble {ensemble} allows maximum batch size {allowed}, but it contains model {name} which only allows \
                 maximum batch size to be {most}"
            );
            errors.invalid("max_batch_size", text);
        }
        let is_mapped = |input: &Name| step.inputs.iter().any(|mapped| mapped.name == *input);
        for mapped in step.inputs.iter().filter(|mapped| member.input(&mapped.name).is_none()) {
            let text = format!(
                "in ensemble {ensemble}, ensemble tensor {} is mapping to non-existing input {} in model {name}",
                mapped.tensor, mapped.name
            );
            let near = nearest(&mapped.name, member.inputs.iter().map(|input| input.name.to_string()));
            let field = self.field("input_map", &mapped.name);
            errors.push_meaning(ErrorCode::InvalidArgument, &field, text, near);
        }
        for missing in member.inputs.iter().filter(|input| !input.optional && !is_mapped(&input.name)) {
            let field = format!("ensemble_scheduling.step[{position}].input_map");
            let text = format!(
                "in ensemble {ensemble}, input {} in model {name} is not mapped to any ensemble tensors",
                missing.name
            );
            errors.invalid(&field, text);
        }
        for mapped in step.outputs.iter().filter(|mapped| member.output(&mapped.name).is_none()) {
            let text = format!(
                "in ensemble {ensemble}, ensemble tensor {} is mapped from non-existing output {} in model {name}",
                mapped.tensor, mapped.name
            );
            let near = nearest(&mapped.name, member.outputs.iter().map(|output| output.name.to_string()));
            let field = self.field("output_map", &mapped.name);
            errors.push_meaning(ErrorCode::InvalidArgument, &field, text, near);
        }
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

    /// The rule that two uses of a tensor break, if they do.
    fn disagreement(&self, tensor: &Name, ensemble: &Name, other: &Self) -> Option<String> {
        let inconsistent = |what: &str, one: String, two: String| {
            format!(
                "in ensemble {ensemble}, ensemble tensor {tensor}: inconsistent {what}: {one} is inferred from model {} \
                 while {two} is inferred from model {}",
                self.model, other.model
            )
        };
        if self.datatype != other.datatype {
            let [one, two] = [self, other].map(|used| used.datatype.config_name().to_owned());
            return Some(inconsistent("data type", one, two));
        }
        if agree(self.dims, other.dims) || agree(&self.batched, &other.batched) {
            return None;
        }
        let [one, two] = [self, other].map(|used| shape_text(&used.batched));
        Some(inconsistent("shape", one, two))
    }
}

/// Whether two shapes can be the same; -1 is any size.
fn agree(one: &[i64], other: &[i64]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a == b || *a == -1 || *b == -1)
}

/// Requires that all models agree on the datatype and the shape of each tensor.
fn check_consistency<'a>(
    config: &'a ModelConfig,
    steps: impl Iterator<Item = EnsembleUse<'a>>,
    errors: &mut ConfigErrors,
) {
    let mut uses: BTreeMap<&Name, TensorUse<'_>> = BTreeMap::new();
    for input in &config.inputs {
        let dims = input.reshape.as_deref().unwrap_or(&input.dims);
        uses.insert(&input.name, TensorUse::new(config, input.datatype, dims));
    }
    for output in &config.outputs {
        let dims = output.reshape.as_deref().unwrap_or(&output.dims);
        uses.insert(&output.name, TensorUse::new(config, output.datatype, dims));
    }
    for used in steps {
        let EnsembleUse { step, member, .. } = used;
        let inputs = step.inputs.iter().filter_map(|mapped| {
            let input = member.input(&mapped.name)?;
            Some(("input_map", mapped, TensorUse::new(member, input.datatype, &input.dims)))
        });
        let outputs = step.outputs.iter().filter_map(|mapped| {
            let output = member.output(&mapped.name)?;
            Some(("output_map", mapped, TensorUse::new(member, output.datatype, &output.dims)))
        });
        for (map, mapped, one) in inputs.chain(outputs) {
            let field = used.field(map, &mapped.name);
            match uses.get(&mapped.tensor) {
                Some(first) => {
                    let problem = first.disagreement(&mapped.tensor, &config.name, &one);
                    problem.into_iter().for_each(|text| errors.invalid(&field, text));
                }
                None => drop(uses.insert(&mapped.tensor, one)),
            }
        }
    }
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

/// Requires that no step joins the responses of different decoupled steps, or such responses and single tensors, and that
/// the outputs do not: there would be no rule which of them belong together.
fn check_streams(
    config: &ModelConfig,
    scheduling: &EnsembleScheduling,
    graph: &EnsembleGraph,
    errors: &mut ConfigErrors,
) {
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
            let field = format!("ensemble_scheduling.step[{index}].input_map");
            errors.invalid(&field, joined_streams(config, &scheduling.steps[index].model));
        }
        let follows = if step.is_decoupled { Some(index) } else { source };
        step.outputs.iter().for_each(|&output| sources[output] = Some(follows));
    }
    let mut of_outputs = graph.outputs.iter().filter_map(|&output| sources[output]);
    let source = of_outputs.next();
    if of_outputs.any(|other| Some(other) != source) {
        // As Triton: what gathers the outputs is a step of the ensemble.
        errors.invalid("output", joined_streams(config, &config.name));
    }
}

fn joined_streams(config: &ModelConfig, model: &Name) -> String {
    format!(
        "in ensemble {}, step of model '{model}' receives inputs originated from different decoupled models",
        config.name
    )
}

/// Refuses a response cache for an ensemble whose answers depend on more than the request (S-W36).
fn check_cache(config: &ModelConfig, decoupled: bool, members: &[&ModelConfig], errors: &mut ConfigErrors) {
    let name = &config.name;
    let Some(caching) = &config.response_cache else { return };
    if decoupled && !caching.decoupled {
        let text = format!(
            "Response Cache does not currently support model {name} with 'decoupled' transaction policy. Please disable \
             the response cache."
        );
        errors.invalid("response_cache", text);
    }
    if members.iter().any(|member| member.has_sequences) {
        let text = format!(
            "Response Cache does not currently support model {name} with sequence batching scheduler. Please disable the \
             response cache."
        );
        errors.invalid("response_cache", text);
    }
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
    fn outputs_do_not_join_the_responses_of_different_decoupled_steps() {
        let text = "name: 'e' platform: 'ensemble' input { name: 'IN' data_type: TYPE_FP32 dims: 4 }
            output { name: 'P' data_type: TYPE_FP32 dims: 4 } output { name: 'Q' data_type: TYPE_FP32 dims: 4 }
            ensemble_scheduling {
                step { model_name: 'a' input_map { key: 'X' value: 'IN' } output_map { key: 'Y' value: 'P' } }
                step { model_name: 'a' input_map { key: 'X' value: 'IN' } output_map { key: 'Y' value: 'Q' } } }";
        let config = resolved("e", text);
        let Scheduling::Ensemble(scheduling) = &config.scheduling else { panic!("an ensemble") };
        let plain = resolved("a", MEMBER);
        let decoupled = resolved("a", &format!("{MEMBER} model_transaction_policy {{ decoupled: true }}"));
        assert!(fit_members(&config, scheduling, &[&plain, &plain]).is_ok());
        for members in [[&decoupled, &decoupled], [&plain, &decoupled]] {
            let refused = fit_members(&config, scheduling, &members).unwrap_err();
            assert!(
                refused.message.contains(
                    "in ensemble e, step of model 'e' receives inputs originated from different decoupled models"
                ),
                "{refused}"
            );
        }
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
