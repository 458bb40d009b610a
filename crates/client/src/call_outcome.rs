//! What became of a request.

use std::time::Duration;

/// How long a valid exchange was busy on the network, as far as the client sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallTimes {
    /// From the first byte of the request until the system had taken the last one. Zero over gRPC.
    pub send: Duration,
    /// From the first byte of the response until the last one.
    pub receive: Duration,
}

/// Why a request has no valid response.
pub enum CallFailure {
    /// The server refused the request. The connection still works.
    Refused(String),
    /// The connection is lost or in an undefined state.
    Broken(String),
}

impl CallFailure {
    /// The reason.
    pub fn into_text(self) -> String {
        match self {
            CallFailure::Refused(text) | CallFailure::Broken(text) => text,
        }
    }
}
