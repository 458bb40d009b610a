//! The runtime of the cache's tasks: that of the server, or a thread of the cache where the program has no runtime.
use std::{
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};
use vocabulary::Error;

/// How long the end of the cache waits for the system's search of a host name.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the tasks of the cache. A thread of the cache has ended when this value has been dropped.
pub(super) struct CacheRuntime {
    handle: Handle,
    own: Option<RuntimeThread>,
}

struct RuntimeThread {
    /// Dropping it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CacheRuntime {
    /// The runtime of this thread, if there is one. Otherwise a new one with one thread.
    ///
    /// # Errors
    /// INTERNAL: the system refuses a thread.
    pub(super) fn current_or_own() -> Result<Self, Error> {
        if let Ok(handle) = Handle::try_current() {
            return Ok(Self { handle, own: None });
        }
        let failed = |error: io::Error| Error::internal(format!("failed to start a runtime: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(GRACE);
        };
        let thread = thread::Builder::new().name("redis cache".to_owned()).spawn(run).map_err(failed)?;
        let own = RuntimeThread { stop: Some(stop), thread: Some(thread) };
        Ok(Self { handle, own: Some(own) })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Whether the cache has a thread of its own.
    #[cfg(test)]
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }
}

impl Drop for CacheRuntime {
    fn drop(&mut self) {
        let Some(RuntimeThread { stop, thread }) = &mut self.own else { return };
        drop(stop.take());
        if let Some(thread) = thread.take() {
            // A panic of the thread has been reported.
            let _ = thread.join();
        }
    }
}
