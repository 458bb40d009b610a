//! The model repository: a task alone changes the states of models. It receives commands and publishes snapshots.
//!
//! A [`Lifecycle`](lifecycle::Lifecycle) decides. The task performs its actions: blocking threads look at directories,
//! read configurations and load models. Each result comes back to the task as an event. Readers look at the latest
//! [`ModelTable`].
mod agent_thread;
mod agents;
mod blocking;
mod closing_threads;
mod command;
mod config_file;
mod files;
mod freed_memory;
mod given;
mod handle;
mod inferer;
pub mod layout;
mod load;
mod plan;
mod polling;
mod private_directory;
mod remote;
mod repositories;
mod retire;
mod scan;
mod stamps;
mod strategy;
mod table;
mod task;
mod watch;

pub use given::LoadParameters;
pub(crate) use handle::Repository;
pub(crate) use load::Loader;
pub use private_directory::{NoPrivateDirectories, remove_private_directories};
pub(crate) use table::ModelTable;
pub(crate) use task::RepositoryOptions;
