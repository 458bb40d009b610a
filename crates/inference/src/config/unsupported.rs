//! Refuses valid configurations that need features Nereid does not have.
use proto::{ModelConfig, model_config::SchedulingChoice};

use super::ConfigErrors;
use crate::ErrorCode;

/// Refuses features that do not exist, and names the field. The alternative would be to serve a model without them.
///
/// This function does not refuse a feature that exists but is switched off in the server. A response cache or a rate
/// limiter that does not run has no effect.
pub(super) fn refuse_unsupported(config: &ModelConfig, errors: &mut ConfigErrors) {
    let mut refuse = |field: &str| {
        let text = format!("'{field}' of model '{}' is not supported by this version of nereid", config.name);
        errors.push(ErrorCode::Unsupported, field, text);
    };
    match &config.scheduling_choice {
        Some(SchedulingChoice::EnsembleScheduling(_)) => refuse("ensemble_scheduling"),
        Some(SchedulingChoice::DynamicBatching(_) | SchedulingChoice::SequenceBatching(_)) | None => {}
    }
}
