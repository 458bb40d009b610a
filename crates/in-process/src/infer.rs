//! `TRITONSERVER_ServerInferAsync`: takes a request of the application and gives it back.
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
use inference::{DevicePiece, Error, Request, TraceContext};

use crate::{
    Server,
    callback_dispatcher::{CallbackDispatcher, DispatcherParts, TraceEvents},
    calls::CallbackQueue,
    request::InferenceRequest,
};

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

/// Sends a request. On success the server owns the request until it calls the release callback. On an error the caller
/// keeps the request and no callback is made. The server owns the trace in either case.
///
/// Callbacks may come before this function returns. They run on threads that the server has for callbacks only, so they
/// may block, and wait for other requests. The responses of one request come one after the other. While 64 callbacks
/// have not returned, further callbacks wait until one of them returns. The release callback comes when no code reads
/// the memory of the inputs any more, before or after responses; without inputs, after the last response. The trace
/// reports each activity soon after it happens, in order, before the response that follows it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerInferAsync(
    server: *mut Server,
    request: *mut InferenceRequest,
    trace: *mut Trace,
) -> *mut CError {
    // SAFETY: null or a live trace that the caller gives away.
    let trace = unsafe { OwnedTrace::take(trace) };
    guard(|| {
        // SAFETY: null or a live server, null or a live request.
        unsafe {
            let server = borrow(server)?;
            server.not_before_start()?;
            send(request, trace, &server.callbacks())
        }
    })
}

/// # Safety
/// The request is null or live. On success the caller must not use it until it is given back.
unsafe fn send(
    handle: *mut InferenceRequest,
    trace: Option<OwnedTrace>,
    callbacks: &CallbackQueue,
) -> Result<(), Error> {
    let traced = trace.map(|trace| {
        let (callbacks, events) = (callbacks.clone(), Arc::new(TraceEvents::default()));
        let trace = trace.released_by(move |release| callbacks.push(release));
        let later = events.clone();
        (Arc::new(trace.told_by(move |activity, nanos| later.push(activity, nanos))), events)
    });
    // SAFETY: null or live as the caller promises.
    let sent = unsafe { hand_over(handle, traced.as_ref(), callbacks) };
    let outcome = sent.map(CallbackDispatcher::begin);
    if outcome.is_err()
        && let Some(trace) = traced.and_then(|(trace, _)| Arc::into_inner(trace))
    {
        trace.release_here();
    }
    outcome
}

/// # Safety
/// As for `send`.
unsafe fn hand_over(
    handle: *mut InferenceRequest,
    traced: Option<&(Arc<OwnedTrace>, Arc<TraceEvents>)>,
    callbacks: &CallbackQueue,
) -> Result<DispatcherParts, Error> {
    // SAFETY: null or live as the caller promises.
    let own = unsafe { borrow(handle) }?;
    let request_attributes = own.request_attributes();
    let called_back = request_attributes.callbacks();
    let back = called_back.as_ref().ok().map(|(_, back)| *back);
    let accepted = AtomicBool::new(false);
    let return_guard =
        Arc::new(RequestReturnGuard { request: handle, back, accepted, callbacks: callbacks.clone() });
    let mut request = request_attributes.request(own.model(), &return_guard)?;
    drop(request_attributes);
    let recipient = match called_back {
        Ok((recipient, _)) => recipient,
        // As Triton: errors of the request itself are reported first.
        Err(missing) => return own.model().check(request).and(Err(missing)),
    };
    let request_id = request.id.clone();
    let lends_memory = Arc::strong_count(&return_guard) > 1;
    if let Some((trace, _)) = traced {
        request.trace = Some(TraceContext::new(trace.clone()));
        trace.describe(own.model().name(), own.model().version(), &request.id);
        trace_inputs(trace, &request);
    }
    let model = own.model().clone();
    let stream = model.infer(request)?;
    return_guard.accepted.store(true, Ordering::Release);
    // This guard keeps the handle alive until the end of this function.
    own.running(stream.canceller());
    let (traced, callbacks) = (traced.cloned(), callbacks.clone());
    let kept = (!lends_memory).then(|| return_guard.clone());
    Ok(DispatcherParts { stream, model, request_id, recipient, traced, return_guard: kept, callbacks })
}

fn trace_inputs(trace: &OwnedTrace, request: &Request) {
    if trace.wants_tensors() {
        for tensor in request.tensors() {
            let (name, datatype, shape) = (tensor.name(), tensor.datatype(), tensor.shape());
            // As Triton: a trace does not contain tensors in memory of a device.
            let Ok(data) = tensor.host() else { continue };
            let bytes = &data.contiguous()[..];
            let tensor = TracedTensor { name, datatype, shape, bytes };
            trace.report_tensor(trace::TENSOR_QUEUE_INPUT, &tensor);
        }
    }
}
