//! A call of server reflection. The endpoint's own reader of messages reads it, so the limits of all calls hold: budget,
//! pace, deadline and drain.
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf;
use http_body::Frame;
use hyper::body::Incoming;
use vocabulary::ByteReservation;

use super::{
    deadline::CallDeadline,
    grpc_context::GrpcContext,
    message::{framing::Messages, generated},
    pieces::Pieces,
    reflection::ReflectionVersion,
    status::Status,
};
use crate::chunks::Chunks;

/// The longest question, in bytes. It contains the names of a host and of a symbol or file.
pub(super) const MAX_QUESTION: u64 = 4096;

/// The body of the reply: an answer to each question. It reads a question when the previous answer has been taken.
pub(crate) struct ReflectionBody {
    endpoint: Arc<GrpcContext>,
    version: ReflectionVersion,
    questions: Messages<Incoming>,
    deadline: CallDeadline,
    /// Completes when the server begins to stop.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    leaving: Chunks,
    pieces: Pieces,
    ended: bool,
    /// The call's own bytes in the server's budget.
    _open: ByteReservation,
}

impl ReflectionBody {
    /// Answers the questions of a call.
    pub(crate) fn new(
        endpoint: Arc<GrpcContext>,
        version: ReflectionVersion,
        questions: Messages<Incoming>,
        granted: Option<Duration>,
        open: ByteReservation,
    ) -> Self {
        let drain = endpoint.drain.clone();
        Self {
            endpoint,
            version,
            questions,
            deadline: CallDeadline::after(granted),
            stopping: Box::pin(async move { drain.begun().await }),
            leaving: Chunks::new(),
            pieces: Pieces::new(),
            ended: false,
            _open: open,
        }
    }

    /// hyper polls this function for the next frame.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Chunks>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.deadline.poll(context).is_ready() {
            return self.end(&Status::late());
        }
        if !self.leaving.has_remaining() {
            match ready!(self.poll_answer(context)) {
                Ok(answer) => self.leaving = answer,
                Err(status) => return self.end(&status),
            }
        }
        Poll::Ready(Some(Frame::data(self.pieces.next(&mut self.leaving))))
    }

    /// The next answer, or the status that ends the call.
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Chunks, Status>> {
        Poll::Ready(match self.questions.poll_next(context) {
            Poll::Ready(Some(Ok(question))) => generated::decode_here(&question.frames)
                .and_then(|question| self.endpoint.reflection.answer(self.version, question))
                .and_then(|answer| generated::encode(&answer)),
            Poll::Ready(Some(Err(error))) => Err(error.into()),
            Poll::Ready(None) => Err(Status::ok()),
            Poll::Pending => {
                ready!(self.stopping.as_mut().poll(context));
                Err(Status::stopping())
            }
        })
    }

    fn end(&mut self, status: &Status) -> Poll<Option<Frame<Chunks>>> {
        self.ended = true;
        Poll::Ready(Some(Frame::trailers(status.trailers())))
    }
}
