//! The runtime: owns models, threads, clocks and counters, and drives the pure policies.
//!
//! [`Engine`] is its whole public interface. It knows no protocol and no C type. Backends implement the traits of
//! [`inference::backend`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]
mod account;
mod clock;
mod control_groups;
mod engine;
mod engine_threads;
mod ensemble;
mod executor;
pub mod explain;
mod exposition;
mod fingerprint;
mod host_policy;
mod instance_table;
mod limiter;
mod limits;
mod memory_pressure;
mod model;
mod model_state;
mod models;
mod network_threads;
mod notified;
mod options;
mod plugins;
mod processors;
mod readiness;
mod regular_file;
mod repository;
mod response_cache;
mod server_parts;
mod snapshot;
mod thread_group;

pub use account::{ModelStatistics, ResponseStatistic};
pub use clock::now;
pub use engine::Engine;
pub use host_policy::HostPolicy;
pub use limits::{MemoryLimits, usable_memory};
pub use model::Model;
pub use model_state::{IndexEntry, ModelState, NotReady};
pub use options::{
    BackendSetting, ControlMode, EngineOptions, LoadPolicy, MetricsOptions, ModelControl, Polling,
    RateLimitResource, ReadinessRule, ServerMetadata, StartupModels,
};
pub use plugins::{MemoryFunctions, Plugins};
pub use processors::{ProcessorSet, usable as usable_processors};
pub use readiness::Readiness;
pub use repository::{LoadParameters, NoPrivateDirectories, layout, remove_private_directories};
pub use thread_group::ThreadGroup;
