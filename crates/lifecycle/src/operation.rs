//! Operations on the models of one name follow each other.
use std::collections::VecDeque;

use inference::Error;

use crate::{CommandId, FoundModel, ModelKey, ModelOrigin};

/// Operations that may wait for one name.
const MAX_WAITING: usize = 1_000;

/// One thing that is to happen to the models of a name.
#[derive(Debug)]
pub(crate) struct Operation {
    /// The command that waits for it.
    pub(crate) command: Option<CommandId>,
    pub(crate) kind: OperationKind,
}

#[derive(Debug)]
pub(crate) enum OperationKind {
    /// Load what the repositories have under the name, or what was given.
    Load { origin: ModelOrigin },
    /// Load a model that a listing has found.
    LoadFound { key: ModelKey, found: FoundModel },
    /// Unload all models of the name.
    Unload,
    /// Unload a model that a listing has not found, or has found twice.
    UnloadListed { key: ModelKey, is_twice: bool },
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
    pub(crate) command: Option<CommandId>,
    pub(crate) origin: ModelOrigin,
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

    /// The next operation, if none is running.
    pub(crate) fn next(&mut self) -> Option<Operation> {
        if self.running.is_some() { None } else { self.waiting.pop_front() }
    }

    /// Removes and returns the operations that have not begun.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<Operation> {
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }
}

/// The error of commands to a server that stops.
pub(crate) fn server_exits() -> Error {
    Error::unavailable("Server exiting")
}
