//! Decides what a model version does after each event, and which actions follow.
//!
//! The driver is not a task. It is a value behind one lock. A thread that has an event locks it and calls it: the
//! thread of a caller that brings a request, the thread that has finished a batch, or the timer thread. The call
//! changes the policy's state and returns the actions. The thread performs them outside the lock: rejecting, running
//! and waking.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use config::InstanceGroup;
use inference::{Timestamp, backend::Execution, batching::BatchingStrategy};
use scheduling::{
    DueBatch, InstanceId, Rejected, Rejection, ScheduledBatch, Scheduler, SequenceId, Unbatched, VacatedSlot,
};

use super::{
    busy_share::BusyShare,
    driver_event::{AddedInstance, DriverEvent, ExecutionSample, InstanceChange},
    execution_cost::ExecutionCost,
    instance::{Assignment, MovableInstance},
    instance_set::InstanceSet,
    resource_claims::ResourceClaims,
    response_orders::ResponseOrders,
};
use crate::limiter::PendingGrants;

/// The state of one model version's scheduling.
pub(super) struct Driver {
    policy: Policy,
    instances: InstanceSet,
    /// The earliest wake-up call that is scheduled and has not come yet.
    scheduled_wakeup: Option<Timestamp>,
    /// The expected duration of an execution in nanoseconds; unknown until enough executions are measured.
    cost: ExecutionCost,
    busy_share: BusyShare,
    resource_claims: ResourceClaims,
    /// A task waits for the end of all sequences.
    is_end_of_sequences_awaited: bool,
    /// Nothing is executed any more.
    is_closed: bool,
}

/// What a closed driver gives back. The caller drops it outside the lock.
pub(super) struct ReleasedDriver {
    /// All instances, by number. Those without an instance here are dropped by their own threads.
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

/// How much the instances have to do.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Workload {
    /// The number of requests that wait for an instance.
    pub requests: usize,
    /// How long the instances probably need for them. `None` if they wait and nothing was executed yet.
    pub time: Option<Duration>,
    /// The share of the last 5 to 10 seconds in which the instances ran batches, from 0 to 1. `None` if there is no
    /// instance.
    pub busy_share: Option<f64>,
}

/// The actions that an event asks its thread to perform.
#[derive(Default)]
pub(super) struct Actions {
    /// When the event was handled.
    pub(super) at: Timestamp,
    /// The request of the event, if the driver does not take it. There is then nothing else to do.
    pub(super) refused: Option<Rejected<Box<Execution>>>,
    pub(super) rejected: Vec<Rejected<Box<Execution>>>,
    pub(super) assignments: Vec<Assignment>,
    /// The time of a wake-up call to schedule.
    pub(super) scheduled_wakeup: Option<Timestamp>,
    /// Sequences that began again before they had ended. The log reports them to the operator.
    pub(super) restarts: Vec<SequenceId>,
    /// Slots that sequences have left. The implicit states of these sequences are freed.
    pub(super) vacated: Vec<VacatedSlot>,
    /// Instances, also of other models, whose claims on shared resources were granted.
    pub(super) pending_grants: PendingGrants,
    /// Instances that begin to leave.
    pub(super) leaving: Vec<InstanceId>,
    /// Instances that have been removed. Those without an instance here are dropped by their own threads.
    pub(super) departed: Vec<(InstanceId, Option<MovableInstance>)>,
    /// The first assignment may run on the thread that brought its request.
    pub(super) brief: bool,
    /// The last sequence has ended, and a task waits for that.
    pub(super) sequences_have_ended: bool,
}

impl Actions {
    /// Takes the batch of that instance out, if there is one.
    pub(super) fn take_batch_of(&mut self, instance: InstanceId) -> Option<Assignment> {
        let position = self.assignments.iter().position(|next| next.batch.instance == instance)?;
        Some(self.assignments.remove(position))
    }
}

impl Driver {
    /// A driver whose instances are all idle, and without requests. `idle_instances` has one element for each instance.
    /// Its time begins at `at`.
    pub(super) fn new(
        at: Timestamp,
        policy: Policy,
        idle_instances: Vec<Option<MovableInstance>>,
        resource_claims: ResourceClaims,
    ) -> Self {
        Self {
            policy,
            instances: InstanceSet::new(idle_instances),
            scheduled_wakeup: None,
            cost: ExecutionCost::default(),
            busy_share: BusyShare::from(at),
            resource_claims,
            is_end_of_sequences_awaited: false,
            is_closed: false,
        }
    }

    /// Applies an event at that time, and steps the policy unless the event changes nothing. A closed driver takes no
    /// step.
    pub(super) fn handle(&mut self, at: Timestamp, event: DriverEvent, orders: &ResponseOrders) -> Actions {
        let mut actions = Actions { at, ..Actions::default() };
        self.busy_share.count_until(at, self.instances.busy());
        if self.apply(at, event, &mut actions) && !self.is_closed {
            self.step(at, orders, &mut actions);
        }
        actions
    }

    /// Returns true if a step must follow.
    fn apply(&mut self, at: Timestamp, event: DriverEvent, actions: &mut Actions) -> bool {
        let scheduler = &mut self.policy.scheduler;
        match event {
            DriverEvent::Enqueue { attributes, execution } => {
                let entry_setter = execution.responder.entry_setter();
                match scheduler.enqueue(at, attributes, execution) {
                    Ok(entry) => {
                        // Done under the lock, so that a later cancellation finds the entry.
                        if entry_setter.set(entry) {
                            actions.rejected = scheduler.cancel(entry);
                        }
                    }
                    Err(rejected) => actions.refused = Some(rejected),
                }
            }
            DriverEvent::Cancelled(entry) => actions.rejected = scheduler.cancel(entry),
            DriverEvent::Reschedule { instance, slot, entry } => {
                // Checked under the lock, so that a later cancellation finds the entry.
                actions.refused = if entry.payload.responder.is_cancelled() {
                    Some(Rejected { payload: entry.payload, reason: Rejection::Cancelled })
                } else {
                    scheduler.reschedule(at, instance, slot, entry).err()
                };
            }
            DriverEvent::Released { instance, slot } => {
                scheduler.released(at, instance, slot);
                // A busy instance asks for more work when it has finished.
                return self.instances.is_idle(instance);
            }
            DriverEvent::Finished { instance, movable, executed, .. } => {
                self.instances.end(instance, movable);
                self.resource_claims.has_run(instance);
                if let Some(ExecutionSample { nanos, requests }) = executed {
                    self.cost.note(nanos, requests);
                }
            }
            DriverEvent::Lost(instance) => {
                self.instances.lose(instance);
                actions.rejected = scheduler.lose_instance(at, instance);
                actions.pending_grants = self.resource_claims.forfeit(instance);
                scheduler.drain();
                actions.rejected.append(&mut scheduler.reject_all());
            }
            DriverEvent::Granted(instance) => self.resource_claims.granted(instance),
            DriverEvent::Woken => self.scheduled_wakeup = None,
            DriverEvent::InstancesChanged(change) => actions.leaving = self.change_instances(at, change),
            DriverEvent::EndQueueDelay => scheduler.end_queue_delay(),
            DriverEvent::Drain => scheduler.drain(),
        }
        actions.refused.is_none()
    }

    /// Adds idle instances, and begins to remove others, which get only the requests of the sequences that they have.
    /// Returns those that leave.
    fn change_instances(&mut self, at: Timestamp, change: InstanceChange) -> Vec<InstanceId> {
        let InstanceChange { added, staying, surplus } = change;
        for AddedInstance { id, movable, claimant } in added {
            self.instances.add(id, movable);
            self.resource_claims.add(id, claimant);
            self.policy.scheduler.add_instance(at, id);
        }
        let leaving = self.choose_leaving(&staying, surplus);
        for &id in &leaving {
            self.policy.scheduler.remove_instance(at, id);
            self.instances.remove(id);
        }
        leaving
    }

    /// Which instances leave, if there are too many of these groups: those that can leave soonest.
    fn choose_leaving(
        &self,
        staying: &[(InstanceId, Arc<InstanceGroup>)],
        mut surplus: Vec<Arc<InstanceGroup>>,
    ) -> Vec<InstanceId> {
        let mut sequences: BTreeMap<InstanceId, usize> = BTreeMap::new();
        for slot in self.policy.scheduler.slots() {
            *sequences.entry(slot.instance).or_default() += 1;
        }
        let numbers = staying.iter().map(|(id, _)| *id).collect();
        let mut leaving = self.instances.by_cost_of_removal(numbers, |id| sequences.get(&id).copied());
        leaving.retain(|id| {
            let group = staying.iter().find(|(known, _)| known == id).map(|(_, group)| group);
            let place = group.and_then(|group| surplus.iter().position(|surplus| surplus == group));
            place.map(|place| surplus.swap_remove(place)).is_some()
        });
        leaving
    }

    /// Steps the policy: finds the requests that timed out, the batches that are due, and the time of the next wake-up
    /// call.
    fn step(&mut self, at: Timestamp, orders: &ResponseOrders, actions: &mut Actions) {
        actions.rejected.append(&mut self.policy.scheduler.expire(at));
        self.let_go(actions);
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
        if self.policy.scheduler.queued() == 0 {
            self.resource_claims.withdraw(&mut actions.pending_grants);
        }
        if self.is_end_of_sequences_awaited {
            actions.sequences_have_ended = self.has_no_sequence();
        }
        actions.restarts = self.policy.scheduler.take_restarts();
        actions.vacated = self.policy.scheduler.vacated();
        let wakeup = self.policy.scheduler.next_wakeup(at);
        if wakeup.is_some_and(|wakeup| {
            self.scheduled_wakeup.is_none_or(|scheduled_wakeup| wakeup < scheduled_wakeup)
        }) {
            self.scheduled_wakeup = wakeup;
            actions.scheduled_wakeup = wakeup;
        }
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

    /// Lets those instances go that are being removed and have nothing to do any more.
    fn let_go(&mut self, actions: &mut Actions) {
        let gone = self.instances.let_go(|instance| self.policy.scheduler.may_leave(instance));
        for (instance, movable) in gone {
            self.resource_claims.remove(instance, &mut actions.pending_grants);
            actions.departed.push((instance, movable));
        }
    }

    /// The thread of an instance takes up a batch. Requests that came while the batch waited for the thread join it.
    /// Returns those that have waited too long.
    pub(super) fn grow(
        &mut self,
        at: Timestamp,
        batch: &mut ScheduledBatch<Box<Execution>>,
        orders: &ResponseOrders,
    ) -> Vec<Rejected<Box<Execution>>> {
        if self.policy.scheduler.queued() == 0 {
            return Vec::new();
        }
        let rejected = self.policy.scheduler.expire(at);
        if self.policy.scheduler.grow(at, batch) {
            orders.line_up(batch);
        }
        rejected
    }

    /// Whether no sequence may get requests any more. If one may, a later step tells when the last one has ended.
    pub(super) fn has_no_sequence(&mut self) -> bool {
        self.is_end_of_sequences_awaited = self.policy.scheduler.live_sequences() > 0;
        !self.is_end_of_sequences_awaited
    }

    /// The requests that wait at this time, how long all instances together need for them, and how busy these are.
    pub(super) fn workload(&mut self, at: Timestamp) -> Workload {
        self.busy_share.count_until(at, self.instances.busy());
        let requests = self.policy.scheduler.queued();
        let instances = u32::try_from(self.instances.working().max(1)).unwrap_or(u32::MAX);
        let time = if requests == 0 { Some(Duration::ZERO) } else { self.cost.time_of(requests) };
        Workload { requests, time: time.map(|time| time / instances), busy_share: self.busy_share.share() }
    }

    /// The instances, and what they do.
    pub(super) fn instances(&self) -> &InstanceSet {
        &self.instances
    }

    /// The queue, the batches and the sequences.
    pub(super) fn scheduler(&self) -> &Scheduler<Box<Execution>> {
        &self.policy.scheduler
    }

    /// The claims of the instances on shared resources.
    pub(super) fn resource_claims(&self) -> &ResourceClaims {
        &self.resource_claims
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
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use inference::{Request, Timeline, Unobserved, UnreadPolicy, response_channel};
    use scheduling::{
        DynamicBatcher, DynamicBatching, SchedulingAttributes, SequenceBatcher, SequenceBatching,
        SequencePosition,
    };

    use super::*;

    #[test]
    fn the_driver_reports_a_lost_instance_to_the_policy() {
        let batcher = SequenceBatcher::new(SequenceBatching::default(), 2);
        let policy = Policy { scheduler: Scheduler::Sequence(batcher), unused_strategy: None };
        let at = Timestamp::from_nanos(1);
        let mut driver = Driver::new(at, policy, vec![None, None], ResourceClaims::default());
        let mut running = 0;
        // Each instance has one occupied slot, and each slot gets another request.
        for (id, start) in [(1, true), (2, true), (1, false), (2, false)] {
            let id = NonZeroU64::new(id).map(SequenceId::Number);
            running += enqueue(&mut driver, at, SequencePosition { id, start, end: false }).assignments.len();
        }
        assert_eq!((running, driver.scheduler().queued()), (2, 2));
        let rejected = driver.handle(at, DriverEvent::Lost(0), &ResponseOrders::None).rejected;
        let reasons: Vec<_> = rejected.iter().map(|rejected| rejected.reason).collect();
        assert_eq!(reasons, [Rejection::InstanceLost, Rejection::Cancelled], "no instance runs any more");
        assert_eq!(driver.scheduler().queued(), 0);
        assert!(driver.scheduler().slots().all(|slot| slot.instance == 1));
    }

    #[test]
    fn a_closed_driver_takes_no_step() {
        let batcher = SequenceBatcher::new(SequenceBatching::default(), 2);
        let policy = Policy { scheduler: Scheduler::Sequence(batcher), unused_strategy: None };
        let at = Timestamp::from_nanos(1);
        let mut driver = Driver::new(at, policy, vec![None, None], ResourceClaims::default());
        for id in [1, 2] {
            let id = NonZeroU64::new(id).map(SequenceId::Number);
            for assignment in
                enqueue(&mut driver, at, SequencePosition { id, start: true, end: false }).assignments
            {
                let instance = assignment.batch.instance;
                let finished = DriverEvent::Finished { end: at, instance, movable: None, executed: None };
                driver.handle(at, finished, &ResponseOrders::None);
                driver.handle(at, DriverEvent::Released { instance, slot: 0 }, &ResponseOrders::None);
            }
        }
        // Its sequence keeps it.
        driver.policy.scheduler.remove_instance(at, 1);
        driver.instances.remove(1);
        assert!(driver.handle(at, DriverEvent::Woken, &ResponseOrders::None).departed.is_empty());
        assert_eq!(driver.close().instances.len(), 2);
        let actions = driver.handle(at, DriverEvent::Woken, &ResponseOrders::None);
        assert!(actions.departed.is_empty() && actions.assignments.is_empty());
        let refused = enqueue(&mut driver, at, SequencePosition::default()).refused.unwrap();
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
        let at = Timestamp::from_nanos(1);
        let mut driver = Driver::new(at, policy, vec![None], ResourceClaims::default());
        let mut assignments = Vec::new();
        for _ in 0..3 {
            assignments.extend(enqueue(&mut driver, at, SequencePosition::default()).assignments);
        }
        let [Assignment { batch, .. }] = &mut assignments[..] else { panic!("there is one instance") };
        assert_eq!((batch.rows.len(), driver.scheduler().queued()), (1, 2));
        assert!(driver.grow(at, batch, &ResponseOrders::None).is_empty());
        assert_eq!((batch.rows.len(), driver.scheduler().queued()), (3, 0));
    }

    fn enqueue(driver: &mut Driver, at: Timestamp, sequence: SequencePosition) -> Actions {
        let (responder, stream) =
            response_channel(Timeline::new(at, 1), Arc::new(Unobserved), UnreadPolicy::unlimited());
        // A request whose stream is dropped is cancelled.
        std::mem::forget(stream);
        let execution = Box::new(Execution::new(Request::default(), responder));
        let attributes = SchedulingAttributes { sequence, ..SchedulingAttributes::default() };
        driver.handle(at, DriverEvent::Enqueue { attributes, execution }, &ResponseOrders::None)
    }
}
