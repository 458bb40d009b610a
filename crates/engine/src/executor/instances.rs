//! The instances of an executor: their threads, and how instances are added and removed while requests run.
//!
//! An update has two steps. [`prepare`](Executor::prepare) builds and warms up the instances that are missing; nothing
//! has changed until then. [`update`](Executor::update) lets them take requests, and removes those that are too many:
//! each leaves when its batch has ended and its sequences have.
use std::{sync::Arc, thread::JoinHandle};

use inference::{Error, config::InstanceGroup};
use parking_lot::{Mutex, RwLock};
use scheduling::{Claimant, InstanceId};

use super::{
    Executor, ExecutorUpdateParts,
    instance::{BuiltInstance, InstanceBuilder, MovableInstance, WorkSlot, WorkerMessage, build_all},
    warmup::WarmUp,
};
use crate::{
    clock::now,
    host_policy::Placed,
    limiter::{GrantListener, Limiter},
};

/// The instances of an executor.
#[derive(Default)]
pub(super) struct Instances {
    /// By instance; also those of instances that have left.
    work_slots: RwLock<Vec<Arc<WorkSlot>>>,
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    /// Instances that take requests, and those that have left and whose threads have not been joined.
    active: Vec<ActiveInstance>,
    passive: Vec<PassiveInstance>,
}

struct ActiveInstance {
    id: InstanceId,
    group: Arc<InstanceGroup>,
    /// It has been told to leave.
    is_leaving: bool,
    thread: JoinHandle<()>,
}

/// An instance that the executor keeps and never runs.
struct PassiveInstance {
    group: Arc<InstanceGroup>,
    /// `None` for an instance that only its own thread may touch.
    movable: Option<MovableInstance>,
    work_slot: Arc<WorkSlot>,
    thread: JoinHandle<()>,
}

impl PassiveInstance {
    fn end(self) -> JoinHandle<()> {
        self.work_slot.put(WorkerMessage::Shutdown(self.movable));
        self.thread
    }
}

/// An instance that is built, and what the configuration says of it.
struct NewInstance {
    built: BuiltInstance,
    group: Arc<InstanceGroup>,
}

/// An update whose instances are built. If it is dropped, nothing has changed; the instances end.
pub(crate) struct PreparedUpdate {
    limiter: Option<Arc<Limiter>>,
    new: Vec<NewInstance>,
    /// One for each new active instance, in their order. `None` without a limiter.
    claimants: Vec<Option<Claimant>>,
    /// Groups of the instances that are too many; one entry for each.
    surplus: Vec<Arc<InstanceGroup>>,
}

impl Drop for PreparedUpdate {
    fn drop(&mut self) {
        self.new.drain(..).for_each(|new| new.built.discard());
        if let Some(limiter) = &self.limiter {
            self.claimants.drain(..).flatten().for_each(|claimant| limiter.unregister(claimant).notify());
        }
    }
}

impl Instances {
    /// The work slots of instances that are numbered from 0.
    pub(super) fn new(active: usize) -> Self {
        let work_slots = (0..active).map(|_| Arc::default()).collect();
        Self { work_slots: RwLock::new(work_slots), records: Mutex::default() }
    }

    pub(super) fn work_slot(&self, instance: InstanceId) -> Arc<WorkSlot> {
        self.work_slots.read()[instance].clone()
    }

    /// Lets the first instances of an executor begin. The active ones come first.
    pub(super) fn begin(
        &self,
        executor: &Arc<Executor>,
        built: Vec<BuiltInstance>,
        placed: &[Placed],
        passive: Vec<Option<MovableInstance>>,
    ) {
        let active = placed.len() - passive.len();
        let mut passive = passive.into_iter();
        let mut records = self.records.lock();
        for (id, (built, Placed { group, .. })) in built.into_iter().zip(placed).enumerate() {
            let group = group.clone();
            if id < active {
                let thread = built.employ(executor, &self.work_slot(id));
                records.active.push(ActiveInstance { id, group, is_leaving: false, thread });
            } else {
                let work_slot = Arc::default();
                let thread = built.employ(executor, &work_slot);
                let movable = passive.next().flatten();
                records.passive.push(PassiveInstance { group, movable, work_slot, thread });
            }
        }
    }

    /// Ends all instances. `idle` has those that the driver held, by number; the others have been told to end.
    /// Returns their threads.
    pub(super) fn end(&self, idle: Vec<(InstanceId, Option<MovableInstance>)>) -> Vec<JoinHandle<()>> {
        for (instance, movable) in idle {
            self.work_slot(instance).put(WorkerMessage::Shutdown(movable));
        }
        let records = std::mem::take(&mut *self.records.lock());
        let passive = records.passive.into_iter().map(PassiveInstance::end);
        records.active.into_iter().map(|active| active.thread).chain(passive).collect()
    }
}

impl Executor {
    /// Builds and warms up the instances of an update that are missing. Blocks.
    ///
    /// # Errors
    /// The first error of an instance, or INVALID_ARG for one whose claim on shared resources could never be granted.
    /// The executor stays as it is.
    pub(crate) fn prepare(&self, parts: ExecutorUpdateParts) -> Result<PreparedUpdate, Error> {
        let ExecutorUpdateParts { config, directory, instances } = parts;
        let (missing, surplus) = {
            let records = self.instances.records.lock();
            let active = records.active.iter().filter(|active| !active.is_leaving);
            let present = active.map(|active| &active.group);
            let present = present.chain(records.passive.iter().map(|passive| &passive.group));
            difference(present.cloned().collect(), instances)
        };
        let mut update = PreparedUpdate { limiter: None, new: Vec::new(), claimants: Vec::new(), surplus };
        {
            let driver = self.driver.lock();
            update.limiter = driver.resource_claims().limiter().cloned();
        }
        for Placed { group, .. } in missing.iter().filter(|placed| !placed.group.passive) {
            update.claimants.push(super::resource_claims::register_one(update.limiter.as_ref(), group)?);
        }
        if !missing.is_empty() {
            let warm_up = Arc::new(WarmUp::prepare(&config, &self.validator, &directory)?);
            let builder = InstanceBuilder {
                backend: self.backend_handle.backend()?,
                config,
                warm_up,
                threads: self.threads.clone(),
            };
            let built = build_all(&builder, &missing)?;
            let new = built.into_iter().zip(missing);
            update.new = new.map(|(built, Placed { group, .. })| NewInstance { built, group }).collect();
        }
        Ok(update)
    }

    /// Performs an update: the new instances take requests, and those that are too many leave when they have nothing to
    /// do any more. Does not wait for them.
    pub(crate) fn update(self: &Arc<Self>, mut update: PreparedUpdate, shown: &proto::ModelConfig) {
        let mut records = self.instances.records.lock();
        records.join_departed(self);
        let owner = Arc::downgrade(&(self.clone() as Arc<dyn GrantListener>));
        let mut claimants = std::mem::take(&mut update.claimants).into_iter();
        let mut added = Vec::new();
        for NewInstance { mut built, group } in update.new.drain(..) {
            let (movable, work_slot) = (built.movable.take(), Arc::<WorkSlot>::default());
            let thread = built.employ(self, &work_slot);
            if group.passive {
                records.passive.push(PassiveInstance { group, movable, work_slot, thread });
                continue;
            }
            let id = records.free_number();
            self.instances.set_work_slot(id, work_slot);
            self.orders.grow(id + 1);
            self.sequences.iter().for_each(|sequences| sequences.add_instance(id));
            let claimant = claimants.next().flatten();
            if let Some((limiter, claimant)) = update.limiter.as_ref().zip(claimant) {
                limiter.belongs_to(claimant, owner.clone(), id);
            }
            records.active.push(ActiveInstance { id, group, is_leaving: false, thread });
            added.push((id, movable, claimant));
        }
        let surplus = std::mem::take(&mut update.surplus);
        let (passive, active): (Vec<_>, Vec<_>) = surplus.into_iter().partition(|group| group.passive);
        for group in passive {
            if let Some(place) = records.passive.iter().position(|passive| same(&passive.group, &group)) {
                // The thread is not waited for here. It ends when it has dropped the instance.
                drop(records.passive.swap_remove(place).end());
            }
        }
        self.with_driver(|driver| {
            let at = now();
            for (id, movable, claimant) in added {
                driver.add_instance(at, id, movable, claimant);
            }
            for group in active {
                let candidates = records.active.iter().filter(|active| !active.is_leaving);
                let candidates = candidates.filter(|active| same(&active.group, &group));
                let candidates = driver.by_cost_of_removal(candidates.map(|active| active.id).collect());
                if let Some(&id) = candidates.first() {
                    driver.remove_instance(at, id);
                    let leaving = records.active.iter_mut().filter(|active| active.id == id);
                    leaving.for_each(|active| active.is_leaving = true);
                }
            }
            Vec::new()
        });
        drop(records);
        self.backend_handle.configured(shown);
    }
}

impl Instances {
    fn set_work_slot(&self, instance: InstanceId, work_slot: Arc<WorkSlot>) {
        let mut work_slots = self.work_slots.write();
        let numbers = work_slots.len().max(instance + 1);
        work_slots.resize_with(numbers, Arc::default);
        work_slots[instance] = work_slot;
    }
}

impl Records {
    /// Forgets instances that have left, so that their numbers are free.
    fn join_departed(&mut self, executor: &Executor) {
        let driver = executor.driver.lock();
        let (departed, active) = std::mem::take(&mut self.active)
            .into_iter()
            .partition(|active| driver.has_left(active.id) && active.thread.is_finished());
        drop(driver);
        self.active = active;
        for ActiveInstance { thread, .. } in departed {
            // It has ended. If it has panicked, it has logged the panic.
            let _ = thread.join();
        }
    }

    fn free_number(&self) -> InstanceId {
        let is_free = |number: &InstanceId| self.active.iter().all(|active| active.id != *number);
        (0..).find(is_free).unwrap_or_default()
    }
}

/// Whether an instance of one group may stand for one of the other.
fn same(one: &InstanceGroup, other: &InstanceGroup) -> bool {
    let neutral = |group: &InstanceGroup| InstanceGroup {
        name: "".into(),
        count: std::num::NonZeroUsize::MIN,
        ..group.clone()
    };
    neutral(one) == neutral(other)
}

/// The wanted instances that are missing, and the groups of those that are too many.
fn difference(
    mut present: Vec<Arc<InstanceGroup>>,
    wanted: Vec<Placed>,
) -> (Vec<Placed>, Vec<Arc<InstanceGroup>>) {
    let mut missing = Vec::new();
    for placed in wanted {
        match present.iter().position(|group| same(group, &placed.group)) {
            Some(place) => drop(present.swap_remove(place)),
            None => missing.push(placed),
        }
    }
    (missing, present)
}
