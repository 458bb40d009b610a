//! Makes, stops and deletes a server, and tells whether it and its models are ready.
use std::{
    ffi::c_char,
    ptr,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use c_api::{
    handle::{borrow, guard, put, text},
    types::error::CError,
};
use tokio::runtime::{self, Runtime};
use vocabulary::Error;

use super::{Server, choice, not_ready};
use crate::options::ServerOptions;

/// Makes a server with these options. Returns when each model is ready or has failed. The caller owns the server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerNew(
    server: *mut *mut Server,
    options: *mut ServerOptions,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or live options; null or writable.
        unsafe {
            put(server, ptr::null_mut())?;
            let settings = borrow(options)?.settings().clone();
            put(server, Arc::into_raw(Server::start(&settings)?).cast_mut())
        }
    })
}

/// Stops a server and deletes it; null is fine. Returns when all threads of the server have ended, except for the thread
/// of a callback that calls this function. A server that does not stop within its time limit is not deleted. Requests,
/// responses and metrics of the server must be deleted before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerDelete(server: *mut Server) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server.
        let Some(own) = (unsafe { server.as_ref() }) else { return Ok(()) };
        with_thread_locals(|| own.end())?;
        // SAFETY: it came from `Arc::into_raw`, because C has made it, and the caller does not use it after this.
        drop(unsafe { Arc::from_raw(server) });
        Ok(())
    })
}

/// Stops a server: it takes no new requests, finishes the ones it has, unloads all models and waits for callbacks. It
/// does not wait for a callback that calls this function. Null, and a server that has stopped, are fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerStop(server: *mut Server) -> *mut CError {
    // SAFETY: null or a live server.
    guard(|| unsafe { server.as_ref() }.map_or(Ok(()), |server| with_thread_locals(|| server.stop())))
}

/// Sets how many seconds stopping may take; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerSetExitTimeout(server: *mut Server, timeout: u32) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server.
        let Some(server) = (unsafe { server.as_ref() }) else { return Ok(()) };
        server.own().map(|own| own.exit_timeout_secs.store(timeout, Relaxed))
    })
}

/// How long threads that have nothing to do any more may take to end, even if the time limit of the stop is over.
const LAST_GRACE: Duration = Duration::from_secs(1);

impl Server {
    /// Stops the server, and waits until all its threads have ended.
    ///
    /// # Errors
    /// INTERNAL if that takes longer than the time limit.
    pub(super) fn end(&self) -> Result<(), Error> {
        let own = self.own()?;
        let began = Instant::now();
        self.stop()?;
        let left = self.exit_timeout().saturating_sub(began.elapsed()).max(LAST_GRACE);
        let deadline = Instant::now() + left;
        // Not in the condition of the `if`, which would hold the lock to its end.
        let runtime = own.runtime.lock().take();
        if let Some(runtime) = runtime {
            // The tasks of the runtime have the plug-ins. They are dropped here.
            let has_ended = shut_down(runtime, deadline);
            own.has_lost_threads.store(!has_ended, Relaxed);
        }
        let others =
            self.engine().map_or(true, |engine| engine.end_threads(deadline)) && self.callbacks.end(deadline);
        // The program may end now. Without a logger this does nothing.
        log::logger().flush();
        if others && !own.has_lost_threads.load(Relaxed) { Ok(()) } else { Err(expired()) }
    }

    fn stop(&self) -> Result<(), Error> {
        let own = self.own()?;
        let (began, grace) = (Instant::now(), self.exit_timeout());
        // A server without an engine has nothing to stop. A stop that has failed may be tried again.
        if let Ok(engine) = self.engine()
            && !own.has_stopped.load(Relaxed)
        {
            self.wait(engine.stop(grace))?;
            own.has_stopped.store(true, Relaxed);
        }
        // After this, the program may delete what its callbacks use.
        if self.callbacks.wait_until_quiet(grace.saturating_sub(began.elapsed())) {
            log::logger().flush();
            Ok(())
        } else {
            Err(expired())
        }
    }

    /// A server without an engine is not live. As in Triton, that is not an error.
    fn is_live(&self) -> Result<bool, Error> {
        self.engine().map_or(Ok(false), engine::Engine::live)
    }

    /// Asks on the caller's thread, as Triton does: a plug-in may call from any thread of the server.
    fn is_ready(&self) -> Result<bool, Error> {
        self.engine().map_or(Ok(false), engine::Engine::ready_here)
    }

    /// Asks about one model. A model that is not there is not ready, as for clients.
    fn is_model_ready(&self, name: &str, version: i64) -> Result<bool, Error> {
        Ok(self.serving()?.demands().ready_here(name, choice(version)))
    }

    /// The engine for requests. A stopping server still returns it.
    pub(crate) fn not_before_start(&self) -> Result<(), Error> {
        self.engine().map(drop).map_err(|_| not_ready())
    }
}

/// Calls a function on a thread that has thread-local values. `exit` destroys those of its thread before the objects of the
/// program, and such an object may own a server.
fn with_thread_locals(call: impl FnOnce() -> Result<(), Error> + Send) -> Result<(), Error> {
    match runtime::Handle::try_current() {
        Err(error) if error.is_thread_local_destroyed() => {
            let called = thread::scope(|scope| scope.spawn(call).join());
            called.unwrap_or_else(|_| Err(Error::internal("the server panicked while it ended")))
        }
        _ => call(),
    }
}

fn expired() -> Error {
    Error::internal("Exit timeout expired. Exiting immediately.")
}

/// Ends the threads of a runtime. Returns whether they have ended before `deadline`.
fn shut_down(runtime: Runtime, deadline: Instant) -> bool {
    let end = || {
        // The timeout says nothing about its outcome.
        runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
        Instant::now() < deadline
    };
    if runtime::Handle::try_current().is_err() {
        return end();
    }
    // A thread of a runtime must not block on the end of one.
    thread::scope(|scope| scope.spawn(end).join()).unwrap_or(false)
}

/// Returns whether the server is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerIsLive(server: *mut Server, live: *mut bool) -> *mut CError {
    // SAFETY: null or a live server; null or writable.
    guard(|| unsafe { put(live, false).and(put(live, borrow(server)?.is_live()?)) })
}

/// Returns whether the server is ready for requests. With strict readiness all models must be ready, and their backends
/// are asked too, which may block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerIsReady(server: *mut Server, ready: *mut bool) -> *mut CError {
    // SAFETY: null or a live server; null or writable.
    guard(|| unsafe { put(ready, false).and(put(ready, borrow(server)?.is_ready()?)) })
}

/// Returns whether a version of a model is ready; -1 for any version. Its backend is asked too, which may block. A model
/// that is not there is not ready.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelIsReady(
    server: *mut Server,
    model_name: *const c_char,
    model_version: i64,
    ready: *mut bool,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null; null or writable.
    guard(|| unsafe {
        put(ready, false)?;
        put(ready, borrow(server)?.is_model_ready(text(model_name)?, model_version)?)
    })
}
