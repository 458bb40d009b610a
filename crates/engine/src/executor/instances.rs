//! The instances of an executor: their threads, and how instances are added and removed while requests run.
//!
//! An update has two steps. [`prepare`](Executor::prepare) builds and warms up the instances that are missing; nothing
//! has changed until then. [`update`](Executor::update) lets them take requests, and removes those that are too many:
//! each leaves when its batch has ended and its sequences have.
use std::{sync::Arc, thread::JoinHandle};

use inference::{Error, Name, config::InstanceGroup};
use parking_lot::Mutex;
use scheduling::{Claimant, InstanceId};

use super::{
    Executor, ExecutorUpdateParts,
    instance::{BuiltInstance, InstanceBuilder, MovableInstance, WorkSlot, WorkerMessage, build_all},
    view::InstanceView,
    warmup::WarmUp,
};
use crate::{
    clock::now,
    host_policy::Placed,
    instance_table::InstanceTable,
    limiter::{GrantListener, Limiter},
};

/// The instances of an executor.
pub(super) struct Instances {
    work_slots: InstanceTable<WorkSlot>,
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
    /// The name in logs and errors.
    name: Name,
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
    fn begin(
        executor: &Arc<Executor>,
        built: BuiltInstance,
        movable: Option<MovableInstance>,
        group: Arc<InstanceGroup>,
    ) -> Self {
        let work_slot = Arc::<WorkSlot>::default();
        let thread = built.employ(executor, work_slot.clone());
        Self { group, movable, work_slot, thread }
    }

    fn end(self) -> JoinHandle<()> {
        self.work_slot.put(WorkerMessage::Shutdown(self.movable));
        self.thread
    }
}

/// An instance that is built, and what the configuration says of it.
struct NewInstance {
    built: BuiltInstance,
    name: Name,
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
    /// Instances that are numbered from 0 and have not begun.
    pub(super) fn new(active: usize) -> Self {
        Self { work_slots: InstanceTable::new(active), records: Mutex::default() }
    }

    /// The active instances by number. Nothing is known of what they do.
    pub(super) fn list(&self) -> Vec<InstanceView> {
        let records = self.records.lock();
        let active = records.active.iter().filter(|active| !active.thread.is_finished());
        let mut list: Vec<_> = active
            .map(|active| InstanceView {
                number: active.id,
                name: active.name.clone(),
                kind: active.group.kind,
                is_leaving: active.is_leaving,
                runs: false,
                awaits_resources: false,
            })
            .collect();
        list.sort_by_key(|instance| instance.number);
        list
    }

    /// Sends a message to the thread of an instance.
    pub(super) fn put(&self, instance: InstanceId, message: WorkerMessage) {
        self.work_slots.with(instance, |work_slot| work_slot.put(message));
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
        for (id, (built, Placed { group, spec, .. })) in built.into_iter().zip(placed).enumerate() {
            let (group, name) = (group.clone(), spec.name.clone());
            if id < active {
                let thread = built.employ(executor, self.work_slots.get(id));
                records.active.push(ActiveInstance { id, name, group, is_leaving: false, thread });
            } else {
                let movable = passive.next().flatten();
                records.passive.push(PassiveInstance::begin(executor, built, movable, group));
            }
        }
    }

    /// Ends all instances. `idle` has those that the driver held, by number; the others have been told to end.
    /// Returns their threads.
    pub(super) fn end(&self, idle: Vec<(InstanceId, Option<MovableInstance>)>) -> Vec<JoinHandle<()>> {
        for (instance, movable) in idle {
            self.put(instance, WorkerMessage::Shutdown(movable));
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
                threads: self.threads.group.clone(),
            };
            let built = build_all(&builder, &missing)?;
            let new = built.into_iter().zip(missing);
            let named =
                new.map(|(built, Placed { group, spec, .. })| NewInstance { built, name: spec.name, group });
            update.new = named.collect();
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
        for NewInstance { mut built, name, group } in update.new.drain(..) {
            let movable = built.movable.take();
            if group.passive {
                records.passive.push(PassiveInstance::begin(self, built, movable, group));
                continue;
            }
            let id = records.free_number();
            self.instances.work_slots.renew(id);
            self.orders.add_instance(id);
            self.sequences.iter().for_each(|sequences| sequences.add_instance(id));
            let claimant = claimants.next().flatten();
            if let Some((limiter, claimant)) = update.limiter.as_ref().zip(claimant) {
                limiter.belongs_to(claimant, owner.clone(), id);
            }
            let thread = built.employ(self, self.instances.work_slots.get(id));
            records.active.push(ActiveInstance { id, name, group, is_leaving: false, thread });
            added.push((id, movable, claimant));
        }
        let surplus = std::mem::take(&mut update.surplus);
        let (passive, mut surplus): (Vec<_>, Vec<_>) = surplus.into_iter().partition(|group| group.passive);
        for group in passive {
            if let Some(place) = records.passive.iter().position(|passive| passive.group == group) {
                self.threads.group.adopt(records.passive.swap_remove(place).end());
            }
        }
        self.with_driver(|driver| {
            let at = now();
            for (id, movable, claimant) in added {
                driver.add_instance(at, id, movable, claimant);
            }
            let staying = records.active.iter().filter(|active| !active.is_leaving).map(|active| active.id);
            for id in driver.by_cost_of_removal(staying.collect()) {
                if let Some(instance) = records.active.iter_mut().find(|active| active.id == id)
                    && let Some(place) = surplus.iter().position(|group| *group == instance.group)
                {
                    surplus.swap_remove(place);
                    instance.is_leaving = true;
                    driver.remove_instance(at, id);
                }
            }
            Vec::new()
        });
        drop(records);
        self.backend_handle.configured(shown);
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

/// The wanted instances that are missing, and the groups of those that are too many.
fn difference(
    mut present: Vec<Arc<InstanceGroup>>,
    wanted: Vec<Placed>,
) -> (Vec<Placed>, Vec<Arc<InstanceGroup>>) {
    let mut missing = Vec::new();
    for placed in wanted {
        match present.iter().position(|group| *group == placed.group) {
            Some(place) => drop(present.swap_remove(place)),
            None => missing.push(placed),
        }
    }
    (missing, present)
}
