//! The endpoints of a server, and why one did not start.
use std::fmt;

use vocabulary::Error;

/// The protocol of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointService {
    Grpc,
    Http,
    SageMaker,
    VertexAi,
    Metrics,
}

/// Why a server did not start. Its display is the text for stderr.
#[derive(Debug)]
pub struct StartError {
    doing: String,
    error: Error,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} - {}", self.doing, self.error.code.as_str(), self.error.message)
    }
}

impl std::error::Error for StartError {}

/// The error of a server that cannot be made.
pub(super) fn creating(error: Error) -> StartError {
    StartError { doing: "error: creating server".to_owned(), error }
}

impl EndpointService {
    /// The text of the log line about the start. Scripts search for these lines.
    pub(super) fn started(self) -> &'static str {
        match self {
            Self::Grpc => "GRPCInferenceService",
            Self::Http => "HTTPService",
            Self::SageMaker => "Sagemaker HTTPService",
            Self::VertexAi => "Vertex AI HTTPService",
            Self::Metrics => "Metrics Service",
        }
    }

    pub(super) fn connections(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC service connections and inference handlers",
            Self::Http => "HTTP service connections",
            Self::SageMaker => "Sagemaker service connections",
            Self::VertexAi => "Vertex AI service connections",
            Self::Metrics => "metrics service connections",
        }
    }

    /// The name of the port in the log and in metrics.
    pub(super) fn port_name(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC",
            Self::Http => "HTTP",
            Self::SageMaker => "SageMaker",
            Self::VertexAi => "Vertex AI",
            Self::Metrics => "metrics",
        }
    }

    pub(super) fn failed(self, error: Error) -> StartError {
        let name = match self {
            Self::Grpc => "GRPC",
            Self::Http => "HTTP",
            Self::SageMaker => "Sagemaker",
            Self::VertexAi => "Vertex AI",
            Self::Metrics => "Metrics",
        };
        StartError { doing: format!("failed to start {name} service"), error }
    }
}
