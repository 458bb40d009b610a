//! What became of a request of the load generator.

use std::time::Duration;

/// How long a valid exchange was busy on the network, as far as the generator sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CallTimes {
    /// From the first byte of the request until the system had taken the last one. Zero over gRPC.
    pub(crate) send: Duration,
    /// From the first byte of the response until the last one.
    pub(crate) receive: Duration,
}

/// Why a request has no valid response.
pub(crate) enum CallFailure {
    /// The server refused the request. The connection still works.
    Refused(String),
    /// The connection is lost or in an undefined state.
    Broken(String),
}

impl CallFailure {
    pub(crate) fn into_text(self) -> String {
        match self {
            CallFailure::Refused(text) | CallFailure::Broken(text) => text,
        }
    }
}
