//! The response channel of a request: the backend sends responses through a [`Responder`], and the sender of the
//! request reads them from a [`ResponseStream`].
//!
//! Each request has one channel. A request ends exactly once: by `complete`, `finish` or `fail`. If the last
//! `Responder` is dropped without any of them, the request ends with an internal error. A request therefore cannot
//! stay without an end. Each response passes the [`ResponsePath`] of the request before it becomes visible. A client
//! that reads statistics after its response therefore finds its request counted.
//!
//! A sender does not wait for a client unless the request demands it ([`Flow`]). Unread responses wait in memory, and
//! the [`UnreadBudget`] of the process counts them.
use std::sync::Arc;

use crate::Timeline;

mod channel;
mod flow;
mod path;
mod responder;
mod response_order;
mod stream;
mod unread;

use channel::Channel;
pub use flow::Flow;
pub use path::{BatchReporter, InFlightResponse, OrderPlace, Outcome, ResponsePath, Unobserved};
pub use responder::{QueueNumber, Responder};
pub use response_order::ResponseOrder;
pub use stream::{Canceller, ResponseStream};
pub use unread::UnreadBudget;

/// Creates the responder and the stream of one request.
pub fn response_channel(
    timeline: Timeline,
    path: Arc<dyn ResponsePath>,
    flow: Flow,
) -> (Responder, ResponseStream) {
    let channel = Channel::new(timeline, path, flow);
    (Responder::new(channel.clone()), ResponseStream::new(channel))
}

#[cfg(test)]
mod tests;
