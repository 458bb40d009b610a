//! What a valid configuration may ask for and this version cannot give.
use proto::{ModelConfig, model_config::SchedulingChoice};

use super::ConfigErrors;
use crate::ErrorCode;

/// Refuses features that are not there, naming the field, rather than serve a model that lacks them.
///
/// A feature that is there, but switched off in the server, is not refused: a response cache or a rate limiter that
/// does not run has no effect.
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
