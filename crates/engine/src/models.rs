//! The models of a server: a task alone changes their states. It receives commands and publishes snapshots.
//!
//! A [`Lifecycle`](lifecycle::Lifecycle) decides. The task performs its actions: blocking threads look at directories,
//! read configurations and load models. Each result comes back to the task as an event. Readers look at the latest
//! [`ModelTable`].
mod agent_thread;
mod blocking;
mod closing_threads;
mod command;
mod copies;
mod downloads;
mod handle;
mod heap_trimmer;
mod inferer;
mod load;
pub(crate) mod loaded_version;
mod loaded_work;
mod plan;
mod polling;
mod retire;
mod survey;
mod table;
mod task;

pub(crate) use handle::Repository;
pub(crate) use inferer::AbsentModels;
pub(crate) use load::VersionLoader;
pub(crate) use survey::SurveyedModel;
pub(crate) use table::ModelTable;
pub(crate) use task::RepositoryOptions;
