//! The two ends of a response channel: the backend responds at one, and the sender of the request reads at the other.
use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use scheduling::EntryId;
use vocabulary::{ByteReservation, Error, ErrorCode, FailureReason};

use super::{
    channel::{Channel, UnreadPolicy},
    observer::{BackendReport, BatchReporter, ResponseObserver},
    response_order::ResponseOrder,
};
use crate::{ReportedTimes, Response, ResponseItem, ResponseReport, Timeline};

/// The only way to respond to a request. All clones respond to the same request. A backend may keep a clone after it
/// has released the request.
pub struct Responder {
    pub(super) channel: Arc<Channel>,
}

impl Responder {
    /// Sends one of several responses of a decoupled model. Ignored after the request has ended. Does not block,
    /// unless the request limits its unread responses ([`UnreadPolicy::most_unread`]).
    pub fn send(&self, response: Response) {
        self.channel.send(Ok(response));
    }

    /// Whether [`send`](Self::send) would not wait now.
    pub fn has_capacity(&self) -> bool {
        self.channel.has_capacity()
    }

    /// Ready when [`send`](Self::send) would not wait, for a sender that must not block. Wakes one task.
    pub fn poll_capacity(&self, context: &mut Context<'_>) -> Poll<()> {
        self.channel.poll_capacity(context)
    }

    /// Sends an error that does not end the request.
    pub fn send_error(&self, error: Error) {
        self.channel.send(Err(error));
    }

    /// Ends the request with its last response. Most requests have only this one.
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

    /// Whether the client does not wait any more. A long execution may check this and stop early.
    pub fn is_cancelled(&self) -> bool {
        self.channel.is_cancelled()
    }

    /// The times of the request.
    pub fn timeline(&self) -> &Timeline {
        self.channel.timeline()
    }

    /// Reports the backend's own times of this request. Only the first report counts.
    pub fn report(&self, times: ReportedTimes) {
        let timeline = self.timeline();
        if let Some(counted) = timeline.report(times) {
            self.channel.observer().reported(BackendReport::Request { timeline, counted, times });
        }
    }

    /// Reports how the backend made the response with that index.
    pub fn report_response(&self, index: u64, report: ResponseReport) {
        self.channel.observer().reported(BackendReport::Response { index, report });
    }

    /// The reporter for the times of the execution that contains this request, if an execution contains it.
    pub fn batch_reporter(&self) -> Option<BatchReporter> {
        let execution_times = self.timeline().execution()?.clone();
        Some(BatchReporter::new(execution_times, self.channel.observer().clone()))
    }

    /// The entry id of the request in its queue, if it has ever waited in one.
    pub fn entry(&self) -> Option<EntryId> {
        self.channel.entry()
    }

    /// The handle through which the queue sets the entry id of the request.
    pub fn entry_setter(&self) -> EntryIdSetter {
        EntryIdSetter { channel: self.channel.clone() }
    }

    /// Gives the request the next turn in an order of responses, unless it has one. The caller calls this before the
    /// first response. From then on, the requests behind it wait until this one has ended.
    pub fn line_up(&self, order: &Arc<ResponseOrder>) {
        self.channel.line_up(order);
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

/// Sets the entry id of a request in its queue.
///
/// A queue sets the id after it has accepted the request. The queue then owns the request and its [`Responder`], so
/// the driver uses this handle instead.
#[derive(Clone)]
pub struct EntryIdSetter {
    channel: Arc<Channel>,
}

impl EntryIdSetter {
    /// Sets the entry id. The driver calls this once, when the request first waits; a rescheduled request keeps its id.
    /// Returns true if the request was cancelled before. Then
    /// [`ResponseObserver::cancelled`] may not have known the id, and the caller
    /// must remove the request from its queue.
    #[must_use = "a request that was cancelled before must be taken out"]
    pub fn set(self, entry: EntryId) -> bool {
        self.channel.set_entry(entry)
    }
}

impl fmt::Debug for EntryIdSetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryIdSetter").finish_non_exhaustive()
    }
}

/// Cancels a request. The holder need not own the stream of the responses.
#[derive(Clone)]
pub struct Canceller {
    channel: Arc<Channel>,
}

impl Canceller {
    /// Cancels the request. Responses that follow are still delivered.
    pub fn cancel(&self) {
        self.channel.cancel(false);
    }

    /// Whether the client or another caller has cancelled the request.
    pub fn is_cancelled(&self) -> bool {
        self.channel.is_cancelled()
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("is_cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// The responses of one request. Dropping the stream cancels the request and drops all later responses.
pub struct ResponseStream {
    channel: Arc<Channel>,
}

impl ResponseStream {
    /// The next response; `None` when the request has ended and all responses were taken.
    ///
    /// Cancel-safe: the stream removes a response only when it returns it.
    pub async fn next(&mut self) -> Option<ResponseItem> {
        poll_fn(|context| self.poll_item(context)).await
    }

    /// The response of a model that sends exactly one.
    ///
    /// # Errors
    /// The model's error. An internal error if the model sent no response or a second one.
    pub async fn only(mut self) -> Result<Response, Error> {
        self.take_only().await
    }

    /// As [`only`](Self::only), for a caller that needs the stream afterwards.
    ///
    /// # Errors
    /// As [`only`](Self::only).
    pub async fn take_only(&mut self) -> Result<Response, Error> {
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

    /// Cancels the request. Responses that follow are still delivered.
    pub fn cancel(&self) {
        self.channel.cancel(false);
    }

    /// A handle that cancels the request without the stream.
    pub fn canceller(&self) -> Canceller {
        Canceller { channel: self.channel.clone() }
    }

    /// The times of the request.
    pub fn timeline(&self) -> &Timeline {
        self.channel.timeline()
    }

    /// The bytes of the request in the budget of requests, for who has taken the last response and keeps its bytes.
    /// `None` if they were taken before, or if the request has none.
    pub fn take_reservation(&self) -> Option<ByteReservation> {
        self.channel.take_reservation()
    }

    /// Polls for the next item. [`ResponseStream::next`] uses it.
    pub fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<ResponseItem>> {
        self.channel.poll(context)
    }
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

/// Creates the responder and the stream of one request.
pub fn response_channel(
    timeline: Timeline,
    observer: Arc<dyn ResponseObserver>,
    flow: UnreadPolicy,
) -> (Responder, ResponseStream) {
    let channel = Channel::new(timeline, observer, flow);
    (Responder { channel: channel.clone() }, ResponseStream { channel })
}

fn unexpected_count(count: usize) -> Error {
    Error::new(ErrorCode::Internal, format!("expected a single response, got {count}"))
}
