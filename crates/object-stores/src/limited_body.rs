//! The body of an answer, which ends with an error if the server pauses for too long or sends too much.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind};
use tokio::time::{Instant, Sleep, sleep};

/// What was wrong with a request, in words.
#[derive(Debug)]
pub(crate) struct RequestProblem(pub(crate) String);

impl fmt::Display for RequestProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for RequestProblem {}

/// A body with a time-out between its pieces and, if `remaining` is there, a limit on its bytes.
pub(crate) struct LimitedBody<B> {
    inner: B,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    /// The timer runs only while a reader waits. A reader that is busy elsewhere does not make the server late.
    is_waiting: bool,
    remaining: Option<u64>,
}

impl<B> LimitedBody<B> {
    pub(crate) fn new(inner: B, idle: Duration, limit: Option<u64>) -> Self {
        Self { inner, idle, timer: Box::pin(sleep(idle)), is_waiting: false, remaining: limit }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) else {
            if !this.is_waiting {
                this.is_waiting = true;
                this.timer.as_mut().reset(Instant::now() + this.idle);
            }
            ready!(this.timer.as_mut().poll(context));
            let seconds = this.idle.as_secs_f32();
            let problem = RequestProblem(format!("the server paused for {seconds} s within its answer"));
            return Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, problem))));
        };
        this.is_waiting = false;
        let frame = match frame {
            None => return Poll::Ready(None),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                return Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Interrupted, error))));
            }
        };
        if let (Some(remaining), Some(data)) = (&mut this.remaining, frame.data_ref()) {
            let Some(less) = remaining.checked_sub(data.len() as u64) else {
                let problem = RequestProblem("the answer of the server is too long".into());
                return Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Decode, problem))));
            };
            *remaining = less;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    const IDLE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_body_within_its_limit_passes_unchanged() {
        let body = LimitedBody::new(Full::new(Bytes::from_static(b"12345")), IDLE, Some(5));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "12345");
    }

    #[tokio::test]
    async fn a_body_beyond_its_limit_ends_with_an_error() {
        let body = LimitedBody::new(Full::new(Bytes::from_static(b"12345")), IDLE, Some(4));
        assert!(body.collect().await.unwrap_err().to_string().contains("too long"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_pauses_for_too_long_ends_the_body() {
        let never = futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        let body = LimitedBody::new(StreamBody::new(never), IDLE, None);
        let error = body.collect().await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
        assert!(error.to_string().contains("paused for 30 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_does_not_make_the_server_late() {
        let mut polls = 0;
        let frames = futures_util::stream::poll_fn(move |context| {
            polls += 1;
            if polls == 2 {
                // The second frame is there shortly after the reader asks for it.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let frame = Frame::data(Bytes::from_static(b"x"));
            Poll::Ready((polls < 4).then_some(Ok::<_, std::io::Error>(frame)))
        });
        let mut body = LimitedBody::new(StreamBody::new(frames), IDLE, None);
        body.frame().await.unwrap().unwrap();
        tokio::time::advance(IDLE * 2).await;
        body.frame().await.unwrap().unwrap();
    }
}
