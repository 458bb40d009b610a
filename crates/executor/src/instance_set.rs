//! The instances that the driver knows: which are idle, busy, leaving or gone, and the idle ones that any thread may run.
//!
//! All of this is one value, so that no part of it can be emptied without the others.
use std::cmp::Reverse;

use scheduling::InstanceId;

use super::{busy_share::BusyInstances, instance::MovableInstance};

/// See the module documentation.
#[derive(Default)]
pub(super) struct InstanceSet {
    /// By number. `None`: the instance has left, and its number may be given to another one.
    members: Vec<Option<Member>>,
    /// The idle instances. The one that became idle last comes first, because its memory is still in the processor's
    /// caches.
    idle: Vec<InstanceId>,
    /// How many instances are idle or busy.
    working: usize,
    /// How many of them are leaving.
    leaving: usize,
}

struct Member {
    activity: InstanceActivity,
    /// It is being removed: it leaves when it is idle and no sequence needs it.
    is_leaving: bool,
}

enum InstanceActivity {
    /// It has nothing to run. `None`: only its own thread may touch it.
    Idle(Option<MovableInstance>),
    Busy,
    /// It has panicked, and never runs again. Its thread has not been told to end.
    Lost,
}

impl InstanceSet {
    /// Instances that are numbered from 0 and idle.
    pub(super) fn new(instances: Vec<Option<MovableInstance>>) -> Self {
        let mut set = Self::default();
        for (number, movable) in instances.into_iter().enumerate() {
            set.add(number, movable);
        }
        set
    }

    /// Adds an idle instance under a number that no instance has.
    pub(super) fn add(&mut self, instance: InstanceId, movable: Option<MovableInstance>) {
        let numbers = self.members.len().max(instance + 1);
        self.members.resize_with(numbers, || None);
        debug_assert!(self.members[instance].is_none(), "two instances have one number");
        self.members[instance] =
            Some(Member { activity: InstanceActivity::Idle(movable), is_leaving: false });
        self.idle.push(instance);
        self.working += 1;
    }

    /// An idle instance gets a batch.
    pub(super) fn begin(&mut self, instance: InstanceId) -> Option<MovableInstance> {
        let place = self.idle.iter().position(|&idle| idle == instance);
        debug_assert!(place.is_some(), "a batch goes to an idle instance");
        self.idle.remove(place?);
        match std::mem::replace(&mut self.members[instance].as_mut()?.activity, InstanceActivity::Busy) {
            InstanceActivity::Idle(movable) => movable,
            InstanceActivity::Busy | InstanceActivity::Lost => None,
        }
    }

    /// A busy instance has finished its batch.
    pub(super) fn end(&mut self, instance: InstanceId, movable: Option<MovableInstance>) {
        let Some(member) = self.members.get_mut(instance).and_then(Option::as_mut) else {
            debug_assert!(false, "an instance ends a batch after it has left");
            return;
        };
        member.activity = InstanceActivity::Idle(movable);
        self.idle.insert(0, instance);
    }

    /// A busy instance has panicked. It never runs again.
    pub(super) fn lose(&mut self, instance: InstanceId) {
        if let Some(member) = self.members.get_mut(instance).and_then(Option::as_mut) {
            self.leaving -= usize::from(member.is_leaving);
            *member = Member { activity: InstanceActivity::Lost, is_leaving: false };
            self.working -= 1;
        }
    }

    /// Begins to remove an instance.
    pub(super) fn remove(&mut self, instance: InstanceId) {
        if let Some(member) = self.members.get_mut(instance).and_then(Option::as_mut)
            && !matches!(member.activity, InstanceActivity::Lost)
            && !member.is_leaving
        {
            member.is_leaving = true;
            self.leaving += 1;
        }
    }

    /// Lets those instances go that are being removed, are idle, and may leave.
    pub(super) fn let_go(
        &mut self,
        may_leave: impl Fn(InstanceId) -> bool,
    ) -> Vec<(InstanceId, Option<MovableInstance>)> {
        let mut gone = Vec::new();
        if self.leaving == 0 {
            return gone;
        }
        let members = &mut self.members;
        self.idle.retain(|&instance| {
            let leaves = |member: &mut Member| member.is_leaving && may_leave(instance);
            match members[instance].take_if(leaves) {
                Some(Member { activity: InstanceActivity::Idle(movable), .. }) => {
                    gone.push((instance, movable));
                }
                // An instance of the list is idle.
                Some(_) => gone.push((instance, None)),
                None => return true,
            }
            false
        });
        self.leaving -= gone.len();
        self.working -= gone.len();
        gone
    }

    /// Takes all instances out, also those that are lost.
    pub(super) fn release(&mut self) -> Vec<(InstanceId, Option<MovableInstance>)> {
        let members = std::mem::take(self).members.into_iter().enumerate();
        let released = members.filter_map(|(instance, member)| match member?.activity {
            InstanceActivity::Idle(movable) => Some((instance, movable)),
            InstanceActivity::Busy | InstanceActivity::Lost => Some((instance, None)),
        });
        released.collect()
    }

    /// Those without work, in the order in which they get it.
    pub(super) fn idle(&self) -> &[InstanceId] {
        &self.idle
    }

    /// Whether an instance has nothing to run.
    pub(super) fn is_idle(&self, instance: InstanceId) -> bool {
        self.idle.contains(&instance)
    }

    /// Whether none is busy.
    pub(super) fn are_all_idle(&self) -> bool {
        self.idle.len() == self.working
    }

    /// How many run a batch, and how many there are.
    pub(super) fn busy(&self) -> BusyInstances {
        BusyInstances { busy: self.working.saturating_sub(self.idle.len()), all: self.working }
    }

    /// How many can run a batch, now or later.
    pub(super) fn working(&self) -> usize {
        self.working
    }

    /// Whether no instance has this number any more.
    pub(super) fn has_left(&self, instance: InstanceId) -> bool {
        self.members.get(instance).is_none_or(Option::is_none)
    }

    /// Instances in the order in which they can leave soonest: those with few sequences first, of these the idle ones.
    pub(super) fn by_cost_of_removal(
        &self,
        mut instances: Vec<InstanceId>,
        sequences: impl Fn(InstanceId) -> Option<usize>,
    ) -> Vec<InstanceId> {
        instances.sort_by_cached_key(|&instance| {
            (sequences(instance), !self.is_idle(instance), Reverse(instance))
        });
        instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(gone: &[(InstanceId, Option<MovableInstance>)]) -> Vec<InstanceId> {
        gone.iter().map(|(instance, _)| *instance).collect()
    }

    #[test]
    fn the_instance_that_was_used_last_is_used_next() {
        let mut set = InstanceSet::new(vec![None, None, None]);
        assert_eq!(set.idle(), [0, 1, 2]);
        set.begin(0);
        set.begin(1);
        assert_eq!((set.idle(), set.are_all_idle()), (&[2][..], false));
        set.end(1, None);
        set.end(0, None);
        assert_eq!((set.idle(), set.are_all_idle()), (&[0, 1, 2][..], true));
    }

    #[test]
    fn an_instance_leaves_when_it_is_idle_and_may() {
        let mut set = InstanceSet::new(vec![None, None]);
        set.begin(1);
        set.remove(1);
        assert!(set.let_go(|_| true).is_empty());
        set.end(1, None);
        assert!(set.let_go(|_| false).is_empty());
        assert_eq!(numbers(&set.let_go(|_| true)), [1]);
        assert!(set.has_left(1) && !set.has_left(0));
        assert_eq!((set.working(), set.idle()), (1, &[0][..]));
        set.add(1, None);
        assert_eq!((set.working(), set.idle(), set.has_left(1)), (2, &[0, 1][..], false));
    }

    #[test]
    fn a_lost_instance_never_leaves_by_itself_and_is_released() {
        let mut set = InstanceSet::new(vec![None, None]);
        set.remove(0);
        set.begin(0);
        set.lose(0);
        assert!(set.let_go(|_| true).is_empty());
        assert_eq!((set.working(), set.are_all_idle(), set.has_left(0)), (1, true, false));
        assert_eq!(numbers(&set.release()), [0, 1]);
    }

    #[test]
    fn nothing_is_left_after_a_release() {
        let mut set = InstanceSet::new(vec![None, None, None]);
        set.remove(1);
        assert_eq!(numbers(&set.release()), [0, 1, 2]);
        assert!(set.let_go(|_| true).is_empty() && set.idle().is_empty() && set.are_all_idle());
        assert!(set.release().is_empty());
    }
}
