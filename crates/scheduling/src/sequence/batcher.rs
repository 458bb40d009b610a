//! The policy of the sequence batcher: it decides which requests it accepts and what is due.
use std::{collections::VecDeque, time::Duration};

use super::{
    config::{SequenceBatching, SequenceStrategy},
    places::SequencePlaces,
    slots::{InstanceSlots, SlotId},
    view::{SlotState, VacatedSlot},
};
use crate::{
    batch::{DueBatch, InstanceId, Row},
    cut::Cut,
    rejection::{Rejected, Rejection},
    request::{Entry, EntryId, SchedulingAttributes},
    sequence_position::{SequenceId, SequencePosition},
    time::Timestamp,
};

/// The policy of a model with [`SequenceBatching`].
///
/// The cost of a request does not depend on the number of sequences, except for the logarithm in ordered sets.
///
/// This policy needs more than [`Scheduler`](crate::Scheduler) describes. The driver must call
/// [`released`](crate::Scheduler::released) for every request of a batch, in any order, before or after the instance
/// is idle. The driver offers an instance to [`due`](crate::Scheduler::due) even if the backend still holds requests
/// of it: slots without such a request can run.
#[derive(Debug)]
pub struct SequenceBatcher<T> {
    places: SequencePlaces<T>,
    config: SequenceBatching,
    /// Whether `hold_until_queued` has not been reached.
    held: bool,
    waiting: usize,
    /// The number of accepted requests.
    accepted: u64,
    /// The number of sequences that have begun.
    begun: u64,
    last_generated_id: u64,
    latest: Timestamp,
    draining: bool,
    /// No request waits for requests of other sequences.
    delay_ended: bool,
    restarts: Vec<SequenceId>,
}

/// The batcher keeps at most this many restarts that the driver has not read.
const RESTARTS_KEPT: usize = 64;

/// How a request relates to the existing sequences.
enum Role {
    /// The request is the next one of the open sequence with that number.
    Joins(u64),
    Begins,
}

impl<T> SequenceBatcher<T> {
    /// Starts with the instances 0 to `instances` (exclusive), and with all slots free.
    #[must_use]
    pub fn new(config: SequenceBatching, instances: usize) -> Self {
        Self {
            places: SequencePlaces::new(&config, instances),
            held: config.hold_until_queued > 0 || config.hold_until_backlogged > 0,
            config,
            waiting: 0,
            accepted: 0,
            begun: 0,
            last_generated_id: 0,
            latest: Timestamp::default(),
            draining: false,
            delay_ended: false,
            restarts: Vec::new(),
        }
    }

    pub(crate) fn enqueue(
        &mut self,
        now: Timestamp,
        mut attributes: SchedulingAttributes,
        payload: T,
    ) -> Result<EntryId, Rejected<T>> {
        let role = match self.role(&mut attributes) {
            Ok(role) => role,
            Err(reason) => return Err(Rejected { payload, reason }),
        };
        let now = self.clock(now);
        self.waiting += 1;
        let serial = self.accepted;
        self.accepted += 1;
        let entry = |queue| Entry { id: EntryId { queue, serial }, attributes, arrived: now, payload };
        let number = match role {
            Role::Joins(number) => {
                self.places.join(entry(number), now);
                number
            }
            Role::Begins => {
                self.begun += 1;
                self.places.begin(entry(self.begun), now);
                self.begun
            }
        };
        self.held = self.held && self.still_held();
        Ok(EntryId { queue: number, serial })
    }

    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>> {
        let now = self.clock(now);
        let mut rejected = Vec::new();
        while let Some(sequence) = self.places.pop_late(now) {
            self.reject(sequence.requests, Rejection::SequenceTimedOut, &mut rejected);
        }
        self.places.close_silent(now);
        rejected
    }

    pub(crate) fn cancel(&mut self, entry: EntryId) -> Vec<Rejected<T>> {
        let mut rejected = Vec::new();
        if let Some(requests) = self.places.cancel(entry, self.latest) {
            self.reject(requests, Rejection::Cancelled, &mut rejected);
        }
        rejected
    }

    pub(crate) fn reject_all(&mut self) -> Vec<Rejected<T>> {
        let mut rejected = Vec::new();
        let requests = self.places.cancel_all(self.latest);
        self.reject(requests.into(), Rejection::Cancelled, &mut rejected);
        rejected
    }

    pub(crate) fn due(&self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        idle.iter().find_map(|&instance| match self.decide(self.places.slots.instance(instance)?, now) {
            Cut::Release(requests, end) => Some(DueBatch { instance, requests, end }),
            Cut::Hold(_) | Cut::Empty => None,
        })
    }

    pub(crate) fn take(&mut self, instance: InstanceId, requests: usize) -> Vec<Row<T>> {
        let rows = self.places.take(instance, requests, self.latest);
        self.waiting -= rows.iter().filter(|row| matches!(row, Row::Request { .. })).count();
        rows
    }

    pub(crate) fn released(&mut self, now: Timestamp, instance: InstanceId, slot: u32) {
        let now = self.clock(now);
        self.places.released(SlotId { instance, slot }, now, now + self.config.max_sequence_idle);
    }

    pub(crate) fn reschedule(
        &mut self,
        now: Timestamp,
        instance: InstanceId,
        slot: u32,
        mut entry: Entry<T>,
    ) -> Result<(), Rejected<T>> {
        if !self.config.iterative {
            return Err(Rejected::new(entry, Rejection::NotIterative));
        }
        let now = self.clock(now);
        entry.arrived = now;
        entry.attributes.sequence.start = false;
        entry.attributes.sequence.end = false;
        let taken = self.places.reschedule(SlotId { instance, slot }, entry, now);
        taken.map_err(|entry| Rejected::new(entry, Rejection::InstanceLost))?;
        self.waiting += 1;
        Ok(())
    }

    pub(crate) fn add_instance(&mut self, now: Timestamp, instance: InstanceId) {
        let now = self.clock(now);
        self.places.add_instance(instance, now);
    }

    pub(crate) fn remove_instance(&mut self, now: Timestamp, instance: InstanceId) {
        self.clock(now);
        self.places.slots.remove(instance);
    }

    pub(crate) fn may_leave(&self, instance: InstanceId) -> bool {
        self.places.slots.instance(instance).is_none()
    }

    pub(crate) fn lose_instance(&mut self, now: Timestamp, instance: InstanceId) -> Vec<Rejected<T>> {
        self.clock(now);
        let mut rejected = Vec::new();
        for sequence in self.places.lose_instance(instance) {
            self.reject(sequence.requests, Rejection::InstanceLost, &mut rejected);
        }
        rejected
    }

    pub(crate) fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let holds = self.places.slots.instances().filter_map(|instance| match self.decide(instance, now) {
            Cut::Hold(until) => Some(until),
            Cut::Release(..) | Cut::Empty => None,
        });
        // A sequence is late after its deadline, not at its deadline.
        let late = self.places.backlog.next_deadline().map(|deadline| deadline + Timestamp::TICK);
        holds.chain(late).chain(self.places.next_silence()).filter(|&at| now < at).min()
    }

    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.held = false;
    }

    pub(crate) fn end_queue_delay(&mut self) {
        self.delay_ended = true;
        self.held = false;
    }

    pub(crate) fn queued(&self) -> usize {
        self.waiting
    }

    pub(crate) fn live_sequences(&self) -> usize {
        self.places.open()
    }

    pub(crate) fn has_sequence(&self, id: &SequenceId) -> bool {
        self.places.find(id).is_some()
    }

    pub(crate) fn take_restarts(&mut self) -> Vec<SequenceId> {
        std::mem::take(&mut self.restarts)
    }

    pub(crate) fn vacated(&mut self) -> Vec<VacatedSlot> {
        self.places.slots.take_vacated()
    }

    pub(crate) fn oldest_arrival(&self) -> Option<Timestamp> {
        let in_slots = self.places.slots.iter().filter_map(|(_, slot)| slot.occupant.as_ref());
        // The sequences of the backlog are in the order in which they began.
        let sequences = in_slots.chain(self.places.backlog.iter().take(1));
        sequences.filter_map(|sequence| sequence.requests.front()).map(|entry| entry.arrived).min()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry<T>> {
        let in_slots = self.places.slots.iter().filter_map(|(_, slot)| slot.occupant.as_ref());
        in_slots.chain(self.places.backlog.iter()).flat_map(|sequence| &sequence.requests)
    }

    pub(crate) fn backlogged(&self) -> usize {
        self.places.backlog.len()
    }

    pub(crate) fn waited_for_own(&self) -> Duration {
        self.places.waited_for_own
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = SlotState<'_>> {
        self.places.slots.iter().map(|(slot_id, slot)| SlotState {
            instance: slot_id.instance,
            slot: slot_id.slot,
            sequence: slot.occupant.as_ref().map(|occupant| &occupant.id),
            waiting: slot.occupant.as_ref().map_or(0, |occupant| occupant.requests.len()),
            running: slot.running,
        })
    }

    pub(crate) fn backlog(&self) -> impl Iterator<Item = (&SequenceId, usize)> {
        self.places.backlog.iter().map(|sequence| (&sequence.id, sequence.requests.len()))
    }

    /// How a request relates to the existing sequences. In an iterative model, a request without a correlation id
    /// becomes a sequence of its own. This method then writes an id into `attributes`.
    // Order of the rules as Triton: sequence_batch_scheduler.cc, SequenceBatchScheduler::Enqueue.
    fn role(&mut self, attributes: &mut SchedulingAttributes) -> Result<Role, Rejection> {
        if attributes.rows() > 1 {
            return Err(Rejection::MultipleRows);
        }
        let step = &attributes.sequence;
        let given = step.id.as_ref().filter(|id| id.is_given());
        if given.is_none() && !self.config.iterative {
            return Err(Rejection::MissingSequence);
        }
        if self.draining && (given.is_none() || step.start) {
            return Err(Rejection::Draining);
        }
        let Some(id) = given else {
            self.last_generated_id += 1;
            let id = SequenceId::ServerGenerated(self.last_generated_id);
            attributes.sequence = SequencePosition { id: Some(id), start: true, end: false };
            return Ok(Role::Begins);
        };
        let number = self.places.find(id);
        if number.is_some() && step.start && self.restarts.len() < RESTARTS_KEPT {
            self.restarts.push(id.clone());
        }
        match number {
            Some(number) => Ok(Role::Joins(number)),
            None if step.start => Ok(Role::Begins),
            None => Err(Rejection::MissingStart),
        }
    }

    /// The current time. It never decreases, even if `now` does.
    fn clock(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn decide(&self, instance: &InstanceSlots<T>, now: Timestamp) -> Cut {
        if self.held {
            return Cut::Empty;
        }
        // In a model that drains, requests can arrive only for sequences that have no request in this instance now.
        let delay_ended = self.delay_ended || (self.draining && instance.all_are_ready());
        self.places.service.decide(instance, now, delay_ended)
    }

    /// Whether the batcher still waits for `hold_until_queued`.
    fn still_held(&self) -> bool {
        let in_backlog = self.places.backlog.requests();
        let in_slots = match &self.config.strategy {
            SequenceStrategy::Direct(_) => self.waiting - in_backlog,
            SequenceStrategy::Oldest(_) => {
                self.places.slots.instances().map(|instance| instance.ready.len()).sum()
            }
        };
        in_slots < self.config.hold_until_queued || in_backlog < self.config.hold_until_backlogged
    }

    fn reject(&mut self, requests: VecDeque<Entry<T>>, reason: Rejection, into: &mut Vec<Rejected<T>>) {
        self.waiting -= requests.len();
        into.extend(requests.into_iter().map(|entry| Rejected::new(entry, reason)));
    }
}
