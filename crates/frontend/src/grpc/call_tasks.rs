//! The calls of one connection: hyper runs each call as a task. This module counts the calls, and ends a call whose
//! client reads nothing.
//!
//! hyper asks the body of a reply for its next frame only when the stream has space for the previous frame. If hyper
//! has taken a frame and asks for no other, the client does not open the window of its stream. Such a client may read
//! everything else on its connection, so no write to the socket ever waits.
//!
//! A call that is ended in this way is reset. When hyper has finished a reply, h2 may still hold bytes of it. Those
//! bytes stay until the connection ends: they are at most one piece of the reply.
use std::{
    cell::Cell,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::rt::Executor;

use crate::{
    decode_pool::in_connection,
    port::{ClientTimeout, Drain},
};

/// Counts the calls of a connection.
#[derive(Debug, Default)]
pub(super) struct CallCounter {
    open: AtomicUsize,
    begun: AtomicUsize,
    sent: AtomicUsize,
}

impl CallCounter {
    /// The number of calls in flight.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The number of calls that have started so far.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// How often the client has taken a part of an answer so far.
    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn note_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs the calls of a connection.
#[derive(Debug, Clone)]
pub(super) struct CallExecutor {
    pub(super) calls: Arc<CallCounter>,
    pub(super) write_timeout: Option<Duration>,
    pub(super) drain: Drain,
}

impl<F> Executor<F> for CallExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        self.calls.open.fetch_add(1, Ordering::Relaxed);
        self.calls.begun.fetch_add(1, Ordering::Relaxed);
        let counted = CountedCall(self.calls.clone());
        let (write_timeout, drain) = (self.write_timeout, self.drain.clone());
        // A call is a large future, and a task moves its future several times: the task gets a pointer.
        let call = Box::pin(call);
        tokio::spawn(in_connection(async move {
            let _counted = counted;
            if unless_stalled(call, write_timeout, &drain).await.is_none() {
                log::debug!("a gRPC call was ended: its client takes nothing");
            }
        }));
    }
}

struct CountedCall(Arc<CallCounter>);

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

tokio::task_local! {
    /// The frames of the reply to the call that the current task serves. hyper makes the task of a call before there is a reply,
    /// and polls the reply in that task: so the task finds out what the reply does.
    static FRAMES: Cell<SentFrames>;
}

/// What the body of a reply has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SentFrames {
    /// The body gave out a frame, and hyper asked for no other frame.
    is_frame_waiting: bool,
    /// The number of frames that hyper asked for. The count wraps around.
    requested: u32,
}

/// hyper asks the body of a reply for its next frame: the previous frame has been sent.
pub(super) fn frame_requested() {
    change_frames(|frames| SentFrames {
        is_frame_waiting: false,
        requested: frames.requested.wrapping_add(1),
    });
}

/// The body of a reply gives out a frame. The frame needs space in the client's window.
pub(super) fn frame_given() {
    change_frames(|frames| SentFrames { is_frame_waiting: true, ..frames });
}

fn change_frames(change: impl FnOnce(SentFrames) -> SentFrames) {
    // A body that no call polls has no client that may stall.
    let _ = FRAMES.try_with(|frames| frames.set(change(frames.get())));
}

/// Returns the output of `call`, or `None` if a frame of its reply has waited for the client for `limit`, or for less if
/// the server stops.
async fn unless_stalled<F: Future>(
    mut call: Pin<Box<F>>,
    limit: Option<Duration>,
    drain: &Drain,
) -> Option<F::Output> {
    let mut wait: Option<ClientTimeout> = None;
    let call = std::future::poll_fn(move |context: &mut Context<'_>| {
        let before = FRAMES.with(Cell::get);
        if let Poll::Ready(output) = call.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        let frames = FRAMES.with(Cell::get);
        if !frames.is_frame_waiting {
            wait = None;
            return Poll::Pending;
        }
        if frames.requested != before.requested {
            wait = None;
        }
        let wait = wait.get_or_insert_with(|| ClientTimeout::new(limit, drain));
        wait.poll(context).map(|()| None)
    });
    FRAMES.scope(Cell::default(), call).await
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{Instant, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_waits_too_long_ends_its_call() {
        let stalled = poll_fn(|_| {
            if FRAMES.with(Cell::get) == SentFrames::default() {
                frame_requested();
                frame_given();
            }
            Poll::<()>::Pending
        });
        let begin = Instant::now();
        assert_eq!(unless_stalled(Box::pin(stalled), Some(LIMIT), &Drain::new()).await, None);
        assert!(begin.elapsed() >= LIMIT && begin.elapsed() < 2 * LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_goes_on_while_its_frames_leave() {
        let slow = async {
            for _ in 0..10 {
                frame_requested();
                frame_given();
                sleep(LIMIT * 9 / 10).await;
            }
            "done"
        };
        assert_eq!(unless_stalled(Box::pin(slow), Some(LIMIT), &Drain::new()).await, Some("done"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_may_wait_for_its_model_as_long_as_it_wants() {
        let waiting = async {
            frame_requested();
            frame_given();
            frame_requested();
            sleep(LIMIT * 100).await;
        };
        assert_eq!(unless_stalled(Box::pin(waiting), Some(LIMIT), &Drain::new()).await, Some(()));
    }
}
