//! Operations on the models of one name follow each other.
use std::collections::VecDeque;

use vocabulary::Error;

use crate::{
    commands::ModelOrigin,
    keys::{CommandId, Generation, ModelKey},
    listing::FoundModel,
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
    pub(crate) fn overriding_command(self) -> Option<CommandId> {
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
    pub(crate) fn next(&mut self, are_held: bool) -> Option<Operation> {
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
    pub(crate) fn is_unload_next(&self) -> bool {
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
