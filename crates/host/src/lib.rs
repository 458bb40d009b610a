//! What the server has of its host: a clock, threads, processors and memory.
//!
//! This crate knows no model that is loaded and no client. It contains no policy: others decide, with times and limits
//! that it reads.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
mod clock;
mod control_groups;
mod host_policy;
mod limits;
mod processors;
mod thread_group;
mod thread_pool;

pub use clock::{TimerTarget, TimerThread, now, unix_time};
pub use host_policy::{HostPolicy, InstancePlan, ProcessorBinding};
pub use limits::{MemoryLimits, configurable_bytes, usable_memory};
pub use processors::{ProcessorSet, usable as usable_processors};
pub use thread_group::{GroupThread, ThreadGroup};
pub use thread_pool::{PoolOptions, PoolWork, ThreadPool};
