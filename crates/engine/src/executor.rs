//! Executes a model version: its queue, its instances and their threads.
//!
//! The caller's thread enqueues a request and, if a batch is due, gives the batch to an instance. The same thread also
//! runs short executions, if the instance may change threads: waking another thread and waiting for it costs tens of
//! microseconds, which is longer than many models compute.
mod assemble;
mod backend_handle;
mod batching_thread;
mod custom_batch_filter;
mod driver;
mod driver_event;
mod execution_cost;
#[expect(clippy::module_inception, reason = "the room has the name of its type")]
mod executor;
mod instance;
mod instance_list;
mod instance_set;
mod resource_claims;
mod response_orders;
mod sequence_inputs;
pub(crate) mod snapshot;
mod warmup;

pub(crate) use driver::WaitingWork;
pub(crate) use executor::{
    Executor, ExecutorParts,
    instance_update::{ExecutorUpdateParts, PreparedUpdate},
};

#[cfg(all(test, feature = "loom"))]
mod loom_tests;
#[cfg(test)]
pub(crate) mod test_parts;
