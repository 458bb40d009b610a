//! The state that the [`Responder`](super::Responder) and the [`ResponseStream`](super::ResponseStream) of one request
//! share, and the budget of what the clients of all requests have not read.
use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, Waker},
};

use scheduling::EntryId;
use vocabulary::{ByteReservation, Error, FailureReason};

use super::{
    observer::{PassingResponse, ResponseObserver},
    queue::{Queue, UnreadResponse},
    response_order::{ResponseOrder, ResponseTurn},
    unread::{UnreadAccount, UnreadBytes},
};
use crate::{
    ClientId, Response, ResponseItem, Timeline,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
};

/// The limit on bytes of responses that wait for their clients, in the whole process.
///
/// Models do not wait for clients: an unread response waits in memory. When a response exceeds the budget, one request
/// ends with RESOURCE_EXHAUSTED: the largest request of the client with the most unread bytes.
#[derive(Debug)]
pub struct UnreadBudget(UnreadBytes<Weak<Channel>>);

impl UnreadBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self(UnreadBytes::new(limit)))
    }

    /// A budget without a limit, for tests and tools.
    pub fn unlimited() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    /// Bytes of unread responses now.
    pub fn used(&self) -> usize {
        self.0.used()
    }
}

/// How responses are treated that the client has not read yet.
#[derive(Debug)]
pub struct UnreadPolicy {
    /// The budget that counts them.
    pub budget: Arc<UnreadBudget>,
    /// The client that reads them. Requests of one client are counted together. Without an id the request is a client
    /// of its own.
    pub client: Option<ClientId>,
    /// The backend waits in [`Responder::send`](super::Responder::send) while this many responses are unread. All other
    /// requests of its instance then wait too. `None`: the backend never waits.
    pub most_unread: Option<NonZeroUsize>,
    /// The bytes of the request in the budget of requests. They are released when the request was answered and its stream
    /// is gone, or when all responders are gone, too, unless the reader of the responses takes them:
    /// [`ResponseStream::take_reservation`](super::ResponseStream::take_reservation).
    pub reservation: Option<ByteReservation>,
}

impl UnreadPolicy {
    /// Unread responses have no limit. For tests and tools.
    pub fn unlimited() -> Self {
        Self { budget: UnreadBudget::unlimited(), client: None, most_unread: None, reservation: None }
    }
}

/// See the module documentation.
pub(super) struct Channel {
    queue: Mutex<Queue>,
    /// Signalled when the client has taken a response, or does not wait any more.
    capacity_freed: Condvar,
    /// [`Responder::send`](super::Responder::send) waits while this many responses are unread.
    most_unread: usize,
    cancelled: AtomicBool,
    ended: AtomicBool,
    pub(super) responders: AtomicUsize,
    timeline: Timeline,
    observer: Arc<dyn ResponseObserver>,
    /// The position in an order of responses, if the request keeps one.
    turn: OnceLock<ResponseTurn>,
    /// The entry id of the request in its queue.
    entry: OnceLock<EntryId>,
    budget: Arc<UnreadBudget>,
    account: UnreadAccount,
}

impl Channel {
    pub(super) fn new(
        timeline: Timeline,
        observer: Arc<dyn ResponseObserver>,
        flow: UnreadPolicy,
    ) -> Arc<Self> {
        let UnreadPolicy { budget, client, most_unread, reservation } = flow;
        Arc::new(Self {
            queue: Mutex::new(Queue::new(reservation)),
            capacity_freed: Condvar::new(),
            most_unread: most_unread.map_or(usize::MAX, usize::from),
            cancelled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            responders: AtomicUsize::new(1),
            timeline,
            observer,
            turn: OnceLock::new(),
            entry: OnceLock::new(),
            budget,
            account: UnreadAccount::new(client),
        })
    }

    pub(super) fn take_reservation(&self) -> Option<ByteReservation> {
        self.queue.lock().reservation.take()
    }

    pub(super) fn observer(&self) -> &Arc<dyn ResponseObserver> {
        &self.observer
    }

    pub(super) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Gives the request the next turn in an order, unless it has one.
    pub(super) fn line_up(&self, order: &Arc<ResponseOrder>) {
        self.turn.get_or_init(|| order.next_turn());
    }

    pub(super) fn entry(&self) -> Option<EntryId> {
        self.entry.get().copied()
    }

    /// Sets the entry id of the request in its queue. Returns true if the request was cancelled before.
    pub(super) fn set_entry(&self, entry: EntryId) -> bool {
        let set = self.entry.set(entry);
        debug_assert!(set.is_ok(), "a request keeps its number");
        // Pairs with the fence in `tell_cancelled`: either that function sees the entry id, or this one sees the
        // cancellation.
        fence(Ordering::SeqCst);
        self.is_cancelled()
    }

    fn tell_cancelled(&self) {
        fence(Ordering::SeqCst);
        self.observer.cancelled(self.entry());
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Sends a response that is not the last. Waits for the client if the request demands that.
    pub(super) fn send(self: &Arc<Self>, result: Result<Response, Error>) {
        if !self.has_ended() {
            self.wait_for_capacity();
            self.deliver(Some(ResponseItem { result, last: false }));
        }
    }

    /// Ends the request, unless it has ended already.
    pub(super) fn end(self: &Arc<Self>, last: Option<Result<Response, Error>>) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.deliver(last.map(|result| ResponseItem { result, last: true }));
        }
    }

    fn deliver(self: &Arc<Self>, item: Option<ResponseItem>) {
        let ends = item.as_ref().is_none_or(|item| item.last);
        self.observer.responding(&PassingResponse::new(item.as_ref(), ends, &self.timeline));
        let bytes = item.as_ref().map_or(0, ResponseItem::byte_size);
        let furthest_behind = self.budget.0.charge(&self.account, bytes, || Arc::downgrade(self));
        self.add(item.map(|item| UnreadResponse { item, bytes }), ends, false);
        // If that request has been dropped meanwhile, it has returned its bytes.
        if let Some(behind) = furthest_behind.and_then(|behind| behind.upgrade()) {
            behind.overflow();
        }
    }

    /// Ends the request because its client has too many unread bytes. A request that has ended before only loses the
    /// responses that the client has not read.
    fn overflow(&self) {
        let ends = !self.ended.swap(true, Ordering::AcqRel);
        let error = Error::exhausted(
            "the client reads its responses too slowly: the server keeps no more unread responses \
             (--max-unread-response-bytes)",
        );
        let item = ResponseItem { result: Err(error.because(FailureReason::Rejected)), last: true };
        self.observer.responding(&PassingResponse::new(Some(&item), ends, &self.timeline));
        let bytes = item.byte_size();
        self.budget.0.charge_error(&self.account, bytes);
        self.add(Some(UnreadResponse { item, bytes }), ends, true);
        self.stop(!ends);
    }

    /// Adds a response to the queue. With the response that ends the request its turn in the order of responses ends,
    /// too, even if the waker of the client panics.
    fn add(&self, unread: Option<UnreadResponse>, ends: bool, replaces: bool) {
        if !ends {
            return self.push(unread, replaces);
        }
        let pushed = catch_unwind(AssertUnwindSafe(|| self.push(unread, replaces)));
        // The end of a turn wakes the clients of other requests.
        let turned =
            catch_unwind(AssertUnwindSafe(|| self.turn.get().into_iter().for_each(ResponseTurn::end)));
        self.observer.ended();
        if let Err(panic) = pushed.and(turned) {
            resume_unwind(panic);
        }
    }

    /// Makes a response visible as soon as the turn of the request comes. `None` closes the queue without another
    /// response. A response that `replaces` the unread responses does so even after the last one.
    fn push(&self, unread: Option<UnreadResponse>, replaces: bool) {
        let mut void = Vec::new();
        let waker = {
            let mut queue = self.queue.lock();
            if replaces && !queue.is_empty() {
                void.extend(std::iter::from_fn(|| queue.pop()));
                queue.closed = false;
            }
            // Another thread has already ended the request.
            if queue.closed {
                void.extend(unread);
                None
            } else {
                queue.closed = unread.as_ref().is_none_or(|unread| unread.item.last);
                if queue.closed && queue.senders_waiting > 0 {
                    self.capacity_freed.notify_all();
                }
                match unread {
                    Some(unread) if queue.abandoned => void.push(unread),
                    Some(unread) => queue.push(unread),
                    None => {}
                }
                queue.waker.take()
            }
        };
        self.forget(void);
        let waits_for_turn = self.turn.get().and_then(ResponseTurn::responded);
        waker.into_iter().chain(waits_for_turn).for_each(Waker::wake);
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<ResponseItem>> {
        let turn = self.turn.get();
        if turn.is_some_and(|turn| turn.poll_come(context).is_pending()) {
            return Poll::Pending;
        }
        let mut queue = self.queue.lock();
        if turn.is_none() && self.turn.get().is_some() {
            // The request has got its turn meanwhile. What is in the queue may have come after that.
            drop(queue);
            return self.poll(context);
        }
        if let Some(UnreadResponse { item, bytes }) = queue.pop() {
            if queue.senders_waiting > 0 {
                self.capacity_freed.notify_one();
            }
            let sender = queue.sender.take();
            drop(queue);
            sender.into_iter().for_each(Waker::wake);
            self.refund(bytes);
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

    /// Whether a sender may have to wait for the client. While the turn of the request has not come, the client cannot
    /// read: a sender that waited for it would hold up the requests whose turns come before.
    fn is_limited(&self) -> bool {
        self.most_unread != usize::MAX && self.turn.get().is_none_or(ResponseTurn::has_come)
    }

    pub(super) fn has_capacity(&self) -> bool {
        !self.is_limited() || self.may_send(&self.queue.lock())
    }

    pub(super) fn poll_capacity(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_limited() {
            return Poll::Ready(());
        }
        let mut queue = self.queue.lock();
        if self.may_send(&queue) {
            return Poll::Ready(());
        }
        queue.sender = Some(context.waker().clone());
        Poll::Pending
    }

    fn may_send(&self, queue: &Queue) -> bool {
        queue.len() < self.most_unread || queue.closed || self.is_cancelled()
    }

    fn wait_for_capacity(&self) {
        if !self.is_limited() {
            return;
        }
        let mut queue = self.queue.lock();
        while !self.may_send(&queue) {
            queue.senders_waiting += 1;
            self.capacity_freed.wait(&mut queue);
            queue.senders_waiting -= 1;
        }
    }

    /// The number of threads that wait for the client.
    #[cfg(test)]
    pub(super) fn senders_waiting(&self) -> usize {
        self.queue.lock().senders_waiting
    }

    /// Records that the client does not wait any more. If the client has `abandoned` the request, the channel drops
    /// all unread and later responses.
    pub(super) fn cancel(&self, abandoned: bool) {
        let first = !self.cancelled.swap(true, Ordering::AcqRel);
        if !first && !abandoned {
            return;
        }
        let (sender, void, _reservation): (_, Vec<_>, _) = {
            let mut queue = self.queue.lock();
            // The signal is sent under the lock, so that a sender that has just found no capacity does not miss it.
            // The signal is also sent after the end of the request, because a late sender may still wait.
            if queue.senders_waiting > 0 {
                self.capacity_freed.notify_all();
            }
            queue.abandoned |= abandoned;
            let void = if abandoned { std::iter::from_fn(|| queue.pop()).collect() } else { Vec::new() };
            // The thread that has answered the request may still have a responder. The client concludes from the answer that
            // the bytes are free. A request that was cancelled may still run.
            let is_over = first && abandoned && queue.closed;
            (queue.sender.take(), void, is_over.then(|| queue.reservation.take()))
        };
        sender.into_iter().for_each(Waker::wake);
        self.forget(void);
        if first && !self.has_ended() {
            self.tell_cancelled();
        }
    }

    /// Tells the backend to stop working on the request. This thread has decided the end of the request.
    fn stop(&self, had_ended: bool) {
        let first = !self.cancelled.swap(true, Ordering::AcqRel);
        let sender = {
            let mut queue = self.queue.lock();
            if queue.senders_waiting > 0 {
                self.capacity_freed.notify_all();
            }
            queue.sender.take()
        };
        sender.into_iter().for_each(Waker::wake);
        if first && !had_ended {
            self.tell_cancelled();
        }
    }

    /// Drops responses without the lock, because freeing tensors may take time.
    fn forget(&self, responses: Vec<UnreadResponse>) {
        let bytes = responses.iter().map(|unread| unread.bytes).sum();
        drop(responses);
        self.refund(bytes);
    }

    fn refund(&self, bytes: usize) {
        if bytes > 0 {
            self.budget.0.refund(&self.account, bytes);
        }
    }
}
