//! The rules of implicit state (`sequence_batching.state`) that do not depend on files.
use std::collections::HashSet;

use proto::{
    ModelConfig,
    model_config::SchedulingChoice,
    model_sequence_batching::{InitialState, State},
};

use super::super::{ConfigErrors, rule};

/// As Triton: sequence_batch_scheduler.cc, GenerateInitialStateData.
pub(in super::super) fn check_states(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::STATE);
    let Some(SchedulingChoice::SequenceBatching(batching)) = &config.scheduling_choice else { return };
    let mut initialised = HashSet::new();
    for (position, state) in batching.state.iter().enumerate() {
        let field = &format!("sequence_batching.state[{position}]");
        let name = &state.input_name;
        let count = state.initial_state.len();
        if count > 1 {
            let text = format!(
                "initial_state field for state input '{name}' must contain exactly one or zero element. Found \
                 '{count}' elements."
            );
            errors.invalid(field, text);
        }
        if let Some(initial) = state.initial_state.first() {
            for text in initial_problems(state, initial) {
                errors.invalid(field, text);
            }
            // Two states with the same name are legal unless both have an initial state.
            if !initialised.insert(name) {
                errors.invalid(field, format!("State input name '{name}' specified more than once."));
            }
        }
    }
}

fn initial_problems(state: &State, initial: &InitialState) -> Vec<String> {
    let name = &state.input_name;
    let mut problems = Vec::new();
    if initial.data_type != state.data_type {
        problems.push(format!(
            "The data type used for 'initial_state' field of state '{name}' does not match the state data type."
        ));
    }
    if initial.name.is_empty() {
        problems.push(format!("Field 'name' must be set when using initial_state for state input '{name}'."));
    }
    let (have, want) = (initial.dims.len(), state.dims.len());
    if have != want {
        problems.push(format!(
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input \
             '{name}'. {have} != {want}"
        ));
    } else if initial.dims.contains(&-1) {
        problems.push(format!(
            "'initial_state' field for state input name '{name}' contains variable dimensions."
        ));
    } else {
        let pairs = initial.dims.iter().zip(&state.dims);
        for (have, want) in pairs.filter(|(have, want)| **want != -1 && have != want) {
            problems.push(format!(
                "'initial_state' dim for input name '{name}' doesn't match 'state' dim description. {have} != {want}"
            ));
        }
    }
    if initial.state_data.is_none() {
        problems.push(format!("initial_state setting expects state'{name}' to have state_data set"));
    }
    problems
}
