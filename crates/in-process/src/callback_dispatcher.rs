//! From the corridor of a request to the application's callback.
//!
//! A delivery is polled like a task, by the threads for callbacks. A wake-up puts it into their queue, where it is at most
//! once: so the callbacks of a request come in order, and the thread that answers never runs code of the application.
use std::{
    ffi::c_void,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use c_api::types::trace::{self, OwnedTrace, TracedTensor};
use engine::Model;
use inference::{Name, ResponseItem, ResponseStream, Timeline};
use parking_lot::Mutex;

use crate::{
    allocator::Allocator,
    calls::CallbackQueue,
    infer::RequestReturnGuard,
    response::{InferenceResponse, ResponseOutput},
};

/// `TRITONSERVER_InferenceResponseCompleteFn_t`.
pub type ResponseFn = unsafe extern "C-unwind" fn(*mut InferenceResponse, u32, *mut c_void);

/// `TRITONSERVER_RESPONSE_COMPLETE_FINAL`.
const FINAL: u32 = 1;

/// Responses that wait while the application is busy with others; then the backend waits, too.
pub(crate) const WAITING: usize = 16;

/// Where the application wants its responses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipient {
    pub(crate) allocator: Allocator,
    pub(crate) respond: ResponseFn,
    pub(crate) userp: *mut c_void,
}

// SAFETY: the header asks for a callback that any thread may call; the pointer is only handed back to it.
unsafe impl Send for Recipient {}
// SAFETY: the same.
unsafe impl Sync for Recipient {}

impl Recipient {
    fn call(&self, response: *mut InferenceResponse, last: bool) {
        // SAFETY: the application's function as the header declares it; the response is its own from now on.
        unsafe { (self.respond)(response, if last { FINAL } else { 0 }, self.userp) };
    }
}

/// The answers of one request on their way to the application. Dropping it gives the trace back, then the request.
pub(crate) struct CallbackDispatcher {
    /// Not zero while somebody drains; more than they have seen if there is more to drain.
    wakes: AtomicUsize,
    /// Touched by whoever drains. Gone when everything was delivered.
    stream: Mutex<Option<ResponseStream>>,
    model: Arc<Model>,
    request_id: Name,
    recipient: Recipient,
    trace: Option<Arc<OwnedTrace>>,
    callbacks: CallbackQueue,
    /// Of a request that nothing else holds.
    _return_guard: Option<Arc<RequestReturnGuard>>,
}

/// What a delivery is made of.
pub(crate) struct DispatcherParts {
    pub(crate) stream: ResponseStream,
    pub(crate) model: Arc<Model>,
    pub(crate) request_id: Name,
    pub(crate) recipient: Recipient,
    pub(crate) trace: Option<Arc<OwnedTrace>>,
    pub(crate) return_guard: Option<Arc<RequestReturnGuard>>,
    pub(crate) callbacks: CallbackQueue,
}

impl CallbackDispatcher {
    /// Delivers what there is, and from now on what comes. Does not block.
    pub(crate) fn begin(parts: DispatcherParts) {
        let DispatcherParts { stream, model, request_id, recipient, trace, return_guard, callbacks } = parts;
        let (wakes, stream) = (AtomicUsize::new(1), Mutex::new(Some(stream)));
        let dispatcher = Arc::new(Self {
            wakes,
            stream,
            model,
            request_id,
            recipient,
            trace,
            callbacks,
            _return_guard: return_guard,
        });
        dispatcher.go_on();
    }

    /// Lets a thread for callbacks drain.
    fn go_on(self: Arc<Self>) {
        let callbacks = self.callbacks.clone();
        callbacks.push(move || self.drain());
    }

    /// Delivers what there is.
    fn drain(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut seen = 1;
        loop {
            while let Some(item) = self.next(&waker) {
                self.deliver(item);
            }
            // Whoever has woken us meanwhile has gone away again.
            match self.wakes.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The next response; the inner `None` is the end of a request that had no last one.
    fn next(&self, waker: &Waker) -> Option<Option<ResponseItem>> {
        match self.stream.lock().as_mut()?.poll_item(&mut Context::from_waker(waker)) {
            Poll::Ready(item) => Some(item),
            Poll::Pending => None,
        }
    }

    fn deliver(&self, item: Option<ResponseItem>) {
        let last = item.as_ref().is_none_or(|item| item.last);
        let response = item.map_or(ptr::null_mut(), |item| {
            let allocator = &self.recipient.allocator;
            let response = InferenceResponse::new(&self.model, &self.request_id, allocator, item.result);
            self.trace_outputs(&response);
            Box::into_raw(Box::new(response))
        });
        if last {
            let ended = self.stream.lock().take();
            if let (Some(trace), Some(stream)) = (&self.trace, ended) {
                report_times(trace, stream.timeline());
            }
        }
        self.recipient.call(response, last);
    }

    fn trace_outputs(&self, response: &InferenceResponse) {
        let Some(trace) = &self.trace else { return };
        for output in response.outputs() {
            let ResponseOutput { name, datatype, shape, buffer, .. } = output;
            let tensor = TracedTensor { name, datatype: *datatype, shape, bytes: buffer.bytes() };
            trace.report_tensor(trace::TENSOR_BACKEND_OUTPUT, &tensor);
        }
    }
}

impl Wake for CallbackDispatcher {
    fn wake(self: Arc<Self>) {
        if self.wakes.fetch_add(1, Ordering::AcqRel) == 0 {
            self.go_on();
        }
    }
}

/// All times at once, at the end: doors are noted as they are passed, but nobody calls from there.
fn report_times(trace: &OwnedTrace, timeline: &Timeline) {
    let now = engine::now();
    trace.report(trace::REQUEST_START, timeline.request_start.as_nanos());
    if timeline.was_queued() {
        trace.report(trace::QUEUE_START, timeline.queue_start().as_nanos());
    }
    if let Some(execution_times) = timeline.execution() {
        trace.report(trace::COMPUTE_START, execution_times.exec_start.as_nanos());
        trace.report(trace::COMPUTE_INPUT_END, execution_times.compute_start().as_nanos());
        trace.report(trace::COMPUTE_OUTPUT_START, execution_times.compute_end(now).as_nanos());
        trace.report(trace::COMPUTE_END, now.as_nanos());
    }
    trace.report(trace::REQUEST_END, now.as_nanos());
}
