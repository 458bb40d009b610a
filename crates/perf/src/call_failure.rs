//! Why a request of the load generator has no good response.

/// Why a request has no valid response.
pub(crate) enum CallFailure {
    /// The server refused the request. The connection still works.
    Refused(String),
    /// The connection is lost or in an undefined state.
    Broken(String),
    /// The response was valid, but the server closes the connection after it.
    Closed,
}

impl CallFailure {
    pub(crate) fn into_text(self) -> String {
        match self {
            CallFailure::Refused(text) | CallFailure::Broken(text) => text,
            CallFailure::Closed => "the server closes its connections".into(),
        }
    }
}
