//! `POST /v2/models/{M}[/versions/{V}]/generate` and `/generate_stream`: a JSON request, and one JSON response or a
//! stream of them.
//!
//! [`request`] defines what the members of a request mean, [`response`] how a response is written. `generate` answers
//! when it is sure that exactly one response exists (P-W7). `generate_stream` sends each response as a server-sent
//! event when it comes. An event has no field but `data`. The stream ends with the model's final response. Both
//! endpoints wait for the first response before they send a status, so that a first error determines the status (P-W6).
//! A later error is an event like any other.
//!
//! Responses and errors of the model are sent as chunks, whatever their length. Refusals before the model gets the
//! request have a stated length. Both endpoints neither accept nor send compressed bodies, and they do not forward
//! headers.
//!
//! When the client disconnects, hyper drops the future or the body. That cancels the request (P-W25).
mod answer;
mod request;
#[cfg(test)]
mod request_tests;
mod response;

pub(super) use answer::{GenerateRoute, answer, rules};
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use request::{Schema, decode};
