//! The sequence batcher: requests of one sequence run in order, one at a time, on one instance.
//!
//! A sequence begins with START. It gets a slot of an instance, or waits in the backlog until one is free,
//! and keeps the slot until its last request has left: the one with END, or what there was when it was
//! cancelled or had been silent for too long. Whoever is first in the backlog moves in at that very moment,
//! and runs as soon as the backend has given back the request before.
//!
//! State lives in the thing it describes: a [`Sequence`] is owned by its slot or by the backlog, and `open`
//! only says where to look for the one that a correlation id names now.
use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::{
    Batch, DueBatch, Entry, InstanceId, Meta, Note, Rejected, Rejection, Row, Scheduler, Timestamp, cut::Cut,
};

mod backlog;
mod config;
mod direct;
mod endings;
mod oldest;
mod routing;
mod slots;
mod step;
#[cfg(test)]
mod tests;
mod view;

use backlog::Backlog;
pub use config::{DirectStrategy, OldestStrategy, SequenceBatching, Strategy};
use direct::Direct;
use oldest::Oldest;
use routing::Role;
use slots::{InstanceSlots, SlotId, SlotTable};
pub use step::{SequenceId, SequenceStep};
pub use view::SlotState;

/// The policy of a model with [`SequenceBatching`].
///
/// A request costs the same however many sequences there are, but for the logarithm in ordered sets.
///
/// Besides what [`Scheduler`] asks: [`released`](Scheduler::released) is due for every request of a batch, in
/// any order, and may come before or after the instance is idle. Instances are offered to
/// [`due`](Scheduler::due) even if requests of theirs are still out: slots that are free of them go on.
#[derive(Debug)]
pub struct SequenceBatcher<T> {
    service: StrategyState,
    slots: SlotTable<T>,
    backlog: Backlog<T>,
    /// Where the open sequence of an id is.
    open: HashMap<SequenceId, SequenceLocation>,
    /// Slots whose sequence is open and has nothing to do, and when it will have been so for too long.
    idle_sequences: BTreeSet<(Timestamp, SlotId)>,
    config: SequenceBatching,
    /// Whether `hold_until_queued` has not been reached.
    held: bool,
    waiting: usize,
    last_generated_id: u64,
    latest: Timestamp,
    draining: bool,
    notes: Vec<Note>,
}

/// A run of requests that share a correlation id.
#[derive(Debug)]
struct Sequence<T> {
    id: SequenceId,
    /// Whether more requests may join. Then, and only then, `open` of the batcher points here.
    open: bool,
    requests: VecDeque<Entry<T>>,
    /// When it will have been silent for too long, if it has a slot and nothing to do.
    idle_deadline: Option<Timestamp>,
}

impl<T> Sequence<T> {
    fn new(id: SequenceId, open: bool) -> Self {
        // Most sequences never have two requests waiting.
        Self { id, open, requests: VecDeque::with_capacity(1), idle_deadline: None }
    }

    fn push(&mut self, entry: Entry<T>, end: bool) {
        debug_assert!(self.open, "sequence {} is closed", self.id);
        self.open = !end;
        self.requests.push_back(entry);
    }

    fn is_finished(&self) -> bool {
        !self.open && self.requests.is_empty()
    }

    /// Whether nobody waits for one of its requests any more.
    fn has_cancelled_request(&self, is_cancelled: &dyn Fn(&T) -> bool) -> bool {
        self.requests.iter().any(|entry| is_cancelled(&entry.payload))
    }
}

/// Where a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SequenceLocation {
    Slot(SlotId),
    /// By its number there.
    Backlog(u64),
}

/// The order of service.
#[derive(Debug)]
enum StrategyState {
    Direct(Direct),
    Oldest(Oldest),
}

impl<T> SequenceBatcher<T> {
    /// Starts with the instances 0 to `instances`, all slots free.
    #[must_use]
    pub fn new(config: SequenceBatching, instances: usize) -> Self {
        let slots = config.slots_per_instance();
        let service = match config.strategy.clone() {
            Strategy::Direct(direct) => StrategyState::Direct(Direct::new(direct, slots)),
            Strategy::Oldest(oldest) => StrategyState::Oldest(Oldest::new(oldest, config.max_batch_size)),
        };
        let mut slots = SlotTable::new(slots, matches!(service, StrategyState::Direct(_)));
        (0..instances).for_each(|instance| slots.add(instance));
        Self {
            service,
            slots,
            backlog: Backlog::new(),
            open: HashMap::new(),
            idle_sequences: BTreeSet::new(),
            held: config.hold_until_queued > 0 || config.hold_until_backlogged > 0,
            config,
            waiting: 0,
            last_generated_id: 0,
            latest: Timestamp::default(),
            draining: false,
            notes: Vec::new(),
        }
    }

    /// Time does not run backwards here, whatever clocks say.
    fn clock(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn decide(&self, instance: &InstanceSlots<T>, now: Timestamp) -> Cut {
        if self.held {
            return Cut::Empty;
        }
        let cut = match &self.service {
            StrategyState::Direct(direct) => direct.decide(instance, now),
            StrategyState::Oldest(oldest) => oldest.decide(instance, now),
        };
        match (cut, &self.service) {
            // Nobody else will come: waiting would be for nothing.
            (Cut::Hold(_), service) if self.draining && instance.all_are_ready() => {
                Cut::Release(match service {
                    StrategyState::Direct(_) => instance.ready.len(),
                    StrategyState::Oldest(oldest) => oldest.front(instance).requests(),
                })
            }
            (cut, _) => cut,
        }
    }

    /// Whether `hold_until_queued` is still to come.
    fn still_held(&self) -> bool {
        let in_slots = match &self.service {
            StrategyState::Direct(_) => self.waiting - self.backlog.requests(),
            StrategyState::Oldest(_) => self.slots.instances().map(|instance| instance.ready.len()).sum(),
        };
        in_slots < self.config.hold_until_queued
            || self.backlog.requests() < self.config.hold_until_backlogged
    }
}

impl<T: Send> Scheduler<T> for SequenceBatcher<T> {
    fn enqueue(&mut self, now: Timestamp, mut meta: Meta, payload: T) -> Result<(), Rejected<T>> {
        let role = match self.role(&mut meta) {
            Ok(role) => role,
            Err(reason) => return Err(Rejected { payload, reason }),
        };
        let arrived = self.clock(now);
        let entry = Entry { meta, arrived, payload };
        self.waiting += 1;
        match role {
            Role::Joins(place) => self.join(place, entry),
            Role::Begins => self.begin(entry),
        }
        self.held = self.held && self.still_held();
        Ok(())
    }

    /// Hands back what has waited too long in the backlog, and closes sequences that were silent for too
    /// long in a slot. One in the backlog cannot be blamed for its silence.
    fn expire(&mut self, now: Timestamp) -> Vec<Rejected<T>> {
        let now = self.clock(now);
        let mut rejected = Vec::new();
        while let Some(sequence) = self.backlog.pop_late(now) {
            self.forget(&sequence);
            self.reject_all(sequence.requests, Rejection::SequenceTimedOut, &mut rejected);
        }
        while let Some(&(idle_deadline, slot_id)) = self.idle_sequences.first()
            && idle_deadline <= now
        {
            self.idle_sequences.pop_first();
            self.vacate(slot_id);
        }
        rejected
    }

    /// A cancelled request takes along all of its sequence that wait, and closes it: those after it would
    /// meet a state that lacks it.
    fn sweep(&mut self, is_cancelled: &dyn Fn(&T) -> bool) -> Vec<Rejected<T>> {
        let mut swept = Vec::new();
        for sequence in self.backlog.sweep(is_cancelled) {
            self.forget(&sequence);
            self.reject_all(sequence.requests, Rejection::Cancelled, &mut swept);
        }
        self.sweep_slots(is_cancelled, &mut swept);
        swept
    }

    fn due(&self, now: Timestamp, idle: &[InstanceId]) -> Option<DueBatch> {
        idle.iter().find_map(|&instance| match self.decide(self.slots.instance(instance)?, now) {
            Cut::Release(requests) => Some(DueBatch { instance, requests }),
            Cut::Hold(_) | Cut::Empty => None,
        })
    }

    fn take(&mut self, due: DueBatch) -> Batch<T> {
        let DueBatch { instance, requests } = due;
        let slots = self.slots.instance_mut(instance).expect("the receipt is older than the instance");
        let rows = match &self.service {
            StrategyState::Direct(_) => Direct::take(slots),
            StrategyState::Oldest(_) => Oldest::take(slots, requests),
        };
        for row in &rows {
            let &Row::Request { slot: Some(slot), .. } = row else { continue };
            let slot_id = SlotId { instance, slot };
            self.waiting -= 1;
            let occupant = self.slots.slot(slot_id).and_then(|slot| slot.occupant.as_ref());
            // The end of an iterative sequence is not known before its request is released.
            if !self.config.iterative && occupant.is_some_and(Sequence::is_finished) {
                self.vacate(slot_id);
            }
        }
        Batch { instance, rows }
    }

    fn released(&mut self, now: Timestamp, instance: InstanceId, slot: u32) {
        let now = self.clock(now);
        let slot_id = SlotId { instance, slot };
        if !self.slots.stop(slot_id) {
            return;
        }
        let Some(slot) = self.slots.slot(slot_id) else { return };
        let Some(occupant) = &mut slot.occupant else { return };
        if self.config.iterative && occupant.open {
            // Its request was the sequence. What else the client has sent still runs.
            occupant.open = false;
            self.open.remove(&occupant.id);
        }
        if !occupant.requests.is_empty() {
            self.became_ready(slot_id);
        } else if occupant.open {
            let idle_deadline = now + self.config.max_sequence_idle;
            occupant.idle_deadline = Some(idle_deadline);
            self.idle_sequences.insert((idle_deadline, slot_id));
        } else {
            self.vacate(slot_id);
        }
    }

    /// Puts the request back before all others of its sequence, with neither START nor END. Whether anybody
    /// still waits for it is not looked at: ask before.
    fn reschedule(
        &mut self,
        now: Timestamp,
        instance: InstanceId,
        slot: u32,
        mut entry: Entry<T>,
    ) -> Result<(), Rejected<T>> {
        if !self.config.iterative {
            return Err(Rejected { payload: entry.payload, reason: Rejection::NotIterative });
        }
        let slot_id = SlotId { instance, slot };
        if self.slots.slot(slot_id).is_none_or(|slot| slot.occupant.is_none()) || !self.slots.stop(slot_id) {
            return Err(Rejected { payload: entry.payload, reason: Rejection::InstanceLost });
        }
        entry.arrived = self.clock(now);
        if let Some(step) = &mut entry.meta.sequence {
            step.start = false;
            step.end = false;
        }
        if let Some(occupant) = self.slots.slot(slot_id).and_then(|slot| slot.occupant.as_mut()) {
            occupant.requests.push_front(entry);
        }
        self.waiting += 1;
        self.became_ready(slot_id);
        Ok(())
    }

    fn add_instance(&mut self, now: Timestamp, instance: InstanceId) {
        self.clock(now);
        self.slots.add(instance);
        while self.backlog.requests() > 0
            && let Some(slot_id) = self.slots.claim()
        {
            if let Some(next) = self.backlog.pop() {
                self.move_in(slot_id, next);
            }
        }
    }

    fn remove_instance(&mut self, now: Timestamp, instance: InstanceId) {
        self.clock(now);
        self.slots.remove(instance);
    }

    fn may_leave(&self, instance: InstanceId) -> bool {
        self.slots.instance(instance).is_none()
    }

    fn lose_instance(&mut self, now: Timestamp, instance: InstanceId) -> Vec<Rejected<T>> {
        self.clock(now);
        let mut rejected = Vec::new();
        for (slot_id, slot) in self.slots.lose(instance) {
            let Some(sequence) = slot.occupant else { continue };
            if let Some(idle_deadline) = sequence.idle_deadline {
                self.idle_sequences.remove(&(idle_deadline, slot_id));
            }
            self.forget(&sequence);
            self.reject_all(sequence.requests, Rejection::InstanceLost, &mut rejected);
        }
        rejected
    }

    fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let holds = self.slots.instances().filter_map(|instance| match self.decide(instance, now) {
            Cut::Hold(until) => Some(until),
            Cut::Release(_) | Cut::Empty => None,
        });
        // A deadline is broken when it is over, not when it is reached.
        let late = self.backlog.next_deadline().map(|deadline| deadline + Timestamp::TICK);
        let earliest_idle_deadline = self.idle_sequences.first().map(|&(idle_deadline, _)| idle_deadline);
        holds.chain(late).chain(earliest_idle_deadline).filter(|&at| now < at).min()
    }

    /// Refuses new sequences; those that have begun go on until they end or fall silent.
    fn drain(&mut self) {
        self.draining = true;
        self.held = false;
    }

    /// How many requests wait, in slots and in the backlog.
    fn in_flight(&self) -> usize {
        self.waiting
    }

    fn live_sequences(&self) -> usize {
        self.open.len()
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
