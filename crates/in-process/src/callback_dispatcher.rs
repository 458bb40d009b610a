//! Passes the responses of a request from its response channel to the application's callback.
//!
//! The threads for callbacks poll a dispatcher like a task. A wake-up puts the dispatcher into their queue, which
//! contains it at most once. So the callbacks of a request come in order, and the thread that answers never runs code
//! of the application.
use std::{
    collections::VecDeque,
    ptr,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use c_api::types::trace::{self, OwnedTrace, TracedTensor};
use engine::Model;
use inference::{Name, ResponseItem, ResponseStream};
use parking_lot::Mutex;

use crate::{
    calls::CallbackQueue,
    request::RequestReturnGuard,
    response::{InferenceResponse, Recipient, ResponseOutput},
};

/// Dispatches the responses of one request. Dropping it gives the trace back, then the request.
pub(crate) struct CallbackDispatcher {
    /// The number of wake-ups that the draining thread has not yet processed; 0 if no thread drains.
    wakes: AtomicUsize,
    /// Used by the draining thread only. `None` when everything was delivered.
    stream: Mutex<Option<ResponseStream>>,
    model: Arc<Model>,
    request_id: Name,
    recipient: Recipient,
    traced: Option<(Arc<OwnedTrace>, Arc<TraceEvents>)>,
    callbacks: CallbackQueue,
    /// Set for a request without input memory: nothing else holds it.
    _return_guard: Option<Arc<RequestReturnGuard>>,
}

/// The parts of a dispatcher.
pub(crate) struct DispatcherParts {
    pub(crate) stream: ResponseStream,
    pub(crate) model: Arc<Model>,
    pub(crate) request_id: Name,
    pub(crate) recipient: Recipient,
    /// The trace, and its activities that are not yet reported.
    pub(crate) traced: Option<(Arc<OwnedTrace>, Arc<TraceEvents>)>,
    pub(crate) return_guard: Option<Arc<RequestReturnGuard>>,
    pub(crate) callbacks: CallbackQueue,
}

impl CallbackDispatcher {
    /// Begins to deliver responses. Does not block.
    pub(crate) fn begin(parts: DispatcherParts) {
        let DispatcherParts { stream, model, request_id, recipient, traced, return_guard, callbacks } = parts;
        let (wakes, stream) = (AtomicUsize::new(1), Mutex::new(Some(stream)));
        let dispatcher = Arc::new(Self {
            wakes,
            stream,
            model,
            request_id,
            recipient,
            traced,
            callbacks,
            _return_guard: return_guard,
        });
        if let Some((_, events)) = &dispatcher.traced {
            events.told_by(&dispatcher);
        }
        dispatcher.go_on();
    }

    /// Queues the dispatcher, so that a thread for callbacks drains it.
    fn go_on(self: Arc<Self>) {
        let callbacks = self.callbacks.clone();
        callbacks.push(move || self.drain());
    }

    /// Delivers the responses that have arrived.
    fn drain(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut seen = 1;
        loop {
            loop {
                let item = self.next(&waker);
                // Activities before a response are reported before it.
                self.tell_trace();
                let Some(item) = item else { break };
                self.deliver(item);
            }
            // A wake-up that came in the meantime has been processed.
            match self.wakes.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The next response. The inner `None` is the end of a request without a final response.
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
            drop(self.stream.lock().take());
        }
        self.recipient.call(response, last);
    }

    fn tell_trace(&self) {
        let Some((trace, events)) = &self.traced else { return };
        while let Some((activity, nanos)) = events.pop() {
            trace.report(activity, nanos);
        }
    }

    fn trace_outputs(&self, response: &InferenceResponse) {
        let Some((trace, _)) = &self.traced else { return };
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

/// The activities of a request that its trace must report. The threads that work on the request never run code of the
/// application: they store the activities here, and the dispatcher reports them. It stores at most as many events as a
/// request has activities.
#[derive(Default)]
pub(crate) struct TraceEvents {
    pending: Mutex<VecDeque<(trace::Activity, u64)>>,
    dispatcher: Mutex<Weak<CallbackDispatcher>>,
}

impl TraceEvents {
    /// The trace has reached `activity` at that time of CLOCK_MONOTONIC.
    pub(crate) fn push(&self, activity: trace::Activity, nanos: u64) {
        self.pending.lock().push_back((activity, nanos));
        let dispatcher = self.dispatcher.lock().upgrade();
        if let Some(dispatcher) = dispatcher {
            dispatcher.wake();
        }
    }

    fn told_by(&self, dispatcher: &Arc<CallbackDispatcher>) {
        *self.dispatcher.lock() = Arc::downgrade(dispatcher);
    }

    fn pop(&self) -> Option<(trace::Activity, u64)> {
        self.pending.lock().pop_front()
    }
}
