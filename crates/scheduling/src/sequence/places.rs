//! Where sequences are, in a slot or in the backlog, and how they move from the backlog to a slot.
//!
//! The slot or the backlog owns a [`Sequence`]. `places` maps the number of a sequence to its slot or to the backlog.
//! `open` maps a correlation id to the number of the open sequence with that id.
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use super::{
    backlog::Backlog,
    config::{SequenceBatching, SequenceStrategy},
    requests::Sequence,
    service::StrategyState,
    slots::{SlotId, SlotTable},
};
use crate::{
    batch::{InstanceId, Row},
    request::{Entry, EntryId},
    sequence_position::{SequenceId, SequencePosition},
    time::Timestamp,
};

/// All sequences of a batcher.
#[derive(Debug)]
pub(super) struct SequencePlaces<T> {
    pub(super) service: StrategyState,
    pub(super) slots: SlotTable<T>,
    pub(super) backlog: Backlog<T>,
    /// The numbers of open sequences.
    open: HashMap<SequenceId, u64>,
    /// The place of every sequence, by number.
    places: HashMap<u64, SequencePlace>,
    /// Slots whose sequence is open and idle, and the time at which the sequence has been idle for too long.
    idle_sequences: BTreeSet<(Timestamp, SlotId)>,
    iterative: bool,
    /// How long requests have waited while an earlier one of their sequence ran, all together.
    pub(super) waited_for_own: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SequencePlace {
    Slot(SlotId),
    Backlog,
}

impl<T> SequencePlaces<T> {
    /// Starts with the instances 0 to `instances` (exclusive), and with all slots free.
    pub(super) fn new(config: &SequenceBatching, instances: usize) -> Self {
        // The number of a slot is its row only for the direct strategy.
        let numbers_matter = matches!(config.strategy, SequenceStrategy::Direct(_));
        let mut slots = SlotTable::new(config.slots_per_instance(), numbers_matter);
        (0..instances).for_each(|instance| slots.add(instance));
        Self {
            service: StrategyState::new(config),
            slots,
            backlog: Backlog::new(),
            open: HashMap::new(),
            places: HashMap::new(),
            idle_sequences: BTreeSet::new(),
            iterative: config.iterative,
            waited_for_own: Duration::ZERO,
        }
    }

    /// The number of the open sequence with that id.
    pub(super) fn find(&self, id: &SequenceId) -> Option<u64> {
        self.open.get(id).copied()
    }

    /// The number of sequences that may still get requests.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// The earliest time at which a sequence has been idle for too long.
    pub(super) fn next_silence(&self) -> Option<Timestamp> {
        self.idle_sequences.first().map(|&(idle_deadline, _)| idle_deadline)
    }

    /// Begins a sequence with this request.
    pub(super) fn begin(&mut self, entry: Entry<T>, now: Timestamp) {
        let step = &entry.attributes.sequence;
        let id = step.id.clone().expect("a request that begins a sequence has its id");
        let number = entry.id.queue;
        let open = !step.end && id.is_given();
        if open {
            self.open.insert(id.clone(), number);
        }
        let mut sequence = Sequence::new(number, id, open);
        if let Some(slot_id) = self.slots.claim() {
            sequence.requests.push_back(entry);
            return self.move_in(slot_id, sequence, now);
        }
        self.places.insert(number, SequencePlace::Backlog);
        self.backlog.push(sequence, entry);
    }

    /// Adds a request to the open sequence that it names.
    pub(super) fn join(&mut self, entry: Entry<T>, now: Timestamp) {
        let number = entry.id.queue;
        let SequencePosition { id, end, .. } = &entry.attributes.sequence;
        let end = *end;
        if let Some(id) = id.as_ref().filter(|_| end) {
            // After END, the id names a later sequence.
            self.open.remove(id);
        }
        let slot_id = match self.places.get(&number).expect("an open sequence has a place") {
            SequencePlace::Backlog => return self.backlog.append(number, entry, end),
            &SequencePlace::Slot(slot_id) => slot_id,
        };
        let slot = self.slots.slot(slot_id).expect("an open sequence is where its number points to");
        let occupant = slot.occupant.as_mut().expect("an open sequence is where its number points to");
        occupant.push(entry, end);
        let idle_deadline = occupant.idle_deadline.take();
        let can_run = !slot.running && occupant.requests.len() == 1;
        if let Some(idle_deadline) = idle_deadline {
            self.idle_sequences.remove(&(idle_deadline, slot_id));
        }
        if can_run {
            self.became_ready(slot_id, now);
        }
    }

    /// Takes a batch of an instance.
    pub(super) fn take(&mut self, instance: InstanceId, requests: usize, now: Timestamp) -> Vec<Row<T>> {
        let slots = self.slots.instance_mut(instance).expect("the receipt is older than the instance");
        let rows = self.service.take(slots, requests);
        for row in &rows {
            let &Row::Request { slot: Some(slot), .. } = row else { continue };
            let slot_id = SlotId { instance, slot };
            let Some(occupant) = self.slots.slot(slot_id).and_then(|slot| slot.occupant.as_mut()) else {
                continue;
            };
            occupant.runs_since = Some(now);
            // The end of an iterative sequence is known only after its request is released.
            if !self.iterative && occupant.is_finished() {
                self.vacate(slot_id, now);
            }
        }
        rows
    }

    /// Records that the request of a slot has stopped running. If its sequence is open and has no other request, the
    /// sequence has time until `idle_deadline`.
    pub(super) fn released(&mut self, slot_id: SlotId, now: Timestamp, idle_deadline: Timestamp) {
        if !self.slots.stop(slot_id) {
            return;
        }
        let Some(occupant) = self.slots.slot(slot_id).and_then(|slot| slot.occupant.as_mut()) else { return };
        if self.iterative && occupant.open {
            // This request was the whole sequence. Other requests that the client has sent still run.
            occupant.open = false;
            self.open.remove(&occupant.id);
        }
        // Without that time, the request was one of the sequence before.
        if let Some(started) = occupant.runs_since.take() {
            self.waited_for_own += occupant.waited(started, now);
        }
        if !occupant.requests.is_empty() {
            self.became_ready(slot_id, now);
        } else if occupant.open {
            occupant.idle_deadline = Some(idle_deadline);
            self.idle_sequences.insert((idle_deadline, slot_id));
        } else {
            self.vacate(slot_id, now);
        }
    }

    /// Puts the request of a slot back before all others of its sequence. Returns the request if the slot does not
    /// exist.
    pub(super) fn reschedule(
        &mut self,
        slot_id: SlotId,
        entry: Entry<T>,
        now: Timestamp,
    ) -> Result<(), Entry<T>> {
        if self.slots.slot(slot_id).is_none_or(|slot| slot.occupant.is_none()) || !self.slots.stop(slot_id) {
            return Err(entry);
        }
        if let Some(occupant) = self.slots.slot(slot_id).and_then(|slot| slot.occupant.as_mut()) {
            debug_assert_eq!(occupant.number, entry.id.queue, "a request comes back to its own sequence");
            occupant.requests.push_front(entry);
        }
        self.became_ready(slot_id, now);
        Ok(())
    }

    /// Closes the sequence in which a request waits, and returns all its waiting requests. A running request
    /// completes.
    pub(super) fn cancel(&mut self, entry: EntryId, now: Timestamp) -> Option<VecDeque<Entry<T>>> {
        match *self.places.get(&entry.queue)? {
            SequencePlace::Backlog => {
                let sequence = self.backlog.remove(entry.queue, entry.serial)?;
                self.forget(&sequence);
                Some(sequence.requests)
            }
            SequencePlace::Slot(slot_id) => {
                let occupant = self.slots.slot(slot_id)?.occupant.as_ref()?;
                if !occupant.has(entry.serial) {
                    return None;
                }
                self.empty(slot_id, now)
            }
        }
    }

    /// Closes and empties every sequence with a waiting request.
    pub(super) fn cancel_all(&mut self, now: Timestamp) -> Vec<Entry<T>> {
        let mut cancelled = Vec::new();
        while let Some(sequence) = self.backlog.pop() {
            self.forget(&sequence);
            cancelled.extend(sequence.requests);
        }
        let waits = |occupant: &Sequence<T>| !occupant.requests.is_empty();
        let taken = self.slots.iter().filter(|(_, slot)| slot.occupant.as_ref().is_some_and(waits));
        let taken: Vec<_> = taken.map(|(slot_id, _)| slot_id).collect();
        for slot_id in taken {
            cancelled.extend(self.empty(slot_id, now).into_iter().flatten());
        }
        cancelled
    }

    /// Closes the sequence of a slot, and returns its requests.
    fn empty(&mut self, slot_id: SlotId, now: Timestamp) -> Option<VecDeque<Entry<T>>> {
        let slot = self.slots.slot(slot_id)?;
        let running = slot.running;
        let occupant = slot.occupant.as_mut()?;
        if occupant.open {
            self.open.remove(&occupant.id);
        }
        occupant.open = false;
        let requests = std::mem::take(&mut occupant.requests);
        self.slots.remove_ready(slot_id);
        // A request that may run once more keeps its slot.
        if !(self.iterative && running) {
            self.vacate(slot_id, now);
        }
        Some(requests)
    }

    /// Closes the next sequence that has waited too long in the backlog.
    pub(super) fn pop_late(&mut self, now: Timestamp) -> Option<Sequence<T>> {
        let sequence = self.backlog.pop_late(now)?;
        self.forget(&sequence);
        Some(sequence)
    }

    /// Closes the sequences that were idle in a slot for too long.
    pub(super) fn close_silent(&mut self, now: Timestamp) {
        while let Some(&(idle_deadline, slot_id)) = self.idle_sequences.first()
            && idle_deadline <= now
        {
            self.idle_sequences.pop_first();
            self.vacate(slot_id, now);
        }
    }

    /// Adds the slots of an instance, for sequences of the backlog.
    pub(super) fn add_instance(&mut self, instance: InstanceId, now: Timestamp) {
        self.slots.add(instance);
        while self.backlog.requests() > 0
            && let Some(slot_id) = self.slots.claim()
        {
            if let Some(next) = self.backlog.pop() {
                self.move_in(slot_id, next, now);
            }
        }
    }

    /// Removes an instance, and returns the sequences that occupied its slots.
    pub(super) fn lose_instance(&mut self, instance: InstanceId) -> Vec<Sequence<T>> {
        let mut lost = Vec::new();
        for (slot_id, slot) in self.slots.lose(instance) {
            let Some(sequence) = slot.occupant else { continue };
            if let Some(idle_deadline) = sequence.idle_deadline {
                self.idle_sequences.remove(&(idle_deadline, slot_id));
            }
            self.forget(&sequence);
            lost.push(sequence);
        }
        lost
    }

    /// Ends the sequence of a slot, and gives the slot to the next sequence.
    fn vacate(&mut self, slot_id: SlotId, now: Timestamp) {
        if let Some(sequence) = self.slots.move_out(slot_id) {
            debug_assert!(sequence.requests.is_empty(), "sequence {} is not over", sequence.id);
            self.forget(&sequence);
        }
        if self.slots.is_leaving(slot_id.instance) {
            return self.slots.offer(slot_id);
        }
        match self.backlog.pop() {
            Some(next) => self.move_in(slot_id, next, now),
            None => self.slots.offer(slot_id),
        }
    }

    /// Removes a sequence that is over. No more requests join it.
    fn forget(&mut self, sequence: &Sequence<T>) {
        self.places.remove(&sequence.number);
        if sequence.open {
            self.open.remove(&sequence.id);
        }
    }

    fn move_in(&mut self, slot_id: SlotId, sequence: Sequence<T>, now: Timestamp) {
        self.places.insert(sequence.number, SequencePlace::Slot(slot_id));
        if self.slots.move_in(slot_id, sequence) {
            self.became_ready(slot_id, now);
        }
    }

    fn became_ready(&mut self, slot_id: SlotId, now: Timestamp) {
        if let Some(instance) = self.slots.instance_mut(slot_id.instance) {
            self.service.became_ready(instance, slot_id.slot, now);
        }
    }
}
