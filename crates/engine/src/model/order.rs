//! Lets responses out in the order requests were dequeued, for models with `preserve_ordering`.
use std::collections::VecDeque;

use inference::{Outlet, Parcel};
use parking_lot::Mutex;
use scheduling::{ReorderBuffer, Ticket};

/// One per model version that preserves ordering.
#[derive(Default)]
pub(super) struct Order {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    buffer: ReorderBuffer<Parcel>,
    /// May be opened, in this order.
    ready: VecDeque<Parcel>,
    /// Somebody is opening `ready`; whoever adds to it may go on.
    opening: bool,
}

impl Order {
    /// The next place in the order.
    pub(super) fn ticket(&self) -> Ticket {
        self.state.lock().buffer.ticket()
    }
}

impl Outlet for Order {
    fn pass(&self, ticket: Ticket, parcel: Parcel) {
        let mut state = self.state.lock();
        let last = parcel.is_last();
        let State { buffer, ready, .. } = &mut *state;
        buffer.push(ticket, parcel, last, |parcel| ready.push_back(parcel));
        // One thread at a time opens, without the lock: parcels become visible in order, and no lock is taken
        // under another.
        if std::mem::replace(&mut state.opening, true) {
            return;
        }
        while let Some(parcel) = state.ready.pop_front() {
            parking_lot::MutexGuard::unlocked(&mut state, || parcel.open());
        }
        state.opening = false;
    }
}
