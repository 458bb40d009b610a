//! The rules of `sequence_batching`.
use std::collections::HashSet;

use proto::{
    DataType, ModelConfig, ModelSequenceBatching,
    model_sequence_batching::{Control, StrategyChoice, StrategyDirect, StrategyOldest, control::Kind},
};

use super::super::{ConfigErrors, rule};
use crate::typed::caching::is_cached;

const FIELD: &str = "sequence_batching";
const PAIRS: &str = "'int32_false_true', 'fp32_false_true' and 'bool_false_true'";

pub(super) fn check(config: &ModelConfig, batching: &ModelSequenceBatching, errors: &mut ConfigErrors) {
    sequences_are_not_cached(config, errors);
    controls_are_named_once(config, batching, errors);
    kinds_are_given_once(config, batching, errors);
    for (i, input) in batching.control_input.iter().enumerate() {
        for (j, control) in input.control.iter().enumerate() {
            let field = format!("{FIELD}.control_input[{i}].control[{j}]");
            control_has_its_values(config, control, &field, errors);
        }
    }
    match &batching.strategy_choice {
        Some(StrategyChoice::Oldest(oldest)) => preferred_sizes_are_possible(config, oldest, errors),
        Some(StrategyChoice::Direct(direct)) => utilization_is_a_share(config, direct, errors),
        None => {}
    }
}

fn sequences_are_not_cached(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::RESPONSE_CACHE);
    if is_cached(config) {
        let text = format!(
            "Response Cache does not currently support model {} with sequence batching scheduler. Please disable \
             the response cache.",
            config.name
        );
        errors.invalid("response_cache", text);
    }
}

fn controls_are_named_once(
    config: &ModelConfig,
    batching: &ModelSequenceBatching,
    errors: &mut ConfigErrors,
) {
    errors.begin(rule::SEQUENCE_BATCHING);
    let mut seen = HashSet::new();
    for (position, control) in batching.control_input.iter().enumerate() {
        let field = format!("{FIELD}.control_input[{position}].name");
        let (model, tensor) = (&config.name, &control.name);
        if tensor.is_empty() {
            errors.invalid(&field, format!("sequence batching control tensor must have a name for {model}"));
        } else if !seen.insert(tensor) || control.control.len() > 1 {
            // In Triton an entry may have several kinds, and the last one overwrites the others.
            let text = format!(
                "sequence batching control tensor '{tensor}' is specified for multiple control kinds for {model}"
            );
            errors.invalid(&field, text);
        }
    }
}

fn kinds_are_given_once(config: &ModelConfig, batching: &ModelSequenceBatching, errors: &mut ConfigErrors) {
    let mut seen = HashSet::new();
    for control in batching.control_input.iter().flat_map(|input| &input.control) {
        if !seen.insert(control.kind) {
            let kind = control.kind().as_str_name();
            let text = format!("sequence batching specifies multiple {kind} tensors for {}", config.name);
            errors.invalid(&format!("{FIELD}.control_input"), text);
        }
    }
}

fn control_has_its_values(config: &ModelConfig, control: &Control, field: &str, errors: &mut ConfigErrors) {
    let (name, kind) = (&config.name, control.kind().as_str_name());
    let pairs = [
        ("int32_false_true", control.int32_false_true.len()),
        ("fp32_false_true", control.fp32_false_true.len()),
        ("bool_false_true", control.bool_false_true.len()),
    ];
    let given = pairs.iter().filter(|(_, length)| *length > 0).count();
    if control.kind() == Kind::ControlSequenceCorrid {
        let allowed = [
            DataType::TypeUint64,
            DataType::TypeInt64,
            DataType::TypeUint32,
            DataType::TypeInt32,
            DataType::TypeString,
        ];
        if given > 0 {
            let pairs = PAIRS.replace(" and ", " or ");
            let text = format!("sequence batching must not specify either {pairs} for {kind} for {name}");
            errors.invalid(field, text);
        }
        if !allowed.contains(&control.data_type()) {
            let text = format!(
                "unexpected data type for control {kind} for {name}. Allowed data types are TYPE_UINT64, \
                 TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
            );
            errors.invalid(field, text);
        }
        return;
    }
    if given == 0 {
        let pairs = PAIRS.replace(" and ", " or ");
        errors.invalid(field, format!("sequence batching must specify either {pairs} for {kind} for {name}"));
    }
    if given > 1 {
        let text = format!("sequence batching specifies more than one from {PAIRS} for {kind} for {name}");
        errors.invalid(field, text);
    }
    for (pair, length) in pairs {
        if length != 0 && length != 2 {
            let text = format!(
                "sequence batching control '{pair}' must have exactly 2 entries for {kind} for {name}"
            );
            errors.invalid(field, text);
        }
    }
}

fn preferred_sizes_are_possible(config: &ModelConfig, oldest: &StrategyOldest, errors: &mut ConfigErrors) {
    let field = &format!("{FIELD}.oldest.preferred_batch_size");
    let name = &config.name;
    for size in &oldest.preferred_batch_size {
        if *size <= 0 {
            let text = format!("sequence batching preferred batch size must be positive for {name}");
            errors.invalid(field, text);
        } else if *size > config.max_batch_size {
            let text = format!("sequence batching preferred batch size must be <= max batch size for {name}");
            errors.invalid(field, text);
        }
    }
}

fn utilization_is_a_share(config: &ModelConfig, direct: &StrategyDirect, errors: &mut ConfigErrors) {
    // NaN is in no range either.
    if !(0.0..=1.0).contains(&direct.minimum_slot_utilization) {
        let name = &config.name;
        let text =
            format!("sequence batching minimum slot utilization must be in range (0.0, 1.0] for {name}");
        errors.invalid(&format!("{FIELD}.direct.minimum_slot_utilization"), text);
    }
}
