//! The backend as the server uses it: configurations, pictures, batches, and what clients should not send.
#![expect(clippy::unwrap_used, reason = "what supports tests is part of them")]

mod hostile;
mod loading;
mod pictures;
mod requests;
mod support;
