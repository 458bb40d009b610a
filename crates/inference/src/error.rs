//! The one error that crosses the doors between rooms.
use std::{any::Any, borrow::Cow};

/// What went wrong, in the terms of Triton's protocols (`TRITONSERVER_Error_Code`) and one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// Nothing better is known.
    Unknown,
    /// The server, or a plug-in, failed to do what it should.
    Internal,
    /// The thing named does not exist.
    NotFound,
    /// The request cannot be right whatever the server's state is.
    InvalidArgument,
    /// The request may be right, but not now.
    Unavailable,
    /// Understood, but not offered.
    Unsupported,
    /// The thing to be made exists.
    AlreadyExists,
    /// Nobody waits for the answer any more.
    Cancelled,
    /// A limit of the server is reached: on bytes, connections or time. The C interface tells it as `Unavailable`.
    ResourceExhausted,
}

impl ErrorCode {
    /// The words that logs and load reasons put before the message (`TRITONSERVER_ErrorCodeString`).
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

/// Who is at fault; the `reason` label of `nv_inference_request_failure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailureReason {
    /// The scheduler refused: queue full or queueing time over.
    Rejected,
    /// The client went away.
    Cancelled,
    /// The backend failed or answered with an error.
    Backend,
    /// Anything else.
    #[default]
    Other,
}

/// A failure as a client will see it: a code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Decides the HTTP status and the gRPC code.
    pub code: ErrorCode,
    /// Shown verbatim to the client; part of the compatible behaviour.
    pub message: Cow<'static, str>,
    /// Counted by the metrics; not shown.
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

    /// The same error with another party at fault.
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

/// What a panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("for an unknown reason")
}
