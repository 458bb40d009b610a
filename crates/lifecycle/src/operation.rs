//! Operations on the models of one name follow each other.
use std::collections::VecDeque;

use inference::{Error, Name};
use scheduling::Timestamp;

use crate::{
    CommandId, FoundModel, Generation, Lifecycle, LifecycleAction, ModelKey, ModelOrigin, NoVersion,
    NoVersionCause, step::IN_TWO_REPOSITORIES,
};

/// Operations that may wait for one name.
const MAX_WAITING: usize = 1_000;

/// One thing that is to happen to the models of a name.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) waiter: OperationWaiter,
    pub(crate) kind: OperationKind,
}

/// Who is told when an operation has ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum OperationWaiter {
    #[default]
    Nobody,
    Command(CommandId),
    /// The load of an ensemble. The models of the operation are a member of it.
    Load(Generation),
}

#[derive(Debug)]
pub(crate) enum OperationKind {
    /// Load what the repositories have under the name, or what was given with the command.
    Load { command: CommandId, origin: ModelOrigin },
    /// Load a model that a listing has found.
    LoadFound { key: ModelKey, found: FoundModel },
    /// Load a member of an ensemble, because a command loads the ensemble.
    LoadMember { command: CommandId },
    /// Load an ensemble again that awaits its members.
    Retry,
    /// Do nothing. It ends when the operations before it have ended.
    Barrier,
    /// Unload all models of the name.
    Unload { dependents: bool },
    /// Unload the models of the name if nothing needs them any more.
    UnloadMember,
    /// Unload a model that a listing has not found, or has found twice.
    UnloadListed { key: ModelKey, is_twice: bool },
}

/// Why models are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadPurpose {
    /// A command names them.
    Named { command: CommandId, origin: ModelOrigin },
    /// They are members of an ensemble that a command loads.
    Member { command: CommandId },
    /// A listing has found them.
    Listed,
    /// Their members have changed.
    Retry,
}

impl LoadPurpose {
    /// The command that loads the members, too.
    pub(crate) fn command(self) -> Option<CommandId> {
        match self {
            Self::Named { command, .. } | Self::Member { command } => Some(command),
            Self::Listed | Self::Retry => None,
        }
    }

    /// The command that has given the configuration or the files, if one has.
    pub(crate) fn given(self) -> Option<CommandId> {
        match self {
            Self::Named { command, origin: ModelOrigin::GivenConfig | ModelOrigin::GivenFiles } => {
                Some(command)
            }
            Self::Named { origin: ModelOrigin::Repository, .. }
            | Self::Member { .. }
            | Self::Listed
            | Self::Retry => None,
        }
    }

    /// Whether an operator or a client wants these models themselves.
    pub(crate) fn is_explicit(self) -> bool {
        match self {
            Self::Named { .. } | Self::Listed => true,
            Self::Member { .. } | Self::Retry => false,
        }
    }
}

/// The operations on the models of one name.
#[derive(Debug, Default)]
pub(crate) struct NameQueue {
    pub(crate) running: Option<RunningOperation>,
    waiting: VecDeque<Operation>,
}

/// An operation that has begun and not ended.
#[derive(Debug)]
pub(crate) struct RunningOperation {
    pub(crate) waiter: OperationWaiter,
    pub(crate) purpose: LoadPurpose,
    /// Models of the name that are being loaded.
    pub(crate) loads_left: usize,
    /// The first error.
    pub(crate) error: Option<Error>,
}

impl NameQueue {
    /// Returns false if too many operations wait.
    pub(crate) fn push(&mut self, operation: Operation) -> bool {
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            self.waiting.push_back(operation);
        }
        has_room
    }

    /// The next operation, if none is running. While the models are held, an unload waits, and so does what comes behind
    /// it, except for what loads of ensembles wait for: the load that holds the models may wait for these.
    fn next(&mut self, are_held: bool) -> Option<Operation> {
        if self.running.is_some() {
            return None;
        }
        if !are_held || !self.is_unload_next() {
            return self.waiting.pop_front();
        }
        let is_awaited = |operation: &Operation| matches!(operation.waiter, OperationWaiter::Load(_));
        self.waiting.iter().position(is_awaited).and_then(|index| self.waiting.remove(index))
    }

    /// Whether an unload comes next that no load of an ensemble may cross.
    fn is_unload_next(&self) -> bool {
        let is_unload = |operation: &Operation| {
            matches!(operation.kind, OperationKind::Unload { .. } | OperationKind::UnloadListed { .. })
        };
        self.running.is_none() && self.waiting.front().is_some_and(is_unload)
    }

    /// Whether an ensemble of the name will be loaded again anyway.
    pub(crate) fn has_waiting_retry(&self) -> bool {
        self.waiting.iter().any(|operation| matches!(operation.kind, OperationKind::Retry))
    }

    /// Removes and returns the operations that have not begun.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<Operation> {
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }
}

/// Operations on names, and the answers of commands.
impl Lifecycle {
    pub(crate) fn enqueue(&mut self, name: &Name, operation: Operation, now: Timestamp) {
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
    pub(crate) fn begin_next(&mut self, name: &Name, now: Timestamp) {
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
                        self.models.entry(key.clone()).or_default().problem = Some(problem);
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
        let are_held = self.queues.get(name).is_some_and(NameQueue::is_unload_next) && self.is_held(name);
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
    pub(crate) fn purpose(&self, name: &Name) -> Option<LoadPurpose> {
        Some(self.queues.get(name)?.running.as_ref()?.purpose)
    }

    /// One load of the running operation on a name has ended.
    pub(crate) fn load_ended(&mut self, name: &Name, error: Option<Error>, now: Timestamp) {
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

    pub(crate) fn operation_ended(&mut self, id: CommandId, error: Option<Error>) {
        let Some(command) = self.commands.get_mut(&id) else { return };
        command.operations_left -= 1;
        command.error = command.error.take().or(error.filter(|_| !command.is_for_all));
        if command.operations_left == 0 {
            let error = self.commands.remove(&id).and_then(|command| command.error);
            self.actions.push(LifecycleAction::Answer { command: id, result: error.map_or(Ok(()), Err) });
        }
    }
}

/// The error of commands to a server that stops.
pub(crate) fn server_exits() -> Error {
    Error::unavailable("Server exiting")
}
