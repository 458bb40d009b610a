//! What the server asks of repository agents.
use std::{path::Path, sync::Arc};

use vocabulary::Error;

use super::{action::AgentAction, model::AgentModel};

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

/// The error for an agent whose library does not exist in `directory`.
pub fn not_found(name: &str, directory: &Path) -> Error {
    let directory = directory.display();
    Error::invalid(format!(
        "unable to find 'libtritonrepoagent_{name}.so' for repo agent '{name}', searched: {directory}"
    ))
}
