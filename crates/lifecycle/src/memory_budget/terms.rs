//! What goes into the policy, and what comes out.
use std::time::Duration;

use vocabulary::{Error, Name};

/// What is known of a model before it is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelNeeds {
    /// The size of the files that a load reads, in bytes. Counts until the model has been measured.
    pub file_bytes: u64,
    /// The model stays in memory once it is loaded.
    pub is_pinned: bool,
    /// Models with larger numbers stay when a model with a smaller one needs memory.
    pub priority: u32,
    /// The models that an ensemble calls; empty for other models.
    pub members: Vec<Name>,
}

/// How a model in memory is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelUse {
    /// The requests since its load.
    pub requests: u64,
    /// It has requests or sequences.
    pub is_busy: bool,
}

/// What a load has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadMeasure {
    /// The memory of the model, in bytes; 0 if nobody knows.
    pub bytes: u64,
    /// How long the load took, without waiting for its turn.
    pub duration: Duration,
}

/// What follows from a demand at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DemandAnswer {
    /// The model is in memory.
    Ready,
    /// The model will be loaded, or the demand will be refused.
    Waits,
    /// The model cannot be loaded now.
    Refused(Error),
    /// An operator has unloaded the model. Only an operator brings it back.
    Withdrawn,
    /// The model is in no repository.
    Unknown,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetAction {
    /// Load this model.
    Load(Name),
    /// Unload this model.
    Unload(Name),
    /// Refuse those who wait for this model.
    Refuse(Name, Error),
}
