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

use engine::Model;
use inference::{ResponseItem, ResponseStream, lock::Mutex};
use vocabulary::Name;

use crate::{
    calls::CallbackQueue,
    request::RequestReturnGuard,
    response::{InferenceResponse, Recipient},
};

/// Dispatches the responses of one request. Dropping it gives the request back.
pub(crate) struct CallbackDispatcher {
    /// The number of wake-ups that the draining thread has not yet processed; 0 if no thread drains.
    wakes: AtomicUsize,
    /// Used by the draining thread only. `None` when everything was delivered.
    stream: Mutex<Option<ResponseStream>>,
    model: Arc<Model>,
    /// The version that answers.
    version: i64,
    request_id: Name,
    recipient: Recipient,
    events: Option<Arc<TraceEvents>>,
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
    /// The calls of the listener of its trace that are not yet made.
    pub(crate) events: Option<Arc<TraceEvents>>,
    pub(crate) return_guard: Option<Arc<RequestReturnGuard>>,
    pub(crate) callbacks: CallbackQueue,
}

impl CallbackDispatcher {
    /// Begins to deliver responses. Does not block.
    pub(crate) fn begin(parts: DispatcherParts) {
        let DispatcherParts { stream, model, request_id, recipient, events, return_guard, callbacks } = parts;
        let version = model.version_of(&stream);
        let (wakes, stream) = (AtomicUsize::new(1), Mutex::new(Some(stream)));
        let dispatcher = Arc::new(Self {
            wakes,
            stream,
            model,
            version,
            request_id,
            recipient,
            events,
            callbacks,
            _return_guard: return_guard,
        });
        if let Some(events) = &dispatcher.events {
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
        // One thread at a time drains, so that the stream can be out of its lock meanwhile.
        let mut stream = self.stream.lock().take()?;
        let polled = stream.poll_item(&mut Context::from_waker(waker));
        *self.stream.lock() = Some(stream);
        match polled {
            Poll::Ready(item) => Some(item),
            Poll::Pending => None,
        }
    }

    fn deliver(&self, item: Option<ResponseItem>) {
        let last = item.as_ref().is_none_or(|item| item.last);
        let response = item.map_or(ptr::null_mut(), |item| {
            let allocator = &self.recipient.allocator;
            let origin = (&self.model, self.version);
            let response = InferenceResponse::new(origin, &self.request_id, allocator, item.result);
            Box::into_raw(Box::new(response))
        });
        if last {
            let stream = self.stream.lock().take();
            drop(stream);
        }
        self.recipient.call(response, last);
    }

    fn tell_trace(&self) {
        if let Some(events) = &self.events {
            events.make_calls();
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

/// The calls of the listener of a trace. The threads that work on the request never run code of the application: they
/// store the calls here. The dispatcher makes them while it exists, so that they come before the response that follows.
/// Afterwards a thread for callbacks makes them. A trace has at most as many calls as its request has activities and
/// tensors.
pub(crate) struct TraceEvents {
    pending: Mutex<PendingCallbacks>,
    dispatcher: Mutex<Weak<CallbackDispatcher>>,
    callbacks: CallbackQueue,
}

#[derive(Default)]
struct PendingCallbacks {
    calls: VecDeque<Box<dyn FnOnce() + Send>>,
    /// A thread makes them, or will make them.
    is_scheduled: bool,
    /// The request is accepted, or has ended. Before that, no thread may make calls.
    has_begun: bool,
}

impl TraceEvents {
    pub(crate) fn new(callbacks: CallbackQueue) -> Self {
        Self { pending: Mutex::default(), dispatcher: Mutex::default(), callbacks }
    }

    /// Queues a call.
    pub(crate) fn push(self: &Arc<Self>, call: Box<dyn FnOnce() + Send>) {
        self.pending.lock().calls.push_back(call);
        let dispatcher = self.dispatcher.lock().upgrade();
        match dispatcher {
            Some(dispatcher) => dispatcher.wake(),
            None => self.schedule(),
        }
    }

    /// Has a thread for callbacks make the calls, because the dispatcher has gone.
    fn schedule(self: &Arc<Self>) {
        let mut pending = self.pending.lock();
        if !pending.has_begun || pending.is_scheduled || pending.calls.is_empty() {
            return;
        }
        pending.is_scheduled = true;
        drop(pending);
        let events = self.clone();
        self.callbacks.push(move || {
            events.make_calls();
            events.pending.lock().is_scheduled = false;
            // A call that came in between has seen that it needs no other thread.
            events.schedule();
        });
    }

    fn told_by(&self, dispatcher: &Arc<CallbackDispatcher>) {
        *self.dispatcher.lock() = Arc::downgrade(dispatcher);
        self.pending.lock().has_begun = true;
    }

    fn make_calls(&self) {
        loop {
            let Some(call) = self.pending.lock().calls.pop_front() else { return };
            call();
        }
    }
}
