//! The way back: whoever runs a request holds a [`Responder`], whoever asked holds the [`ResponseStream`].
//!
//! Between them lies one shared corridor per request. It ends exactly once: by `complete`, `finish` or `fail`, or, when
//! the last `Responder` is dropped without any of them, by an internal error, so a request cannot be forgotten. What
//! watches the request ([`Observe`]) hears of the end before the last response becomes visible, so that a client that
//! reads statistics after its answer finds itself counted.
use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
};

use crate::{
    BatchReporter, Error, ErrorCode, FailureReason, Observe, Outcome, Parameters, ReportedTimes,
    ResponseReport, Tensor, Timeline,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// One answer to a request. A decoupled model may give none or many.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// Output tensors; those not asked for are left out by the backend.
    pub outputs: Vec<Tensor>,
    /// What the model wants the client to know besides its outputs.
    pub parameters: Parameters,
}

impl Response {
    /// A response with outputs and no parameters.
    pub fn of(outputs: Vec<Tensor>) -> Self {
        Self { outputs, parameters: Vec::new() }
    }

    /// The output of that name.
    pub fn output(&self, name: &str) -> Option<&Tensor> {
        self.outputs.iter().find(|tensor| tensor.name() == name)
    }
}

/// What the asking side takes from the corridor.
#[derive(Debug)]
pub struct ResponseItem {
    /// A response, or why there is none.
    pub result: Result<Response, Error>,
    /// Nothing comes after it.
    pub last: bool,
}

/// What the responses of one request pass on their way: whoever has a look at them, or holds them back for a while.
pub trait ResponseInterceptor: Send + Sync {
    /// Takes a parcel, which sooner or later must be opened. A last one comes after [`Observe::ended`].
    fn intercept(&self, in_flight: InFlightResponse);
}

/// A response on its way to its corridor, or the end of a request that answers nothing more.
pub struct InFlightResponse {
    channel: Arc<ResponseChannel>,
    item: Option<ResponseItem>,
}

impl InFlightResponse {
    /// Whether the request of this parcel sends nothing after it.
    pub fn is_last(&self) -> bool {
        self.item.as_ref().is_none_or(|item| item.last)
    }

    /// The response, or the error in its place; `None` for an end without a word.
    pub fn result(&self) -> Option<&Result<Response, Error>> {
        self.item.as_ref().map(|item| &item.result)
    }

    /// Makes the content visible to the asking side.
    pub fn deliver(self) {
        let Self { channel, item } = self;
        channel.push(item);
    }
}

/// The shared middle of [`Responder`] and [`ResponseStream`].
struct ResponseChannel {
    queue: Mutex<Queue>,
    /// Signalled when the asking side has taken a response or has gone.
    capacity_freed: Condvar,
    capacity: usize,
    cancelled: AtomicBool,
    ended: AtomicBool,
    responders: AtomicUsize,
    timeline: Timeline,
    observer: Arc<dyn Observe>,
    interceptor: OnceLock<Arc<dyn ResponseInterceptor>>,
}

#[derive(Default)]
struct Queue {
    /// The usual request has one response: it needs no deque.
    front: Option<ResponseItem>,
    behind: VecDeque<ResponseItem>,
    closed: bool,
    /// Nobody will take what still comes.
    abandoned: bool,
    waker: Option<Waker>,
    /// Threads in [`ResponseChannel::wait_for_capacity`].
    senders_waiting: usize,
}

/// Makes the two ends for one request.
///
/// At most `capacity` responses, and at least one, wait for a slow client; then [`Responder::send`] blocks.
pub fn response_channel(
    timeline: Timeline,
    observer: Arc<dyn Observe>,
    capacity: usize,
) -> (Responder, ResponseStream) {
    let channel = Arc::new(ResponseChannel {
        queue: Mutex::default(),
        capacity_freed: Condvar::new(),
        capacity: capacity.max(1),
        cancelled: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        responders: AtomicUsize::new(1),
        timeline,
        observer,
        interceptor: OnceLock::new(),
    });
    (Responder { channel: channel.clone() }, ResponseStream { channel })
}

impl ResponseChannel {
    fn deliver(self: &Arc<Self>, item: Option<ResponseItem>) {
        match self.interceptor.get() {
            Some(interceptor) => interceptor.intercept(InFlightResponse { channel: self.clone(), item }),
            None => self.push(item),
        }
    }

    /// `None` closes without a word.
    fn push(&self, item: Option<ResponseItem>) {
        let waker = {
            let mut queue = self.queue.lock();
            // Another hand has ended the request while this response was on its way.
            if queue.closed {
                return;
            }
            queue.closed = item.as_ref().is_none_or(|item| item.last);
            if queue.closed && queue.senders_waiting > 0 {
                self.capacity_freed.notify_all();
            }
            if let Some(item) = item
                && !queue.abandoned
            {
                if queue.front.is_none() {
                    queue.front = Some(item);
                } else {
                    queue.behind.push_back(item);
                }
            }
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The end, if nobody came first.
    fn end(self: &Arc<Self>, final_result: Option<Result<Response, Error>>) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let outcome = match &final_result {
            Some(Err(error)) => Outcome::Failure(error),
            Some(Ok(_)) | None => Outcome::Success,
        };
        self.observer.ended(&self.timeline, outcome);
        self.deliver(final_result.map(|result| ResponseItem { result, last: true }));
    }

    fn wait_for_capacity(&self) {
        let mut queue = self.queue.lock();
        while queue.len() >= self.capacity && !queue.closed && !self.cancelled.load(Ordering::Acquire) {
            queue.senders_waiting += 1;
            self.capacity_freed.wait(&mut queue);
            queue.senders_waiting -= 1;
        }
    }

    /// `abandon` tells that nobody will take what is there and what still comes.
    fn cancel(&self, abandon: bool) {
        let first = !self.cancelled.swap(true, Ordering::AcqRel);
        if !first && !abandon {
            return;
        }
        let left = {
            let mut queue = self.queue.lock();
            // Under the lock, so that a sender that has just found no room does not miss the signal. Even after the
            // end: a hand that came too late may still wait.
            if queue.senders_waiting > 0 {
                self.capacity_freed.notify_all();
            }
            queue.abandoned |= abandon;
            abandon.then(|| (queue.front.take(), std::mem::take(&mut queue.behind)))
        };
        // Without the lock: tensors may take a while to free.
        drop(left);
        if first && !self.ended.load(Ordering::Acquire) {
            self.observer.cancelled();
        }
    }
}

impl Queue {
    fn len(&self) -> usize {
        usize::from(self.front.is_some()) + self.behind.len()
    }

    fn pop(&mut self) -> Option<ResponseItem> {
        let next = self.front.take()?;
        self.front = self.behind.pop_front();
        Some(next)
    }
}

/// The only way to answer a request. Clones are further hands on the same request: a backend may keep one after it has
/// given the request back.
pub struct Responder {
    channel: Arc<ResponseChannel>,
}

impl Responder {
    /// Sends one of several responses of a decoupled model. Blocks while the client is too slow. Ignored once the
    /// request has ended.
    pub fn send(&self, response: Response) {
        self.send_result(Ok(response));
    }

    /// Sends an error that does not end the request.
    pub fn send_error(&self, error: Error) {
        self.send_result(Err(error));
    }

    fn send_result(&self, result: Result<Response, Error>) {
        if !self.channel.ended.load(Ordering::Acquire) {
            self.channel.wait_for_capacity();
            self.channel.deliver(Some(ResponseItem { result, last: false }));
        }
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

    /// Whether the client has gone. A long execution may look and stop early.
    pub fn is_cancelled(&self) -> bool {
        self.channel.cancelled.load(Ordering::Acquire)
    }

    /// When the request passed its doors.
    pub fn timeline(&self) -> &Timeline {
        &self.channel.timeline
    }

    /// Tells the backend's own times of this request. Only the first report counts.
    pub fn report(&self, times: ReportedTimes) {
        if let Some(counted) = self.timeline().report(times) {
            self.channel.observer.reported(self.timeline(), counted, times);
        }
    }

    /// Tells how the backend made the response of that index.
    pub fn report_response(&self, index: u64, report: ResponseReport) {
        self.channel.observer.response_reported(index, report);
    }

    /// Through which the backend tells the times of the execution this request is part of, if it is part of one.
    pub fn batch_reporter(&self) -> Option<BatchReporter> {
        let execution_times = self.timeline().execution()?.clone();
        Some(BatchReporter::new(execution_times, self.channel.observer.clone()))
    }

    /// Whether responses leave through an outlet.
    pub fn has_interceptor(&self) -> bool {
        self.channel.interceptor.get().is_some()
    }

    /// From now on responses leave through `interceptor`. Said once, before the first response.
    pub fn intercept_with(&self, interceptor: Arc<dyn ResponseInterceptor>) {
        let said = self.channel.interceptor.set(interceptor);
        debug_assert!(said.is_ok(), "a request has one outlet");
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
        if self.channel.responders.fetch_sub(1, Ordering::AcqRel) > 1
            || self.channel.ended.load(Ordering::Acquire)
        {
            return;
        }
        let forgotten = Error::internal("the backend dropped the request without an answer");
        self.channel.end(Some(Err(forgotten.because(FailureReason::Backend))));
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("timeline", &self.channel.timeline).finish_non_exhaustive()
    }
}

/// Gives a request up without the stream of its responses, from wherever it is needed.
#[derive(Clone)]
pub struct Canceller {
    channel: Arc<ResponseChannel>,
}

impl Canceller {
    /// Asks for the request to be given up; what comes is still delivered.
    pub fn cancel(&self) {
        self.channel.cancel(false);
    }

    /// Whether that was asked, by whomever.
    pub fn is_cancelled(&self) -> bool {
        self.channel.cancelled.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("is_cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// The asking side. Dropping it cancels the request; what still comes is dropped, too.
pub struct ResponseStream {
    channel: Arc<ResponseChannel>,
}

impl ResponseStream {
    /// The next response; `None` when the request has ended and everything was taken.
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

    /// Asks for the request to be given up; what comes is still delivered.
    pub fn cancel(&self) {
        self.channel.cancel(false);
    }

    /// The same wish for whoever does not hold the stream.
    pub fn canceller(&self) -> Canceller {
        Canceller { channel: self.channel.clone() }
    }

    /// When the request passed its doors.
    pub fn timeline(&self) -> &Timeline {
        &self.channel.timeline
    }

    /// What [`ResponseStream::next`] polls.
    pub fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<ResponseItem>> {
        let mut queue = self.channel.queue.lock();
        if let Some(item) = queue.pop() {
            if queue.senders_waiting > 0 {
                self.channel.capacity_freed.notify_one();
            }
            return Poll::Ready(Some(item));
        }
        if queue.closed {
            return Poll::Ready(None);
        }
        match &mut queue.waker {
            Some(waker) => waker.clone_from(context.waker()),
            empty => *empty = Some(context.waker().clone()),
        }
        Poll::Pending
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
        f.debug_struct("ResponseStream").field("timeline", &self.channel.timeline).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
