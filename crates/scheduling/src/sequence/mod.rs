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
    Batch, Due, Entry, InstanceId, Meta, Moment, Note, Rejected, Rejection, Row, Scheduler, cut::Cut,
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
use slots::{InstanceSlots, Seat, SlotTable};
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
    service: Service,
    slots: SlotTable<T>,
    backlog: Backlog<T>,
    /// Where the open sequence of an id is.
    open: HashMap<SequenceId, Place>,
    /// Slots whose sequence is open and has nothing to do, and when it will have been so for too long.
    silent: BTreeSet<(Moment, Seat)>,
    config: SequenceBatching,
    /// Whether `hold_until_queued` has not been reached.
    held: bool,
    waiting: usize,
    last_own_id: u64,
    latest: Moment,
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
    patience_ends: Option<Moment>,
}

impl<T> Sequence<T> {
    fn new(id: SequenceId, open: bool) -> Self {
        // Most sequences never have two requests waiting.
        Self { id, open, requests: VecDeque::with_capacity(1), patience_ends: None }
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
    fn is_touched(&self, gone: &dyn Fn(&T) -> bool) -> bool {
        self.requests.iter().any(|entry| gone(&entry.payload))
    }
}

/// Where a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Slot(Seat),
    /// By its number there.
    Backlog(u64),
}

/// The order of service.
#[derive(Debug)]
enum Service {
    Direct(Direct),
    Oldest(Oldest),
}

impl<T> SequenceBatcher<T> {
    /// Starts with the instances 0 to `instances`, all slots free.
    #[must_use]
    pub fn new(config: SequenceBatching, instances: usize) -> Self {
        let slots = config.slots_per_instance();
        let service = match config.strategy.clone() {
            Strategy::Direct(direct) => Service::Direct(Direct::new(direct, slots)),
            Strategy::Oldest(oldest) => Service::Oldest(Oldest::new(oldest, config.max_batch_size)),
        };
        let mut slots = SlotTable::new(slots, matches!(service, Service::Direct(_)));
        (0..instances).for_each(|instance| slots.add(instance));
        Self {
            service,
            slots,
            backlog: Backlog::new(),
            open: HashMap::new(),
            silent: BTreeSet::new(),
            held: config.hold_until_queued > 0 || config.hold_until_backlogged > 0,
            config,
            waiting: 0,
            last_own_id: 0,
            latest: Moment::default(),
            draining: false,
            notes: Vec::new(),
        }
    }

    /// Time does not run backwards here, whatever clocks say.
    fn clock(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn decide(&self, instance: &InstanceSlots<T>, now: Moment) -> Cut {
        if self.held {
            return Cut::Empty;
        }
        let cut = match &self.service {
            Service::Direct(direct) => direct.decide(instance, now),
            Service::Oldest(oldest) => oldest.decide(instance, now),
        };
        match (cut, &self.service) {
            // Nobody else will come: waiting would be for nothing.
            (Cut::Hold(_), service) if self.draining && instance.all_are_ready() => {
                Cut::Release(match service {
                    Service::Direct(_) => instance.ready.len(),
                    Service::Oldest(oldest) => oldest.front(instance).requests(),
                })
            }
            (cut, _) => cut,
        }
    }

    /// Whether `hold_until_queued` is still to come.
    fn still_held(&self) -> bool {
        let in_slots = match &self.service {
            Service::Direct(_) => self.waiting - self.backlog.requests(),
            Service::Oldest(_) => self.slots.instances().map(|instance| instance.ready.len()).sum(),
        };
        in_slots < self.config.hold_until_queued
            || self.backlog.requests() < self.config.hold_until_backlogged
    }
}

impl<T: Send> Scheduler<T> for SequenceBatcher<T> {
    fn enqueue(&mut self, now: Moment, mut meta: Meta, payload: T) -> Result<(), Rejected<T>> {
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
    fn expire(&mut self, now: Moment) -> Vec<Rejected<T>> {
        let now = self.clock(now);
        let mut rejected = Vec::new();
        while let Some(sequence) = self.backlog.pop_late(now) {
            self.forget(&sequence);
            self.reject_all(sequence.requests, Rejection::SequenceTimedOut, &mut rejected);
        }
        while let Some(&(patience_ends, seat)) = self.silent.first()
            && patience_ends <= now
        {
            self.silent.pop_first();
            self.vacate(seat);
        }
        rejected
    }

    /// A cancelled request takes along all of its sequence that wait, and closes it: those after it would
    /// meet a state that lacks it.
    fn sweep(&mut self, gone: &dyn Fn(&T) -> bool) -> Vec<Rejected<T>> {
        let mut swept = Vec::new();
        for sequence in self.backlog.sweep(gone) {
            self.forget(&sequence);
            self.reject_all(sequence.requests, Rejection::Cancelled, &mut swept);
        }
        self.sweep_slots(gone, &mut swept);
        swept
    }

    fn due(&self, now: Moment, idle: &[InstanceId]) -> Option<Due> {
        idle.iter().find_map(|&instance| match self.decide(self.slots.instance(instance)?, now) {
            Cut::Release(requests) => Some(Due { instance, requests }),
            Cut::Hold(_) | Cut::Empty => None,
        })
    }

    fn take(&mut self, due: Due) -> Batch<T> {
        let Due { instance, requests } = due;
        let slots = self.slots.instance_mut(instance).expect("the receipt is older than the instance");
        let rows = match &self.service {
            Service::Direct(_) => Direct::take(slots),
            Service::Oldest(_) => Oldest::take(slots, requests),
        };
        for row in &rows {
            let &Row::Request { slot: Some(slot), .. } = row else { continue };
            let seat = Seat { instance, slot };
            self.waiting -= 1;
            let tenant = self.slots.slot(seat).and_then(|slot| slot.tenant.as_ref());
            // The end of an iterative sequence is not known before its request is released.
            if !self.config.iterative && tenant.is_some_and(Sequence::is_finished) {
                self.vacate(seat);
            }
        }
        Batch { instance, rows }
    }

    fn released(&mut self, now: Moment, instance: InstanceId, slot: u32) {
        let now = self.clock(now);
        let seat = Seat { instance, slot };
        if !self.slots.stop(seat) {
            return;
        }
        let Some(slot) = self.slots.slot(seat) else { return };
        let Some(tenant) = &mut slot.tenant else { return };
        if self.config.iterative && tenant.open {
            // Its request was the sequence. What else the client has sent still runs.
            tenant.open = false;
            self.open.remove(&tenant.id);
        }
        if !tenant.requests.is_empty() {
            self.became_ready(seat);
        } else if tenant.open {
            let patience_ends = now + self.config.max_sequence_idle;
            tenant.patience_ends = Some(patience_ends);
            self.silent.insert((patience_ends, seat));
        } else {
            self.vacate(seat);
        }
    }

    /// Puts the request back before all others of its sequence, with neither START nor END. Whether anybody
    /// still waits for it is not looked at: ask before.
    fn again(
        &mut self,
        now: Moment,
        instance: InstanceId,
        slot: u32,
        mut entry: Entry<T>,
    ) -> Result<(), Rejected<T>> {
        if !self.config.iterative {
            return Err(Rejected { payload: entry.payload, reason: Rejection::NotIterative });
        }
        let seat = Seat { instance, slot };
        if self.slots.slot(seat).is_none_or(|slot| slot.tenant.is_none()) || !self.slots.stop(seat) {
            return Err(Rejected { payload: entry.payload, reason: Rejection::InstanceLost });
        }
        entry.arrived = self.clock(now);
        if let Some(step) = &mut entry.meta.sequence {
            step.start = false;
            step.end = false;
        }
        if let Some(tenant) = self.slots.slot(seat).and_then(|slot| slot.tenant.as_mut()) {
            tenant.requests.push_front(entry);
        }
        self.waiting += 1;
        self.became_ready(seat);
        Ok(())
    }

    fn add_instance(&mut self, now: Moment, instance: InstanceId) {
        self.clock(now);
        self.slots.add(instance);
        while self.backlog.requests() > 0
            && let Some(seat) = self.slots.claim()
        {
            if let Some(next) = self.backlog.pop() {
                self.move_in(seat, next);
            }
        }
    }

    fn remove_instance(&mut self, now: Moment, instance: InstanceId) {
        self.clock(now);
        self.slots.remove(instance);
    }

    fn may_leave(&self, instance: InstanceId) -> bool {
        self.slots.instance(instance).is_none()
    }

    fn lose_instance(&mut self, now: Moment, instance: InstanceId) -> Vec<Rejected<T>> {
        self.clock(now);
        let mut rejected = Vec::new();
        for (seat, slot) in self.slots.lose(instance) {
            let Some(sequence) = slot.tenant else { continue };
            if let Some(patience_ends) = sequence.patience_ends {
                self.silent.remove(&(patience_ends, seat));
            }
            self.forget(&sequence);
            self.reject_all(sequence.requests, Rejection::InstanceLost, &mut rejected);
        }
        rejected
    }

    fn next_wakeup(&self, now: Moment) -> Option<Moment> {
        let holds = self.slots.instances().filter_map(|instance| match self.decide(instance, now) {
            Cut::Hold(until) => Some(until),
            Cut::Release(_) | Cut::Empty => None,
        });
        // A deadline is broken when it is over, not when it is reached.
        let late = self.backlog.next_deadline().map(|deadline| deadline + Moment::TICK);
        let silence = self.silent.first().map(|&(patience_ends, _)| patience_ends);
        holds.chain(late).chain(silence).filter(|&at| now < at).min()
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
