//! The way back of a request: who runs it holds a [`Responder`], who sent it holds the [`ResponseStream`].
//!
//! Between them lies one channel for each request. A request ends exactly once: by `complete`, `finish` or `fail`, or,
//! when the last `Responder` is dropped without any of them, by an internal error; so no request can be forgotten. Each
//! response passes the [`ResponsePath`] of the request before it becomes visible, so that a client that reads
//! statistics after its answer finds itself counted.
//!
//! No sender waits for a client, unless the request asks for it ([`Flow`]): what a client has not read waits in memory, and
//! counts in the [`UnreadBudget`] of the process.
use std::{
    fmt,
    future::poll_fn,
    num::NonZeroUsize,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use scheduling::EntryId;

use crate::{
    Error, ErrorCode, FailureReason, ReportedTimes, Response, ResponseItem, ResponseReport, Timeline,
};

mod channel;
mod path;
mod unread;

use channel::Channel;
pub use path::{BatchReporter, InFlightResponse, OrderPlace, Outcome, ResponsePath};
pub use unread::{ClientId, UnreadBudget};

/// What happens to responses that the client has not read yet.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Where they are counted.
    pub budget: Arc<UnreadBudget>,
    /// Who reads them: requests of one client are counted together. Without an id the request is a client of its own.
    pub client: Option<ClientId>,
    /// The backend waits in [`Responder::send`] while so many responses are unread, and with it every other request of its
    /// instance. `None`: it never waits.
    pub most_unread: Option<NonZeroUsize>,
}

impl Flow {
    /// Responses wait without a limit, for tests and tools.
    pub fn unlimited() -> Self {
        Self { budget: UnreadBudget::unlimited(), client: None, most_unread: None }
    }
}

/// Makes the two ends for one request.
pub fn response_channel(
    timeline: Timeline,
    path: Arc<dyn ResponsePath>,
    flow: Flow,
) -> (Responder, ResponseStream) {
    let channel = Channel::new(timeline, path, flow);
    (Responder { channel: channel.clone() }, ResponseStream { channel })
}

/// The only way to answer a request. All clones answer the same request: a backend may keep one after it has given the
/// request back.
pub struct Responder {
    channel: Arc<Channel>,
}

impl Responder {
    /// Sends one of several responses of a decoupled model. Ignored once the request has ended. Does not block, unless the
    /// request wants to slow its model down ([`Flow::most_unread`]).
    pub fn send(&self, response: Response) {
        self.channel.send(Ok(response));
    }

    /// Sends an error that does not end the request.
    pub fn send_error(&self, error: Error) {
        self.channel.send(Err(error));
    }

    /// Ends the request with its last, usually only, response.
    pub fn complete(self, response: Response) {
        self.channel.end(Some(Ok(response)));
    }

    /// Ends the request without another response.
    pub fn finish(self) {
        self.channel.end(None);
    }

    /// Ends the request with an error.
    pub fn fail(self, error: Error) {
        self.channel.end(Some(Err(error)));
    }

    /// Whether the client does not wait any more. A long execution may look and stop early.
    pub fn is_cancelled(&self) -> bool {
        self.channel.is_cancelled()
    }

    /// When the request did what.
    pub fn timeline(&self) -> &Timeline {
        self.channel.timeline()
    }

    /// Tells the backend's own times of this request. Only the first report counts.
    pub fn report(&self, times: ReportedTimes) {
        if let Some(counted) = self.timeline().report(times) {
            self.channel.path().reported(self.timeline(), counted, times);
        }
    }

    /// Tells how the backend made the response of that index.
    pub fn report_response(&self, index: u64, report: ResponseReport) {
        self.channel.path().response_reported(index, report);
    }

    /// Through which the backend tells the times of the execution this request is part of, if it is part of one.
    pub fn batch_reporter(&self) -> Option<BatchReporter> {
        let execution_times = self.timeline().execution()?.clone();
        Some(BatchReporter::new(execution_times, self.channel.path().clone()))
    }

    /// The number of the request in its queue, if it has ever waited in one.
    pub fn entry(&self) -> Option<EntryId> {
        self.channel.entry()
    }

    /// The place of the request in an order of responses, if it has one.
    pub fn place(&self) -> Option<OrderPlace> {
        self.channel.place()
    }

    /// Through which the queue says the number of the request.
    pub fn queue_number(&self) -> QueueNumber {
        QueueNumber { channel: self.channel.clone() }
    }

    /// Gives the request a place in an order of responses. Called at most once, before the first response.
    pub fn set_place(&self, place: OrderPlace) {
        self.channel.set_place(place);
    }
}

impl Clone for Responder {
    fn clone(&self) -> Self {
        self.channel.responders.fetch_add(1, Ordering::Relaxed);
        Self { channel: self.channel.clone() }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.channel.responders.fetch_sub(1, Ordering::AcqRel) > 1 || self.channel.has_ended() {
            return;
        }
        let forgotten = Error::internal("the backend dropped the request without an answer");
        self.channel.end(Some(Err(forgotten.because(FailureReason::Backend))));
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("timeline", self.timeline()).finish_non_exhaustive()
    }
}

/// Gives a request the number that it has in its queue.
///
/// A queue says the number when it has taken the request, which is then in the queue's hands: hence not a [`Responder`].
#[derive(Clone)]
pub struct QueueNumber {
    channel: Arc<Channel>,
}

impl QueueNumber {
    /// Says the number. Said once, when the request first waits; a request that comes back keeps its number. True if the
    /// request has been cancelled before: then [`ResponsePath::cancelled`] may not have known the number, and the caller
    /// takes the request out.
    #[must_use = "a request that was cancelled before must be taken out"]
    pub fn queued_as(self, entry: EntryId) -> bool {
        self.channel.queued_as(entry)
    }
}

impl fmt::Debug for QueueNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueNumber").finish_non_exhaustive()
    }
}

/// Cancels a request for somebody who does not hold the stream of its responses.
#[derive(Clone)]
pub struct Canceller {
    channel: Arc<Channel>,
}

impl Canceller {
    /// Cancels the request; responses that still come are delivered.
    pub fn cancel(&self) {
        self.channel.cancel(false);
    }

    /// Whether the request has been cancelled, by anybody.
    pub fn is_cancelled(&self) -> bool {
        self.channel.is_cancelled()
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("is_cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// The responses of one request. Dropping it cancels the request, and drops the responses that still come.
pub struct ResponseStream {
    channel: Arc<Channel>,
}

impl ResponseStream {
    /// The next response; `None` when the request has ended and all responses were taken.
    ///
    /// Cancel-safe: a response is taken only when it is returned.
    pub async fn next(&mut self) -> Option<ResponseItem> {
        poll_fn(|context| self.poll_item(context)).await
    }

    /// The answer of a model that gives exactly one.
    ///
    /// # Errors
    /// The model's error, or an internal one if the model gave no response or a second one.
    pub async fn only(mut self) -> Result<Response, Error> {
        let Some(first) = self.next().await else { return Err(unexpected_count(0)) };
        let response = first.result?;
        if first.last {
            return Ok(response);
        }
        let mut count = 1;
        while let Some(item) = self.next().await {
            item.result?;
            count += 1;
        }
        if count == 1 { Ok(response) } else { Err(unexpected_count(count)) }
    }

    /// Cancels the request; responses that still come are delivered.
    pub fn cancel(&self) {
        self.channel.cancel(false);
    }

    /// Cancels the request for somebody who does not hold the stream.
    pub fn canceller(&self) -> Canceller {
        Canceller { channel: self.channel.clone() }
    }

    /// When the request did what.
    pub fn timeline(&self) -> &Timeline {
        self.channel.timeline()
    }

    /// What [`ResponseStream::next`] polls.
    pub fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<ResponseItem>> {
        self.channel.poll(context)
    }
}

fn unexpected_count(count: usize) -> Error {
    Error::new(ErrorCode::Internal, format!("expected a single response, got {count}"))
}

impl futures_core::Stream for ResponseStream {
    type Item = ResponseItem;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ResponseItem>> {
        self.poll_item(context)
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        self.channel.cancel(true);
    }
}

impl fmt::Debug for ResponseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseStream").field("timeline", self.timeline()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
