//! The rules of `dynamic_batching`.
use proto::{ModelConfig, ModelDynamicBatching, model_queue_policy::TimeoutAction};

use super::super::{ConfigErrors, rule};

const FIELD: &str = "dynamic_batching";

pub(super) fn check(config: &ModelConfig, batching: &ModelDynamicBatching, errors: &mut ConfigErrors) {
    errors.begin(rule::DYNAMIC_BATCHING);
    preferred_sizes_are_possible(config, batching, errors);
    levels_exist(config, batching, errors);
    order_can_be_preserved(config, batching, errors);
}

fn preferred_sizes_are_possible(
    config: &ModelConfig,
    batching: &ModelDynamicBatching,
    errors: &mut ConfigErrors,
) {
    let field = &format!("{FIELD}.preferred_batch_size");
    let name = &config.name;
    for size in &batching.preferred_batch_size {
        if *size <= 0 {
            errors.invalid(field, format!("dynamic batching preferred size must be positive for {name}"));
        } else if *size > config.max_batch_size {
            errors.invalid(
                field,
                format!("dynamic batching preferred size must be <= max batch size for {name}"),
            );
        }
    }
}

fn levels_exist(config: &ModelConfig, batching: &ModelDynamicBatching, errors: &mut ConfigErrors) {
    let levels = batching.priority_levels;
    if levels == 0 {
        return;
    }
    let name = &config.name;
    if !(1..=levels).contains(&batching.default_priority_level) {
        let text = format!("default priority level must be in range [1, {levels}] for {name}");
        errors.invalid(&format!("{FIELD}.default_priority_level"), text);
    }
    if batching.priority_queue_policy.keys().any(|level| !(1..=levels).contains(level)) {
        let text =
            format!("priority queue policy must have priority level in range [1, {levels}] for {name}");
        errors.invalid(&format!("{FIELD}.priority_queue_policy"), text);
    }
}

fn order_can_be_preserved(config: &ModelConfig, batching: &ModelDynamicBatching, errors: &mut ConfigErrors) {
    if !batching.preserve_ordering {
        return;
    }
    let field = &format!("{FIELD}.preserve_ordering");
    let name = &config.name;
    if batching.priority_levels > 1 {
        let text = format!("Only one priority level is allowed when 'preserve_ordering' is true for {name}");
        errors.invalid(field, text);
    }
    let mut policies = batching.default_queue_policy.iter().chain(batching.priority_queue_policy.values());
    let delays = policies.any(|policy| {
        policy.default_timeout_microseconds != 0 && policy.timeout_action() == TimeoutAction::Delay
    });
    if delays {
        let text = format!(
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {name}"
        );
        errors.invalid(field, text);
    }
}
