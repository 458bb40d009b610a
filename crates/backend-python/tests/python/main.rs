//! The backend as the server uses it: models in Python, their tensors, their failures, and the death of their processes.
#![expect(clippy::unwrap_used, reason = "what supports tests is part of them")]

mod brief;
mod environments;
mod escapes;
mod failures;
mod leaving;
mod lies;
mod loading;
mod nested;
mod requests;
mod sandbox;
mod slow_clients;
mod support;
mod workers;
