//! The state that the [`Responder`](super::Responder) and the [`ResponseStream`](super::ResponseStream) of one request
//! share.
use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, Waker},
};

use scheduling::EntryId;

use super::{
    flow::Flow,
    path::{Destination, InFlightResponse, OrderPlace, Overflow, ResponsePath},
    response_order::{ResponseOrder, ResponseTurn},
    unread::{Account, UnreadBudget},
};
use crate::{
    ByteReservation, Error, FailureReason, Response, ResponseItem, Timeline,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
};

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
    path: Arc<dyn ResponsePath>,
    place: OnceLock<OrderPlace>,
    /// The position in an order of responses, if the request keeps one.
    turn: OnceLock<ResponseTurn>,
    /// The entry id of the request in its queue.
    entry: OnceLock<EntryId>,
    budget: Arc<UnreadBudget>,
    account: Account,
}

#[derive(Default)]
struct Queue {
    /// The first unread response. Most requests have one response and need no deque.
    front: Option<UnreadResponse>,
    behind: VecDeque<UnreadResponse>,
    closed: bool,
    /// The client takes no more responses.
    abandoned: bool,
    waker: Option<Waker>,
    /// Threads in [`Channel::wait_for_capacity`].
    senders_waiting: usize,
    /// A task that waits for the same.
    sender: Option<Waker>,
    /// The bytes of the request in the budget of requests.
    reservation: Option<ByteReservation>,
}

/// A response that waits for the client, and the bytes that the budget counts for it.
struct UnreadResponse {
    item: ResponseItem,
    bytes: usize,
}

impl Channel {
    pub(super) fn new(timeline: Timeline, path: Arc<dyn ResponsePath>, flow: Flow) -> Arc<Self> {
        let Flow { budget, client, most_unread, reservation } = flow;
        Arc::new(Self {
            queue: Mutex::new(Queue { reservation, ..Queue::default() }),
            capacity_freed: Condvar::new(),
            most_unread: most_unread.map_or(usize::MAX, usize::from),
            cancelled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            responders: AtomicUsize::new(1),
            timeline,
            path,
            place: OnceLock::new(),
            turn: OnceLock::new(),
            entry: OnceLock::new(),
            budget,
            account: Account::new(client),
        })
    }

    pub(super) fn take_reservation(&self) -> Option<ByteReservation> {
        self.queue.lock().reservation.take()
    }

    pub(super) fn path(&self) -> &Arc<dyn ResponsePath> {
        &self.path
    }

    pub(super) fn set_place(&self, place: OrderPlace) {
        let set = self.place.set(place);
        debug_assert!(set.is_ok(), "a request has one place in an order");
    }

    /// Gives the request the next turn in an order, unless it has one.
    pub(super) fn line_up(&self, order: &Arc<ResponseOrder>) {
        self.turn.get_or_init(|| order.next_turn());
    }

    pub(super) fn entry(&self) -> Option<EntryId> {
        self.entry.get().copied()
    }

    /// Sets the entry id of the request in its queue. Returns true if the request was cancelled before.
    pub(super) fn queued_as(&self, entry: EntryId) -> bool {
        let set = self.entry.set(entry);
        debug_assert!(set.is_ok(), "a request keeps its number");
        // Pairs with the fence in `tell_cancelled`: either that function sees the entry id, or this one sees the
        // cancellation.
        fence(Ordering::SeqCst);
        self.is_cancelled()
    }

    fn tell_cancelled(&self) {
        fence(Ordering::SeqCst);
        self.path.cancelled(self.entry());
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
        let response = InFlightResponse::new(self.clone(), item, Overflow::No);
        let handle = || Arc::downgrade(self) as Weak<dyn Destination>;
        let furthest_behind = self.budget.charge(&self.account, response.byte_size(), handle);
        self.pass(response);
        if let Some(behind) = furthest_behind {
            behind.overflow();
        }
    }

    /// Shows a response to the path. The one with which the request ends also ends its turn in the order of responses.
    fn pass(&self, response: InFlightResponse) {
        match self.turn.get().filter(|_| response.outcome().is_some()) {
            Some(turn) => turn.end_after(|| self.path.respond(response)),
            None => self.path.respond(response),
        }
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<ResponseItem>> {
        if self.turn.get().is_some_and(|turn| turn.poll_come(context).is_pending()) {
            return Poll::Pending;
        }
        let mut queue = self.queue.lock();
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

    /// Whether a sender may have to wait for the client. While the turn of the request has not come, the client cannot read:
    /// a sender that waited for it would hold up the requests whose turns come before.
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
        let (sender, void): (_, Vec<_>) = {
            let mut queue = self.queue.lock();
            // The signal is sent under the lock, so that a sender that has just found no capacity does not miss it.
            // The signal is also sent after the end of the request, because a late sender may still wait.
            if queue.senders_waiting > 0 {
                self.capacity_freed.notify_all();
            }
            queue.abandoned |= abandoned;
            let void = if abandoned { std::iter::from_fn(|| queue.pop()).collect() } else { Vec::new() };
            (queue.sender.take(), void)
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
}

impl Destination for Channel {
    fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    fn place(&self) -> Option<OrderPlace> {
        self.place.get().copied()
    }

    fn push(&self, item: Option<ResponseItem>, bytes: usize, replaces: bool) {
        let mut void = Vec::new();
        let waker = {
            let mut queue = self.queue.lock();
            if replaces && !queue.is_empty() {
                void.extend(std::iter::from_fn(|| queue.pop()));
                queue.closed = false;
            }
            let unread = item.map(|item| UnreadResponse { item, bytes });
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

    fn refund(&self, bytes: usize) {
        if bytes > 0 {
            self.budget.refund(&self.account, bytes);
        }
    }

    fn overflow(self: Arc<Self>) {
        let had_ended = self.ended.swap(true, Ordering::AcqRel);
        let error = Error::exhausted(
            "the client reads its responses too slowly: the server keeps no more unread responses \
             (--max-unread-response-bytes)",
        );
        let item = ResponseItem { result: Err(error.because(FailureReason::Rejected)), last: true };
        let overflow = if had_ended { Overflow::Replaces } else { Overflow::Ends };
        let response = InFlightResponse::new(self.clone(), Some(item), overflow);
        self.budget.charge_error(&self.account, response.byte_size());
        self.pass(response);
        self.stop(had_ended);
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.front.is_none()
    }

    fn len(&self) -> usize {
        usize::from(self.front.is_some()) + self.behind.len()
    }

    fn push(&mut self, unread: UnreadResponse) {
        if self.front.is_none() {
            self.front = Some(unread);
        } else {
            self.behind.push_back(unread);
        }
    }

    fn pop(&mut self) -> Option<UnreadResponse> {
        let next = self.front.take()?;
        self.front = self.behind.pop_front();
        Some(next)
    }
}
