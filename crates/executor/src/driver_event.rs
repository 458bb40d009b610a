//! What can happen to the driver of a model version.
use std::sync::Arc;

use config::InstanceGroup;
use inference::{EntryId, Timestamp, backend::Execution};
use scheduling::{Claimant, Entry, InstanceId, SchedulingAttributes};

use super::instance::MovableInstance;

/// All that can happen to a driver.
pub(super) enum DriverEvent {
    /// A request has come.
    Enqueue { attributes: SchedulingAttributes, execution: Box<Execution> },
    /// The client of a waiting request has cancelled it.
    Cancelled(EntryId),
    /// A backend gives the request of a slot back, to be run again.
    Reschedule { instance: InstanceId, slot: u32, entry: Entry<Box<Execution>> },
    /// A backend has released the request of a slot.
    Released { instance: InstanceId, slot: u32 },
    /// An instance has finished a batch.
    Finished {
        end: Timestamp,
        instance: InstanceId,
        /// The instance itself, unless only its own thread may run it.
        movable: Option<MovableInstance>,
        /// `None` if all requests of the batch were cancelled.
        executed: Option<ExecutionSample>,
    },
    /// An instance has panicked during a batch: the version executes nothing any more.
    Lost(InstanceId),
    /// The limiter has granted the claim of an instance on shared resources.
    Granted(InstanceId),
    /// The scheduled wake-up call has come.
    Woken,
    /// The configuration has other instances.
    InstancesChanged(InstanceChange),
    /// From now on, no request waits for others to share its batch.
    EndQueueDelay,
    /// No new request is accepted from now on.
    Drain,
}

/// An execution.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutionSample {
    /// How long it has taken.
    pub(super) nanos: u64,
    /// The number of its requests.
    pub(super) requests: usize,
}

/// New instances, and how many others are too many.
pub(super) struct InstanceChange {
    /// Their numbers are free.
    pub(super) added: Vec<AddedInstance>,
    /// The instances of which some leave, and their groups.
    pub(super) staying: Vec<(InstanceId, Arc<InstanceGroup>)>,
    /// Groups of the instances that are too many; one entry for each.
    pub(super) surplus: Vec<Arc<InstanceGroup>>,
}

/// A new instance that the driver does not know yet.
pub(super) struct AddedInstance {
    pub(super) id: InstanceId,
    pub(super) movable: Option<MovableInstance>,
    pub(super) claimant: Option<Claimant>,
}
