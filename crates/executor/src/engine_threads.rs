//! The threads that all models of an engine share.
use std::{io, sync::Arc, time::Duration};

use host::{PoolOptions, ThreadGroup, ThreadPool, TimerThread};

use crate::{
    instance::{InstanceWork, STACK_BYTES},
    network_threads::NetworkThreads,
};

/// How long a thread stays that no instance needs.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// See the module documentation. Cheap to clone.
#[derive(Clone)]
pub struct EngineThreads {
    /// The thread that wakes others at the times that they name.
    pub clock: TimerThread,
    pub(crate) network: Arc<NetworkThreads>,
    /// Run instances that may change threads, when network threads do not.
    pub(crate) instances: ThreadPool<InstanceWork>,
    /// All threads that the engine has started, so that its end can wait for them.
    pub group: ThreadGroup,
}

impl EngineThreads {
    /// Starts the timer thread, and one for instances. The network threads are those of the current runtime, if there is
    /// one.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn start() -> io::Result<Self> {
        let group = ThreadGroup::default();
        let clock = TimerThread::start(&group)?;
        let options = PoolOptions { name: "instances", stack_bytes: STACK_BYTES, idle_time: IDLE_TIME };
        let instances = ThreadPool::start(&group, options)?;
        Ok(Self { network: NetworkThreads::new(clock.clone()), clock, instances, group })
    }

    /// Ends the threads that wait for work. Blocks nobody; [`group`](Self::group) waits for them.
    pub fn end(&self) {
        self.clock.end();
        self.instances.end();
    }
}
