//! The error of a failed call of the runtime.
use vocabulary::{Error, FailureReason};

/// A failed call: the runtime's code and message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("onnx runtime error {code}: {message}")]
pub(crate) struct OrtError {
    /// `OrtErrorCode`. It is a number, because a newer runtime may have more codes.
    pub(crate) code: i32,
    /// The runtime's message.
    pub(crate) message: String,
}

impl OrtError {
    /// A contradiction that this wrapper finds before the runtime does.
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self { code: ort_sys::OrtErrorCode::ORT_INVALID_ARGUMENT as i32, message: message.into() }
    }
}

impl From<OrtError> for Error {
    fn from(failure: OrtError) -> Self {
        Self::internal(failure.to_string()).because(FailureReason::Backend)
    }
}
