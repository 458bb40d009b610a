//! `TRITONSERVER_ServerInferAsync`: takes a request of the application and sends it to its model.
use std::sync::Arc;

use c_api::{
    handle::{borrow, guard},
    types::{
        error::CError,
        trace::{Trace, owned::OwnedTrace},
    },
};
use inference::TraceContext;
use vocabulary::Error;

use crate::{
    Server,
    callback_dispatcher::{CallbackDispatcher, DispatcherParts, TraceEvents},
    calls::CallbackQueue,
    request::{InferenceRequest, MemoryOwner, RequestReturnGuard},
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
    // A plug-in traces a request with a child of the server's own trace.
    if let Some(context) = trace.as_ref().and_then(OwnedTrace::of_server) {
        drop(trace);
        // SAFETY: null or live as the caller promises.
        return unsafe { hand_over(handle, Some(context), None, callbacks) }.map(CallbackDispatcher::begin);
    }
    let traced = trace.map(|trace| {
        let events = Arc::new(TraceEvents::new(callbacks.clone()));
        let later = events.clone();
        let queue = callbacks.clone();
        let trace = trace.released_by(move |release| queue.push(release));
        (Arc::new(trace.told_by(move |call| later.push(call))), events)
    });
    let context = traced.as_ref().map(|(trace, _)| TraceContext::new(trace.clone()));
    let events = traced.as_ref().map(|(_, events)| events.clone());
    // SAFETY: null or live as the caller promises.
    let outcome = unsafe { hand_over(handle, context, events, callbacks) }.map(CallbackDispatcher::begin);
    if outcome.is_err()
        && let Some((trace, _)) = &traced
    {
        trace.release_here();
    }
    outcome
}

/// # Safety
/// As for `send`.
unsafe fn hand_over(
    handle: *mut InferenceRequest,
    trace: Option<TraceContext>,
    events: Option<Arc<TraceEvents>>,
    callbacks: &CallbackQueue,
) -> Result<DispatcherParts, Error> {
    // SAFETY: null or live as the caller promises.
    let own = unsafe { borrow(handle) }?;
    let called_back = own.callbacks();
    let back = called_back.as_ref().ok().map(|(_, back)| *back);
    let return_guard = Arc::new(RequestReturnGuard::new(handle, back, callbacks.clone()));
    let owner: MemoryOwner = return_guard.clone();
    let mut request = own.request_attributes().request(own.model(), &owner)?;
    drop(owner);
    let recipient = match called_back {
        Ok((recipient, _)) => recipient,
        // As Triton: errors of the request itself are reported first.
        Err(missing) => return own.model().check(request).and(Err(missing)),
    };
    request.model_version = own.version();
    let request_id = request.id.clone();
    let lends_memory = Arc::strong_count(&return_guard) > 1;
    request.trace = trace;
    let model = own.model().clone();
    let stream = model.infer(request)?;
    return_guard.accept();
    // This guard keeps the handle alive until the end of this function.
    own.running(stream.canceller());
    let callbacks = callbacks.clone();
    let kept = (!lends_memory).then(|| return_guard.clone());
    Ok(DispatcherParts { stream, model, request_id, recipient, events, return_guard: kept, callbacks })
}
