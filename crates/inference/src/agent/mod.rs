//! The door for repository agents: whoever may check, decrypt or replace the files of a model before they are read.
//!
//! `tritonrepoagent.h` is its model. An agent looks after any number of models, and is told of each what happens to it:
//! LOAD, LOAD_COMPLETE, UNLOAD, UNLOAD_COMPLETE, or LOAD and LOAD_FAIL. What it may know and do meanwhile is an
//! [`AgentModel`], which keeps the rules that are the same for all agents.
use std::{fmt, path::Path, sync::Arc};

use crate::Error;

mod model;

pub use model::{AgentModel, ArtifactType, Directories};

/// Finds repository agents.
pub trait AgentFinder: Send + Sync {
    /// The agent of that name, which is as a configuration gives it. May block. An agent lives as long as some model is
    /// looked after by it.
    ///
    /// # Errors
    /// [`not_found`]; whatever the agent says if it does not start.
    fn find(&self, name: &str) -> Result<Arc<dyn RepositoryAgent>, Error>;
}

/// An agent that can look after models.
pub trait RepositoryAgent: Send + Sync {
    /// Begins to look after a model, which nothing has happened to yet. May block.
    ///
    /// # Errors
    /// Why it cannot; the model is then not loaded.
    fn attach(&self, model: &mut AgentModel) -> Result<Box<dyn ModelAgent>, Error>;
}

/// An agent that looks after one model. Called by one thread at a time, not always the same.
pub trait ModelAgent: Send {
    /// Something happens to the model. May block.
    ///
    /// # Errors
    /// At LOAD: why the model must not be loaded. Later ones change nothing.
    fn act(&mut self, model: &mut AgentModel, action: AgentAction) -> Result<(), Error>;

    /// The last call: nothing will happen to the model any more.
    fn leave(&mut self, model: &mut AgentModel) {
        let _ = model;
    }
}

/// What happens to a model (`TRITONREPOAGENT_ActionType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentAction {
    /// It is going to be loaded. Only now its files may be replaced.
    Load,
    /// It is loaded.
    LoadComplete,
    /// It is not loaded after all.
    LoadFail,
    /// It is going to be unloaded.
    Unload,
    /// It is unloaded.
    UnloadComplete,
}

impl AgentAction {
    /// As logs and errors name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "TRITONREPOAGENT_ACTION_LOAD",
            Self::LoadComplete => "TRITONREPOAGENT_ACTION_LOAD_COMPLETE",
            Self::LoadFail => "TRITONREPOAGENT_ACTION_LOAD_FAIL",
            Self::Unload => "TRITONREPOAGENT_ACTION_UNLOAD",
            Self::UnloadComplete => "TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE",
        }
    }

    /// What an agent that heard this last still has to hear, if it hears of nothing else any more.
    pub const fn owed(self) -> &'static [Self] {
        match self {
            Self::Load => &[Self::LoadFail],
            Self::LoadComplete => &[Self::Unload, Self::UnloadComplete],
            Self::Unload => &[Self::UnloadComplete],
            Self::LoadFail | Self::UnloadComplete => &[],
        }
    }

    /// Whether this may happen after that.
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

/// The error for an agent whose library is not where it should be.
pub fn not_found(name: &str, directory: &Path) -> Error {
    let directory = directory.display();
    Error::invalid(format!(
        "unable to find 'libtritonrepoagent_{name}.so' for repo agent '{name}', searched: {directory}"
    ))
}
