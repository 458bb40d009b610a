//! File names in a configuration must stay inside the model's directory.
use std::path::{Component, Path};

use proto::{
    ModelConfig, model_config::SchedulingChoice, model_sequence_batching::initial_state::StateData,
    model_warmup::input::InputDataType,
};
use vocabulary::ErrorCode;

use super::super::{ConfigErrors, rule};

/// Checks label files as Triton does. The same rule applies to the model file and the files of warmup and initial
/// states.
///
/// The check looks only at names: a link inside the directory may point anywhere.
pub(in super::super) fn check_paths(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::FILE_PATH);
    let model = &config.name;
    let mut refuse = |field: &str, what: &str, whose: &str| {
        let text = format!("{what}{whose} in model '{model}' is outside model directory");
        errors.push(ErrorCode::Unsupported, field, text);
    };
    for (position, output) in config.output.iter().enumerate() {
        let path = &output.label_filename;
        if leaves(0, path) {
            let whose = format!(" for output '{}'", output.name);
            refuse(
                &format!("output[{position}].label_filename"),
                &format!("label file path '{path}'"),
                &whose,
            );
        }
    }
    let path = &config.default_model_filename;
    // The model file is in a version directory, one level below the model's directory.
    if leaves(1, path) {
        refuse("default_model_filename", &format!("model file path '{path}'"), "");
    }
    for (position, warmup) in config.model_warmup.iter().enumerate() {
        for (input, data) in &warmup.inputs {
            if let Some(InputDataType::InputDataFile(path)) = &data.input_data_type
                && leaves(1, path)
            {
                let whose = format!(" for input '{input}'");
                refuse(&format!("model_warmup[{position}]"), &format!("warmup file path '{path}'"), &whose);
            }
        }
    }
    let Some(SchedulingChoice::SequenceBatching(batching)) = &config.scheduling_choice else { return };
    for (position, state) in batching.state.iter().enumerate() {
        for initial in &state.initial_state {
            if let Some(StateData::DataFile(path)) = &initial.state_data
                && leaves(1, path)
            {
                let whose = format!(" for state '{}'", state.input_name);
                let field = format!("sequence_batching.state[{position}]");
                refuse(&field, &format!("initial state file path '{path}'"), &whose);
            }
        }
    }
}

/// Whether a path that starts `depth` directories below the model's directory ends outside it.
fn leaves(depth: usize, path: &str) -> bool {
    let mut depth = depth;
    for component in Path::new(path).components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::leaves;

    #[test]
    fn a_path_is_checked_by_its_components() {
        for inside in ["", "labels.txt", "a/../b", "./a", "a/b/../../c"] {
            assert!(!leaves(0, inside), "{inside}");
        }
        for outside in ["..", "../x", "a/../../b", "/etc/passwd"] {
            assert!(leaves(0, outside), "{outside}");
        }
        assert!(!leaves(1, "../labels.txt") && leaves(1, "../../x"));
    }
}
