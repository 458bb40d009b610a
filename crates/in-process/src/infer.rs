//! `TRITONSERVER_ServerInferAsync`: takes a request of the application and sends it to its model.
use std::sync::Arc;

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
    callback_dispatcher::{CallbackDispatcher, DispatcherParts, TraceEvents},
    calls::CallbackQueue,
    request::{InferenceRequest, RequestReturnGuard},
};

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
    let return_guard = Arc::new(RequestReturnGuard::new(handle, back, callbacks.clone()));
    let mut request = request_attributes.request(own.model(), &return_guard)?;
    drop(request_attributes);
    let recipient = match called_back {
        Ok((recipient, _)) => recipient,
        // As Triton: errors of the request itself are reported first.
        Err(missing) => return own.model().check(request).and(Err(missing)),
    };
    request.model_version = own.version();
    let request_id = request.id.clone();
    let lends_memory = Arc::strong_count(&return_guard) > 1;
    if let Some((trace, _)) = traced {
        request.trace = Some(TraceContext::new(trace.clone()));
        trace.describe(own.model().name(), own.model().version(), &request.id);
        trace_inputs(trace, &request);
    }
    let model = own.model().clone();
    let stream = model.infer(request)?;
    return_guard.accept();
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
