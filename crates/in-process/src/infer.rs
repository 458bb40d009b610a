//! `TRITONSERVER_ServerInferAsync`: a request leaves the application, and comes back to it.
use std::{
    ffi::c_void,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use c_api::{
    handle::{borrow, guard},
    types::{
        error::CError,
        trace::{self, OwnedTrace, Trace, TracedTensor},
    },
};
use inference::{Error, Request, TraceContext};

use crate::{
    Server,
    callback_dispatcher::{CallbackDispatcher, DispatcherParts},
    calls::call_application,
    request::InferenceRequest,
};

/// `TRITONSERVER_InferenceRequestReleaseFn_t`.
pub type ReleaseFn = unsafe extern "C-unwind" fn(*mut InferenceRequest, u32, *mut c_void);

/// `TRITONSERVER_REQUEST_RELEASE_ALL`.
const RELEASE_ALL: u32 = 1;

/// How the application gets a request back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleaseCallback {
    pub(crate) release: ReleaseFn,
    pub(crate) userp: *mut c_void,
}

// SAFETY: the header asks for a callback that any thread may call; the pointer is only handed back to it.
unsafe impl Send for ReleaseCallback {}
// SAFETY: the same.
unsafe impl Sync for ReleaseCallback {}

/// A request of the application in the hands of the server. Every piece of its input memory holds it; when the last one
/// is gone, nobody reads that memory any more, and the request goes back, exactly once.
pub(crate) struct RequestReturnGuard {
    /// As it was handed over.
    request: *mut InferenceRequest,
    back: ReleaseCallback,
    /// The request has become the server's. Otherwise it has stayed with the application.
    accepted: AtomicBool,
}

// SAFETY: the request is only handed back; that may happen on any thread, says the header.
unsafe impl Send for RequestReturnGuard {}
// SAFETY: the same.
unsafe impl Sync for RequestReturnGuard {}

impl Drop for RequestReturnGuard {
    fn drop(&mut self) {
        if self.accepted.load(Ordering::Acquire) {
            let pending_return = PendingReturn { request: self.request, back: self.back };
            call_application(move || pending_return.back());
        }
    }
}

/// A request on its way back, on whatever thread.
struct PendingReturn {
    /// As it was handed over.
    request: *mut InferenceRequest,
    back: ReleaseCallback,
}

// SAFETY: as for `RequestReturnGuard`.
unsafe impl Send for PendingReturn {}

impl PendingReturn {
    fn back(self) {
        let ReleaseCallback { release, userp } = self.back;
        // SAFETY: the application's function as the header declares it; the request is its own again.
        unsafe { release(self.request, RELEASE_ALL, userp) };
    }
}

/// A piece of input memory that belongs to the application.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the application leaves the memory as it is until the request comes back; any thread may read it.
unsafe impl Send for Piece {}
// SAFETY: the same.
unsafe impl Sync for Piece {}

impl Piece {
    /// # Safety
    /// So many bytes may be read from there for as long as a request that has the piece is with the server.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The same memory without copying it.
    pub(crate) fn lend(self, return_guard: &Arc<RequestReturnGuard>) -> Bytes {
        Bytes::from_owner(BorrowedBuffer { piece: self, _return_guard: return_guard.clone() })
    }
}

struct BorrowedBuffer {
    piece: Piece,
    _return_guard: Arc<RequestReturnGuard>,
}

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the application leaves the memory as it is until the loan is given back.
        unsafe { std::slice::from_raw_parts(self.piece.base.as_ptr(), self.piece.len) }
    }
}

/// Sends a request. If that succeeds the request belongs to the server until its release callback; otherwise it stays with
/// the caller and no callback is made. The trace is taken over in any case.
///
/// Callbacks may come before this returns. The release callback comes when nobody reads the memory of the inputs any more,
/// before or after responses; without inputs, after the last response. The trace is told each time when it happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerInferAsync(
    server: *mut Server,
    request: *mut InferenceRequest,
    trace: *mut Trace,
) -> *mut CError {
    // SAFETY: null or a live trace that the caller gives away.
    let trace = unsafe { OwnedTrace::take(trace) }.map(Arc::new);
    // SAFETY: null or a live server, null or a live request.
    guard(|| unsafe { borrow(server)?.not_before_start().and_then(|_| send(request, trace)) })
}

/// # Safety
/// The request is null or live, and the caller gives it away if this succeeds.
unsafe fn send(handle: *mut InferenceRequest, trace: Option<Arc<OwnedTrace>>) -> Result<(), Error> {
    // SAFETY: null or live as the caller promises.
    let own = unsafe { borrow(handle) }?;
    let request_attributes = own.request_attributes();
    let (recipient, back) = request_attributes.callbacks()?;
    let return_guard =
        Arc::new(RequestReturnGuard { request: handle, back, accepted: AtomicBool::new(false) });
    let sent = request_attributes.request(own.model(), &return_guard);
    drop(request_attributes);
    let request_id = sent.as_ref().map_or_else(|_| Default::default(), |request| request.id.clone());
    let lends_memory = Arc::strong_count(&return_guard) > 1;
    let stream = sent.and_then(|mut request| {
        if let Some(trace) = &trace {
            request.trace = Some(TraceContext::new(trace.clone()));
            trace.describe(own.model().name(), own.model().version(), &request.id);
            trace_inputs(trace, &request);
        }
        own.model().infer(request)
    });
    let stream = stream?;
    // The loan that is held here keeps the handle alive until the end of this function.
    return_guard.accepted.store(true, Ordering::Release);
    own.running(stream.canceller());
    let kept = (!lends_memory).then(|| return_guard.clone());
    let model = own.model().clone();
    CallbackDispatcher::begin(DispatcherParts {
        stream,
        model,
        request_id,
        recipient,
        trace,
        return_guard: kept,
    });
    Ok(())
}

fn trace_inputs(trace: &OwnedTrace, request: &Request) {
    if trace.wants_tensors() {
        for tensor in request.tensors() {
            let (name, datatype, shape) = (tensor.name(), tensor.datatype(), tensor.shape());
            let bytes = &tensor.data().contiguous()[..];
            let tensor = TracedTensor { name, datatype, shape, bytes };
            trace.report_tensor(trace::TENSOR_QUEUE_INPUT, &tensor);
        }
    }
}
