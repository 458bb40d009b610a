//! The scheduler of a model version: one of three policies, with the same methods.
use std::time::Duration;

use crate::{
    batch::{DueBatch, InstanceId, ScheduledBatch},
    dynamic::DynamicBatcher,
    rejection::{Rejected, Rejection},
    request::{Entry, EntryId, SchedulingAttributes},
    sequence::{SequenceBatcher, SlotState, VacatedSlot},
    sequence_position::SequenceId,
    time::Timestamp,
    unbatched::Unbatched,
};

/// A scheduling policy with the requests that wait.
///
/// Every policy keeps these promises, and the random histories of this crate test them. Every accepted payload leaves
/// exactly once, by [`take`](Self::take), [`grow`](Self::grow), [`expire`](Self::expire), [`cancel`](Self::cancel),
/// [`reject_all`](Self::reject_all) or [`lose_instance`](Self::lose_instance). Only [`reschedule`](Self::reschedule)
/// accepts a payload again. `take` after `due` is never empty. `next_wakeup(now)` is later than `now`, and before
/// that time nothing changes by time alone.
///
/// `now` should not decrease from call to call. It can decrease if the caller reads the clock before it takes a lock.
/// Then requests count as arrived no earlier than the request before them.
///
/// Costs: a call looks at the requests that it returns or accepts, at one more batch, and at a number of waiting
/// requests that grows with the logarithm of the queue length. Only [`reject_all`](Self::reject_all) looks at all
/// requests.
pub enum Scheduler<T> {
    /// One request at a time.
    Unbatched(Unbatched<T>),
    /// Batches of independent requests.
    Dynamic(DynamicBatcher<T>),
    /// Requests of a sequence run in order, one at a time, on one instance.
    Sequence(SequenceBatcher<T>),
}

impl<T> Scheduler<T> {
    /// Accepts a request, and returns its id.
    ///
    /// # Errors
    /// Returns the request with [`Rejection::Draining`] after [`drain`](Self::drain), and with
    /// [`Rejection::QueueFull`] if its queue policy demands it. Where requests belong to sequences, returns it with
    /// the rule of sequences that the request breaks.
    pub fn enqueue(
        &mut self,
        now: Timestamp,
        attributes: SchedulingAttributes,
        payload: T,
    ) -> Result<EntryId, Rejected<T>> {
        match self {
            Self::Unbatched(unbatched) => unbatched.enqueue(now, attributes, payload),
            Self::Dynamic(dynamic) => dynamic.enqueue(now, attributes, payload),
            Self::Sequence(sequence) => sequence.enqueue(now, attributes, payload),
        }
    }

    /// Returns the requests that may not wait any longer. The cost is negligible when no deadline has passed.
    ///
    /// The sequence batcher also closes sequences that were idle in a slot for too long. It does not close a sequence
    /// in the backlog for idleness, because that sequence has no slot to run in.
    pub fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>> {
        match self {
            Self::Unbatched(_) => Vec::new(),
            Self::Dynamic(dynamic) => dynamic.expire(now),
            Self::Sequence(sequence) => sequence.expire(now),
        }
    }

    /// Cancels a request: returns it if it waits in this scheduler. Nothing happens if it has left.
    ///
    /// If a client cancels a request of a sequence, the scheduler returns all waiting requests of that sequence and
    /// closes the sequence: later requests would run on a state that lacks the cancelled one. A running request
    /// completes.
    pub fn cancel(&mut self, entry: EntryId) -> Vec<Rejected<T>> {
        match self {
            Self::Unbatched(unbatched) => unbatched.cancel(entry).into_iter().collect(),
            Self::Dynamic(dynamic) => dynamic.cancel(entry).into_iter().collect(),
            Self::Sequence(sequence) => sequence.cancel(entry),
        }
    }

    /// Returns every waiting request, as if the clients had cancelled all of them.
    pub fn reject_all(&mut self) -> Vec<Rejected<T>> {
        match self {
            Self::Unbatched(unbatched) => unbatched.reject_all(),
            Self::Dynamic(dynamic) => dynamic.reject_all(),
            Self::Sequence(sequence) => sequence.reject_all(),
        }
    }

    /// The batch that should leave now, if one of the `idle` instances (in order of preference) can run it.
    ///
    /// Call [`expire`](Self::expire) first: this method does not check deadlines.
    pub fn due(&mut self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        match self {
            Self::Unbatched(unbatched) => unbatched.due(idle),
            Self::Dynamic(dynamic) => dynamic.due(now, idle),
            Self::Sequence(sequence) => sequence.due(now, idle),
        }
    }

    /// Removes the batch that the last call to `due` described.
    pub fn take(&mut self, due: DueBatch) -> ScheduledBatch<T> {
        let (instance, requests, end) = due.used_up();
        let rows = match self {
            Self::Unbatched(unbatched) => unbatched.take().into_iter().collect(),
            Self::Dynamic(dynamic) => dynamic.take(requests),
            Self::Sequence(sequence) => sequence.take(instance, requests),
        };
        ScheduledBatch { instance, rows, end }
    }

    /// Adds requests to a batch that has left but has not begun: those that would be in it if it left only now.
    /// Otherwise they would wait for a whole execution. Returns whether the batch has grown.
    ///
    /// Call [`expire`](Self::expire) first: this method does not check deadlines.
    pub fn grow(&mut self, now: Timestamp, batch: &mut ScheduledBatch<T>) -> bool {
        match self {
            Self::Dynamic(dynamic) => {
                let Some((more, end)) = dynamic.take_more(now, &batch.rows) else { return false };
                batch.rows.extend(more);
                batch.end = end;
                true
            }
            Self::Unbatched(_) | Self::Sequence(_) => false,
        }
    }

    /// Reports that the backend has released the request of a sequence slot, and will not use it again. The report
    /// may come before or after the instance is idle. The next request of the slot waits for it.
    pub fn released(&mut self, now: Timestamp, instance: InstanceId, slot: u32) {
        if let Self::Sequence(sequence) = self {
            sequence.released(now, instance, slot);
        }
    }

    /// Reschedules a request: the backend needs one more execution for the request of a sequence slot. This call
    /// replaces [`released`](Self::released). The request keeps its id, and comes before all others of its sequence.
    /// It has neither START nor END.
    ///
    /// # Errors
    /// Returns the request with [`Rejection::NotIterative`] if the model is not configured for this, and with
    /// [`Rejection::InstanceLost`] if the slot does not exist. The caller must then call `released` as usual.
    pub fn reschedule(
        &mut self,
        now: Timestamp,
        instance: InstanceId,
        slot: u32,
        entry: Entry<T>,
    ) -> Result<(), Rejected<T>> {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => Err(Rejected::new(entry, Rejection::NotIterative)),
            Self::Sequence(sequence) => sequence.reschedule(now, instance, slot, entry),
        }
    }

    /// Adds an instance. Policies that keep no state for each instance learn of instances only from `due`.
    pub fn add_instance(&mut self, now: Timestamp, instance: InstanceId) {
        if let Self::Sequence(sequence) = self {
            sequence.add_instance(now, instance);
        }
    }

    /// Begins to remove an instance: the policy starts nothing new on it. The driver must keep the instance, and
    /// offer it to [`due`](Self::due) when it is idle, until it [may leave](Self::may_leave).
    pub fn remove_instance(&mut self, now: Timestamp, instance: InstanceId) {
        if let Self::Sequence(sequence) = self {
            sequence.remove_instance(now, instance);
        }
    }

    /// Whether no work of this scheduler needs an instance that is being removed.
    pub fn may_leave(&self, instance: InstanceId) -> bool {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => true,
            Self::Sequence(sequence) => sequence.may_leave(instance),
        }
    }

    /// Removes an instance that has failed. Returns the requests that could have run only on it.
    pub fn lose_instance(&mut self, now: Timestamp, instance: InstanceId) -> Vec<Rejected<T>> {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => Vec::new(),
            Self::Sequence(sequence) => sequence.lose_instance(now, instance),
        }
    }

    /// The next time, later than `now`, at which time alone may change an answer, if everything due at `now` has been
    /// taken. That time may come while no instance is idle.
    pub fn next_wakeup(&mut self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Unbatched(_) => None,
            Self::Dynamic(dynamic) => dynamic.next_wakeup(now),
            Self::Sequence(sequence) => sequence.next_wakeup(now),
        }
    }

    /// Stops accepting requests, except those that continue a sequence. Sequences continue until they end or are idle
    /// for too long. Waiting requests still run. The policy does not hold them back for requests that can no longer
    /// arrive.
    pub fn drain(&mut self) {
        match self {
            Self::Unbatched(unbatched) => unbatched.drain(),
            Self::Dynamic(dynamic) => dynamic.drain(),
            Self::Sequence(sequence) => sequence.drain(),
        }
    }

    /// From now on, no request waits for others to share its batch: a queue delay and `hold_until_queued` have no
    /// effect. The policy still accepts requests. For a server that is about to stop: its clients send no more
    /// requests, except for a few that are on their way.
    pub fn end_queue_delay(&mut self) {
        match self {
            Self::Unbatched(_) => {}
            Self::Dynamic(dynamic) => dynamic.end_queue_delay(),
            Self::Sequence(sequence) => sequence.end_queue_delay(),
        }
    }

    /// The number of requests that wait.
    pub fn queued(&self) -> usize {
        match self {
            Self::Unbatched(unbatched) => unbatched.queued(),
            Self::Dynamic(dynamic) => dynamic.queued(),
            Self::Sequence(sequence) => sequence.queued(),
        }
    }

    /// The number of sequences that may still get requests. A model that drains has not finished before these
    /// sequences have ended or were idle for too long, whatever [`queued`](Self::queued) returns.
    pub fn live_sequences(&self) -> usize {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => 0,
            Self::Sequence(sequence) => sequence.live_sequences(),
        }
    }

    /// Whether a sequence may still get requests.
    pub fn has_sequence(&self, id: &SequenceId) -> bool {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => false,
            Self::Sequence(sequence) => sequence.has_sequence(id),
        }
    }

    /// The sequences for which a request with START has arrived since the last call although they had not ended. Each
    /// continues in the same slot or backlog position, and its earlier requests still run first. Call it after each step
    /// of the driver: the scheduler keeps only a few.
    pub fn take_restarts(&mut self) -> Vec<SequenceId> {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => Vec::new(),
            Self::Sequence(sequence) => sequence.take_restarts(),
        }
    }

    /// The slots that sequences have left since the last call, so that what the driver keeps for those sequences can be
    /// freed. Call it after each step of the driver.
    pub fn vacated(&mut self) -> Vec<VacatedSlot> {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => Vec::new(),
            Self::Sequence(sequence) => sequence.vacated(),
        }
    }

    /// When the oldest waiting request arrived. Looks at the heads of at most 64 priority levels, and of all slots.
    pub fn oldest_arrival(&self) -> Option<Timestamp> {
        match self {
            Self::Unbatched(unbatched) => unbatched.waiting().next().map(|entry| entry.arrived),
            Self::Dynamic(dynamic) => dynamic.oldest_arrival(),
            Self::Sequence(sequence) => sequence.oldest_arrival(),
        }
    }

    /// The waiting requests. Their order is that of service, but for sequences that of the slots, then the backlog.
    pub fn waiting(&self) -> impl Iterator<Item = &Entry<T>> {
        let (unbatched, dynamic, sequence) = match self {
            Self::Unbatched(unbatched) => (Some(unbatched.waiting()), None, None),
            Self::Dynamic(dynamic) => (None, Some(dynamic.waiting()), None),
            Self::Sequence(sequence) => (None, None, Some(sequence.waiting())),
        };
        let dynamic = dynamic.into_iter().flatten();
        unbatched.into_iter().flatten().chain(dynamic).chain(sequence.into_iter().flatten())
    }

    /// The number of sequences that wait for a slot.
    pub fn backlogged(&self) -> usize {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => 0,
            Self::Sequence(sequence) => sequence.backlogged(),
        }
    }

    /// How long requests have waited while an earlier one of their own sequence ran, all together. No instance makes that
    /// shorter, because a sequence runs in its order.
    pub fn waited_for_own_sequence(&self) -> Duration {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => Duration::ZERO,
            Self::Sequence(sequence) => sequence.waited_for_own(),
        }
    }

    /// The occupied sequence slots, by instance and number.
    pub fn slots(&self) -> impl Iterator<Item = SlotState<'_>> {
        let slots = match self {
            Self::Unbatched(_) | Self::Dynamic(_) => None,
            Self::Sequence(sequence) => Some(sequence.slots()),
        };
        slots.into_iter().flatten()
    }

    /// The sequences that wait for a slot, first come first, and the number of requests of each.
    pub fn backlog(&self) -> impl Iterator<Item = (&SequenceId, usize)> {
        let backlog = match self {
            Self::Unbatched(_) | Self::Dynamic(_) => None,
            Self::Sequence(sequence) => Some(sequence.backlog()),
        };
        backlog.into_iter().flatten()
    }
}
