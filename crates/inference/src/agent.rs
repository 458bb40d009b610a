//! The extension point for repository agents. An agent may check, decrypt or replace the files of a model before the
//! server reads them.
//!
//! The interface follows `tritonrepoagent.h`. An agent works on any number of models. The server reports the actions
//! on each model to the agent: LOAD, LOAD_COMPLETE, UNLOAD, UNLOAD_COMPLETE, or LOAD and LOAD_FAIL. [`AgentModel`]
//! defines what an agent may read and do during an action. It checks the rules that are the same for all agents.
mod action;
mod agents;
mod model;

pub use action::AgentAction;
pub use agents::{AgentFinder, ModelAgent, RepositoryAgent, not_found};
pub use model::{AgentModel, ArtifactType, Directories};
