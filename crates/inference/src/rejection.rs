//! The errors for rejections, with one text for each reason.
use config::{ModelConfig, Scheduling};
use scheduling::Rejection;
use vocabulary::{Error, ErrorCode, FailureReason, Name};

use crate::{Request, backend::not_iterative, id_prefix};

/// Makes the errors for the rejections of one model.
#[derive(Debug)]
pub struct RejectionErrors {
    /// The name of the model.
    model: Name,
    /// Whether the model is a sequence model. The texts of sequence models leave the request's id out.
    sequences: bool,
}

impl RejectionErrors {
    /// The errors of a model with that configuration.
    #[must_use]
    pub fn of(config: &ModelConfig) -> Self {
        Self { model: config.name.clone(), sequences: matches!(config.scheduling, Scheduling::Sequence(_)) }
    }

    /// The error for a rejected request.
    #[must_use]
    pub fn error(&self, reason: Rejection, request: &Request) -> Error {
        let rejected = |message: String| Error::unavailable(message).because(FailureReason::Rejected);
        let prefix = || if self.sequences { String::new() } else { id_prefix(&request.id) };
        let model = &self.model;
        match reason {
            Rejection::QueueFull => rejected(format!("{}Exceeds maximum queue size", prefix())),
            Rejection::TimedOut => timed_out(),
            Rejection::SequenceTimedOut => {
                rejected("timeout of the corresponding sequence has been expired".to_owned())
            }
            Rejection::Cancelled => cancelled(),
            Rejection::Draining => Error::unavailable(format!(
                "{}Server is stopping, scheduler for model has stopped accepting new inference requests",
                prefix()
            )),
            Rejection::MultipleRows => Error::invalid(format!(
                "inference request to model '{model}' must specify batch-size 1 due to requirements of sequence batcher"
            )),
            Rejection::MissingSequence => Error::invalid(format!(
                "inference request to model '{model}' must specify a non-zero or non-empty correlation ID"
            )),
            Rejection::MissingStart => {
                let id = request.sequence.id.as_ref().map(ToString::to_string).unwrap_or_default();
                Error::invalid(format!(
                    "inference request for sequence {id} to model '{model}' must specify the START flag on the first \
                     request of the sequence"
                ))
            }
            Rejection::NotIterative => not_iterative(),
            Rejection::InstanceLost => {
                Error::internal(format!("the instance of model '{model}' that had the sequence is gone"))
                    .because(FailureReason::Backend)
            }
        }
    }
}

/// The error for a request that has waited too long.
#[must_use]
pub fn timed_out() -> Error {
    Error::unavailable("Request timeout expired").because(FailureReason::Rejected)
}

/// The error for a cancelled request.
#[must_use]
pub fn cancelled() -> Error {
    Error::new(ErrorCode::Cancelled, "Request cancelled").because(FailureReason::Cancelled)
}
