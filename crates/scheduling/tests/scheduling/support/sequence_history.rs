//! A model with sequences and its history. It is compared with the reference after every step.
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    num::NonZeroU64,
    time::Duration,
};

use scheduling::{
    DueBatch, Entry, EntryId, InstanceId, Rejection, Row, Scheduler, SchedulingAttributes, SequenceBatcher,
    SequenceId, SequencePosition, SequenceStrategy, Timestamp, VacatedSlot,
};

use crate::sequences::RequestId;
use crate::support::{
    sequence_load::{Operation, Setting},
    sequence_reference::{PlainRow, Reference},
};

/// A request that a backend executes.
#[derive(Debug)]
struct Running {
    instance: InstanceId,
    slot: u32,
    attributes: SchedulingAttributes,
}

/// A model during its history: the real batcher, the reference, and what an observer can see.
pub(crate) struct History {
    real: Scheduler<RequestId>,
    plain: Reference,
    setting: Setting,
    now: Timestamp,
    idle: Vec<InstanceId>,
    busy: BTreeSet<InstanceId>,
    next_instance: InstanceId,
    arrivals: u64,
    /// The batcher's ids of the requests that it has accepted.
    entries: BTreeMap<RequestId, EntryId>,
    waiting: BTreeMap<RequestId, u64>,
    running: BTreeMap<RequestId, Running>,
    /// For each sequence, the requests that have not ended, in order.
    order: BTreeMap<u64, Vec<RequestId>>,
    sequence_of: BTreeMap<RequestId, u64>,
    run_before: BTreeSet<RequestId>,
    /// The sequence whose state a driver keeps for each slot.
    stored: BTreeMap<(InstanceId, u32), u64>,
    /// The latest reports of slots that sequences have left.
    vacated: VecDeque<VacatedSlot>,
    pub(crate) told: Option<Vec<String>>,
}

impl History {
    pub(crate) fn new(setting: Setting, told: Option<Vec<String>>) -> Self {
        let instances = setting.instances;
        Self {
            real: Scheduler::Sequence(SequenceBatcher::new(setting.config.clone(), instances)),
            plain: Reference::new(setting.config.clone(), instances),
            setting,
            now: Timestamp::default() + Duration::from_millis(1),
            idle: (0..instances).collect(),
            busy: BTreeSet::new(),
            next_instance: instances,
            arrivals: 0,
            entries: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            order: BTreeMap::new(),
            sequence_of: BTreeMap::new(),
            run_before: BTreeSet::new(),
            stored: BTreeMap::new(),
            vacated: VecDeque::new(),
            told,
        }
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push(what());
        }
    }

    pub(crate) fn perform(&mut self, operation: &Operation) {
        self.tell(|| format!("{operation:?}"));
        let now = self.now;
        match *operation {
            Operation::Arrive { ref id, flags, ref attributes, clock_lag } => {
                self.arrive(id.as_ref(), flags, attributes.clone(), clock_lag);
            }
            Operation::Return { which, again } => self.give_back(which, again),
            Operation::Finish { which, all } => {
                if let Some(&instance) = nth(&self.busy, which) {
                    self.finish(instance, all);
                }
            }
            Operation::Wait(duration) => self.advance(now + duration),
            Operation::WaitForWakeup => {
                if let Some(wakeup) = self.real.next_wakeup(now) {
                    self.advance(wakeup);
                }
            }
            Operation::Cancel { first, count, any } => self.cancel(first, count, any),
            Operation::RejectAll => self.reject_all(),
            Operation::AddInstance => self.add_instance(),
            Operation::RemoveInstance(which) => {
                if let Some(instance) = self.instance(which) {
                    self.real.remove_instance(now, instance);
                    self.plain.remove_instance(instance);
                }
            }
            Operation::LoseInstance(which) => self.lose_instance(which),
            Operation::Drain => {
                self.real.drain();
                self.plain.drain();
            }
            Operation::EndQueueDelay => {
                self.real.end_queue_delay();
                self.plain.end_queue_delay();
            }
        }
        self.settle();
        self.free_states();
        self.compare();
    }

    /// Frees the states of sequences that are over. Another thread may do so late, so each report is used several times.
    fn free_states(&mut self) {
        self.vacated.extend(self.real.vacated());
        for vacated in &self.vacated {
            let slot = (vacated.instance, vacated.slot);
            if self.stored.get(&slot).is_some_and(|&number| number <= vacated.sequence_number) {
                self.stored.remove(&slot);
            }
        }
        let surplus = self.vacated.len().saturating_sub(20);
        self.vacated.drain(..surplus);
        let used: BTreeSet<_> = self.real.slots().map(|slot| (slot.instance, slot.slot)).collect();
        assert!(
            self.stored.keys().all(|slot| used.contains(slot)),
            "a slot without a sequence keeps a state"
        );
    }

    fn arrive(
        &mut self,
        id: Option<&SequenceId>,
        flags: u64,
        mut attributes: SchedulingAttributes,
        clock_lag: u64,
    ) {
        let live = id.is_some_and(|id| self.plain.is_live(id));
        let start = flags % 100 < if live { 8 } else { 90 };
        let end = (flags / 100).is_multiple_of(4);
        attributes.sequence = SequencePosition { id: id.cloned(), start, end };
        let read = Timestamp::from_nanos(self.now.as_nanos() - clock_lag * 1_000);
        let request = self.arrivals;
        self.arrivals += 1;
        let expected = self.plain.enqueue(read, &attributes, request);
        let answer = self.real.enqueue(read, attributes, request).map_err(|rejected| {
            assert_eq!(rejected.payload, request, "somebody else is refused");
            rejected.reason
        });
        assert_eq!(answer.map(drop), expected.map(drop), "request {request}");
        self.entries.extend(answer.ok().map(|entry| (request, entry)));
        if let Ok(sequence) = expected {
            self.waiting.insert(request, sequence);
            self.sequence_of.insert(request, sequence);
            self.order.entry(sequence).or_default().push(request);
        }
        assert_eq!(self.real.take_restarts(), std::mem::take(&mut self.plain.restarts));
    }

    fn give_back(&mut self, which: u64, again: bool) {
        let requests: Vec<_> = self.running.keys().copied().collect();
        let Some(&request) = nth(&requests, which) else { return };
        if again {
            self.reschedule(request);
        } else {
            self.release(request);
        }
    }

    fn reschedule(&mut self, request: RequestId) {
        let Running { instance, slot, attributes } = self.running.remove(&request).expect("it runs");
        let id = self.entries[&request];
        let entry =
            Entry { id, attributes: attributes.clone(), arrived: Timestamp::default(), payload: request };
        let answer =
            self.real.reschedule(self.now, instance, slot, entry).map_err(|rejected| rejected.reason);
        if !self.setting.config.iterative {
            assert_eq!(answer, Err(Rejection::NotIterative));
            self.running.insert(request, Running { instance, slot, attributes });
            return;
        }
        assert_eq!(answer, Ok(()));
        self.plain.reschedule(self.now, (instance, slot), request, attributes.shape_key);
        self.waiting.insert(request, self.sequence_of[&request]);
        self.run_before.insert(request);
    }

    fn release(&mut self, request: RequestId) {
        let Running { instance, slot, .. } = self.running.remove(&request).expect("it runs");
        self.real.released(self.now, instance, slot);
        self.plain.released(self.now, instance, slot);
        self.end(request);
    }

    /// Records that a request has ended.
    fn end(&mut self, request: RequestId) {
        let sequence = self.sequence_of[&request];
        self.order.entry(sequence).or_default().retain(|&other| other != request);
    }

    fn finish(&mut self, instance: InstanceId, all: bool) {
        let here = self.running.iter().filter(|(_, running)| all && running.instance == instance);
        let here: Vec<_> = here.map(|(&request, _)| request).collect();
        here.into_iter().for_each(|request| self.release(request));
        self.busy.remove(&instance);
        self.idle.push(instance);
    }

    /// Cancels some waiting requests, or with `any` some of all requests that ever existed.
    fn cancel(&mut self, first: u64, count: u64, any: bool) {
        let waiting: Vec<_> = self.waiting.keys().copied().collect();
        let requests = if any { self.entries.keys().copied().collect() } else { waiting };
        for next in 0..count {
            let Some(&request) = nth(&requests, first.wrapping_add(next)) else { return };
            let rejected = self.real.cancel(self.entries[&request]);
            assert!(rejected.iter().all(|rejected| rejected.reason == Rejection::Cancelled));
            let rejected: Vec<_> = rejected.into_iter().map(|rejected| rejected.payload).collect();
            assert_eq!(rejected, self.plain.cancel(request), "cancel({request})");
            let waited = self.waiting.contains_key(&request);
            assert_eq!(rejected.contains(&request), waited, "a request is cancelled if and only if it waits");
            self.refused(&rejected);
        }
    }

    /// Rejects every waiting request.
    fn reject_all(&mut self) {
        let rejected = self.real.reject_all();
        assert!(rejected.iter().all(|rejected| rejected.reason == Rejection::Cancelled));
        let rejected: Vec<_> = rejected.into_iter().map(|rejected| rejected.payload).collect();
        assert_eq!(rejected, self.plain.reject_all(), "reject_all");
        self.refused(&rejected);
        assert!(self.waiting.is_empty(), "a request waits");
    }

    fn add_instance(&mut self) {
        // Sometimes an instance that was being removed stays.
        let leaving = self.idle.iter().chain(&self.busy).copied().min();
        let instance = match leaving.filter(|instance| instance % 2 == 0) {
            Some(instance) if self.plain.capacity() > 0 => instance,
            _ if self.idle.len() + self.busy.len() < 4 || self.plain.capacity() == 0 => {
                self.next_instance += 1;
                self.idle.push(self.next_instance);
                self.next_instance
            }
            _ => return,
        };
        self.real.add_instance(self.now, instance);
        self.plain.add_instance(self.now, instance);
    }

    fn instance(&self, which: u64) -> Option<InstanceId> {
        let all: Vec<_> = self.idle.iter().chain(&self.busy).copied().collect();
        nth(&all, which).copied()
    }

    fn lose_instance(&mut self, which: u64) {
        let Some(instance) = self.instance(which) else { return };
        let lost = self.real.lose_instance(self.now, instance);
        assert!(lost.iter().all(|rejected| rejected.reason == Rejection::InstanceLost));
        let lost: Vec<_> = lost.into_iter().map(|rejected| rejected.payload).collect();
        assert_eq!(lost, self.plain.lose_instance(instance), "lose_instance({instance})");
        self.refused(&lost);
        let ran = self.running.extract_if(.., |_, running| running.instance == instance);
        let ran: Vec<_> = ran.map(|(request, running)| (request, running.slot)).collect();
        for (request, slot) in ran {
            // The backend may report a release late.
            self.real.released(self.now, instance, slot);
            self.end(request);
        }
        self.gone(instance);
    }

    fn gone(&mut self, instance: InstanceId) {
        self.idle.retain(|&idle| idle != instance);
        self.busy.remove(&instance);
    }

    fn refused(&mut self, requests: &[RequestId]) {
        for &request in requests {
            assert!(self.waiting.remove(&request).is_some(), "{request} was not waiting");
            self.end(request);
        }
        self.tell(|| format!("  refused {requests:?}"));
    }

    /// Advances the time. Stops at every time at which something happens without an event.
    fn advance(&mut self, until: Timestamp) {
        // No history needs more steps.
        for _ in 0..1_000 {
            let wakeup = self.real.next_wakeup(self.now);
            assert!(wakeup.is_none_or(|wakeup| wakeup > self.now), "a wake-up in the past would spin");
            let next = wakeup.map_or(until, |wakeup| wakeup.min(until));
            if next > self.now {
                let before = Timestamp::from_nanos(next.as_nanos() - 1);
                assert_eq!(self.real.expire(before).len(), 0, "refused before the wake-up");
                assert_eq!(self.real.due(before, &self.idle), None, "due before the wake-up");
                self.plain.expire(before);
            }
            self.now = next;
            self.settle();
            if next == until {
                return;
            }
        }
        panic!("time stands still");
    }

    /// Does what the driver does after every event.
    fn settle(&mut self) {
        let late = self.real.expire(self.now);
        assert!(late.iter().all(|rejected| rejected.reason == Rejection::SequenceTimedOut));
        let late: Vec<_> = late.into_iter().map(|rejected| rejected.payload).collect();
        assert_eq!(late, self.plain.expire(self.now), "expire");
        if !late.is_empty() {
            self.refused(&late);
        }
        loop {
            let expected = self.plain.due(self.now, &self.idle);
            let due = self.real.due(self.now, &self.idle);
            let on = due.as_ref().map(DueBatch::instance);
            assert_eq!(on, expected.as_ref().map(|&(instance, _)| instance), "due");
            let (Some(due), Some((instance, rows))) = (due, expected) else { break };
            self.start(due, instance, &rows);
        }
        for instance in self.idle.clone().into_iter().chain(self.busy.clone()) {
            assert_eq!(self.real.may_leave(instance), !self.plain.has_instance(instance), "{instance}");
            if self.real.may_leave(instance) {
                self.gone(instance);
            }
        }
        let wakeup = self.real.next_wakeup(self.now);
        assert_eq!(wakeup, self.plain.next_wakeup(self.now), "next_wakeup");
    }

    fn start(&mut self, due: DueBatch, instance: InstanceId, expected: &[PlainRow]) {
        let batch = self.real.take(due);
        assert_eq!(batch.instance, instance);
        self.plain.take(instance, expected);
        let row = |row: &Row<RequestId>| match row {
            Row::Request { entry, slot } => Some((entry.payload, slot.expect("a sequence has a slot"))),
            Row::Padding => None,
        };
        let rows: Vec<_> = batch.rows.iter().map(row).collect();
        self.tell(|| format!("  batch {rows:?} on {instance}"));
        assert_eq!(rows, expected, "take");
        self.check_batch(instance, &rows);
        let shapes: BTreeSet<_> = batch.rows.iter().filter_map(shape).collect();
        assert_eq!(shapes.len(), 1, "shapes are mixed, or there is nobody");
        for row in batch.rows {
            let Row::Request { entry, slot: Some(slot) } = row else { continue };
            let request = entry.payload;
            let sequence = self.waiting.remove(&request).expect("who runs has waited");
            assert_eq!(self.order[&sequence].first(), Some(&request), "{request} runs out of turn");
            let step = &entry.attributes.sequence;
            // An iterative request carries its state.
            if !self.setting.config.iterative {
                let number = entry.id.sequence_number();
                let stored = self.stored.remove(&(instance, slot));
                assert!(step.start || stored == Some(number), "the state of request {request} is gone");
                if !step.end {
                    self.stored.insert((instance, slot), number);
                }
            }
            assert!(step.id.as_ref().is_some_and(|id| id.to_string() != ""), "{request} has no id");
            let again = self.run_before.contains(&request);
            assert!(!again || !(step.start || step.end), "{request} begins or ends twice");
            self.running.insert(request, Running { instance, slot, attributes: entry.attributes });
        }
        self.idle.retain(|&idle| idle != instance);
        self.busy.insert(instance);
    }

    fn check_batch(&self, instance: InstanceId, rows: &[PlainRow]) {
        let most = self.setting.config.max_batch_size.max(1) as usize;
        assert!(rows.len() <= most, "too many rows");
        let direct = matches!(self.setting.config.strategy, SequenceStrategy::Direct(_));
        let mut slots = BTreeSet::new();
        for (number, row) in rows.iter().enumerate() {
            let Some((request, slot)) = *row else {
                assert!(direct, "only the direct strategy pads");
                continue;
            };
            assert!(!direct || slot as usize == number, "a row is a slot");
            assert!(slots.insert(slot), "slot {slot} is there twice");
            let shared = self.running.values().any(|it| (it.instance, it.slot) == (instance, slot));
            assert!(!shared, "{request} runs in a slot that is busy");
        }
    }

    fn compare(&self) {
        assert_eq!(self.real.queued(), self.waiting.len(), "queued");
        assert_eq!(self.plain.queued(), self.waiting.len(), "queued of the reference");
        assert_eq!(self.real.live_sequences(), self.plain.live_sequences(), "live_sequences");
        let occupants = self.real.slots().filter_map(|it| Some(((it.instance, it.slot), it.sequence?)));
        assert_eq!(occupants.collect::<Vec<_>>(), self.plain.occupants());
        let running = self.real.slots().filter(|slot| slot.running).count();
        assert_eq!(running, self.running.len(), "running");
        assert_eq!(self.real.backlog().map(|(id, _)| id).collect::<Vec<_>>(), self.plain.backlog());
    }

    /// Ends everything. Afterwards as many slots must be free as at the start.
    pub(crate) fn rest(&mut self) {
        if self.plain.capacity() == 0 {
            self.perform(&Operation::AddInstance);
        }
        if self.setting.config.hold_until_queued + self.setting.config.hold_until_backlogged > 0 {
            self.perform(&Operation::Drain);
        }
        for _ in 0..10_000 {
            let busy: Vec<_> = self.busy.iter().copied().collect();
            let requests: Vec<_> = self.running.keys().copied().collect();
            requests.into_iter().for_each(|request| self.release(request));
            busy.into_iter().for_each(|instance| self.finish(instance, true));
            self.settle();
            self.compare();
            if let Some(wakeup) = self.real.next_wakeup(self.now).filter(|_| self.busy.is_empty()) {
                self.advance(wakeup);
            }
            if self.busy.is_empty() && self.running.is_empty() && self.real.next_wakeup(self.now).is_none() {
                break;
            }
        }
        assert!(self.waiting.is_empty(), "somebody never runs: {:?}", self.waiting);
        assert!(self.real.slots().next().is_none(), "a slot is not free");
        assert!(self.order.values().all(Vec::is_empty), "somebody never comes to an end");
        let capacity = self.plain.capacity();
        for number in 0..capacity {
            let number = NonZeroU64::new(1_000 + number as u64).map(SequenceId::Number);
            self.arrive(number.as_ref(), 100, SchedulingAttributes::default(), 0);
            self.compare();
        }
        assert!(self.real.backlog().next().is_none(), "there is not room for {capacity}");
    }
}

fn shape(row: &Row<RequestId>) -> Option<u64> {
    match row {
        Row::Request { entry, .. } => Some(entry.attributes.shape_key),
        Row::Padding => None,
    }
}

/// One of the existing elements, if there is any.
fn nth<'a, I: IntoIterator<Item = &'a E, IntoIter: ExactSizeIterator>, E: 'a>(
    all: I,
    which: u64,
) -> Option<&'a E> {
    let mut all = all.into_iter();
    let len = all.len() as u64;
    if len == 0 { None } else { all.nth((which % len) as usize) }
}
