//! A request of a streamed call that runs, as a stream of its messages.
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use futures_util::Stream;
use inference::{Response, ResponseItem, ResponseStream};
use vocabulary::{ByteBudget, Error, Name};

use crate::{
    access::AccessLine,
    chunks::Chunks,
    counted_bytes::room_of,
    grpc::{
        message::prefix::MAX_MESSAGE,
        request::{FinishWork, RequestContext},
        status::Status,
    },
    tracing::{TracedSend, response_complete},
};

/// A message of a request.
pub(super) struct StreamMessage {
    pub(super) message: Chunks,
    /// Learns when the connection has taken the message, if the request is traced.
    pub(super) traced: Option<TracedSend>,
}

impl From<Chunks> for StreamMessage {
    fn from(message: Chunks) -> Self {
        Self { message, traced: None }
    }
}

/// A request in flight, as a stream of its messages.
pub(super) struct StreamedRequest {
    pub(super) context: RequestContext,
    pub(super) responses: ResponseStream,
    /// The version as the client wrote it. The client gets it back if no response contains the real version.
    pub(super) sent_version: Name,
    /// The number of messages that were given out.
    pub(super) sent: usize,
    pub(super) ended: bool,
    pub(super) errors_end_call: bool,
    pub(super) line: Option<Box<AccessLine>>,
    /// Counts the messages until they have been sent.
    pub(super) budget: Arc<ByteBudget>,
    /// The response that the pool converts, and whether it is the last.
    pub(super) finishing: Option<(FinishWork, bool)>,
}

/// An item of the stream of responses. Its response has the form that the client asked for. An error is the model's, or
/// says why the response cannot have this form.
struct FinishedItem {
    result: Result<Response, Error>,
    last: bool,
}

impl Drop for StreamedRequest {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.facts().set_times(&self.responses);
        }
    }
}

impl StreamedRequest {
    /// The next message; `Err` ends the call.
    pub(super) fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<StreamMessage, Status>>> {
        while !self.ended && self.is_answered() {
            let dropped = ready!(self.responses.poll_item(context));
            self.ended = dropped.is_none_or(|item| item.last);
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let item = ready!(self.poll_finished(context));
        // As Triton: once for each request.
        if self.sent == 0 {
            response_complete(self.context.trace.as_ref());
        }
        let message = match item {
            Some(FinishedItem { result, last }) => {
                self.ended = last;
                if let Some(line) = &mut self.line {
                    line.add_status(result.as_ref().map_or_else(code_of, |_| 0));
                }
                match result {
                    Ok(response) => Ok(self.encode(&response, last)),
                    Err(error) if self.errors_end_call => Err(error.into()),
                    Err(error) => Ok(self.encode_without_response(last, &error.message)),
                }
            }
            None => {
                self.ended = true;
                if let Some(line) = &mut self.line {
                    line.add_status(0);
                }
                match self.final_message() {
                    Some(message) => Ok(message),
                    None => return Poll::Ready(None),
                }
            }
        };
        self.sent += 1;
        if self.ended || self.is_answered() {
            // From the last message a client concludes that both are free.
            self.context.release_regions();
            drop(self.responses.take_reservation());
        }
        let traced = || self.context.trace.clone().map(TracedSend::grpc);
        let message = message.map(|message| StreamMessage { message, traced: traced() });
        if let (Some(line), Ok(StreamMessage { message, .. })) = (&mut self.line, &message) {
            line.add_response_bytes(message.remaining() as u64);
        }
        Poll::Ready(Some(message))
    }

    /// Tells whether the client gets no further response to the request.
    fn is_answered(&self) -> bool {
        self.sent > 0 && !self.context.model.config().decoupled
    }

    fn poll_finished(&mut self, context: &mut Context<'_>) -> Poll<Option<FinishedItem>> {
        loop {
            if let Some((work, last)) = &mut self.finishing {
                let (finished, last) = (ready!(Pin::new(work).poll(context)), *last);
                self.finishing = None;
                // The message counts anew, in the room of the request.
                let finished = finished.flatten().map(|(response, _)| response);
                return Poll::Ready(Some(FinishedItem { result: finished, last }));
            }
            let Some(ResponseItem { result, last }) = ready!(self.responses.poll_item(context)) else {
                return Poll::Ready(None);
            };
            let result = match result {
                Ok(response) if self.context.takes_long(&response) => {
                    self.finishing = Some((self.context.finish_in_pool(response, &self.budget), last));
                    continue;
                }
                Ok(mut response) => self.context.finish(&mut response).map(|()| response),
                Err(error) => Err(error),
            };
            return Poll::Ready(Some(FinishedItem { result, last }));
        }
    }

    fn encode(&self, response: &Response, last: bool) -> Chunks {
        let mut version = itoa::Buffer::new();
        let version = version.format(self.context.model.version_of(&self.responses));
        let mut message = self.context.message(response, version, Some(last)).streamed("", MAX_MESSAGE);
        // The last response takes the room of its request.
        let room = || if last { room_of(&self.responses, &self.budget) } else { self.budget.reservation() };
        match message.count_in(room) {
            Ok(()) => message,
            Err(no_room) => self.encode_without_response(last, &Error::from(no_room).message),
        }
    }

    fn encode_without_response(&self, last: bool, error: &str) -> Chunks {
        let response = Response::default();
        self.context.message(&response, &self.sent_version, Some(last)).streamed(error, MAX_MESSAGE)
    }

    /// The final message if the model ends a request without a final response.
    fn final_message(&self) -> Option<Chunks> {
        if self.context.model.config().decoupled {
            self.context.empty_final.then(|| self.encode_without_response(true, ""))
        } else {
            (self.sent == 0).then(|| self.encode_without_response(true, "expected a single response, got 0"))
        }
    }
}

pub(super) fn code_of(error: &Error) -> u16 {
    Status::from(error.clone()).code() as u16
}

impl Stream for StreamedRequest {
    type Item = Result<StreamMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(context)
    }
}
