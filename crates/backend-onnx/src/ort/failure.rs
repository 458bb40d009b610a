//! What the runtime says when a call fails.
use inference::{Error, FailureReason};

/// A failed call: the runtime's code and its sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("onnx runtime error {code}: {message}")]
pub(crate) struct OrtError {
    /// `OrtErrorCode`, as a number because a newer runtime may have more of them.
    pub(crate) code: i32,
    /// The runtime's words.
    pub(crate) message: String,
}

impl OrtError {
    /// A contradiction that this wrapper found before the runtime could.
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self { code: ort_sys::OrtErrorCode::ORT_INVALID_ARGUMENT as i32, message: message.into() }
    }
}

impl From<OrtError> for Error {
    fn from(failure: OrtError) -> Self {
        Self::internal(failure.to_string()).because(FailureReason::Backend)
    }
}
