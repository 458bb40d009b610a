//! The models of a server: loads, replaces and ends them, counts and caches their responses, and runs ensembles.
//!
//! [`Engine`] is its facade. It knows no protocol and no C type. Backends implement the traits of
//! [`inference::backend`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]
mod account;
mod engine;
mod ensemble;
pub mod explain;
mod exposition;
mod fingerprint;
mod memory_phase;
mod memory_pressure;
mod model;
mod model_demands;
mod model_state;
mod models;
mod on_demand;
mod options;
mod readiness;
mod repository_commands;
mod response_cache;
mod server_parts;
mod snapshot;
mod workload;

pub use account::{ModelStatistics, ResponseStatistic};
pub use engine::Engine;
pub use model::Model;
pub use model_demands::ModelDemands;
pub use model_state::{IndexEntry, ModelState, NotReady};
pub use options::{
    ControlMode, EngineOptions, LoadPolicy, MetricsOptions, ModelControl, OnDemandOptions, Polling,
    RateLimitResource, ReadinessRule, ServerMetadata, StartupModels,
};
pub use readiness::Readiness;
pub use repository_commands::RepositoryCommands;
pub use workload::{ModelWorkload, ServerWorkload};
