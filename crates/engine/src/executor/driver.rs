//! Decides what a model version does after each event, and which actions follow.
//!
//! The driver is not a task. It is a value behind one lock. A thread that has an event locks it and calls it: the
//! thread of a caller that brings a request, the thread that has finished a batch, or the timer thread. The call
//! changes the policy's state and returns the actions. The thread performs them outside the lock: rejecting, running
//! and waking.
use std::{collections::BTreeMap, sync::Weak, time::Duration};

use inference::{EntryId, Timestamp, backend::Execution, batching::BatchingStrategy};
use scheduling::{
    Claimant, DueBatch, Entry, InstanceId, Note, Rejected, ScheduledBatch, Scheduler, SequenceId, Unbatched,
    VacatedSlot,
};

use super::{
    execution_cost::ExecutionCost,
    instance::{Assignment, MovableInstance},
    instance_set::InstanceSet,
    resource_claims::ResourceClaims,
};
use crate::{
    limiter::{GrantListener, PendingGrants},
    order::Orders,
};

/// The state of one model version's scheduling.
pub(super) struct Driver {
    policy: Policy,
    instances: InstanceSet,
    /// The earliest wake-up call that is scheduled and has not come yet.
    scheduled_wakeup: Option<Timestamp>,
    /// The expected duration of an execution in nanoseconds; unknown until enough executions are measured.
    cost: ExecutionCost,
    resource_claims: ResourceClaims,
    /// A task waits for the end of all sequences.
    is_end_of_sequences_awaited: bool,
    /// Nothing is executed any more.
    is_closed: bool,
}

/// What a closed driver gives back. The caller drops it outside the lock.
pub(super) struct ReleasedDriver {
    /// All instances, by number. Their own threads must drop them.
    pub(super) instances: Vec<(InstanceId, Option<MovableInstance>)>,
    _policy: Policy,
    _resource_claims: ResourceClaims,
}

/// What decides which batches run.
pub(super) struct Policy {
    /// A request moves several times while it waits, so that it waits in a box.
    pub(super) scheduler: Scheduler<Box<Execution>>,
    /// The batching strategy of a model whose scheduler does not use one.
    #[expect(dead_code, reason = "held, so that it lasts as long as if it were asked")]
    pub(super) unused_strategy: Option<Box<dyn BatchingStrategy>>,
}

impl Policy {
    /// A policy that accepts no requests.
    fn retired() -> Self {
        let mut scheduler = Scheduler::Unbatched(Unbatched::new());
        scheduler.drain();
        Self { scheduler, unused_strategy: None }
    }
}

/// What an instance has done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Executed {
    /// How long the execution has taken.
    pub(super) nanos: u64,
    /// The number of its requests.
    pub(super) requests: usize,
}

/// The work that waits for an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitingWork {
    /// The number of requests.
    pub(crate) requests: usize,
    /// How long the instances probably need for them. `None` if they wait and nothing was executed yet.
    pub(crate) time: Option<Duration>,
}

/// The actions that a call of the driver asks its caller to perform.
#[derive(Default)]
pub(super) struct Actions {
    pub(super) rejected: Vec<Rejected<Box<Execution>>>,
    pub(super) assignments: Vec<Assignment>,
    /// The time of a wake-up call to schedule.
    pub(super) scheduled_wakeup: Option<Timestamp>,
    /// What the log must report to the operator.
    pub(super) notes: Vec<Note>,
    /// Slots that sequences have left. The implicit states of these sequences are freed.
    pub(super) vacated: Vec<VacatedSlot>,
    /// Instances, also of other models, whose claims on shared resources were granted.
    pub(super) pending_grants: PendingGrants,
    /// Instances that have been removed. Their own threads must drop them.
    pub(super) departed: Vec<(InstanceId, Option<MovableInstance>)>,
    /// The first assignment may run on the thread that brought its request.
    pub(super) brief: bool,
    /// The last sequence has ended, and a task waits for that.
    pub(super) sequences_have_ended: bool,
}

impl Driver {
    /// A driver whose instances are all idle, and without requests. `idle_instances` has one element for each instance.
    pub(super) fn new(
        policy: Policy,
        idle_instances: Vec<Option<MovableInstance>>,
        resource_claims: ResourceClaims,
    ) -> Self {
        Self {
            policy,
            instances: InstanceSet::new(idle_instances),
            scheduled_wakeup: None,
            cost: ExecutionCost::default(),
            resource_claims,
            is_end_of_sequences_awaited: false,
            is_closed: false,
        }
    }

    /// Adds an idle instance under a number that no instance has.
    pub(super) fn add_instance(
        &mut self,
        at: Timestamp,
        instance: InstanceId,
        movable: Option<MovableInstance>,
        claimant: Option<Claimant>,
    ) {
        self.instances.add(instance, movable);
        self.resource_claims.add(instance, claimant);
        self.policy.scheduler.add_instance(at, instance);
    }

    /// Begins to remove an instance. It gets only the requests of the sequences that it has.
    pub(super) fn remove_instance(&mut self, at: Timestamp, instance: InstanceId) {
        self.policy.scheduler.remove_instance(at, instance);
        self.instances.remove(instance);
    }

    /// Instances in the order in which they can leave soonest.
    pub(super) fn by_cost_of_removal(&self, instances: Vec<InstanceId>) -> Vec<InstanceId> {
        let mut sequences: BTreeMap<InstanceId, usize> = BTreeMap::new();
        for slot in self.policy.scheduler.slots() {
            *sequences.entry(slot.instance).or_default() += 1;
        }
        self.instances.by_cost_of_removal(instances, |instance| sequences.get(&instance).copied())
    }

    /// Whether the instance with this number has left.
    pub(super) fn has_left(&self, instance: InstanceId) -> bool {
        self.instances.has_left(instance)
    }

    /// The claims of the instances on shared resources.
    pub(super) fn resource_claims(&self) -> &ResourceClaims {
        &self.resource_claims
    }

    /// Lets those instances go that are being removed and have nothing to do any more.
    fn let_go(&mut self, actions: &mut Actions) {
        let gone = self.instances.let_go(|instance| self.policy.scheduler.may_leave(instance));
        for (instance, movable) in gone {
            self.resource_claims.remove(instance, &mut actions.pending_grants);
            actions.departed.push((instance, movable));
        }
    }

    /// Enqueues a request. Returns its id in the queue.
    pub(super) fn enqueue(
        &mut self,
        at: Timestamp,
        meta: scheduling::Meta,
        execution: Box<Execution>,
    ) -> Result<EntryId, Rejected<Box<Execution>>> {
        self.policy.scheduler.enqueue(at, meta, execution)
    }

    /// An instance has finished a batch. `executed` is `None` if all its requests were cancelled.
    pub(super) fn finished(
        &mut self,
        instance: InstanceId,
        movable: Option<MovableInstance>,
        executed: Option<Executed>,
    ) {
        self.instances.end(instance, movable);
        self.resource_claims.has_run(instance);
        if let Some(Executed { nanos, requests }) = executed {
            self.cost.note(nanos, requests);
        }
    }

    /// The client has cancelled that request.
    pub(super) fn cancel(&mut self, entry: EntryId) -> Vec<Rejected<Box<Execution>>> {
        self.policy.scheduler.cancel(entry)
    }

    /// The slots that sequences have left since the last step.
    pub(super) fn vacated(&mut self) -> Vec<VacatedSlot> {
        self.policy.scheduler.vacated()
    }

    /// An instance has panicked during a batch. Returns the requests that could run only on that instance, and the
    /// grants to other instances.
    pub(super) fn lost(
        &mut self,
        at: Timestamp,
        instance: InstanceId,
    ) -> (Vec<Rejected<Box<Execution>>>, PendingGrants) {
        self.instances.lose(instance);
        let rejected = self.policy.scheduler.lose_instance(at, instance);
        (rejected, self.resource_claims.forfeit(instance))
    }

    /// A backend has released the request of a slot. Returns true if the slot's instance is idle.
    pub(super) fn returned(&mut self, at: Timestamp, instance: InstanceId, slot: u32) -> bool {
        self.policy.scheduler.released(at, instance, slot);
        self.instances.is_idle(instance)
    }

    /// A backend reschedules the request of a slot.
    pub(super) fn reschedule(
        &mut self,
        instance: InstanceId,
        slot: u32,
        entry: Entry<Box<Execution>>,
    ) -> Result<(), Rejected<Box<Execution>>> {
        self.policy.scheduler.reschedule(entry.arrived, instance, slot, entry)
    }

    /// Rejects all waiting requests, because no instance will run any more.
    pub(super) fn give_up(&mut self) -> Vec<Rejected<Box<Execution>>> {
        self.policy.scheduler.drain();
        self.policy.scheduler.reject_all()
    }

    /// The scheduled wake-up call has come.
    pub(super) fn woken(&mut self) {
        self.scheduled_wakeup = None;
    }

    /// Accepts no new requests from now on.
    pub(super) fn drain(&mut self) {
        self.policy.scheduler.drain();
    }

    /// From now on, no request waits for others to share its batch.
    pub(super) fn end_queue_delay(&mut self) {
        self.policy.scheduler.end_queue_delay();
    }

    /// The number of requests that wait.
    pub(super) fn pending(&self) -> usize {
        self.policy.scheduler.in_flight()
    }

    /// The requests that wait, and how long all instances together need for them.
    pub(super) fn waiting_work(&self) -> WaitingWork {
        let requests = self.pending();
        let instances = u32::try_from(self.instances.working().max(1)).unwrap_or(u32::MAX);
        let time = if requests == 0 { Some(Duration::ZERO) } else { self.cost.time_of(requests) };
        WaitingWork { requests, time: time.map(|time| time / instances) }
    }

    /// The policy, for those who look at it.
    pub(super) fn scheduler(&self) -> &Scheduler<Box<Execution>> {
        &self.policy.scheduler
    }

    /// Whether an instance has nothing to run.
    pub(super) fn is_idle_instance(&self, instance: InstanceId) -> bool {
        self.instances.is_idle(instance)
    }

    /// Whether a sequence may still get requests.
    pub(super) fn has_sequence(&self, id: &SequenceId) -> bool {
        self.policy.scheduler.has_sequence(id)
    }

    /// The number of sequences that may still get requests.
    pub(super) fn live_sequences(&self) -> usize {
        self.policy.scheduler.live_sequences()
    }

    /// Whether no sequence may get requests any more. If one may, a later step tells when the last one has ended.
    pub(super) fn has_no_sequence(&mut self) -> bool {
        self.is_end_of_sequences_awaited = self.live_sequences() > 0;
        !self.is_end_of_sequences_awaited
    }

    /// Whether all instances are idle.
    pub(super) fn is_idle(&self) -> bool {
        self.instances.are_all_idle()
    }

    /// Ends all scheduling: gives back everything, accepts no request, and takes no step any more.
    pub(super) fn close(&mut self) -> ReleasedDriver {
        self.is_closed = true;
        ReleasedDriver {
            instances: self.instances.release(),
            _policy: std::mem::replace(&mut self.policy, Policy::retired()),
            _resource_claims: std::mem::take(&mut self.resource_claims),
        }
    }

    /// Sets the listener for grants to the instances.
    pub(super) fn set_owner(&self, owner: &Weak<dyn GrantListener>) {
        self.resource_claims.belongs_to(owner);
    }

    /// The limiter has granted the claim of an instance on shared resources.
    pub(super) fn granted(&mut self, instance: InstanceId) {
        self.resource_claims.granted(instance);
    }

    /// The batch that is due now, for an instance that does not wait for a grant.
    fn due(&mut self, at: Timestamp) -> Option<DueBatch> {
        let idle = self.instances.idle();
        if idle.iter().all(|&instance| self.resource_claims.may_be_offered(instance)) {
            return self.policy.scheduler.due(at, idle);
        }
        let offered = idle.iter().copied().filter(|&instance| self.resource_claims.may_be_offered(instance));
        let offered: Vec<_> = offered.collect();
        self.policy.scheduler.due(at, &offered)
    }

    /// The thread of an instance takes up a batch. Requests that came while the batch waited for the thread join it.
    /// Returns those that have waited too long.
    pub(super) fn grow(
        &mut self,
        at: Timestamp,
        batch: &mut ScheduledBatch<Box<Execution>>,
        orders: &Orders,
    ) -> Vec<Rejected<Box<Execution>>> {
        if self.policy.scheduler.in_flight() == 0 {
            return Vec::new();
        }
        let rejected = self.policy.scheduler.expire(at);
        if self.policy.scheduler.grow(at, batch) {
            orders.line_up(batch);
        }
        rejected
    }

    /// Steps the policy after each event: finds the requests that timed out, the batches that are due, and the time of
    /// the next wake-up call. A closed driver takes no step.
    pub(super) fn step(&mut self, at: Timestamp, orders: &Orders) -> Actions {
        if self.is_closed {
            return Actions::default();
        }
        let mut actions = Actions { rejected: self.policy.scheduler.expire(at), ..Actions::default() };
        self.let_go(&mut actions);
        while let Some(due) = self.due(at) {
            if !self.resource_claims.may_run(due.instance(), &mut actions.pending_grants) {
                continue;
            }
            let batch = self.policy.scheduler.take(due);
            let movable = self.instances.begin(batch.instance);
            orders.line_up(&batch);
            actions.brief |= actions.assignments.is_empty() && self.cost.is_brief();
            actions.assignments.push(Assignment { batch, movable });
        }
        self.resource_claims.give_back(self.instances.idle(), &mut actions.pending_grants);
        if self.policy.scheduler.in_flight() == 0 {
            self.resource_claims.withdraw(&mut actions.pending_grants);
        }
        if self.is_end_of_sequences_awaited {
            actions.sequences_have_ended = self.has_no_sequence();
        }
        actions.notes = self.policy.scheduler.notes();
        actions.vacated = self.policy.scheduler.vacated();
        let wakeup = self.policy.scheduler.next_wakeup(at);
        if wakeup.is_some_and(|wakeup| {
            self.scheduled_wakeup.is_none_or(|scheduled_wakeup| wakeup < scheduled_wakeup)
        }) {
            self.scheduled_wakeup = wakeup;
            actions.scheduled_wakeup = wakeup;
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU64, sync::Arc};

    use inference::{Flow, Request, Timeline, Unobserved, response_channel};
    use scheduling::{
        DynamicBatcher, DynamicBatching, Meta, Rejection, SequenceBatcher, SequenceBatching, SequenceId,
        SequenceStep,
    };

    use super::*;

    #[test]
    fn the_driver_reports_a_lost_instance_to_the_policy() {
        let batcher = SequenceBatcher::new(SequenceBatching::default(), 2);
        let policy = Policy { scheduler: Scheduler::Sequence(batcher), unused_strategy: None };
        let mut driver = Driver::new(policy, vec![None, None], ResourceClaims::default());
        let at = Timestamp::from_nanos(1);
        // Each instance has one occupied slot, and each slot gets another request.
        for id in [1, 2, 1, 2] {
            let id = NonZeroU64::new(id).map(SequenceId::Number);
            let sequence = SequenceStep { id, start: driver.pending() < 2, end: false };
            driver.enqueue(at, Meta { sequence, ..Meta::default() }, execution(at)).unwrap();
        }
        let running = driver.step(at, &Orders::None).assignments;
        assert_eq!((running.len(), driver.pending()), (2, 2));
        let (rejected, _) = driver.lost(at, 0);
        let reasons: Vec<_> = rejected.iter().map(|rejected| rejected.reason).collect();
        assert_eq!((reasons, driver.pending()), (vec![Rejection::InstanceLost], 1));
        assert!(driver.policy.scheduler.slots().all(|slot| slot.instance == 1));
    }

    #[test]
    fn a_closed_driver_takes_no_step() {
        let batcher = SequenceBatcher::new(SequenceBatching::default(), 2);
        let policy = Policy { scheduler: Scheduler::Sequence(batcher), unused_strategy: None };
        let mut driver = Driver::new(policy, vec![None, None], ResourceClaims::default());
        let at = Timestamp::from_nanos(1);
        for id in [1, 2] {
            let id = NonZeroU64::new(id).map(SequenceId::Number);
            let sequence = SequenceStep { id, start: true, end: false };
            driver.enqueue(at, Meta { sequence, ..Meta::default() }, execution(at)).unwrap();
        }
        for assignment in driver.step(at, &Orders::None).assignments {
            driver.finished(assignment.batch.instance, None, None);
            driver.returned(at, assignment.batch.instance, 0);
        }
        // Its sequence keeps it.
        driver.remove_instance(at, 1);
        assert!(driver.step(at, &Orders::None).departed.is_empty());
        assert_eq!(driver.close().instances.len(), 2);
        let actions = driver.step(at, &Orders::None);
        assert!(actions.departed.is_empty() && actions.assignments.is_empty());
        let refused = driver.enqueue(at, Meta::default(), execution(at)).unwrap_err();
        assert_eq!(refused.reason, Rejection::Draining);
    }

    #[test]
    fn requests_that_come_before_the_thread_takes_up_a_batch_join_it() {
        let batching = DynamicBatching {
            max_batch_size: 4,
            preferred_batch_sizes: [4].into(),
            ..DynamicBatching::default()
        };
        let scheduler = Scheduler::Dynamic(DynamicBatcher::new(batching));
        let policy = Policy { scheduler, unused_strategy: None };
        let mut driver = Driver::new(policy, vec![None], ResourceClaims::default());
        let at = Timestamp::from_nanos(1);
        let mut assignments = Vec::new();
        for _ in 0..3 {
            driver.enqueue(at, Meta::default(), execution(at)).unwrap();
            assignments.extend(driver.step(at, &Orders::None).assignments);
        }
        let [Assignment { batch, .. }] = &mut assignments[..] else { panic!("there is one instance") };
        assert_eq!((batch.rows.len(), driver.pending()), (1, 2));
        assert!(driver.grow(at, batch, &Orders::None).is_empty());
        assert_eq!((batch.rows.len(), driver.pending()), (3, 0));
    }

    fn execution(at: Timestamp) -> Box<Execution> {
        let (responder, stream) =
            response_channel(Timeline::new(at, 1), Arc::new(Unobserved), Flow::unlimited());
        drop(stream);
        Box::new(Execution::new(Request::default(), responder))
    }
}
