//! Releases responses in the order in which requests were dequeued, for models with `preserve_ordering`.
use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use inference::{
    InFlightResponse, OrderPlace,
    backend::Execution,
    config::{Scheduling, SequenceScheduling},
    sync::{Mutex, MutexGuard},
};
use scheduling::{InstanceId, ReorderBuffer, Row, ScheduledBatch, Strategy};

use crate::instance_table::InstanceTable;

/// Which requests of a model version keep order with each other.
pub(crate) enum Orders {
    /// No requests.
    None,
    /// All requests (dynamic batcher).
    Together(Order),
    /// The requests of each instance (oldest sequence batcher). Instances may be added.
    PerInstance(InstanceTable<Order>),
}

impl Orders {
    /// The orders for a configuration.
    pub(crate) fn of(scheduling: &Scheduling, instances: usize) -> Self {
        match scheduling {
            Scheduling::Dynamic(dynamic) if dynamic.preserve_ordering => Self::Together(Order::default()),
            Scheduling::Sequence(SequenceScheduling { batching, .. }) => match &batching.strategy {
                Strategy::Oldest(oldest) if oldest.preserve_ordering => {
                    Self::PerInstance(InstanceTable::new(instances))
                }
                Strategy::Oldest(_) | Strategy::Direct(_) => Self::None,
            },
            Scheduling::Unbatched | Scheduling::Dynamic(_) | Scheduling::Ensemble(_) => Self::None,
        }
    }

    /// An instance has been added. If another one had its number, late responses of that one keep their places.
    pub(crate) fn add_instance(&self, instance: InstanceId) {
        if let Self::PerInstance(orders) = self {
            orders.grow(instance);
        }
    }

    /// The next place, for a request that may be answered before it is dequeued.
    pub(crate) fn place_on_arrival(&self) -> Option<OrderPlace> {
        match self {
            Self::Together(order) => Some(order.next_place(0)),
            // Only sequence models have one order for each instance, and they never use the cache.
            Self::None | Self::PerInstance(_) => None,
        }
    }

    /// Gives the requests of a batch their places. The caller holds the driver's lock and calls in the order of
    /// dequeuing. This function takes a leaf under that lock (`LockRank::Driver`).
    pub(crate) fn line_up(&self, batch: &ScheduledBatch<Box<Execution>>) {
        match self {
            Self::None => {}
            Self::Together(order) => Self::give_places(order, 0, batch),
            Self::PerInstance(orders) => {
                orders.with(batch.instance, |order| Self::give_places(order, batch.instance, batch));
            }
        }
    }

    fn give_places(order: &Order, index: usize, batch: &ScheduledBatch<Box<Execution>>) {
        for row in &batch.rows {
            // A request keeps the place that it got on arrival or before it was rescheduled.
            if let Row::Request { entry, .. } = row
                && entry.payload.responder.place().is_none()
            {
                entry.payload.responder.set_place(order.next_place(index));
            }
        }
    }

    /// Releases the response when all earlier ones have been released. Releases it at once if its request keeps no
    /// order.
    pub(crate) fn release(&self, response: InFlightResponse) {
        match (self, response.place()) {
            (Self::None, _) | (_, None) => response.release(),
            (Self::Together(order), Some(_)) => order.release(response),
            (Self::PerInstance(orders), Some(place)) => orders.get(place.order).release(response),
        }
    }
}

/// One order of responses.
#[derive(Default)]
pub(crate) struct Order {
    state: Mutex<OrderState>,
}

#[derive(Default)]
struct OrderState {
    buffer: ReorderBuffer<InFlightResponse>,
    /// Responses that may be released, in this order.
    ready: VecDeque<InFlightResponse>,
    /// A thread releases `ready`. Other threads only add to it.
    releasing: bool,
}

impl Order {
    pub(crate) fn next_place(&self, order: usize) -> OrderPlace {
        OrderPlace { order, ticket: self.state.lock().buffer.ticket() }
    }

    pub(crate) fn release(&self, response: InFlightResponse) {
        let Some(OrderPlace { ticket, .. }) = response.place() else { return response.release() };
        let mut state = self.state.lock();
        let last = response.is_last();
        let OrderState { buffer, ready, .. } = &mut *state;
        let void = if response.voids_earlier() { buffer.discard(ticket) } else { Vec::new() };
        buffer.push(ticket, response, last, |response| ready.push_back(response));
        // One thread at a time releases, without the lock. So responses become visible in order, and no lock is taken
        // under another.
        if std::mem::replace(&mut state.releasing, true) {
            drop(state);
            return drop(void);
        }
        let panic = release_all(&mut state);
        drop(state);
        drop(void);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Releases all ready responses, even if a client's waker panics. Returns the first panic.
fn release_all(state: &mut MutexGuard<'_, OrderState>) -> Option<Box<dyn Any + Send>> {
    let mut first_panic = None;
    while let Some(response) = state.ready.pop_front() {
        let released = MutexGuard::unlocked(state, || catch_unwind(AssertUnwindSafe(|| response.release())));
        first_panic = first_panic.or(released.err());
    }
    state.releasing = false;
    first_panic
}

#[cfg(test)]
mod tests;
