//! Pure policy of model management. Inputs are commands, listings and results of loads; outputs are actions.
//!
//! This crate reads no clock and no file, spawns nothing and never blocks. The repository task of the engine performs
//! the actions of a [`Lifecycle`] and reports their results. It publishes a view of [`Lifecycle::models`] after each
//! step.
//!
//! Each load of a model has a [`Generation`]. A copy is one version of one generation. The copies of a load come into
//! service together, or none of them does. Until then, and if a load fails, the earlier copies serve. Operations on the
//! same name follow each other; operations on different names do not wait for each other.
//!
//! There is one exception: the load of an ensemble waits for operations on its members, the models that it calls, and
//! holds the members until it has ended: unloads of them wait. The engine binds copies of ensembles to copies of their
//! members and tells the policy by [`Lifecycle::unbound`] which of them cannot be used any more. An ensemble whose load
//! has failed, or whose copies were unbound, is loaded again when one of its members comes into service.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod actions;
mod commands;
#[cfg(test)]
mod ensemble_world;
mod files;
#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod hold_script_tests;
mod keys;
mod lifecycle;
mod listing;
mod managed_model;
mod managed_models;
#[cfg(test)]
mod member_history_tests;
#[cfg(test)]
mod member_script_tests;
mod memory_budget;
mod operation;
mod plan_result;
#[cfg(test)]
mod script_tests;

pub use actions::{LifecycleAction, LogLevel};
pub use commands::{LifecycleCommand, ModelOrigin};
pub use files::{DirectoryStamp, FileStamp, ModelFiles, is_by_product};
pub use keys::{CommandId, Generation, LoadedVersionId, ModelKey, ModelLocation};
pub use lifecycle::{Lifecycle, LifecycleOptions};
pub use listing::{FoundModel, ModelListing};
pub use managed_model::{ManagedModel, UNLOADED, VersionStatus};
pub use memory_budget::{
    Absence, BudgetAction, BudgetLine, BudgetPlace, DemandAnswer, LoadMeasure, MemoryBudget, ModelNeeds,
    ModelUse,
};
pub use plan_result::{
    ConfigIdentity, IN_TWO_REPOSITORIES, NoVersion, NoVersionCause, PlanFailure, PlannedModel,
};
