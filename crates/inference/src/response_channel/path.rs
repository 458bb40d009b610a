//! The way of responses from the backend to the client, as the owner of a model sees it.
use std::{fmt, sync::Arc};

use scheduling::{EntryId, Timestamp};

use super::channel::Channel;
use crate::{Error, ExecutionTimes, ReportedTimes, Response, ResponseItem, ResponseReport, Timeline};

/// The owner of a request while a backend works on it. Each response passes it once, so this is the one place where
/// responses are counted, cached, ordered and traced.
pub trait ResponsePath: Send + Sync {
    /// Takes a response on its way to the client, and sooner or later [releases](InFlightResponse::release) it. A request
    /// has exactly one [last](InFlightResponse::is_last) response, which may be empty. Must not block.
    fn respond(&self, response: InFlightResponse) {
        response.release();
    }

    /// The client does not wait for the request any more. Called at most once; it may come while the last response
    /// passes on another thread, or just after. Must not block. `entry` is the number of the request in its queue, if
    /// [`QueueNumber::queued_as`](crate::QueueNumber::queued_as) has said it already.
    fn cancelled(&self, entry: Option<EntryId>) {
        let _ = entry;
    }

    /// The backend has told the times of the request, after the request was counted (`counted`) without knowing them.
    fn reported(&self, timeline: &Timeline, counted: Timestamp, times: ReportedTimes) {
        let _ = (timeline, counted, times);
    }

    /// The same for an execution as a whole.
    fn batch_reported(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        let _ = (execution_times, counted, times);
    }

    /// The backend has told how it made the response of that index, from 0, of a decoupled request.
    fn response_reported(&self, index: u64, report: ResponseReport) {
        let _ = (index, report);
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// Its last response is no error.
    Success,
    /// Its last response is that error.
    Failure(&'a Error),
}

/// A response on its way to the client, or the end of a request without another response. Dropping it loses the response.
pub struct InFlightResponse {
    channel: Arc<Channel>,
    item: Option<ResponseItem>,
    /// What it counts in the budget of unread responses.
    bytes: usize,
    overflow: Overflow,
}

/// Whether a response is the error of a request whose client is too far behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// It is a response like any other.
    No,
    /// It ends the request in the place of all responses that the client has not read.
    Ends,
    /// The same, but the request has ended before.
    Replaces,
}

impl InFlightResponse {
    pub(super) fn new(channel: Arc<Channel>, item: Option<ResponseItem>, overflow: Overflow) -> Self {
        let bytes = item.as_ref().map_or(0, ResponseItem::byte_size);
        Self { channel, item, bytes, overflow }
    }

    pub(super) fn byte_size(&self) -> usize {
        self.bytes
    }

    /// Whether nothing comes after it.
    pub fn is_last(&self) -> bool {
        self.item.as_ref().is_none_or(|item| item.last)
    }

    /// The response, or the error in its place; `None` for an end without another response.
    pub fn result(&self) -> Option<&Result<Response, Error>> {
        self.item.as_ref().map(|item| &item.result)
    }

    /// How the request ends, if it ends with this response. Not `None` for exactly one response of each request.
    pub fn outcome(&self) -> Option<Outcome<'_>> {
        (self.is_last() && self.overflow != Overflow::Replaces).then(|| match self.result() {
            Some(Err(error)) => Outcome::Failure(error),
            Some(Ok(_)) | None => Outcome::Success,
        })
    }

    /// Whether the responses of the request that are held back are void: this one stands for them.
    pub fn voids_earlier(&self) -> bool {
        self.overflow != Overflow::No
    }

    /// When the request did what.
    pub fn timeline(&self) -> &Timeline {
        self.channel.timeline()
    }

    /// The place of the request in the order of responses, if it has one.
    pub fn place(&self) -> Option<OrderPlace> {
        self.channel.place()
    }

    /// Makes the response visible to the client.
    pub fn release(mut self) {
        let (item, bytes) = (self.item.take(), std::mem::take(&mut self.bytes));
        self.channel.push(item, bytes, self.voids_earlier());
    }
}

impl Drop for InFlightResponse {
    fn drop(&mut self) {
        self.channel.refund(self.bytes);
    }
}

impl fmt::Debug for InFlightResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightResponse").field("item", &self.item).finish_non_exhaustive()
    }
}

/// The place of a request in an order of responses (`preserve_ordering`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderPlace {
    /// Which of the orders of the model: an instance, or 0 where all requests share one.
    pub order: usize,
    /// The place there.
    pub ticket: scheduling::Ticket,
}

/// Tells the times of one execution to the owner of its requests.
#[derive(Clone)]
pub struct BatchReporter {
    execution_times: Arc<ExecutionTimes>,
    path: Arc<dyn ResponsePath>,
}

impl fmt::Debug for BatchReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchReporter")
            .field("execution_times", &self.execution_times)
            .finish_non_exhaustive()
    }
}

impl BatchReporter {
    pub(super) fn new(execution_times: Arc<ExecutionTimes>, path: Arc<dyn ResponsePath>) -> Self {
        Self { execution_times, path }
    }

    /// The execution has had these times. Only the first report counts.
    pub fn report(&self, times: ReportedTimes) {
        if let Some(counted) = self.execution_times.report(times) {
            self.path.batch_reported(&self.execution_times, counted, times);
        }
    }
}
