//! The response path: the code of a model's owner through which responses pass from the backend to the client.
use std::{fmt, sync::Arc};

use scheduling::{EntryId, Timestamp};

use crate::{Error, ExecutionTimes, ReportedTimes, Response, ResponseItem, ResponseReport, Timeline};

/// The owner of a request while a backend executes it. Each response passes the path once. The path is therefore the
/// one place where responses are counted, cached, ordered and traced.
pub trait ResponsePath: Send + Sync {
    /// Receives a response for the client, and [releases](InFlightResponse::release) it at once or later. A request
    /// has exactly one [last](InFlightResponse::is_last) response, which may be empty. Must not block.
    fn respond(&self, response: InFlightResponse) {
        response.release();
    }

    /// Reports that the client does not wait for the request any more. The channel calls this at most once. The call
    /// may come while the last response passes on another thread, or shortly after. Must not block. `entry` is the
    /// entry id of the request in its queue, if [`QueueNumber::queued_as`](crate::QueueNumber::queued_as) has already
    /// set it.
    fn cancelled(&self, entry: Option<EntryId>) {
        let _ = entry;
    }

    /// Reports that the backend has reported the times of the request. At `counted`, the request was counted without
    /// these times.
    fn reported(&self, timeline: &Timeline, counted: Timestamp, times: ReportedTimes) {
        let _ = (timeline, counted, times);
    }

    /// As [`reported`](Self::reported), for a whole execution.
    fn batch_reported(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        let _ = (execution_times, counted, times);
    }

    /// Reports how the backend made the response with that index, from 0, of a decoupled request.
    fn response_reported(&self, index: u64, report: ResponseReport) {
        let _ = (index, report);
    }
}

/// The path of a request that nobody observes, such as a padding row or a warm-up sample.
#[derive(Debug)]
pub struct Unobserved;

impl ResponsePath for Unobserved {}

/// How a request has ended.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// Its last response is not an error.
    Success,
    /// Its last response is this error.
    Failure(&'a Error),
}

/// Where a response goes after the path. The response channel is the only destination. The trait keeps the path and the
/// budget of unread responses free of the channel, which uses both.
pub(super) trait Destination: Send + Sync {
    /// The times of the request.
    fn timeline(&self) -> &Timeline;

    /// The position of the request in the order of responses, if it has one.
    fn place(&self) -> Option<OrderPlace>;

    /// Makes a response visible. `None` closes the channel without another response. A response that `replaces` the
    /// unread responses does so even after the last one.
    fn push(&self, item: Option<ResponseItem>, bytes: usize, replaces: bool);

    /// Stops counting these bytes in the budget.
    fn refund(&self, bytes: usize);

    /// Ends the request because its client has too many unread bytes.
    fn overflow(self: Arc<Self>);
}

/// A response that the client cannot see yet, or the end of a request without another response. Dropping it loses the
/// response.
pub struct InFlightResponse {
    destination: Arc<dyn Destination>,
    item: Option<ResponseItem>,
    /// The bytes that the budget of unread responses counts for it.
    bytes: usize,
    overflow: Overflow,
}

/// Whether a response is the error of a request whose client has too many unread bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// It is an ordinary response.
    No,
    /// It ends the request and replaces all responses that the client has not read.
    Ends,
    /// It replaces all unread responses of a request that has ended before.
    Replaces,
}

impl InFlightResponse {
    pub(super) fn new(
        destination: Arc<dyn Destination>,
        item: Option<ResponseItem>,
        overflow: Overflow,
    ) -> Self {
        let bytes = item.as_ref().map_or(0, ResponseItem::byte_size);
        Self { destination, item, bytes, overflow }
    }

    pub(super) fn byte_size(&self) -> usize {
        self.bytes
    }

    /// Whether it is the last response.
    pub fn is_last(&self) -> bool {
        self.item.as_ref().is_none_or(|item| item.last)
    }

    /// The response, or an error instead of one; `None` for an end without another response.
    pub fn result(&self) -> Option<&Result<Response, Error>> {
        self.item.as_ref().map(|item| &item.result)
    }

    /// How the request ends, if it ends with this response. For each request, exactly one response returns `Some`.
    pub fn outcome(&self) -> Option<Outcome<'_>> {
        (self.is_last() && self.overflow != Overflow::Replaces).then(|| match self.result() {
            Some(Err(error)) => Outcome::Failure(error),
            Some(Ok(_)) | None => Outcome::Success,
        })
    }

    /// Whether this response replaces all earlier responses of the request that are held back.
    pub fn voids_earlier(&self) -> bool {
        self.overflow != Overflow::No
    }

    /// The times of the request.
    pub fn timeline(&self) -> &Timeline {
        self.destination.timeline()
    }

    /// The position of the request in the order of responses, if it has one.
    pub fn place(&self) -> Option<OrderPlace> {
        self.destination.place()
    }

    /// Makes the response visible to the client.
    pub fn release(mut self) {
        let (item, bytes) = (self.item.take(), std::mem::take(&mut self.bytes));
        self.destination.push(item, bytes, self.voids_earlier());
    }
}

impl Drop for InFlightResponse {
    fn drop(&mut self) {
        self.destination.refund(self.bytes);
    }
}

impl fmt::Debug for InFlightResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightResponse").field("item", &self.item).finish_non_exhaustive()
    }
}

/// The position of a request in an order of responses (`preserve_ordering`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderPlace {
    /// The index of the order in the model: an instance, or 0 if all requests share one order.
    pub order: usize,
    /// The ticket in that order.
    pub ticket: scheduling::Ticket,
}

/// Reports the times of one execution to the owner of its requests.
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

    /// Reports the times of the execution. Only the first report counts.
    pub fn report(&self, times: ReportedTimes) {
        if let Some(counted) = self.execution_times.report(times) {
            self.path.batch_reported(&self.execution_times, counted, times);
        }
    }
}
