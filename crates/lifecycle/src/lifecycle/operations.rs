//! Operations on names, and the answers of commands.
use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::Lifecycle;
use crate::{
    actions::LifecycleAction,
    commands::ModelOrigin,
    keys::{CommandId, ModelKey},
    operation::{LoadPurpose, NameQueue, Operation, OperationKind, OperationWaiter, RunningOperation},
    plan_result::{IN_TWO_REPOSITORIES, NoVersion, NoVersionCause},
};

impl Lifecycle {
    pub(super) fn enqueue(&mut self, name: &Name, operation: Operation, now: Timestamp) {
        let waiter = operation.waiter;
        if self.queues.entry(name.clone()).or_default().push(operation) {
            return self.begin_next(name, now);
        }
        match waiter {
            OperationWaiter::Command(command) => {
                let error = Error::unavailable(format!("too many commands wait for model '{name}'"));
                self.operation_ended(command, Some(error));
            }
            OperationWaiter::Load(generation) => self.member_settled(generation, name),
            OperationWaiter::Nobody => {}
        }
    }

    /// Begins operations on a name until one of them takes time.
    pub(super) fn begin_next(&mut self, name: &Name, now: Timestamp) {
        while let Some(operation) = self.next_operation(name) {
            let Operation { waiter, kind } = operation;
            match kind {
                OperationKind::Load { command, origin } => {
                    self.run(name, waiter, LoadPurpose::Named { command, origin });
                    if origin == ModelOrigin::GivenFiles {
                        let key = ModelKey { namespace: None, name: name.clone() };
                        self.plan(key, None, Vec::new());
                    } else {
                        self.actions.push(LifecycleAction::Find { name: name.clone() });
                    }
                }
                OperationKind::LoadFound { key, found } => {
                    self.run(name, waiter, LoadPurpose::Listed);
                    self.begin_load(key, found, now);
                }
                OperationKind::LoadMember { command } => {
                    self.run(name, waiter, LoadPurpose::Member { command });
                    self.actions.push(LifecycleAction::Find { name: name.clone() });
                }
                OperationKind::Retry if self.awaits_members(name) => {
                    self.run(name, waiter, LoadPurpose::Retry);
                    self.actions.push(LifecycleAction::Find { name: name.clone() });
                }
                OperationKind::Retry | OperationKind::Barrier => self.tell_ended(name, waiter, None),
                OperationKind::Unload { dependents } => {
                    let members = self.unload_name(name);
                    if dependents {
                        self.unload_members(waiter, members);
                    }
                    self.tell_ended(name, waiter, None);
                }
                OperationKind::UnloadMember => {
                    if self.is_needless(name) {
                        let members = self.unload_name(name);
                        self.unload_members(waiter, members);
                    }
                    self.tell_ended(name, waiter, None);
                }
                OperationKind::UnloadListed { key, is_twice } => {
                    self.unload(&key);
                    self.retry_ensembles_of_others(&key);
                    if is_twice {
                        self.tell_twice(&key);
                        let reason = IN_TWO_REPOSITORIES.to_owned();
                        let problem = NoVersion { cause: NoVersionCause::Refused, reason };
                        self.models.get_or_add(&key).problem = Some(problem);
                    }
                    self.tell_ended(name, waiter, None);
                }
            }
        }
        if self.queues.get(name).is_some_and(NameQueue::is_idle) {
            self.queues.remove(name);
        }
    }

    fn next_operation(&mut self, name: &Name) -> Option<Operation> {
        let is_unload = self.queues.get(name).is_some_and(NameQueue::is_unload_next);
        let are_held = is_unload && self.held_members().contains(name);
        if are_held {
            self.held.insert(name.clone());
        }
        self.queues.get_mut(name)?.next(are_held)
    }

    fn run(&mut self, name: &Name, waiter: OperationWaiter, purpose: LoadPurpose) {
        let queue = self.queues.entry(name.clone()).or_default();
        queue.running = Some(RunningOperation { waiter, purpose, loads_left: 1, error: None });
    }

    /// Why the models of a name are being loaded.
    pub(super) fn purpose(&self, name: &Name) -> Option<LoadPurpose> {
        Some(self.queues.get(name)?.running.as_ref()?.purpose)
    }

    /// One load of the running operation on a name has ended.
    pub(super) fn load_ended(&mut self, name: &Name, error: Option<Error>, now: Timestamp) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let Some(running) = &mut queue.running else { return };
        running.error = running.error.take().or(error);
        running.loads_left -= 1;
        if running.loads_left == 0 {
            let ended = queue.running.take();
            let (waiter, error) = ended.map(|running| (running.waiter, running.error)).unwrap_or_default();
            self.tell_ended(name, waiter, error);
            self.begin_next(name, now);
        }
    }

    fn tell_ended(&mut self, name: &Name, waiter: OperationWaiter, error: Option<Error>) {
        match waiter {
            OperationWaiter::Command(command) => self.operation_ended(command, error),
            OperationWaiter::Load(generation) => self.member_settled(generation, name),
            OperationWaiter::Nobody => {}
        }
    }

    pub(super) fn operation_ended(&mut self, id: CommandId, error: Option<Error>) {
        let Some(command) = self.commands.get_mut(&id) else { return };
        command.operations_left -= 1;
        command.error = command.error.take().or(error.filter(|_| !command.is_for_all));
        if command.operations_left == 0 {
            let error = self.commands.remove(&id).and_then(|command| command.error);
            self.actions.push(LifecycleAction::Answer { command: id, result: error.map_or(Ok(()), Err) });
        }
    }
}
