//! Counts the requests of a model version that have not ended, and waits for the last of them.
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use executor::notified_until;
use inference::lock::{Condvar, Mutex};
use tokio::sync::Notify;

/// Counts requests from acceptance to their last response (S-W41).
#[derive(Default)]
pub(crate) struct OpenRequests {
    count: AtomicUsize,
    /// Requests that the model is about to accept or to refuse.
    entering: AtomicUsize,
    draining: AtomicBool,
    /// Somebody may wait for the last request. In one total order with `count`: so either the thread that ends the last
    /// request sees this, or the one that waits sees no request.
    is_watched: AtomicBool,
    /// No request may enter: the model has been replaced or unloaded.
    closed: AtomicBool,
    lock: Mutex<()>,
    /// Signalled when a request of a watched model has ended, for threads and for tasks.
    ended: Condvar,
    ended_for_tasks: Notify,
}

impl OpenRequests {
    pub(crate) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Counts a request that the model has accepted.
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, SeqCst);
    }

    /// Counts the end of a request.
    pub(crate) fn end(&self) {
        let before = self.count.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "a request ends once");
        self.notify();
    }

    fn notify(&self) {
        if self.is_watched.load(SeqCst) {
            drop(self.lock.lock());
            self.ended.notify_all();
            self.ended_for_tasks.notify_waiters();
        }
    }

    /// A request comes in, unless none may any more. The model accepts or refuses it before the result is dropped.
    pub(crate) fn enter(&self) -> Option<Entering<'_>> {
        // Counted first: whoever closes the model waits for the count after it has closed.
        self.entering.fetch_add(1, SeqCst);
        let entering = Entering(self);
        let is_closed = self.closed.load(SeqCst);
        (!is_closed).then_some(entering)
    }

    /// From now on no request may enter.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
    }

    /// Whether no request may enter any more and all have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.closed.load(SeqCst) && self.is_empty()
    }

    /// Keeps the model from ending, as a request in flight does. `None` if the model has been replaced or unloaded.
    pub(crate) fn pin(self: &Arc<Self>) -> Option<ModelPin> {
        let _entering = self.enter()?;
        self.begin();
        Some(ModelPin(self.clone()))
    }

    /// Whether the model accepts no new requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(SeqCst)
    }

    /// Marks that the model accepts no new requests.
    pub(crate) fn drain(&self) {
        self.draining.store(true, SeqCst);
        self.is_watched.store(true, SeqCst);
    }

    /// Drains, and waits until every accepted request has ended. Blocks.
    pub(crate) fn wait_for_the_last(&self) {
        self.drain();
        let mut lock = self.lock.lock();
        self.ended.wait_while(&mut lock, |()| !self.is_empty());
    }

    /// Drains, and returns when every accepted request has ended.
    pub(crate) async fn last_ended(&self) {
        self.drain();
        self.empty().await;
    }

    /// Returns at a moment at which no request is in flight. Requests are accepted meanwhile.
    pub(crate) async fn idle(&self) {
        self.is_watched.store(true, SeqCst);
        self.empty().await;
    }

    async fn empty(&self) {
        notified_until(&self.ended_for_tasks, || self.is_empty()).await;
    }

    /// Whether no request has been accepted and not ended, or is about to be accepted.
    fn is_empty(&self) -> bool {
        // In this order: who has entered counts in `entering` until `count` has the request.
        self.entering.load(SeqCst) == 0 && self.count() == 0
    }
}

/// A request that the model is about to accept or to refuse.
pub(crate) struct Entering<'a>(&'a OpenRequests);

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.0.entering.fetch_sub(1, SeqCst);
        self.0.notify();
    }
}

/// Keeps a model version from ending: a request that was accepted will need it.
pub(crate) struct ModelPin(Arc<OpenRequests>);

impl Drop for ModelPin {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
        thread,
    };

    use super::*;

    #[test]
    fn the_wait_ends_with_the_last_request() {
        let in_flight = Arc::new(OpenRequests::default());
        in_flight.begin();
        in_flight.begin();
        let waiting = thread::spawn({
            let in_flight = in_flight.clone();
            move || in_flight.wait_for_the_last()
        });
        in_flight.end();
        assert!(!waiting.is_finished());
        in_flight.end();
        waiting.join().unwrap();
        in_flight.wait_for_the_last();
    }

    #[tokio::test]
    async fn a_task_hears_of_the_end_of_the_last_request() {
        let in_flight = Arc::new(OpenRequests::default());
        in_flight.begin();
        in_flight.begin();
        let mut ended = pin!(in_flight.last_ended());
        let mut context = Context::from_waker(Waker::noop());
        assert!(ended.as_mut().poll(&mut context).is_pending());
        in_flight.end();
        assert!(ended.as_mut().poll(&mut context).is_pending());
        in_flight.end();
        ended.await;
    }

    #[test]
    fn the_wait_ends_when_nobody_may_enter_any_more() {
        let in_flight = Arc::new(OpenRequests::default());
        let entering = in_flight.enter().unwrap();
        in_flight.close();
        assert!(in_flight.enter().is_none() && !in_flight.have_ended());
        let waiting = thread::spawn({
            let in_flight = in_flight.clone();
            move || in_flight.wait_for_the_last()
        });
        in_flight.begin();
        drop(entering);
        assert!(!waiting.is_finished());
        in_flight.end();
        waiting.join().unwrap();
        assert!(in_flight.have_ended());
    }
}
