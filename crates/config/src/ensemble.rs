//! The typed form of `ensemble_scheduling`.
use std::{
    collections::BTreeSet,
    num::{NonZeroU32, NonZeroUsize},
};

use vocabulary::Name;

/// The steps of an ensemble. Each step sends a request to a member, which is another model of the server.
#[derive(Debug, Clone)]
pub struct EnsembleScheduling {
    /// In the order of the configuration; at least one.
    pub steps: Vec<EnsembleStep>,
    /// The most requests of each step that run at a time, for all requests of the ensemble together. `None`: no limit.
    pub max_inflight_requests: Option<NonZeroU32>,
    /// The most bytes of tensors that requests of the ensemble hold between steps (parameter
    /// `MAX_INTERMEDIATE_BYTES`). `None`: the server's default.
    pub max_intermediate_bytes: Option<NonZeroUsize>,
}

/// One step of an ensemble.
#[derive(Debug, Clone)]
pub struct EnsembleStep {
    /// The name of the member.
    pub model: Name,
    /// The version of the member; `None` is the largest ready version when a request begins.
    pub version: Option<i64>,
    /// The inputs of the member and the ensemble tensors that they take, by the name of the input.
    pub inputs: Vec<MappedTensor>,
    /// The outputs of the member and the ensemble tensors that they give, by the name of the output.
    pub outputs: Vec<MappedTensor>,
}

/// An input or output of a member, and the tensor of the ensemble that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedTensor {
    /// The name in the member.
    pub name: Name,
    /// The name in the ensemble.
    pub tensor: Name,
}

impl EnsembleScheduling {
    /// The names of the members, each once.
    pub fn members(&self) -> BTreeSet<Name> {
        self.steps.iter().map(|step| step.model.clone()).collect()
    }
}
