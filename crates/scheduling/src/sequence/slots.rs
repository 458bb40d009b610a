//! The sequence slots of each instance, their occupants, and the slots that can run a request.
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use super::{requests::Sequence, view::VacatedSlot};
use crate::{
    batch::{InstanceId, Row},
    cut::OpenBatch,
    request::Entry,
    serial_queue::SerialQueue,
    time::Timestamp,
};

/// One slot of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotId {
    pub(super) instance: InstanceId,
    pub(super) slot: u32,
}

/// Holds one sequence. At most one request runs in a slot at a time. It may be a request of the previous sequence:
/// then the new occupant waits for it.
#[derive(Debug)]
pub(super) struct SequenceSlot<T> {
    pub(super) occupant: Option<Sequence<T>>,
    pub(super) running: bool,
    /// The number of the latest occupant.
    latest: u64,
    /// The slot's number in `ready` of the instance, if the slot is ready.
    turn: Option<u64>,
}

/// A slot whose occupant has a request that may run now.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadySlot {
    pub(super) slot: u32,
    /// The time from which the strategy counts the waiting time.
    pub(super) since: Timestamp,
}

/// The slots of one instance.
#[derive(Debug)]
pub(super) struct InstanceSlots<T> {
    /// The slots that have been used. A configuration may allow many more slots than the model ever needs.
    slots: Vec<SequenceSlot<T>>,
    /// Ready slots, in the order in which they became ready.
    pub(super) ready: SerialQueue<ReadySlot>,
    next_turn: u64,
    /// For the oldest strategy: the open batch of `ready`, if known, and the number of the last entry that the strategy
    /// looked at. Every change discards this value, except growth behind that entry.
    pub(super) open_batch: Cell<Option<(OpenBatch, u64)>>,
    /// For the direct strategy: the earliest time in `ready`, if known and if `ready` is not empty.
    pub(super) earliest: Cell<Option<Timestamp>>,
    occupants: usize,
    running: usize,
    leaving: bool,
}

impl<T> InstanceSlots<T> {
    fn new() -> Self {
        Self {
            slots: Vec::new(),
            ready: SerialQueue::new(),
            next_turn: 0,
            open_batch: Cell::new(None),
            earliest: Cell::new(None),
            occupants: 0,
            running: 0,
            leaving: false,
        }
    }

    /// Whether every sequence of this instance has a request that may run now.
    pub(super) fn all_are_ready(&self) -> bool {
        self.ready.len() == self.occupants
    }

    /// The request that may run in a slot that is ready.
    pub(super) fn next_request(&self, slot: u32) -> &Entry<T> {
        let occupant = self.slots[slot as usize].occupant.as_ref();
        occupant.and_then(|occupant| occupant.requests.front()).expect("a slot that is ready has a request")
    }

    /// Records that a slot has a request that may run. The strategy counts the waiting time from `since`. Returns the
    /// slot's number in `ready`.
    pub(super) fn push_ready(&mut self, slot: u32, since: Timestamp) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.slots[slot as usize].turn = Some(turn);
        self.ready.push(turn, ReadySlot { slot, since });
        turn
    }

    /// Records that a slot is not ready any more, if it was.
    fn remove_ready(&mut self, slot: u32) {
        let Some(turn) = self.slots[slot as usize].turn.take() else { return };
        let Some(ready) = self.ready.remove(turn) else { return };
        if self.open_batch.get().is_some_and(|(_, last)| turn <= last) {
            self.open_batch.set(None);
        }
        if self.earliest.get() == Some(ready.since) {
            self.earliest.set(None);
        }
    }

    /// Starts the next request of a slot that is ready.
    pub(super) fn start(&mut self, slot: u32) -> Row<T> {
        self.remove_ready(slot);
        let from = &mut self.slots[slot as usize];
        debug_assert!(!from.running, "slot {slot} runs a request already");
        let request = from.occupant.as_mut().and_then(|occupant| occupant.requests.pop_front());
        let entry = request.expect("a slot that is ready has a request");
        from.running = true;
        self.running += 1;
        Row::Request { entry, slot: Some(slot) }
    }

    fn is_unused(&self) -> bool {
        self.occupants == 0 && self.running == 0
    }
}

/// A slot without an occupant, in the order in which slots get sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    rank: (u32, u32),
    slot_id: SlotId,
}

/// All slots of all instances.
#[derive(Debug)]
pub(super) struct SlotTable<T> {
    instances: BTreeMap<InstanceId, InstanceSlots<T>>,
    /// For each instance: the used slots that are free, and the first slot that was never used.
    free: BTreeSet<Free>,
    /// Slots that sequences have left, and the numbers of those sequences. The driver has not read them yet.
    vacated: BTreeMap<SlotId, u64>,
    slots_per_instance: u32,
    /// Whether the number of a slot is its row. Then low numbers make small batches. Otherwise the number has no
    /// meaning, and a slot that can start at once is better than a slot in which a request still runs.
    numbers_matter: bool,
}

impl<T> SlotTable<T> {
    pub(super) fn new(slots_per_instance: u32, numbers_matter: bool) -> Self {
        let (instances, free, vacated) = Default::default();
        Self { instances, free, vacated, slots_per_instance, numbers_matter }
    }

    pub(super) fn instance(&self, instance: InstanceId) -> Option<&InstanceSlots<T>> {
        self.instances.get(&instance)
    }

    pub(super) fn instance_mut(&mut self, instance: InstanceId) -> Option<&mut InstanceSlots<T>> {
        self.instances.get_mut(&instance)
    }

    pub(super) fn instances(&self) -> impl Iterator<Item = &InstanceSlots<T>> {
        self.instances.values()
    }

    pub(super) fn slot(&mut self, slot_id: SlotId) -> Option<&mut SequenceSlot<T>> {
        self.instances.get_mut(&slot_id.instance)?.slots.get_mut(slot_id.slot as usize)
    }

    /// All slots with an occupant or a running request.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &SequenceSlot<T>)> {
        self.instances.iter().flat_map(|(&instance, slots)| {
            let numbered = (0..).zip(&slots.slots);
            let used = numbered.filter(|(_, slot)| slot.occupant.is_some() || slot.running);
            used.map(move |(slot, state)| (SlotId { instance, slot }, state))
        })
    }

    /// Adds the slots of an instance, or keeps the slots of an instance that was being removed.
    pub(super) fn add(&mut self, instance: InstanceId) {
        let slots = self.instances.entry(instance).or_insert_with(InstanceSlots::new);
        slots.leaving = false;
        let used = 0..slots.slots.len();
        let vacant: Vec<_> = used.filter(|&slot| slots.slots[slot].occupant.is_none()).collect();
        for slot in vacant {
            self.offer(SlotId { instance, slot: slot as u32 });
        }
        self.offer_another(instance);
    }

    /// Begins to remove an instance. It gets no new sequence. It is removed when its last sequence has left.
    pub(super) fn remove(&mut self, instance: InstanceId) {
        self.free.retain(|free| free.slot_id.instance != instance);
        if let Some(slots) = self.instances.get_mut(&instance) {
            slots.leaving = true;
        }
        self.remove_unused(instance);
    }

    /// Removes an instance at once, and returns its sequences.
    pub(super) fn lose(
        &mut self,
        instance: InstanceId,
    ) -> impl Iterator<Item = (SlotId, SequenceSlot<T>)> + use<T> {
        self.free.retain(|free| free.slot_id.instance != instance);
        let lost = self.instances.remove(&instance).map(|lost| lost.slots).unwrap_or_default();
        let left = (0..).zip(&lost).map(|(slot, state)| (SlotId { instance, slot }, state.latest));
        self.vacated.extend(left);
        (0..).zip(lost).map(move |(slot, state)| (SlotId { instance, slot }, state))
    }

    /// Takes the best free slot for a sequence. The caller must then call [`move_in`](Self::move_in).
    pub(super) fn claim(&mut self) -> Option<SlotId> {
        let slot_id = self.free.pop_first()?.slot_id;
        let slots = self.instances.get_mut(&slot_id.instance)?;
        if slot_id.slot as usize == slots.slots.len() {
            slots.slots.push(SequenceSlot { occupant: None, running: false, latest: 0, turn: None });
            self.offer_another(slot_id.instance);
        }
        Some(slot_id)
    }

    /// Puts a sequence into a slot. Returns whether it can run at once.
    pub(super) fn move_in(&mut self, slot_id: SlotId, sequence: Sequence<T>) -> bool {
        let instance = self.instances.get_mut(&slot_id.instance).expect("a slot that was claimed is there");
        let slot = &mut instance.slots[slot_id.slot as usize];
        debug_assert!(slot.occupant.is_none(), "{slot_id:?} has an occupant");
        slot.latest = sequence.number;
        slot.occupant = Some(sequence);
        instance.occupants += 1;
        !slot.running
    }

    /// Removes the occupant of a slot. The caller must then [offer](Self::offer) the slot again.
    pub(super) fn move_out(&mut self, slot_id: SlotId) -> Option<Sequence<T>> {
        let instance = self.instances.get_mut(&slot_id.instance)?;
        let slot = instance.slots.get_mut(slot_id.slot as usize)?;
        let occupant = slot.occupant.take()?;
        instance.occupants -= 1;
        if !slot.running {
            self.vacated.insert(slot_id, slot.latest);
        }
        Some(occupant)
    }

    /// Whether the instance is being removed, so that its current sequences are its last.
    pub(super) fn is_leaving(&self, instance: InstanceId) -> bool {
        self.instances.get(&instance).is_none_or(|slots| slots.leaving)
    }

    /// Makes a slot available for the next sequence, unless its instance is being removed.
    pub(super) fn offer(&mut self, slot_id: SlotId) {
        if self.is_leaving(slot_id.instance) {
            self.remove_unused(slot_id.instance);
            return;
        }
        let free = self.free_slot(slot_id);
        self.free.insert(free);
    }

    /// Records that the request of a slot has stopped. Returns whether one was running.
    pub(super) fn stop(&mut self, slot_id: SlotId) -> bool {
        let as_running = self.free_slot(slot_id);
        let Some(instance) = self.instances.get_mut(&slot_id.instance) else { return false };
        let slot = instance.slots.get_mut(slot_id.slot as usize);
        let Some(slot) = slot.filter(|slot| slot.running) else { return false };
        slot.running = false;
        instance.running -= 1;
        if slot.occupant.is_none() {
            self.vacated.insert(slot_id, slot.latest);
            // The slot may now rank higher for the next sequence.
            self.free.remove(&as_running);
            self.offer(slot_id);
        }
        true
    }

    /// Records that a slot has no request any more.
    pub(super) fn remove_ready(&mut self, slot_id: SlotId) {
        if let Some(instance) = self.instances.get_mut(&slot_id.instance) {
            instance.remove_ready(slot_id.slot);
        }
    }

    /// The slots that sequences have left since the last call.
    pub(super) fn take_vacated(&mut self) -> Vec<VacatedSlot> {
        let vacated = std::mem::take(&mut self.vacated).into_iter();
        vacated
            .map(|(SlotId { instance, slot }, sequence_number)| VacatedSlot {
                instance,
                slot,
                sequence_number,
            })
            .collect()
    }

    fn free_slot(&self, slot_id: SlotId) -> Free {
        let slots = self.instances.get(&slot_id.instance).map(|slots| &slots.slots[..]).unwrap_or_default();
        let running = u32::from(slots.get(slot_id.slot as usize).is_some_and(|slot| slot.running));
        let rank = if self.numbers_matter { (slot_id.slot, running) } else { (running, slot_id.slot) };
        Free { rank, slot_id }
    }

    /// Offers the first slot that was never used, if the configuration allows one more.
    fn offer_another(&mut self, instance: InstanceId) {
        let used = self.instances.get(&instance).map_or(0, |slots| slots.slots.len());
        if let Ok(slot) = u32::try_from(used)
            && slot < self.slots_per_instance
        {
            self.offer(SlotId { instance, slot });
        }
    }

    fn remove_unused(&mut self, instance: InstanceId) {
        let deserted = |slots: &InstanceSlots<T>| slots.leaving && slots.is_unused();
        if self.instances.get(&instance).is_some_and(deserted) {
            self.instances.remove(&instance);
        }
    }
}
