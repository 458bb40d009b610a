//! Makes responses visible in the order in which requests left their queue, for models with `preserve_ordering`.
//!
//! Responses stay in the channels of their requests. An order has only gates: a client sees no response while the gate
//! of its request is closed, and the gate opens when all earlier requests of the order have ended.
use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use scheduling::{ReorderBuffer, Ticket};

use crate::sync::{Mutex, MutexGuard};

/// One order of responses. Requests of the same order are answered one after the other.
#[derive(Default)]
pub struct ResponseOrder {
    state: Mutex<OrderedGates>,
}

#[derive(Default)]
struct OrderedGates {
    /// The gates of the requests that wait for their turn.
    gates: ReorderBuffer<Arc<ResponseGate>>,
    /// Gates that may be opened, in this order.
    ready: VecDeque<Arc<ResponseGate>>,
    /// A thread opens `ready`. Other threads only add to it.
    is_opening: bool,
}

impl ResponseOrder {
    /// The next turn. Its owner must [end](ResponseTurn::end) it: the turns behind it wait.
    pub(super) fn next_turn(self: &Arc<Self>) -> ResponseTurn {
        let mut state = self.state.lock();
        let OrderedGates { gates, ready, is_opening } = &mut *state;
        let ticket = gates.ticket();
        // While a thread opens gates, those of earlier turns may still be closed.
        let has_come = gates.open() == 1 && !*is_opening;
        let gate = (!has_come).then(|| {
            let gate = Arc::new(ResponseGate::default());
            gates.push(ticket, gate.clone(), false, |gate| ready.push_back(gate));
            gate
        });
        drop(state);
        ResponseTurn { order: self.clone(), ticket, gate }
    }

    /// Opens the gates of the turns that have come when this one is over.
    fn end(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        let OrderedGates { gates, ready, is_opening } = &mut *state;
        gates.close(ticket, |gate| ready.push_back(gate));
        // One thread at a time opens gates, without the lock. So responses become visible in order, and no lock is
        // taken under another.
        if std::mem::replace(is_opening, true) {
            return;
        }
        let panic = open_all(&mut state);
        drop(state);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Opens all ready gates, even if a client's waker panics. Returns the first panic.
fn open_all(state: &mut MutexGuard<'_, OrderedGates>) -> Option<Box<dyn Any + Send>> {
    let mut first_panic = None;
    while let Some(gate) = state.ready.pop_front() {
        let opened = MutexGuard::unlocked(state, || catch_unwind(AssertUnwindSafe(|| gate.open())));
        first_panic = first_panic.or(opened.err());
    }
    state.is_opening = false;
    first_panic
}

impl fmt::Debug for ResponseOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseOrder").finish_non_exhaustive()
    }
}

/// The position of a request in an order.
pub(super) struct ResponseTurn {
    order: Arc<ResponseOrder>,
    ticket: Ticket,
    /// `None`: the turn had come when it was given.
    gate: Option<Arc<ResponseGate>>,
}

impl ResponseTurn {
    /// Whether the client may see responses.
    pub(super) fn has_come(&self) -> bool {
        self.gate.as_ref().is_none_or(|gate| gate.state.lock().is_open)
    }

    /// Ready when the client may see responses. Wakes one task, when there is something to see.
    pub(super) fn poll_come(&self, context: &mut Context<'_>) -> Poll<()> {
        self.gate.as_ref().map_or(Poll::Ready(()), |gate| gate.poll(context))
    }

    /// The channel has a response. Returns the task that waits for the turn, if the turn has come.
    pub(super) fn responded(&self) -> Option<Waker> {
        self.gate.as_ref()?.responded()
    }

    /// Ends the turn. The last response is in the channel. Does nothing the second time.
    pub(super) fn end(&self) {
        self.order.end(self.ticket);
    }
}

/// Hides the responses of a request until it opens.
#[derive(Default)]
struct ResponseGate {
    state: Mutex<ResponseGateState>,
}

#[derive(Default)]
struct ResponseGateState {
    is_open: bool,
    /// The channel has got a response while the gate was closed.
    has_response: bool,
    waker: Option<Waker>,
}

impl ResponseGate {
    fn open(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.is_open = true;
            if state.has_response { state.waker.take() } else { None }
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.is_open {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            empty => *empty = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn responded(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        if !state.is_open {
            state.has_response = true;
            return None;
        }
        state.waker.take()
    }
}
