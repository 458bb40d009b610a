//! Gives a request back to the application when no code reads its input memory any more.
use std::sync::atomic::{AtomicBool, Ordering};

use super::inference_request::{InferenceRequest, ReleaseCallback};
use crate::calls::CallbackQueue;

/// `TRITONSERVER_REQUEST_RELEASE_ALL`.
const RELEASE_ALL: u32 = 1;

/// A request of the application that the server uses. Every piece of its input memory holds this guard. When the last
/// piece is dropped, no code reads that memory any more, and the request is given back, exactly once.
pub(crate) struct RequestReturnGuard {
    /// The handle that the application passed.
    request: *mut InferenceRequest,
    /// `None` until it is known.
    back: Option<ReleaseCallback>,
    /// Whether the server has accepted the request. Otherwise the application keeps it.
    accepted: AtomicBool,
    /// The pool on which the request is given back, whichever thread has dropped the last piece of memory.
    callbacks: CallbackQueue,
}

// SAFETY: the request is only passed back; the header allows that on any thread.
unsafe impl Send for RequestReturnGuard {}
// SAFETY: the same.
unsafe impl Sync for RequestReturnGuard {}

impl RequestReturnGuard {
    /// A guard that gives nothing back until the server has accepted the request.
    pub(crate) fn new(
        request: *mut InferenceRequest,
        back: Option<ReleaseCallback>,
        callbacks: CallbackQueue,
    ) -> Self {
        Self { request, back, accepted: AtomicBool::new(false), callbacks }
    }

    /// The server has accepted the request.
    pub(crate) fn accept(&self) {
        self.accepted.store(true, Ordering::Release);
    }
}

impl Drop for RequestReturnGuard {
    fn drop(&mut self) {
        if self.accepted.load(Ordering::Acquire)
            && let Some(back) = self.back
        {
            let pending_return = PendingReturn { request: self.request, back };
            self.callbacks.push(move || pending_return.back());
        }
    }
}

/// A request that is being given back, on any thread.
struct PendingReturn {
    /// The handle that the application passed.
    request: *mut InferenceRequest,
    back: ReleaseCallback,
}

// SAFETY: as for `RequestReturnGuard`.
unsafe impl Send for PendingReturn {}

impl PendingReturn {
    fn back(self) {
        let ReleaseCallback { release, userp } = self.back;
        // SAFETY: the application's function as the header declares it; the application owns the request again.
        unsafe { release(self.request, RELEASE_ALL, userp) };
    }
}
