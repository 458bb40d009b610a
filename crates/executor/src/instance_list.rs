//! The instances of an executor: their threads, and the messages to them.
use std::sync::Arc;

use config::{InstanceGroup, InstanceKind};
use host::{GroupThread, InstancePlan};
use inference::lock::Mutex;
use scheduling::InstanceId;
use vocabulary::Name;

use super::instance::{InstanceMailbox, InstanceMessage, MovableInstance, RunWork, StartedInstance};
use crate::instance_table::InstanceTable;

/// The instances of an executor.
pub(super) struct Instances {
    pub(super) work_slots: InstanceTable<InstanceMailbox>,
    pub(super) records: Mutex<InstanceList>,
}

/// The instances that the executor has, and their threads.
#[derive(Default)]
pub(super) struct InstanceList {
    /// Instances that take requests, and those that have left and whose threads have not been joined.
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
    pub(super) thread: GroupThread,
}

/// An instance that the executor keeps and never runs.
pub(super) struct PassiveInstance {
    pub(super) group: Arc<InstanceGroup>,
    /// `None` for an instance that only its own thread may touch.
    movable: Option<MovableInstance>,
    work_slot: Arc<InstanceMailbox>,
    thread: GroupThread,
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
        runner: RunWork,
        built: StartedInstance,
        movable: Option<MovableInstance>,
        group: Arc<InstanceGroup>,
    ) -> Self {
        let work_slot = Arc::<InstanceMailbox>::default();
        let thread = built.attach(runner, work_slot.clone());
        Self { group, movable, work_slot, thread }
    }

    pub(super) fn end(self) -> GroupThread {
        self.work_slot.put(InstanceMessage::Shutdown(self.movable));
        self.thread
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
        let active = records.active.iter().filter(|active| !active.thread.has_ended());
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
    pub(super) fn put(&self, instance: InstanceId, message: InstanceMessage) {
        self.work_slots.with(instance, |work_slot| work_slot.put(message));
    }

    /// Lets the first instances of an executor begin. The active ones come first.
    pub(super) fn begin(
        &self,
        runner: &RunWork,
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
                let thread = built.attach(runner.clone(), self.work_slots.get(id));
                records.active.push(ActiveInstance { id, name, group, is_leaving: false, thread });
            } else {
                let movable = passive.next().flatten();
                records.passive.push(PassiveInstance::begin(runner.clone(), built, movable, group));
            }
        }
        *self.records.lock() = records;
    }

    /// Ends all instances. `idle` has those that the driver held, by number; the others have been told to end.
    /// Returns their threads.
    pub(super) fn end(&self, idle: Vec<(InstanceId, Option<MovableInstance>)>) -> Vec<GroupThread> {
        for (instance, movable) in idle {
            self.put(instance, InstanceMessage::Shutdown(movable));
        }
        let records = std::mem::take(&mut *self.records.lock());
        let passive = records.passive.into_iter().map(PassiveInstance::end);
        records.active.into_iter().map(|active| active.thread).chain(passive).collect()
    }
}

impl InstanceList {
    /// Active instances whose threads have ended.
    pub(super) fn ended(&self) -> Vec<InstanceId> {
        let ended = self.active.iter().filter(|active| active.thread.has_ended());
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
