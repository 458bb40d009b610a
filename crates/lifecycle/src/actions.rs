//! What is to be done.
use std::sync::Arc;

use vocabulary::{Error, Name};

use crate::keys::{CommandId, Generation, LoadedVersionId, ModelKey, ModelLocation};

/// What is to be done. The actions of a step are performed in their order; those that take time run beside each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleAction {
    /// List the models of all repositories with their files, then call [`Lifecycle::listed`](crate::Lifecycle::listed)
    /// with this command.
    List {
        /// The command that needs the listing.
        command: CommandId,
    },
    /// Find the models of a name in the repositories, with their files, then call
    /// [`Lifecycle::found`](crate::Lifecycle::found).
    Find {
        /// The name.
        name: Name,
    },
    /// Read the configuration, notify the agents of the load and select versions, then call
    /// [`Lifecycle::planned`](crate::Lifecycle::planned).
    Plan {
        /// The model.
        key: ModelKey,
        /// The load.
        generation: Generation,
        /// Where the model is; `None` if the files were given.
        place: Option<Arc<ModelLocation>>,
        /// The command that has given the configuration or the files, if one has.
        given: Option<CommandId>,
    },
    /// Build a copy, then call [`Lifecycle::loaded`](crate::Lifecycle::loaded).
    Load {
        /// The model.
        key: ModelKey,
        /// The copy.
        copy: LoadedVersionId,
        /// The copy of the version that serves, if the version's files are still those that it was built from: what
        /// the configuration leaves as it was need not be built again.
        base: Option<LoadedVersionId>,
    },
    /// Look at the files of the model again, then call [`Lifecycle::checked`](crate::Lifecycle::checked).
    Check {
        /// The model.
        key: ModelKey,
        /// The load.
        generation: Generation,
        /// Where the model is.
        place: Arc<ModelLocation>,
    },
    /// The copies of the load serve now; notify its agents.
    NotifyLoaded {
        /// The load.
        generation: Generation,
    },
    /// The load has failed, and its copies have ended; notify its agents and forget the load.
    NotifyFailed {
        /// The load.
        generation: Generation,
    },
    /// Let the accepted requests of these copies finish, end the copies, then call
    /// [`Lifecycle::retired`](crate::Lifecycle::retired) for each.
    Retire {
        /// The load.
        generation: Generation,
        /// The versions; may be empty.
        versions: Vec<i64>,
        /// No copy of the load serves any more: notify its agents of the unload first.
        unloads: bool,
    },
    /// The last copy of the load has ended; notify its agents and forget the load.
    End {
        /// The load.
        generation: Generation,
    },
    /// A command has ended.
    Answer {
        /// The command.
        command: CommandId,
        /// Its result.
        result: Result<(), Error>,
    },
    /// Write a line to the log.
    Log {
        /// How important it is.
        level: LogLevel,
        /// The line.
        text: String,
    },
}

/// How important a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Something has failed.
    Error,
    /// An operator should look at something.
    Warning,
    /// The usual course of things.
    Info,
}
