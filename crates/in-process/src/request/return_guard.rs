//! Gives a request back to the application when no code reads its input memory any more.
use std::{
    ffi::c_void,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use inference::DevicePiece;

use super::InferenceRequest;
use crate::calls::CallbackQueue;

/// `TRITONSERVER_InferenceRequestReleaseFn_t`.
pub type ReleaseFn = unsafe extern "C-unwind" fn(*mut InferenceRequest, u32, *mut c_void);

/// `TRITONSERVER_REQUEST_RELEASE_ALL`.
const RELEASE_ALL: u32 = 1;

/// The callback that gives a request back to the application, and its argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleaseCallback {
    pub(crate) release: ReleaseFn,
    pub(crate) userp: *mut c_void,
}

// SAFETY: the header requires a callback that any thread may call; the pointer is only passed back to it.
unsafe impl Send for ReleaseCallback {}
// SAFETY: the same.
unsafe impl Sync for ReleaseCallback {}

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

/// A piece of input memory that the application owns.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    /// Memory of the host.
    Host(HostPiece),
    /// Memory of the GPU with that number.
    Gpu(i64, DevicePiece),
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Host(piece) => piece.len,
            Self::Gpu(_, piece) => piece.byte_size,
        }
    }
}

/// A piece of host memory that the application owns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostPiece {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the application does not change the memory until the request is given back; any thread may read it.
unsafe impl Send for HostPiece {}
// SAFETY: the same.
unsafe impl Sync for HostPiece {}

impl HostPiece {
    /// # Safety
    /// That many bytes are readable at that address while the server uses a request that has the piece.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// The same memory as a shared buffer, without copying it.
    pub(crate) fn lend(self, return_guard: &Arc<RequestReturnGuard>) -> Bytes {
        Bytes::from_owner(BorrowedBuffer { piece: self, _return_guard: return_guard.clone() })
    }
}

struct BorrowedBuffer {
    piece: HostPiece,
    _return_guard: Arc<RequestReturnGuard>,
}

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the application does not change the memory until the guard gives the request back.
        unsafe { std::slice::from_raw_parts(self.piece.base.as_ptr(), self.piece.len) }
    }
}
