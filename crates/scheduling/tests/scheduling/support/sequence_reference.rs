//! A plain second version of the sequence batcher. It searches its lists again for every answer.
use std::time::Duration;

use scheduling::{
    InstanceId, Rejection, SchedulingAttributes, SequenceBatching, SequenceId, SequenceStrategy, Timestamp,
};

use crate::sequences::RequestId;

/// A row of a batch: the request and its slot; `None` is padding.
pub(crate) type PlainRow = Option<(RequestId, u32)>;

#[derive(Debug)]
pub(crate) struct Reference {
    config: SequenceBatching,
    pub(crate) slots: u32,
    /// The sequences that are not over, in the order in which they began.
    sequences: Vec<Sequence>,
    instances: Vec<(InstanceId, Stay)>,
    /// Slots with a request that has not been released.
    running: Vec<(InstanceId, u32)>,
    begun: u64,
    own_ids: u64,
    /// The number of turns given so far.
    turns: u64,
    latest: Timestamp,
    held: bool,
    draining: bool,
    delay_ended: bool,
    pub(crate) restarts: Vec<SequenceId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    Stays,
    Leaves,
}

#[derive(Debug)]
struct Sequence {
    /// The number of the sequence since the start.
    number: u64,
    id: SequenceId,
    open: bool,
    requests: Vec<Request>,
    /// `None`: the sequence is in the backlog.
    slot: Option<(InstanceId, u32)>,
    /// The time since which the sequence is idle.
    idle_since: Option<Timestamp>,
    /// The turn of the sequence, if its first request may run, and the time since which it may run.
    turn: Option<(u64, Timestamp)>,
}

#[derive(Debug)]
struct Request {
    id: RequestId,
    arrived: Timestamp,
    timeout: Option<Duration>,
    shape: u64,
}

impl Reference {
    pub(crate) fn new(config: SequenceBatching, instances: usize) -> Self {
        let slots = match &config.strategy {
            SequenceStrategy::Direct(_) => config.max_batch_size.max(1),
            SequenceStrategy::Oldest(oldest) if oldest.max_candidate_sequences == 0 => {
                config.max_batch_size.max(1)
            }
            SequenceStrategy::Oldest(oldest) => oldest.max_candidate_sequences,
        };
        Self {
            slots,
            sequences: Vec::new(),
            instances: (0..instances).map(|instance| (instance, Stay::Stays)).collect(),
            running: Vec::new(),
            begun: 0,
            own_ids: 0,
            turns: 0,
            latest: Timestamp::default(),
            held: config.hold_until_queued > 0 || config.hold_until_backlogged > 0,
            config,
            draining: false,
            delay_ended: false,
            restarts: Vec::new(),
        }
    }

    /// Accepts a request, and returns the number of its sequence.
    pub(crate) fn enqueue(
        &mut self,
        now: Timestamp,
        attributes: &SchedulingAttributes,
        id: RequestId,
    ) -> Result<u64, Rejection> {
        if attributes.batch_size > 1 {
            return Err(Rejection::MultipleRows);
        }
        let (step, given) = (&attributes.sequence, attributes.sequence.id.as_ref());
        let given = given.filter(|id| id.to_string() != "");
        if given.is_none() && !self.config.iterative {
            return Err(Rejection::MissingSequence);
        }
        if self.draining && (given.is_none() || step.start) {
            return Err(Rejection::Draining);
        }
        let known = given.and_then(|id| self.sequences.iter().position(|it| it.open && it.id == *id));
        if known.is_none() && given.is_some() && !step.start {
            return Err(Rejection::MissingStart);
        }
        self.latest = self.latest.max(now);
        let request = Request {
            id,
            arrived: self.latest,
            timeout: attributes.timeout.filter(|timeout| *timeout > Duration::ZERO),
            shape: attributes.shape_key,
        };
        let last = given.is_none() || step.end;
        let number = if let Some(known) = known {
            let sequence = &mut self.sequences[known];
            sequence.requests.push(request);
            sequence.open = !last;
            sequence.idle_since = None;
            if step.start {
                self.restarts.push(sequence.id.clone());
            }
            sequence.number
        } else {
            self.own_ids += u64::from(given.is_none());
            let id = given.cloned().unwrap_or(SequenceId::ServerGenerated(self.own_ids));
            self.begin(id, !last, request)
        };
        self.give_turns();
        if self.held {
            let in_backlog = self.waiting(|it| it.slot.is_none());
            let enough = match self.config.strategy {
                SequenceStrategy::Direct(_) => self.waiting(|it| it.slot.is_some()),
                SequenceStrategy::Oldest(_) => self.sequences.iter().filter(|it| it.turn.is_some()).count(),
            };
            self.held =
                enough < self.config.hold_until_queued || in_backlog < self.config.hold_until_backlogged;
        }
        Ok(number)
    }

    fn begin(&mut self, id: SequenceId, open: bool, request: Request) -> u64 {
        self.begun += 1;
        let slot = self.best_slot();
        self.sequences.push(Sequence {
            number: self.begun,
            id,
            open,
            requests: vec![request],
            slot,
            idle_since: None,
            turn: None,
        });
        self.begun
    }

    /// The free slot that a new sequence gets.
    fn best_slot(&self) -> Option<(InstanceId, u32)> {
        let mut free = Vec::new();
        for &(instance, stay) in &self.instances {
            for slot in 0..self.slots {
                let taken = self.sequences.iter().any(|it| it.slot == Some((instance, slot)));
                if stay == Stay::Stays && !taken {
                    let running = u32::from(self.running.contains(&(instance, slot)));
                    let rank = match self.config.strategy {
                        SequenceStrategy::Direct(_) => [slot, running],
                        SequenceStrategy::Oldest(_) => [running, slot],
                    };
                    free.push((rank, instance, slot));
                }
            }
        }
        free.into_iter().min().map(|(_, instance, slot)| (instance, slot))
    }

    /// Gives a turn to each sequence that can run and could not before. After one change there is at most one.
    fn give_turns(&mut self) {
        for index in 0..self.sequences.len() {
            let sequence = &self.sequences[index];
            let may_run = sequence.slot.is_some_and(|slot| !self.running.contains(&slot));
            if may_run && !sequence.requests.is_empty() && sequence.turn.is_none() {
                self.turns += 1;
                self.sequences[index].turn = Some((self.turns, self.latest));
            }
        }
    }

    /// Ends a sequence. The first sequence of the backlog gets its slot.
    fn end(&mut self, number: u64) -> Vec<Request> {
        let index = self.sequences.iter().position(|it| it.number == number).expect("it is not over");
        let ended = self.sequences.remove(index);
        if let Some((instance, slot)) = ended.slot {
            if self.stays(instance)
                && let Some(next) = self.sequences.iter_mut().find(|it| it.slot.is_none())
            {
                next.slot = Some((instance, slot));
            }
            self.give_turns();
        }
        self.let_leave();
        ended.requests
    }

    fn stays(&self, instance: InstanceId) -> bool {
        self.instances.contains(&(instance, Stay::Stays))
    }

    fn let_leave(&mut self) {
        let needed = |instance| {
            self.sequences.iter().any(|it| it.slot.is_some_and(|(on, _)| on == instance))
                || self.running.iter().any(|&(on, _)| on == instance)
        };
        let stay: Vec<_> = self
            .instances
            .iter()
            .copied()
            .filter(|&(instance, stay)| stay == Stay::Stays || needed(instance))
            .collect();
        self.instances = stay;
    }

    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<RequestId> {
        self.latest = self.latest.max(now);
        let now = self.latest;
        let mut late: Vec<_> = self
            .sequences
            .iter()
            .filter(|it| it.slot.is_none())
            .filter_map(|it| Some((deadline(it)?, it.number)))
            .filter(|&(deadline, _)| deadline < now)
            .collect();
        late.sort_unstable();
        let mut rejected = Vec::new();
        for (_, number) in late {
            rejected.extend(self.end(number).into_iter().map(|request| request.id));
        }
        let mut idle: Vec<_> = self
            .sequences
            .iter()
            .filter_map(|it| Some((it.idle_since?, it.slot, it.number)))
            .filter(|&(since, ..)| since + self.config.max_sequence_idle <= now)
            .collect();
        idle.sort_unstable();
        for (.., number) in idle {
            self.end(number);
        }
        rejected
    }

    /// Ends the sequence in which the request waits.
    pub(crate) fn cancel(&mut self, request: RequestId) -> Vec<RequestId> {
        let waits = |it: &Sequence| it.requests.iter().any(|waiting| waiting.id == request);
        let found = self.sequences.iter().find(|it| waits(it)).map(|it| it.number);
        found.map(|number| self.close(number)).unwrap_or_default()
    }

    pub(crate) fn reject_all(&mut self) -> Vec<RequestId> {
        let mut busy: Vec<_> = self.sequences.iter().filter(|it| !it.requests.is_empty()).collect();
        // The sequences in the backlog come first.
        busy.sort_by_key(|it| (it.slot, it.number));
        let busy: Vec<_> = busy.into_iter().map(|it| it.number).collect();
        busy.into_iter().flat_map(|number| self.close(number)).collect()
    }

    /// Closes the sequence: no more requests join it, and its waiting requests do not run.
    fn close(&mut self, number: u64) -> Vec<RequestId> {
        let sequence = self.sequence(number);
        let slot = sequence.slot;
        let runs = slot.is_some_and(|slot| self.running.contains(&slot));
        let closed = if self.config.iterative && runs {
            let sequence = self.sequence(number);
            sequence.open = false;
            std::mem::take(&mut sequence.requests)
        } else {
            self.end(number)
        };
        closed.into_iter().map(|request| request.id).collect()
    }

    fn sequence(&mut self, number: u64) -> &mut Sequence {
        self.sequences.iter_mut().find(|it| it.number == number).expect("it is not over")
    }

    /// The batch that should leave now.
    pub(crate) fn due(&self, now: Timestamp, idle: &[InstanceId]) -> Option<(InstanceId, Vec<PlainRow>)> {
        idle.iter().find_map(|&instance| match self.decide(instance, now) {
            ReferenceCut::Send(rows) => Some((instance, rows)),
            ReferenceCut::Wait(_) | ReferenceCut::Nothing => None,
        })
    }

    pub(crate) fn take(&mut self, instance: InstanceId, rows: &[PlainRow]) {
        for &(_, slot) in rows.iter().flatten() {
            let sequence = self.sequences.iter_mut().find(|it| it.slot == Some((instance, slot)));
            let sequence = sequence.expect("who runs has a slot");
            sequence.requests.remove(0);
            sequence.turn = None;
            self.running.push((instance, slot));
        }
        for &(_, slot) in rows.iter().flatten() {
            let over =
                |it: &&Sequence| it.slot == Some((instance, slot)) && !it.open && it.requests.is_empty();
            let over = self.sequences.iter().find(over).map(|it| it.number);
            if let Some(number) = over.filter(|_| !self.config.iterative) {
                self.end(number);
            }
        }
    }

    pub(crate) fn released(&mut self, now: Timestamp, instance: InstanceId, slot: u32) {
        self.latest = self.latest.max(now);
        self.running.retain(|&running| running != (instance, slot));
        let latest = self.latest;
        if let Some(sequence) = self.sequences.iter_mut().find(|it| it.slot == Some((instance, slot))) {
            sequence.open &= !self.config.iterative;
            if sequence.requests.is_empty() {
                sequence.idle_since = Some(latest);
                if !sequence.open {
                    let number = sequence.number;
                    self.end(number);
                }
            }
        }
        self.give_turns();
        self.let_leave();
    }

    pub(crate) fn reschedule(&mut self, now: Timestamp, place: (InstanceId, u32), id: RequestId, shape: u64) {
        self.latest = self.latest.max(now);
        self.running.retain(|&running| running != place);
        let arrived = self.latest;
        let sequence = self.sequences.iter_mut().find(|it| it.slot == Some(place)).expect("it is not over");
        sequence.requests.insert(0, Request { id, arrived, timeout: None, shape });
        self.give_turns();
    }

    pub(crate) fn add_instance(&mut self, now: Timestamp, instance: InstanceId) {
        self.latest = self.latest.max(now);
        self.instances.retain(|&(known, _)| known != instance);
        self.instances.push((instance, Stay::Stays));
        while let Some(next) = self.sequences.iter().position(|it| it.slot.is_none())
            && let Some(slot) = self.best_slot()
        {
            self.sequences[next].slot = Some(slot);
            self.give_turns();
        }
    }

    pub(crate) fn remove_instance(&mut self, instance: InstanceId) {
        for (known, stay) in &mut self.instances {
            if *known == instance {
                *stay = Stay::Leaves;
            }
        }
        self.let_leave();
    }

    pub(crate) fn lose_instance(&mut self, instance: InstanceId) -> Vec<RequestId> {
        self.remove_instance(instance);
        self.running.retain(|&(on, _)| on != instance);
        let mut lost: Vec<_> = self
            .sequences
            .iter()
            .filter(|it| it.slot.is_some_and(|(on, _)| on == instance))
            .map(|it| (it.slot, it.number))
            .collect();
        lost.sort_unstable();
        let mut rejected = Vec::new();
        for (_, number) in lost {
            rejected.extend(self.end(number).into_iter().map(|request| request.id));
        }
        self.let_leave();
        rejected
    }

    pub(crate) fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let mut times = Vec::new();
        for sequence in &self.sequences {
            times.extend(sequence.idle_since.map(|since| since + self.config.max_sequence_idle));
            if sequence.slot.is_none() {
                times.extend(deadline(sequence).map(|deadline| deadline + Duration::from_nanos(1)));
            }
        }
        for &(instance, _) in &self.instances {
            if let ReferenceCut::Wait(until) = self.decide(instance, now) {
                times.push(until);
            }
        }
        times.into_iter().filter(|&time| time > now).min()
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
        self.waiting(|_| true)
    }

    pub(crate) fn live_sequences(&self) -> usize {
        self.sequences.iter().filter(|it| it.open).count()
    }

    pub(crate) fn is_live(&self, id: &SequenceId) -> bool {
        self.sequences.iter().any(|it| it.open && it.id == *id)
    }

    pub(crate) fn has_instance(&self, instance: InstanceId) -> bool {
        self.instances.iter().any(|&(known, _)| known == instance)
    }

    /// The number of sequences for which there are slots.
    pub(crate) fn capacity(&self) -> usize {
        self.instances.iter().filter(|(_, stay)| *stay == Stay::Stays).count() * self.slots as usize
    }

    /// The occupant of each slot, in order.
    pub(crate) fn occupants(&self) -> Vec<((InstanceId, u32), &SequenceId)> {
        let mut occupants: Vec<_> = self.sequences.iter().filter_map(|it| Some((it.slot?, &it.id))).collect();
        occupants.sort_unstable_by_key(|&(slot, _)| slot);
        occupants
    }

    pub(crate) fn backlog(&self) -> Vec<&SequenceId> {
        self.sequences.iter().filter(|it| it.slot.is_none()).map(|it| &it.id).collect()
    }

    fn waiting(&self, which: impl Fn(&Sequence) -> bool) -> usize {
        self.sequences.iter().filter(|it| which(it)).map(|it| it.requests.len()).sum()
    }

    fn decide(&self, instance: InstanceId, now: Timestamp) -> ReferenceCut {
        let here = |it: &&Sequence| it.slot.is_some_and(|(on, _)| on == instance);
        let mut line: Vec<_> = self.sequences.iter().filter(here).filter(|it| it.turn.is_some()).collect();
        line.sort_by_key(|it| it.turn);
        if self.held || line.is_empty() {
            return ReferenceCut::Nothing;
        }
        // In a model that drains, requests can arrive only for sequences that have no request in this instance now.
        let all_are_ready = line.len() == self.sequences.iter().filter(here).count();
        let complete = self.delay_ended || (self.draining && all_are_ready);
        match &self.config.strategy {
            SequenceStrategy::Direct(direct) => {
                let enough = line.len() as f32 / self.slots as f32 >= direct.minimum_slot_utilization;
                let oldest = line.iter().map(|it| it.requests[0].arrived).min().unwrap_or_default();
                let until = oldest + direct.max_queue_delay;
                if complete || enough || direct.max_queue_delay.is_zero() || until <= now {
                    ReferenceCut::Send(direct_rows(&line))
                } else {
                    ReferenceCut::Wait(until)
                }
            }
            SequenceStrategy::Oldest(oldest) => {
                let preferred: Vec<_> =
                    oldest.preferred_batch_sizes.iter().map(|&size| size as usize).collect();
                self.cut(&line, &preferred, oldest.max_queue_delay, (now, complete))
            }
        }
    }

    /// The dynamic batcher's rule, for requests of one row each.
    fn cut(
        &self,
        line: &[&Sequence],
        preferred: &[usize],
        delay: Duration,
        at: (Timestamp, bool),
    ) -> ReferenceCut {
        let (now, complete) = at;
        let largest = preferred.iter().copied().max().unwrap_or(0);
        let fits = line.iter().take_while(|it| it.requests[0].shape == line[0].requests[0].shape).count();
        let fits = fits.min(self.config.max_batch_size.max(1) as usize);
        let blocked = fits < line.len();
        let since = line[0].turn.map_or(Timestamp::default(), |(_, since)| since);
        let late = !delay.is_zero() && since + delay <= now;
        // Whether to cut here depends on the batch with one more request.
        let passed = (1..=fits).find(|&size| size + 1 > largest && (size < fits || blocked));
        let reached = preferred.iter().copied().filter(|&size| size <= fits).max();
        if let Some(size) = reached.or(passed).filter(|_| !late) {
            return ReferenceCut::Send(rows(&line[..size]));
        }
        if blocked || fits >= largest || late || delay.is_zero() || complete {
            return ReferenceCut::Send(rows(&line[..fits]));
        }
        ReferenceCut::Wait(since + delay)
    }
}

enum ReferenceCut {
    Send(Vec<PlainRow>),
    Wait(Timestamp),
    Nothing,
}

fn rows(line: &[&Sequence]) -> Vec<PlainRow> {
    line.iter().map(|it| it.slot.map(|(_, slot)| (it.requests[0].id, slot))).collect()
}

fn direct_rows(line: &[&Sequence]) -> Vec<PlainRow> {
    let mut batch = Vec::new();
    for row in 0..=line.iter().filter_map(|it| it.slot).map(|(_, slot)| slot).max().unwrap_or(0) {
        let here = line.iter().find(|it| it.slot.is_some_and(|(_, slot)| slot == row));
        let fitting = here.filter(|it| it.requests[0].shape == line[0].requests[0].shape);
        batch.push(fitting.map(|it| (it.requests[0].id, row)));
    }
    batch
}

fn deadline(sequence: &Sequence) -> Option<Timestamp> {
    let deadlines = sequence.requests.iter().filter_map(|it| it.timeout.map(|timeout| it.arrived + timeout));
    deadlines.min()
}
