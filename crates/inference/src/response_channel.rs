//! The response channel of a request: the backend sends responses through a [`Responder`], and the sender of the
//! request reads them from a [`ResponseStream`].
//!
//! Each request has one channel. A request ends exactly once: by `complete`, `finish` or `fail`. If the last
//! `Responder` is dropped without any of them, the request ends with an internal error. A request therefore cannot
//! stay without an end. The [`ResponseObserver`] of the request sees each response before it becomes visible. A client
//! that reads statistics after its response therefore finds its request counted. Responses stay in their channel until
//! they are read, also those that keep a [`ResponseOrder`].
//!
//! A sender does not wait for a client unless the request demands it ([`UnreadPolicy`]). Unread responses wait in memory, and
//! the [`UnreadBudget`] of the process counts them.
mod channel;
mod ends;
mod observer;
mod queue;
mod response_order;
mod unread;

pub use channel::{UnreadBudget, UnreadPolicy};
pub use ends::{Canceller, EntryIdSetter, Responder, ResponseStream, response_channel};
pub use observer::{BackendReport, BatchReporter, PassingResponse, ResponseObserver, Unobserved};
pub use response_order::ResponseOrder;

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;
