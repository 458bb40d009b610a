//! The error type that all crates share at their boundaries.
use std::{any::Any, borrow::Cow};

/// The error codes of Triton's protocols (`TRITONSERVER_Error_Code`), and one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// No better code is known.
    Unknown,
    /// The server or a plug-in has failed.
    Internal,
    /// The named object does not exist.
    NotFound,
    /// The request is invalid in every state of the server.
    InvalidArgument,
    /// The request may be valid, but the server cannot serve it now.
    Unavailable,
    /// The server understands the request but does not support it.
    Unsupported,
    /// The object to be created already exists.
    AlreadyExists,
    /// The client has cancelled the request.
    Cancelled,
    /// A limit of the server is reached: on bytes, connections or time. The C interface reports it as `Unavailable`.
    ResourceExhausted,
}

impl ErrorCode {
    /// The words before the message in logs and load reasons (`TRITONSERVER_ErrorCodeString`).
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Internal => "Internal",
            Self::NotFound => "Not found",
            Self::InvalidArgument => "Invalid argument",
            Self::Unavailable => "Unavailable",
            Self::Unsupported => "Unsupported",
            Self::AlreadyExists => "Already exists",
            Self::Cancelled => "Cancelled",
            Self::ResourceExhausted => "Resource exhausted",
        }
    }
}

/// The cause of a failure: the `reason` label of `nv_inference_request_failure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailureReason {
    /// The scheduler rejected the request: its queue was full, or its queueing time was over.
    Rejected,
    /// The client cancelled the request or disconnected.
    Cancelled,
    /// The backend failed or answered with an error.
    Backend,
    /// Any other cause.
    #[default]
    Other,
}

/// A failure as a client sees it: a code and a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Determines the HTTP status and the gRPC code.
    pub code: ErrorCode,
    /// The client receives this text verbatim. It is part of the compatible behaviour.
    pub message: Cow<'static, str>,
    /// The metrics count failures by this reason. Clients do not see it.
    pub reason: FailureReason,
}

impl Error {
    /// An error of reason [`FailureReason::Other`].
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), reason: FailureReason::Other }
    }

    /// [`ErrorCode::InvalidArgument`].
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    /// [`ErrorCode::Internal`].
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// [`ErrorCode::NotFound`].
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    /// [`ErrorCode::Unavailable`].
    pub fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }

    /// [`ErrorCode::Unsupported`].
    pub fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Unsupported, message)
    }

    /// [`ErrorCode::ResourceExhausted`].
    pub fn exhausted(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::ResourceExhausted, message)
    }

    /// The same error with another reason.
    #[must_use]
    pub fn because(mut self, reason: FailureReason) -> Self {
        self.reason = reason;
        self
    }

    /// `<Code words>: <message>`, the form of load reasons and log lines.
    pub fn with_code(&self) -> String {
        format!("{}: {}", self.code.as_str(), self.message)
    }
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("for an unknown reason")
}
