//! The end of a response channel at which the sender of the request reads.
use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use vocabulary::{ByteReservation, Error, ErrorCode};

use super::channel::Channel;
use crate::{Response, ResponseItem, Timeline};

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
    pub(super) fn new(channel: Arc<Channel>) -> Self {
        Self { channel }
    }

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
