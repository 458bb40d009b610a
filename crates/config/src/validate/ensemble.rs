//! The rules of `ensemble_scheduling`. The steps must form a data flow in which some step produces every tensor and
//! some step uses it.
use std::collections::{BTreeMap, BTreeSet};

use proto::nearest;
use proto::{ModelConfig, ModelEnsembling, model_config::SchedulingChoice};
use vocabulary::ErrorCode;

use super::super::{ConfigErrors, complete::is_ensemble, rule};

const FIELD: &str = "ensemble_scheduling";

pub(super) fn check(config: &ModelConfig, ensemble: &ModelEnsembling, errors: &mut ConfigErrors) {
    errors.begin(rule::ENSEMBLE);
    let name = &config.name;
    if !is_ensemble(config) {
        let text =
            format!("ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble");
        errors.invalid(FIELD, text);
    }
    if !config.instance_group.is_empty() {
        let text = format!("instance group should not be specified for ensemble '{name}'");
        errors.invalid("instance_group", text);
    }
    if config.optimization.is_some() && is_ensemble(config) {
        errors.invalid("optimization", format!("optimization should not be specified for ensemble '{name}'"));
    }
    if !config.model_warmup.is_empty() {
        errors.invalid("model_warmup", format!("model_warmup can not be specified for ensemble '{name}'"));
    }
    if ensemble.step.is_empty() {
        errors.invalid(FIELD, format!("must specify 'step' for ensemble '{name}'"));
        return;
    }
    steps_are_complete(config, ensemble, errors);
    let flow = tensors_are_made_once(config, ensemble, errors);
    tensors_are_connected(config, &flow, errors);
}

fn steps_are_complete(config: &ModelConfig, ensemble: &ModelEnsembling, errors: &mut ConfigErrors) {
    errors.begin(rule::ENSEMBLE);
    for (position, step) in ensemble.step.iter().enumerate() {
        for (field, missing) in [
            ("model_name", step.model_name.is_empty()),
            ("input_map", step.input_map.is_empty()),
            ("output_map", step.output_map.is_empty()),
        ] {
            if missing {
                let text = format!("must specify '{field}' in step {position} of ensemble '{}'", config.name);
                errors.invalid(&format!("{FIELD}.step[{position}].{field}"), text);
            }
        }
    }
}

/// A tensor of the ensemble.
#[derive(Default)]
struct EnsembleTensor<'a> {
    /// The inputs of the step that produces the tensor, in the order of the step; empty if no step produces it.
    sources: Vec<&'a str>,
    /// Whether some step uses it.
    used: bool,
}

type EnsembleFlow<'a> = BTreeMap<&'a str, EnsembleTensor<'a>>;

fn tensors_are_made_once<'a>(
    config: &ModelConfig,
    ensemble: &'a ModelEnsembling,
    errors: &mut ConfigErrors,
) -> EnsembleFlow<'a> {
    errors.begin(rule::ENSEMBLE_TENSORS);
    let mut flow = EnsembleFlow::new();
    let mut made = BTreeSet::new();
    for (position, step) in ensemble.step.iter().enumerate() {
        for tensor in step.input_map.values() {
            flow.entry(tensor).or_default().used = true;
        }
        for tensor in step.output_map.values() {
            if !made.insert(tensor) {
                let text = format!(
                    "ensemble tensor '{tensor}' can appear in an output map only once for ensemble '{}' step \
                     {position}",
                    config.name
                );
                errors.invalid(&format!("{FIELD}.step[{position}].output_map"), text);
            }
            flow.entry(tensor).or_default().sources.extend(step.input_map.values().map(String::as_str));
        }
    }
    flow
}

fn tensors_are_connected(config: &ModelConfig, flow: &EnsembleFlow<'_>, errors: &mut ConfigErrors) {
    errors.begin(rule::ENSEMBLE_TENSORS);
    let name = &config.name;
    let free = free_names(config, flow);
    let near = |tensor: &str| {
        nearest(tensor, free.iter().copied().filter(|other| *other != tensor)).map(str::to_owned)
    };
    for (position, input) in config.input.iter().enumerate() {
        if !flow.contains_key(input.name.as_str()) {
            let text = format!("ensemble input '{}' for ensemble {name}' is not used", input.name);
            let field = format!("input[{position}].name");
            errors.push_meaning(ErrorCode::InvalidArgument, &field, text, near(&input.name));
        }
    }
    let ready = reachable(config, flow);
    let mut outputs = BTreeSet::new();
    for (position, output) in config.output.iter().enumerate() {
        let field = &format!("output[{position}]");
        let tensor = output.name.as_str();
        outputs.insert(tensor);
        match flow.get(tensor) {
            None => {
                let text = format!("ensemble output '{tensor}' for ensemble {name}' is not used");
                errors.push_meaning(ErrorCode::InvalidArgument, field, text, near(tensor));
            }
            Some(_) if !ready.contains(tensor) => {
                let source = unconnected_source(tensor, flow, &ready).map(|source| {
                    format!(": at least one of its depending tensors, '{source}', is not connected")
                });
                let source = source.unwrap_or_default();
                errors.invalid(
                    field,
                    format!("output '{tensor}' for ensemble '{name}' is not written{source}"),
                );
            }
            Some(_) => {}
        }
    }
    for (tensor, node) in flow {
        let has_purpose = outputs.contains(tensor) || (ready.contains(tensor) && node.used);
        if !has_purpose {
            let text = format!("ensemble tensor '{tensor}' is unused in ensemble '{name}'");
            errors.push_meaning(ErrorCode::InvalidArgument, &place_of(config, tensor), text, near(tensor));
        }
    }
}

/// The names that could be meant: those of tensors that nothing makes, or nothing uses.
fn free_names<'a>(config: &'a ModelConfig, flow: &EnsembleFlow<'a>) -> BTreeSet<&'a str> {
    let inputs: BTreeSet<&str> = config.input.iter().map(|input| input.name.as_str()).collect();
    let outputs: BTreeSet<&str> = config.output.iter().map(|output| output.name.as_str()).collect();
    let is_free = |name: &&str| {
        let node = flow.get(name);
        let is_made = inputs.contains(name) || node.is_some_and(|node| !node.sources.is_empty());
        let is_used = outputs.contains(name) || node.is_some_and(|node| node.used);
        !(is_made && is_used)
    };
    inputs.iter().chain(&outputs).chain(flow.keys()).copied().filter(is_free).collect()
}

/// The field in which an ensemble names a tensor first.
fn place_of(config: &ModelConfig, tensor: &str) -> String {
    let Some(SchedulingChoice::EnsembleScheduling(ensemble)) = &config.scheduling_choice else {
        return FIELD.to_owned();
    };
    for (position, step) in ensemble.step.iter().enumerate() {
        for (map, entries) in [("input_map", &step.input_map), ("output_map", &step.output_map)] {
            if let Some((name, _)) = entries.iter().find(|(_, value)| *value == tensor) {
                return format!("{FIELD}.step[{position}].{map}.{name}");
            }
        }
    }
    FIELD.to_owned()
}

/// A tensor from which a tensor that cannot be produced follows, and which cannot be produced either: the last one before
/// the steps begin or repeat.
fn unconnected_source<'a>(
    tensor: &'a str,
    flow: &EnsembleFlow<'a>,
    ready: &BTreeSet<&str>,
) -> Option<&'a str> {
    let mut path = vec![tensor];
    loop {
        let sources = flow.get(path.last()?)?.sources.iter();
        match sources.copied().find(|source| !ready.contains(source)) {
            Some(source) if !path.contains(&source) => path.push(source),
            Some(_) | None => return path.get(1..)?.last().copied(),
        }
    }
}

/// The tensors that the steps can produce from the inputs of the ensemble.
fn reachable<'a>(config: &'a ModelConfig, flow: &EnsembleFlow<'a>) -> BTreeSet<&'a str> {
    let mut ready: BTreeSet<&str> = config.input.iter().map(|input| input.name.as_str()).collect();
    loop {
        let before = ready.len();
        for (tensor, node) in flow {
            if !node.sources.is_empty() && node.sources.iter().all(|source| ready.contains(source)) {
                ready.insert(tensor);
            }
        }
        if ready.len() == before {
            return ready;
        }
    }
}
