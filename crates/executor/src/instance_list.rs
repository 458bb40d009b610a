//! The instances of an executor: where they run, and the messages to them.
use std::sync::Arc;

use config::{InstanceGroup, InstanceKind};
use host::{InstancePlan, ThreadPool};
use inference::lock::Mutex;
use scheduling::InstanceId;
use vocabulary::Name;

use super::instance::{
    Assignment, InstanceHome, InstanceMailbox, InstanceMessage, InstanceWork, MovableInstance, RunsBatches,
    StartedInstance,
};
use crate::instance_table::InstanceTable;

/// The instances of an executor.
pub(super) struct Instances {
    pub(super) mailboxes: InstanceTable<InstanceMailbox>,
    pub(super) records: Mutex<InstanceList>,
    /// The threads that all models share.
    threads: ThreadPool<InstanceWork>,
}

/// The instances that the executor has.
#[derive(Default)]
pub(super) struct InstanceList {
    /// Instances that take requests, and those that have left and have not been waited for.
    pub(super) active: Vec<ActiveInstance>,
    pub(super) passive: Vec<PassiveInstance>,
}

/// An instance that takes requests.
pub(super) struct ActiveInstance {
    pub(super) id: InstanceId,
    /// The name in logs and errors.
    pub(super) name: Name,
    pub(super) group: Arc<InstanceGroup>,
    /// It has been told to leave.
    pub(super) is_leaving: bool,
    pub(super) home: InstanceHome,
}

/// An instance that the executor keeps and never runs.
pub(super) struct PassiveInstance {
    pub(super) group: Arc<InstanceGroup>,
    /// `None` for an instance that only its own thread may touch.
    movable: Option<MovableInstance>,
    mailbox: Arc<InstanceMailbox>,
    home: InstanceHome,
}

/// An active instance.
pub(crate) struct InstanceView {
    pub(crate) number: InstanceId,
    pub(crate) name: Name,
    pub(crate) kind: InstanceKind,
    pub(crate) is_leaving: bool,
    pub(crate) runs: bool,
    pub(crate) awaits_resources: bool,
}

impl PassiveInstance {
    pub(super) fn begin(
        runner: Arc<dyn RunsBatches>,
        built: StartedInstance,
        movable: Option<MovableInstance>,
        group: Arc<InstanceGroup>,
    ) -> Self {
        let mailbox = Arc::<InstanceMailbox>::default();
        let home = built.attach(runner, mailbox.clone());
        Self { group, movable, mailbox, home }
    }

    /// Lets the instance end on its thread.
    pub(super) fn end(self, threads: &ThreadPool<InstanceWork>) -> InstanceHome {
        end(threads, self.mailbox, self.movable);
        self.home
    }
}

impl Instances {
    /// Instances that are numbered from 0 and have not begun.
    pub(super) fn new(active: usize, threads: ThreadPool<InstanceWork>) -> Self {
        Self { mailboxes: InstanceTable::new(active), records: Mutex::default(), threads }
    }

    /// The active instances by number. Nothing is known of what they do.
    pub(super) fn list(&self) -> Vec<InstanceView> {
        let records = self.records.lock();
        let active = records.active.iter().filter(|active| !active.home.has_ended());
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

    /// Lets a batch run on the thread of its instance, or on one that all models share.
    pub(super) fn run(&self, runner: Arc<dyn RunsBatches>, assignment: Assignment) {
        if assignment.movable.is_some() {
            return self.threads.perform(InstanceWork::Run(runner, assignment));
        }
        let instance = assignment.batch.instance;
        self.mailboxes.with(instance, |mailbox| mailbox.put(InstanceMessage::Work(assignment)));
    }

    /// Drops an instance that has panicked: not here, because that may take long.
    pub(super) fn discard(&self, movable: MovableInstance) {
        self.threads.perform(InstanceWork::Discard(movable));
    }

    /// Lets an instance end. `movable` is the instance, unless only its own thread may touch it, or it has been lost.
    pub(super) fn shut_down(&self, instance: InstanceId, movable: Option<MovableInstance>) {
        end(&self.threads, self.mailboxes.get(instance), movable);
    }

    /// Lets the first instances of an executor begin. The active ones come first.
    pub(super) fn begin(
        &self,
        runner: &Arc<dyn RunsBatches>,
        built: Vec<StartedInstance>,
        placed: &[InstancePlan],
        passive: Vec<Option<MovableInstance>>,
    ) {
        let active = placed.len() - passive.len();
        let mut passive = passive.into_iter();
        let mut records = InstanceList::default();
        for (id, (built, InstancePlan { group, spec, .. })) in built.into_iter().zip(placed).enumerate() {
            let (group, name) = (group.clone(), spec.name.clone());
            if id < active {
                let home = built.attach(runner.clone(), self.mailboxes.get(id));
                records.active.push(ActiveInstance { id, name, group, is_leaving: false, home });
            } else {
                let movable = passive.next().flatten();
                records.passive.push(PassiveInstance::begin(runner.clone(), built, movable, group));
            }
        }
        *self.records.lock() = records;
    }

    /// Ends all instances. `idle` has those that the driver held, by number; the others have been told to end.
    /// Returns where they are.
    pub(super) fn end(&self, idle: Vec<(InstanceId, Option<MovableInstance>)>) -> Vec<InstanceHome> {
        for (instance, movable) in idle {
            self.shut_down(instance, movable);
        }
        let records = std::mem::take(&mut *self.records.lock());
        let passive = records.passive.into_iter().map(|passive| passive.end(&self.threads));
        records.active.into_iter().map(|active| active.home).chain(passive).collect()
    }
}

/// Lets an instance end. `movable` is the instance, unless only its own thread may touch it, or it has been lost.
fn end(threads: &ThreadPool<InstanceWork>, mailbox: Arc<InstanceMailbox>, movable: Option<MovableInstance>) {
    match movable {
        Some(movable) => threads.perform(InstanceWork::End(movable, mailbox)),
        None => {
            mailbox.put(InstanceMessage::Shutdown);
            mailbox.end();
        }
    }
}

impl InstanceList {
    /// Active instances that have been dropped.
    pub(super) fn ended(&self) -> Vec<InstanceId> {
        let ended = self.active.iter().filter(|active| active.home.has_ended());
        ended.map(|active| active.id).collect()
    }

    /// The active instances that have not been told to leave, and their groups.
    pub(super) fn staying(&self) -> Vec<(InstanceId, Arc<InstanceGroup>)> {
        let staying = self.active.iter().filter(|active| !active.is_leaving);
        staying.map(|active| (active.id, active.group.clone())).collect()
    }

    pub(super) fn take_active(&mut self, ids: &[InstanceId]) -> Vec<ActiveInstance> {
        self.active.extract_if(.., |active| ids.contains(&active.id)).collect()
    }

    /// Takes one passive instance of each of these groups out.
    pub(super) fn take_passive(&mut self, groups: &[Arc<InstanceGroup>]) -> Vec<PassiveInstance> {
        let mut taken = Vec::new();
        for group in groups {
            let place = self.passive.iter().position(|passive| passive.group == *group);
            taken.extend(place.map(|place| self.passive.swap_remove(place)));
        }
        taken
    }

    pub(super) fn mark_leaving(&mut self, ids: &[InstanceId]) {
        let leaving = self.active.iter_mut().filter(|active| ids.contains(&active.id));
        leaving.for_each(|active| active.is_leaving = true);
    }

    pub(super) fn free_number(&self) -> InstanceId {
        let is_free = |number: &InstanceId| self.active.iter().all(|active| active.id != *number);
        (0..).find(is_free).unwrap_or_default()
    }
}
