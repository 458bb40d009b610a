//! How instances are added to an executor and removed from it while requests run.
//!
//! An update has two steps. [`prepare`](Executor::prepare) builds and warms up the instances that are missing; nothing
//! has changed until then. [`update`](Executor::update) lets them take requests, and removes those that are too many:
//! each leaves when its batch has ended and its sequences have.
use std::sync::Arc;

use config::{InstanceGroup, ModelConfig};
use host::InstancePlan;
use inference::WarmupFiles;
use scheduling::Claimant;
use vocabulary::{Error, Name};

use super::{
    super::{
        batching_thread::BatchingThread,
        driver_event::{AddedInstance, DriverEvent, InstanceChange},
        instance::{InstanceBuilder, StartedInstance, build_all},
        instance_list::{ActiveInstance, PassiveInstance},
        resource_claims::register_one,
        warmup::WarmUp,
    },
    Executor,
};
use crate::limiter::{GrantListener, Limiter};

/// What changes the instances of an executor.
pub struct ExecutorUpdateParts {
    /// The new configuration.
    pub config: Arc<ModelConfig>,
    /// The files of the samples for warm-up.
    pub warmup_files: WarmupFiles,
    /// All instances that the executor is to have.
    pub instances: Vec<InstancePlan>,
}

/// An instance that is built, and what the configuration says of it.
struct NewInstance {
    built: StartedInstance,
    name: Name,
    group: Arc<InstanceGroup>,
}

/// An update whose instances are built. If it is dropped, nothing has changed; the instances end.
pub struct PreparedUpdate {
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

impl Executor {
    /// Builds and warms up the instances of an update that are missing. Blocks.
    ///
    /// # Errors
    /// The first error of an instance, or INVALID_ARG for one whose claim on shared resources could never be granted.
    /// The executor stays as it is.
    pub fn prepare(&self, parts: ExecutorUpdateParts) -> Result<PreparedUpdate, Error> {
        let ExecutorUpdateParts { config, warmup_files, instances } = parts;
        // An earlier update may still wait for the batching thread.
        self.batching.iter().for_each(BatchingThread::flush);
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
        for InstancePlan { group, .. } in missing.iter().filter(|placed| !placed.group.passive) {
            update.claimants.push(register_one(update.limiter.as_ref(), group)?);
        }
        if !missing.is_empty() {
            let warm_up = Arc::new(WarmUp::prepare(&config, &self.validator, &warmup_files)?);
            let builder = InstanceBuilder {
                backend: self.backend_handle.backend()?,
                config,
                warm_up,
                threads: self.threads.group.clone(),
            };
            let built = build_all(&builder, &missing)?;
            let new = built.into_iter().zip(missing);
            let named = new.map(|(built, InstancePlan { group, spec, .. })| NewInstance {
                built,
                name: spec.name,
                group,
            });
            update.new = named.collect();
        }
        Ok(update)
    }

    /// Performs an update: the new instances take requests, and those that are too many leave when they have nothing to
    /// do any more. Does not wait for them.
    ///
    /// The updates of an executor come one after the other, each with its preparation, and before the executor is
    /// closed: the operations on a model follow each other (`lifecycle`), and the repository's task performs them. So
    /// the records stay as they are between the steps of an update, though their lock is not held.
    pub fn update(self: &Arc<Self>, update: PreparedUpdate, shown: &proto::ModelConfig) {
        self.in_step(move |me| me.change_instances(update));
        self.backend_handle.configured(shown);
    }

    fn change_instances(self: &Arc<Self>, mut update: PreparedUpdate) {
        self.join_departed();
        let added = self.begin_new(&mut update);
        let surplus = std::mem::take(&mut update.surplus);
        let (passive, surplus): (Vec<_>, Vec<_>) = surplus.into_iter().partition(|group| group.passive);
        let ended = self.instances.records.lock().take_passive(&passive);
        ended.into_iter().for_each(|passive| {
            passive.end(&self.threads.instances).adopt(&self.threads.group);
        });
        let staying = self.instances.records.lock().staying();
        let change = InstanceChange { added, staying, surplus };
        let actions = self.step(DriverEvent::InstancesChanged(change));
        self.instances.records.lock().mark_leaving(&actions.leaving);
        self.perform(actions).notify();
    }

    /// Lets new instances begin. The driver does not know the instances yet.
    fn begin_new(self: &Arc<Self>, update: &mut PreparedUpdate) -> Vec<AddedInstance> {
        let owner = Arc::downgrade(&(self.clone() as Arc<dyn GrantListener>));
        let runner = self.runner();
        let mut claimants = std::mem::take(&mut update.claimants).into_iter();
        let mut added = Vec::new();
        for NewInstance { mut built, name, group } in update.new.drain(..) {
            let movable = built.movable.take();
            if group.passive {
                let passive = PassiveInstance::begin(runner.clone(), built, movable, group);
                self.instances.records.lock().passive.push(passive);
                continue;
            }
            let id = self.instances.records.lock().free_number();
            self.instances.mailboxes.renew(id);
            self.orders.add_instance(id);
            self.sequences.iter().for_each(|sequences| sequences.add_instance(id));
            let claimant = claimants.next().flatten();
            if let Some((limiter, claimant)) = update.limiter.as_ref().zip(claimant) {
                limiter.belongs_to(claimant, owner.clone(), id);
            }
            let home = built.attach(runner.clone(), self.instances.mailboxes.get(id));
            let active = ActiveInstance { id, name, group, is_leaving: false, home };
            self.instances.records.lock().active.push(active);
            added.push(AddedInstance { id, movable, claimant });
        }
        added
    }

    /// Forgets instances that have left, so that their numbers are free.
    fn join_departed(&self) {
        let mut departed = self.instances.records.lock().ended();
        {
            let driver = self.driver.lock();
            departed.retain(|&id| driver.instances().has_left(id));
        }
        let departed = self.instances.records.lock().take_active(&departed);
        for ActiveInstance { home, .. } in departed {
            home.join();
        }
    }
}

/// The wanted instances that are missing, and the groups of those that are too many.
fn difference(
    mut present: Vec<Arc<InstanceGroup>>,
    wanted: Vec<InstancePlan>,
) -> (Vec<InstancePlan>, Vec<Arc<InstanceGroup>>) {
    let mut missing = Vec::new();
    for placed in wanted {
        match present.iter().position(|group| *group == placed.group) {
            Some(place) => drop(present.swap_remove(place)),
            None => missing.push(placed),
        }
    }
    (missing, present)
}
