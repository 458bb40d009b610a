//! Lets responses out in the order requests were dequeued, for models with `preserve_ordering`.
use std::{collections::VecDeque, sync::Arc};

use inference::{
    InFlightResponse, ResponseInterceptor,
    backend::Execution,
    config::{Scheduling, SequenceScheduling},
    sync::{Mutex, MutexGuard},
};
use scheduling::{Batch, ReorderBuffer, Row, Strategy, Ticket};

/// Who keeps order with whom in a model version.
pub(super) enum Orders {
    /// Nobody.
    None,
    /// All requests with each other (dynamic batcher).
    Together(Arc<Order>),
    /// The requests of each instance (oldest sequence batcher).
    PerInstance(Box<[Arc<Order>]>),
}

impl Orders {
    /// As the configuration asks.
    pub(super) fn of(scheduling: &Scheduling, instances: usize) -> Self {
        match scheduling {
            Scheduling::Dynamic(dynamic) if dynamic.preserve_ordering => Self::Together(Arc::default()),
            Scheduling::Sequence(SequenceScheduling { batching, .. }) => match &batching.strategy {
                Strategy::Oldest(oldest) if oldest.preserve_ordering => {
                    Self::PerInstance((0..instances).map(|_| Arc::default()).collect())
                }
                Strategy::Oldest(_) | Strategy::Direct(_) => Self::None,
            },
            Scheduling::Unbatched | Scheduling::Dynamic(_) => Self::None,
        }
    }

    /// The next place, for a request of a model whose answers may be there before their requests are dequeued.
    pub(super) fn next(&self) -> Option<OrderedInterceptor> {
        match self {
            Self::Together(order) => Some(order.next()),
            // Instances have orders of their own for sequences only, which no cache answers.
            Self::None | Self::PerInstance(_) => None,
        }
    }

    /// Gives the requests of a batch their places. Called in the order of dequeuing, under the driver's lock: this is the
    /// one place where a lock is taken under another, and it is a leaf.
    pub(super) fn line_up(&self, batch: &Batch<Execution>) {
        let order = match self {
            Self::None => return,
            Self::Together(order) => order,
            Self::PerInstance(orders) => &orders[batch.instance],
        };
        for row in &batch.rows {
            // A request that has got its place on arrival, or that runs once more, keeps it.
            if let Row::Request { entry, .. } = row
                && !entry.payload.responder.has_interceptor()
            {
                entry.payload.responder.intercept_with(Arc::new(order.next()));
            }
        }
    }
}

/// One queue of answers.
#[derive(Default)]
pub(super) struct Order {
    state: Mutex<OrderState>,
}

#[derive(Default)]
struct OrderState {
    buffer: ReorderBuffer<InFlightResponse>,
    /// May be opened, in this order.
    ready: VecDeque<InFlightResponse>,
    /// Somebody is opening `ready`; whoever adds to it may go on.
    opening: bool,
}

/// Where in the order the answers of one request leave.
pub(super) struct OrderedInterceptor {
    order: Arc<Order>,
    ticket: Ticket,
}

impl Order {
    pub(super) fn next(self: &Arc<Self>) -> OrderedInterceptor {
        OrderedInterceptor { order: self.clone(), ticket: self.state.lock().buffer.ticket() }
    }
}

impl ResponseInterceptor for OrderedInterceptor {
    fn intercept(&self, in_flight: InFlightResponse) {
        let mut state = self.order.state.lock();
        let last = in_flight.is_last();
        let OrderState { buffer, ready, .. } = &mut *state;
        buffer.push(self.ticket, in_flight, last, |in_flight| ready.push_back(in_flight));
        // One thread at a time opens, without the lock: parcels become visible in order, and no lock is taken
        // under another.
        if std::mem::replace(&mut state.opening, true) {
            return;
        }
        while let Some(in_flight) = state.ready.pop_front() {
            MutexGuard::unlocked(&mut state, || in_flight.deliver());
        }
        state.opening = false;
    }
}
