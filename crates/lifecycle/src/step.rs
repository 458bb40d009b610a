//! What goes into the policy and what comes out: commands, results and actions.
use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc};

use inference::{Error, Name};

use crate::NoVersion;

/// A model: its name and, if the server uses namespaces, the repository that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey {
    /// The name of the repository; `None` if the server uses no namespaces.
    pub namespace: Option<Name>,
    /// The model's name.
    pub name: Name,
}

impl ModelKey {
    /// A model of a server without namespaces.
    pub fn new(name: &str) -> Self {
        Self { namespace: None, name: Name::new(name) }
    }
}

impl fmt::Display for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            // As Triton prints it in logs and in load errors.
            Some(namespace) => write!(f, "{namespace}::{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// Where a model is. The policy passes it through, and tells repositories apart by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelPlace {
    /// The name of the repository: its path or its URL.
    pub repository: Name,
    /// The path or the URL of the model's directory in the repository.
    pub directory: PathBuf,
}

/// The reason of a model that several repositories have.
pub const IN_TWO_REPOSITORIES: &str = "model appears in two or more repositories";

/// A command that waits for its answer. The caller chooses the number; it is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// One load of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// One version of one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyId {
    /// The load.
    pub generation: Generation,
    /// The version's number.
    pub version: i64,
}

/// Where the configuration and the files of a load come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelOrigin {
    /// The model's directory in a repository.
    Repository,
    /// The configuration was given with the command; the files are in the repository.
    GivenConfig,
    /// The configuration and all files were given with the command.
    GivenFiles,
}

/// What an operator or a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleCommand {
    /// Load every model of every repository.
    LoadAll,
    /// Load or reload a model.
    Load {
        /// The model's name.
        name: Name,
        /// Where its configuration and its files come from.
        origin: ModelOrigin,
    },
    /// Unload a model.
    Unload {
        /// The model's name.
        name: Name,
        /// Also unload the members of the model that nothing else needs and that were not loaded by their own names,
        /// and the members of these.
        dependents: bool,
    },
}

/// What two configurations are compared by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigIdentity {
    /// Everything except for the version policy, in any form in which equal means equal.
    pub model: Vec<u8>,
}

/// The configuration of a load has been read and is good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedModel {
    /// The versions that the version policy selects, ascending; not empty.
    pub versions: Vec<i64>,
    /// What the configuration is compared by.
    pub config: ConfigIdentity,
    /// The names of the models that the model calls, if it is an ensemble; empty if it is none.
    pub members: BTreeSet<Name>,
}

/// The configuration of a load cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFailure {
    /// Why the model has no version, if it has none.
    pub no_version: NoVersion,
    /// The error.
    pub error: Error,
}

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
        place: Option<Arc<ModelPlace>>,
        /// The command that has given the configuration or the files, if one has.
        given: Option<CommandId>,
    },
    /// Build a copy, then call [`Lifecycle::loaded`](crate::Lifecycle::loaded).
    Load {
        /// The model.
        key: ModelKey,
        /// The copy.
        copy: CopyId,
        /// The copy of the version that serves, if the version's files are still those that it was built from: what
        /// the configuration leaves as it was need not be built again.
        base: Option<CopyId>,
    },
    /// Look at the files of the model again, then call [`Lifecycle::checked`](crate::Lifecycle::checked).
    Check {
        /// The model.
        key: ModelKey,
        /// The load.
        generation: Generation,
        /// Where the model is.
        place: Arc<ModelPlace>,
    },
    /// The copies of the load serve now; notify its agents.
    TellComplete {
        /// The load.
        generation: Generation,
    },
    /// The load has failed, and its copies have ended; notify its agents and forget the load.
    TellFailed {
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
