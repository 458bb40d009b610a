//! What reading the configuration of a load has shown.
use std::collections::BTreeSet;

use vocabulary::{Error, Name};

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

/// Why a model has no version at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoVersion {
    /// The cause.
    pub cause: NoVersionCause,
    /// The text for the index.
    pub reason: String,
}

/// The cause. The errors for clients depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoVersionCause {
    /// The directory has no configuration file, but the options require one. It may not be a model.
    NoConfiguration,
    /// The configuration is valid and selects no version directory.
    NoneSelected,
    /// The configuration is invalid, an agent refused, or the model is in two repositories.
    Refused,
}

/// The reason of a model that several repositories have.
pub const IN_TWO_REPOSITORIES: &str = "model appears in two or more repositories";
