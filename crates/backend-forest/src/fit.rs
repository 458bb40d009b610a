//! Completes a configuration from a forest, and checks that they agree.
//!
//! Triton's FIL backend completes nothing and checks nothing: a row of another length reads other rows. The names of the
//! input and the outputs are its.
use std::{collections::BTreeMap, num::NonZeroU32};

use config::{InputSpec, KEEP_BATCH_PARAMETER, ModelConfig, OutputSpec, Scheduling, SettingRefusal};
use forest::Forest;
use proto::model_config::SchedulingChoice;
use vocabulary::{DataType, Error, shape_text};

use crate::{
    answer::ForestAnswer,
    parameters::{BACKEND_NAME, ForestParameters, MAX_REQUEST_ROWS},
};

/// The name of the input that a completed configuration gets.
const INPUT: &str = "input__0";
/// The name of the output with the predictions.
const OUTPUT: &str = "output__0";
/// The output with the Shapley values of each row. It is there if the configuration has it.
pub(crate) const SHAP_OUTPUT: &str = "treeshap_output";

/// `max_batch_size` of a model whose configuration sets none: rows cost little, so many are welcome.
pub(crate) const DEFAULT_MAX_BATCH_SIZE: u32 = 32768;

/// Completes what the configuration leaves open. `settings` are those of the backend.
///
/// # Errors
/// INVALID_ARG for a default batch size that is no number.
pub(crate) fn complete(
    config: &mut proto::ModelConfig,
    forest: &Forest,
    parameters: &ForestParameters,
    settings: &BTreeMap<String, String>,
) -> Result<Option<NonZeroU32>, Error> {
    let keeps_rows_apart = config
        .parameters
        .get(KEEP_BATCH_PARAMETER)
        .is_some_and(|keep| keep.string_value.eq_ignore_ascii_case("no"));
    if config.max_batch_size == 0 && !keeps_rows_apart {
        config.max_batch_size = default_max_batch_size(settings)?;
    }
    if config.max_batch_size > 1 && config.scheduling_choice.is_none() {
        config.scheduling_choice =
            Some(SchedulingChoice::DynamicBatching(proto::ModelDynamicBatching::default()));
    }
    if config.input.is_empty() {
        config.input.push(proto::ModelInput { name: INPUT.to_owned(), ..Default::default() });
    }
    for input in &mut config.input {
        fill(&mut input.data_type, &mut input.dims, forest.features());
    }
    if config.output.is_empty() {
        config.output.push(proto::ModelOutput { name: OUTPUT.to_owned(), ..Default::default() });
    }
    let answer = ForestAnswer::of(parameters, forest.is_classifier(), forest.outputs(), None);
    for output in &mut config.output {
        let count = if output.name == SHAP_OUTPUT { shap_len(forest) } else { answer.len() };
        fill(&mut output.data_type, &mut output.dims, count);
    }
    Ok(None)
}

fn default_max_batch_size(settings: &BTreeMap<String, String>) -> Result<i32, Error> {
    let number = |name: &str| {
        let text = settings.get(name)?;
        let number = text.parse::<i64>();
        Some(number.map_err(|_| Error::invalid(format!("failed to convert '{text}' to integral number"))))
    };
    let size = number("default-max-batch-size").transpose()?;
    let rows = number(MAX_REQUEST_ROWS).transpose()?;
    let most = size.max(rows).unwrap_or(DEFAULT_MAX_BATCH_SIZE.into());
    Ok(i32::try_from(most.max(0)).unwrap_or(i32::MAX))
}

fn fill(data_type: &mut i32, dims: &mut Vec<i64>, count: usize) {
    if *data_type == 0 {
        *data_type = proto::DataType::TypeFp32.into();
    }
    if dims.is_empty() {
        *dims = vec![i64::try_from(count).unwrap_or(i64::MAX)];
    }
}

/// How many numbers the Shapley values of a row are: one for each feature and one for the mean, for each prediction.
pub(crate) fn shap_len(forest: &Forest) -> usize {
    forest.outputs() * (forest.features() + 1)
}

/// Checks a complete configuration.
///
/// # Errors
/// The first rule that it breaks.
pub(crate) fn fits(
    config: &ModelConfig,
    forest: &Forest,
    parameters: &ForestParameters,
) -> Result<(), SettingRefusal> {
    let model = &config.name;
    let refuse = |field: &str, rule: &str| {
        let text = format!("model '{model}' of backend '{BACKEND_NAME}' {rule}");
        SettingRefusal { field: field.to_owned(), text }
    };
    if !config.batch_inputs.is_empty() || !config.batch_outputs.is_empty() {
        let field = if config.batch_inputs.is_empty() { "batch_output" } else { "batch_input" };
        return Err(refuse(field, "must not have batch_input or batch_output"));
    }
    if let Scheduling::Sequence(_) = config.scheduling {
        let rule = "must not have sequence_batching, because rows do not depend on each other";
        return Err(refuse("sequence_batching", rule));
    }
    let [input] = &config.inputs[..] else {
        return Err(refuse("input", &format!("must have one input, but it has {}", config.inputs.len())));
    };
    check_input(config, input, forest.features()).map_err(|rule| refuse("input[0]", &rule))?;
    if config.outputs.iter().filter(|output| output.name != *SHAP_OUTPUT).count() != 1 {
        let rule =
            format!("must have one output for the predictions, and may have '{SHAP_OUTPUT}' beside it");
        return Err(refuse("output", &rule));
    }
    for (position, output) in config.outputs.iter().enumerate() {
        let count = output_len(forest, parameters, output);
        check_output(output, count).map_err(|rule| refuse(&format!("output[{position}]"), &rule))?;
    }
    Ok(())
}

fn check_input(config: &ModelConfig, input: &InputSpec, features: usize) -> Result<(), String> {
    let (name, dims) = (&input.name, input.reshape.as_ref().unwrap_or(&input.dims));
    if input.datatype != DataType::Fp32 {
        return Err(format!(
            "must have an input of TYPE_FP32, but '{name}' is {}",
            input.datatype.config_name()
        ));
    }
    if input.optional || input.allow_ragged_batch {
        return Err(format!("must not have an optional or ragged input, but '{name}' is one"));
    }
    let row = match &dims[..] {
        // Without a batch dimension, a request may have its own.
        [_, row @ ..] if config.max_batch_size.is_none() && !row.is_empty() => row,
        dims => dims,
    };
    if row.iter().try_fold(1, |count: i64, &dim| count.checked_mul(dim)) == i64::try_from(features).ok() {
        return Ok(());
    }
    Err(format!("has {features} features, but the dims of input '{name}' are {}", shape_text(dims)))
}

fn check_output(output: &OutputSpec, count: usize) -> Result<(), String> {
    let (name, dims) = (&output.name, output.reshape.as_ref().unwrap_or(&output.dims));
    if output.datatype != DataType::Fp32 {
        return Err(format!(
            "must have outputs of TYPE_FP32, but '{name}' is {}",
            output.datatype.config_name()
        ));
    }
    if numbers_of_row(dims) == Some(count) {
        return Ok(());
    }
    Err(format!("gives {count} numbers for a row, but the dims of output '{name}' are {}", shape_text(dims)))
}

/// How many numbers a row of this output has.
fn output_len(forest: &Forest, parameters: &ForestParameters, output: &OutputSpec) -> usize {
    if output.name == *SHAP_OUTPUT { shap_len(forest) } else { answer(forest, parameters, output).len() }
}

/// What the output with the predictions has.
pub(crate) fn answer(forest: &Forest, parameters: &ForestParameters, output: &OutputSpec) -> ForestAnswer {
    let configured = numbers_of_row(output.reshape.as_ref().unwrap_or(&output.dims));
    ForestAnswer::of(parameters, forest.is_classifier(), forest.outputs(), configured)
}

/// The numbers of one row. A -1 at the beginning stands for rows.
fn numbers_of_row(dims: &[i64]) -> Option<usize> {
    let row = dims.strip_prefix(&[-1]).unwrap_or(dims);
    let count = row.iter().try_fold(1_i64, |count, &dim| count.checked_mul(dim))?;
    usize::try_from(count).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_large_unless_the_operator_says_otherwise() {
        let size = |settings: &[(&str, &str)]| {
            let owned = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            default_max_batch_size(&owned.collect())
        };
        assert_eq!(size(&[]), Ok(32768));
        assert_eq!(size(&[("default-max-batch-size", "4"), ("max-request-rows", "32768")]), Ok(32768));
        assert_eq!(size(&[("default-max-batch-size", "8")]), Ok(8));
        assert_eq!(size(&[("default-max-batch-size", "-1")]), Ok(0));
        let error = size(&[("max-request-rows", "many")]).unwrap_err();
        assert_eq!(error.message, "failed to convert 'many' to integral number");
    }

    #[test]
    fn the_numbers_of_a_row_leave_out_open_rows() {
        assert_eq!(numbers_of_row(&[3]), Some(3));
        assert_eq!(numbers_of_row(&[-1, 2, 3]), Some(6));
        assert_eq!(numbers_of_row(&[-1, -1]), None);
    }
}
