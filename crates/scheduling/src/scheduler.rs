//! The scheduler of a model version: one of three policies behind one set of methods.
use crate::{
    batch::{DueBatch, InstanceId, ScheduledBatch},
    dynamic::DynamicBatcher,
    rejection::{Note, Rejected, Rejection},
    request::{Entry, EntryId, Meta},
    sequence::{SequenceBatcher, SlotState},
    step::SequenceId,
    time::Timestamp,
    unbatched::Unbatched,
};

/// A scheduling policy with the requests that wait.
///
/// What holds for each policy, and is checked by this crate's random histories: every accepted payload leaves
/// exactly once, by [`take`](Self::take), [`expire`](Self::expire), [`cancel`](Self::cancel),
/// [`reject_all`](Self::reject_all) or [`lose_instance`](Self::lose_instance), and only
/// [`reschedule`](Self::reschedule) takes one in once more; `take` after `due` is never empty; `next_wakeup(now)` is later than
/// `now`, and nothing changes by time alone before it.
///
/// `now` should not run backwards from call to call. If it does (clock read before the lock was taken),
/// requests count as arrived no earlier than the one before them.
///
/// Costs: a call looks at no more requests than it hands out or takes in, at one more batch, and at a logarithm of those
/// that wait. Only [`reject_all`](Self::reject_all) looks at all.
pub enum Scheduler<T> {
    /// One request at a time.
    Unbatched(Unbatched<T>),
    /// Batches of requests that do not depend on each other.
    Dynamic(DynamicBatcher<T>),
    /// Requests of one sequence in order, one at a time, on one instance.
    Sequence(SequenceBatcher<T>),
}

impl<T> Scheduler<T> {
    /// Accepts a request, and names it.
    ///
    /// # Errors
    /// Hands it back with [`Rejection::Draining`] after [`drain`](Self::drain), with
    /// [`Rejection::QueueFull`] if its queue policy says so, and, where requests belong to sequences, with
    /// the rule that it breaks.
    pub fn enqueue(&mut self, now: Timestamp, meta: Meta, payload: T) -> Result<EntryId, Rejected<T>> {
        match self {
            Self::Unbatched(unbatched) => unbatched.enqueue(now, meta, payload),
            Self::Dynamic(dynamic) => dynamic.enqueue(now, meta, payload),
            Self::Sequence(sequence) => sequence.enqueue(now, meta, payload),
        }
    }

    /// Hands back what may not wait any longer. Costs next to nothing when no deadline has passed.
    ///
    /// The sequence batcher also closes sequences that were idle in a slot for too long. A sequence in the backlog cannot
    /// be blamed for having no requests.
    pub fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>> {
        match self {
            Self::Unbatched(_) => Vec::new(),
            Self::Dynamic(dynamic) => dynamic.expire(now),
            Self::Sequence(sequence) => sequence.expire(now),
        }
    }

    /// Nobody waits for that request any more: hands it back if it waits here. Nothing happens if it has left.
    ///
    /// A cancelled request of a sequence takes along all requests of its sequence that wait, and closes the sequence:
    /// those after it would meet a state that lacks it. What runs is completed.
    pub fn cancel(&mut self, entry: EntryId) -> Vec<Rejected<T>> {
        match self {
            Self::Unbatched(unbatched) => unbatched.cancel(entry).into_iter().collect(),
            Self::Dynamic(dynamic) => dynamic.cancel(entry).into_iter().collect(),
            Self::Sequence(sequence) => sequence.cancel(entry),
        }
    }

    /// Hands back every waiting request, as if all were cancelled.
    pub fn reject_all(&mut self) -> Vec<Rejected<T>> {
        match self {
            Self::Unbatched(unbatched) => unbatched.reject_all(),
            Self::Dynamic(dynamic) => dynamic.reject_all(),
            Self::Sequence(sequence) => sequence.reject_all(),
        }
    }

    /// The batch that should leave now, if one of the `idle` instances (in order of preference) can take it.
    ///
    /// Call [`expire`](Self::expire) first: deadlines are not looked at here.
    pub fn due(&mut self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        match self {
            Self::Unbatched(unbatched) => unbatched.due(idle),
            Self::Dynamic(dynamic) => dynamic.due(now, idle),
            Self::Sequence(sequence) => sequence.due(now, idle),
        }
    }

    /// Removes the batch that `due` has just described.
    pub fn take(&mut self, due: DueBatch) -> ScheduledBatch<T> {
        let (instance, requests) = due.used_up();
        let rows = match self {
            Self::Unbatched(unbatched) => unbatched.take().into_iter().collect(),
            Self::Dynamic(dynamic) => dynamic.take(requests),
            Self::Sequence(sequence) => sequence.take(instance, requests),
        };
        ScheduledBatch { instance, rows }
    }

    /// Says that the backend has given back the request of a sequence slot, and will not touch it again.
    /// That may be before or after its instance is idle; the next request of the slot waits for it.
    pub fn released(&mut self, now: Timestamp, instance: InstanceId, slot: u32) {
        if let Self::Sequence(sequence) = self {
            sequence.released(now, instance, slot);
        }
    }

    /// Instead of [`released`](Self::released): the backend wants to work on the request of a sequence slot
    /// in one more execution. It keeps its name, and goes before all others of its sequence, with neither START nor END.
    ///
    /// # Errors
    /// Hands it back with [`Rejection::NotIterative`] if the model is not configured for this, and with
    /// [`Rejection::InstanceLost`] if the slot is not there. `released` is owed then as before.
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

    /// An instance has joined. Policies without state in instances know them from `due` only.
    pub fn add_instance(&mut self, now: Timestamp, instance: InstanceId) {
        if let Self::Sequence(sequence) = self {
            sequence.add_instance(now, instance);
        }
    }

    /// An instance shall leave: nothing new begins there. It is still needed, and should be offered to
    /// [`due`](Self::due) when idle, until it [may leave](Self::may_leave).
    pub fn remove_instance(&mut self, now: Timestamp, instance: InstanceId) {
        if let Self::Sequence(sequence) = self {
            sequence.remove_instance(now, instance);
        }
    }

    /// Whether nothing here depends on an instance that shall leave.
    pub fn may_leave(&self, instance: InstanceId) -> bool {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => true,
            Self::Sequence(sequence) => sequence.may_leave(instance),
        }
    }

    /// An instance has died. Hands back what could only have run there.
    pub fn lose_instance(&mut self, now: Timestamp, instance: InstanceId) -> Vec<Rejected<T>> {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => Vec::new(),
            Self::Sequence(sequence) => sequence.lose_instance(now, instance),
        }
    }

    /// The next moment, later than `now`, at which time alone may change an answer, given that
    /// everything due at `now` has been taken. It may come while no instance is idle.
    pub fn next_wakeup(&mut self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Unbatched(_) => None,
            Self::Dynamic(dynamic) => dynamic.next_wakeup(now),
            Self::Sequence(sequence) => sequence.next_wakeup(now),
        }
    }

    /// Takes no new requests from now on, but for those that continue a sequence: those go on until they end or fall
    /// idle. What waits still runs, and is not held back for requests that can no longer arrive.
    pub fn drain(&mut self) {
        match self {
            Self::Unbatched(unbatched) => unbatched.drain(),
            Self::Dynamic(dynamic) => dynamic.drain(),
            Self::Sequence(sequence) => sequence.drain(),
        }
    }

    /// How many requests wait.
    pub fn in_flight(&self) -> usize {
        match self {
            Self::Unbatched(unbatched) => unbatched.in_flight(),
            Self::Dynamic(dynamic) => dynamic.in_flight(),
            Self::Sequence(sequence) => sequence.in_flight(),
        }
    }

    /// How many sequences may still get requests: until they have ended or fallen idle, a model that
    /// drains has not finished, whatever [`in_flight`](Self::in_flight) says.
    pub fn live_sequences(&self) -> usize {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => 0,
            Self::Sequence(sequence) => sequence.live_sequences(),
        }
    }

    /// What is worth a line in the log since the last call. Ask after each visit; a few are kept.
    pub fn notes(&mut self) -> Vec<Note> {
        match self {
            Self::Unbatched(_) | Self::Dynamic(_) => Vec::new(),
            Self::Sequence(sequence) => sequence.notes(),
        }
    }

    /// The sequence slots that are taken, by instance and number.
    pub fn slots(&self) -> impl Iterator<Item = SlotState<'_>> {
        let slots = match self {
            Self::Unbatched(_) | Self::Dynamic(_) => None,
            Self::Sequence(sequence) => Some(sequence.slots()),
        };
        slots.into_iter().flatten()
    }

    /// The sequences that wait for a slot, and how many requests each has, first come first.
    pub fn backlog(&self) -> impl Iterator<Item = (&SequenceId, usize)> {
        let backlog = match self {
            Self::Unbatched(_) | Self::Dynamic(_) => None,
            Self::Sequence(sequence) => Some(sequence.backlog()),
        };
        backlog.into_iter().flatten()
    }
}
