//! The threads that all models of an engine share.
use std::{io, sync::Arc};

use host::{ThreadGroup, TimerThread};

use crate::network_threads::NetworkThreads;

/// See the module documentation. Cheap to clone.
#[derive(Clone)]
pub struct EngineThreads {
    /// The thread that wakes others at the times that they name.
    pub clock: TimerThread,
    pub(crate) network: Arc<NetworkThreads>,
    /// All threads that the engine has started, so that its end can wait for them.
    pub group: ThreadGroup,
}

impl EngineThreads {
    /// Starts the timer thread. The network threads are those of the current runtime, if there is one.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn start() -> io::Result<Self> {
        let group = ThreadGroup::default();
        let clock = TimerThread::start(&group)?;
        Ok(Self { network: NetworkThreads::new(clock.clone()), clock, group })
    }
}
