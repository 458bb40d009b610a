//! Which requests of a model version are answered in the order in which they were dequeued (`preserve_ordering`).
use std::sync::Arc;

use config::{Scheduling, SequenceScheduling};
use inference::{ResponseOrder, backend::Execution};
use scheduling::{InstanceId, Row, ScheduledBatch, SequenceStrategy};

use crate::instance_table::InstanceTable;

/// The orders of responses that the requests of a model version keep.
pub(super) enum ResponseOrders {
    /// None.
    None,
    /// One for all requests (dynamic batcher).
    Together(Arc<ResponseOrder>),
    /// One for the requests of each instance (oldest sequence batcher). Instances may be added.
    PerInstance(InstanceTable<ResponseOrder>),
}

impl ResponseOrders {
    /// The orders for a configuration.
    pub(super) fn of(scheduling: &Scheduling, instances: usize) -> Self {
        match scheduling {
            Scheduling::Dynamic(dynamic) if dynamic.preserve_ordering => Self::Together(Arc::default()),
            Scheduling::Sequence(SequenceScheduling { batching, .. }) => match &batching.strategy {
                SequenceStrategy::Oldest(oldest) if oldest.preserve_ordering => {
                    Self::PerInstance(InstanceTable::new(instances))
                }
                SequenceStrategy::Oldest(_) | SequenceStrategy::Direct(_) => Self::None,
            },
            Scheduling::Unbatched | Scheduling::Dynamic(_) | Scheduling::Ensemble(_) => Self::None,
        }
    }

    /// An instance has been added. If another one had its number, late responses of that one keep their turns.
    pub(super) fn add_instance(&self, instance: InstanceId) {
        if let Self::PerInstance(orders) = self {
            orders.grow(instance);
        }
    }

    /// The order of requests that may be answered before they are dequeued.
    pub(super) fn on_arrival(&self) -> Option<&Arc<ResponseOrder>> {
        match self {
            Self::Together(order) => Some(order),
            // Only sequence models have one order for each instance, and they never use the cache.
            Self::None | Self::PerInstance(_) => None,
        }
    }

    /// Gives the requests of a batch their turns. The caller holds the driver's lock and calls in the order of
    /// dequeuing. This function takes a leaf under that lock (`LockRank::Driver`).
    pub(super) fn line_up(&self, batch: &ScheduledBatch<Box<Execution>>) {
        match self {
            Self::None => {}
            Self::Together(order) => line_up(order, batch),
            Self::PerInstance(orders) => line_up(&orders.get(batch.instance), batch),
        }
    }
}

fn line_up(order: &Arc<ResponseOrder>, batch: &ScheduledBatch<Box<Execution>>) {
    for row in &batch.rows {
        // A request keeps the turn that it got on arrival or before it was rescheduled.
        if let Row::Request { entry, .. } = row {
            entry.payload.responder.line_up(order);
        }
    }
}
