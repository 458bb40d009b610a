//! What all models of a server are made with.
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize},
};

use executor::EngineThreads;
use inference::{Inferer, UnreadBudget};
use tokio::runtime::Handle;
use vocabulary::ByteBudget;

use crate::options::MetricsOptions;

/// See the module documentation.
#[derive(Clone)]
pub(crate) struct ServerParts {
    pub(crate) threads: EngineThreads,
    /// The budget for the inputs of requests.
    pub(crate) inflight: Arc<ByteBudget>,
    /// The budget for the responses that clients have not read.
    pub(crate) unread: Arc<UnreadBudget>,
    /// Looks models up, for requests of models, and for those that come after a version has been replaced.
    pub(crate) inferer: Option<Arc<dyn Inferer>>,
    /// The server will stop: no sequence begins any more.
    pub(crate) stop_announced: Arc<AtomicBool>,
    /// Counts the executors whose backends have panicked.
    pub(crate) faults: Arc<AtomicUsize>,
    /// What is counted of requests.
    pub(crate) metrics: Arc<MetricsOptions>,
    /// Runs tasks.
    pub(crate) runtime: Handle,
}
