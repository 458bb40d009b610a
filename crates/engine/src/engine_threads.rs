//! The threads that all models of an engine share.
use std::{io, sync::Arc};

use crate::network_threads::NetworkThreads;
use host::{ThreadGroup, TimerThread};

/// See the module documentation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EngineThreads {
    pub(crate) clock: TimerThread,
    pub(crate) network: Arc<NetworkThreads>,
    /// All threads that the engine has started, so that its end can wait for them.
    pub(crate) group: ThreadGroup,
}

impl EngineThreads {
    /// Starts the timer thread. The network threads are those of the current runtime, if there is one.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let group = ThreadGroup::default();
        let clock = TimerThread::start(&group)?;
        Ok(Self { network: NetworkThreads::new(clock.clone()), clock, group })
    }
}
