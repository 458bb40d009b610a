//! Executes a model version: its queue, its instances and their threads.
//!
//! The caller's thread enqueues a request and, if a batch is due, gives the batch to an instance. The same thread also
//! runs short executions, if the instance may change threads: waking another thread and waiting for it costs tens of
//! microseconds, which is longer than many models compute.
//!
//! This crate knows no repository, no cache and no other model: [`Executor`] is what the engine holds of it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
mod backend_fault;
mod backend_handle;
mod batching_thread;
mod busy_share;
mod custom_batch_filter;
mod driver;
mod driver_event;
mod engine_threads;
mod execution_cost;
mod executor;
mod instance;
mod instance_list;
mod instance_set;
mod instance_table;
mod limiter;
mod network_threads;
mod notified;
mod resource_claims;
mod response_orders;
mod sequence_inputs;
pub mod snapshot;
mod warmup;

pub use driver::Workload;
pub use engine_threads::EngineThreads;
pub use executor::{
    Executor, ExecutorParts,
    instance_update::{ExecutorUpdateParts, PreparedUpdate},
};
pub use limiter::Limiter;
pub use notified::notified_until;

#[cfg(all(test, feature = "loom"))]
mod loom_tests;
#[cfg(test)]
mod test_parts;
