//! The extension point for repository agents. An agent may check, decrypt or replace the files of a model before the
//! server reads them.
//!
//! The interface follows `tritonrepoagent.h`. An agent works on any number of models. The server reports the actions
//! on each model to the agent: LOAD, LOAD_COMPLETE, UNLOAD, UNLOAD_COMPLETE, or LOAD and LOAD_FAIL. [`AgentModel`]
//! defines what an agent may read and do during an action. It checks the rules that are the same for all agents.
use std::{fmt, path::Path, sync::Arc};

use crate::Error;

mod model;

pub use model::{AgentModel, ArtifactType, Directories};

/// Finds repository agents.
pub trait AgentFinder: Send + Sync {
    /// Returns the agent with that name, as a configuration gives it. May block. The agent lives until the last model
    /// that uses it is unloaded.
    ///
    /// # Errors
    /// [`not_found`]; the agent's own error if it does not start.
    fn find(&self, name: &str) -> Result<Arc<dyn RepositoryAgent>, Error>;

    /// Whether there is an agent with that name. Starts nothing.
    fn has(&self, name: &str) -> bool;
}

/// An agent that can attach to models.
pub trait RepositoryAgent: Send + Sync {
    /// Attaches the agent to a model on which no action has happened yet. May block.
    ///
    /// # Errors
    /// The reason why the agent cannot attach. The server then does not load the model.
    fn attach(&self, model: &mut AgentModel) -> Result<Box<dyn ModelAgent>, Error>;
}

/// An agent that is attached to one model. One thread at a time calls it, not always the same thread.
pub trait ModelAgent: Send {
    /// Performs an action on the model. May block.
    ///
    /// # Errors
    /// At LOAD: the reason why the server must not load the model. Errors of later actions change nothing.
    fn act(&mut self, model: &mut AgentModel, action: AgentAction) -> Result<(), Error>;

    /// The last call. No further action follows.
    fn leave(&mut self, model: &mut AgentModel) {
        let _ = model;
    }
}

/// An action on a model (`TRITONREPOAGENT_ActionType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentAction {
    /// The server is about to load the model. Only during this action may an agent replace the files of the model.
    Load,
    /// The server has loaded the model.
    LoadComplete,
    /// The server has failed to load the model.
    LoadFail,
    /// The server is about to unload the model.
    Unload,
    /// The server has unloaded the model.
    UnloadComplete,
}

impl AgentAction {
    /// The name in logs and errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "TRITONREPOAGENT_ACTION_LOAD",
            Self::LoadComplete => "TRITONREPOAGENT_ACTION_LOAD_COMPLETE",
            Self::LoadFail => "TRITONREPOAGENT_ACTION_LOAD_FAIL",
            Self::Unload => "TRITONREPOAGENT_ACTION_UNLOAD",
            Self::UnloadComplete => "TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE",
        }
    }

    /// The actions that the server must still report after this one, if the model does nothing else.
    pub const fn owed(self) -> &'static [Self] {
        match self {
            Self::Load => &[Self::LoadFail],
            Self::LoadComplete => &[Self::Unload, Self::UnloadComplete],
            Self::Unload => &[Self::UnloadComplete],
            Self::LoadFail | Self::UnloadComplete => &[],
        }
    }

    /// Whether this action may follow `before`.
    const fn may_follow(self, before: Option<Self>) -> bool {
        matches!(
            (before, self),
            (None, Self::Load)
                | (Some(Self::Load), Self::LoadComplete | Self::LoadFail)
                | (Some(Self::LoadComplete), Self::Unload)
                | (Some(Self::Unload), Self::UnloadComplete)
        )
    }
}

impl fmt::Display for AgentAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for an agent whose library does not exist in `directory`.
pub fn not_found(name: &str, directory: &Path) -> Error {
    let directory = directory.display();
    Error::invalid(format!(
        "unable to find 'libtritonrepoagent_{name}.so' for repo agent '{name}', searched: {directory}"
    ))
}
