//! A trace that a request has taken from its caller, as the sink of the times and tensors of that request.
use std::{ptr::NonNull, sync::Arc};

use inference::{
    TensorActivity, Timestamp, TraceActivity, TraceContext, TraceIdentity, TraceSink, lock::Mutex,
};
use vocabulary::{DataType, Name, Tensor, bytes_elements, element_count};

use super::{
    Activity, COMPUTE_END, COMPUTE_INPUT_END, COMPUTE_OUTPUT_START, COMPUTE_START, ProgramListener,
    QUEUE_START, REQUEST_END, REQUEST_START, TENSOR_BACKEND_OUTPUT, TENSOR_QUEUE_INPUT, TENSORS, Trace,
    TraceListener,
};
use crate::{
    handle::{delete, readable},
    types::enums::{MEMORY_CPU, datatype_number},
};

/// A call of a function of the program.
type TraceCall = Box<dyn FnOnce() + Send>;

/// Makes calls on a thread where they may block.
type TraceCaller = Arc<dyn Fn(TraceCall) + Send + Sync>;

/// A trace that Rust owns. Dropping it gives it back exactly once, after the last call that it has queued.
pub struct OwnedTrace {
    held: Arc<HeldTrace>,
    /// Queues the calls of the listener, if the threads that work on the request must not make them.
    teller: Option<TraceCaller>,
}

/// The trace, for an [`OwnedTrace`] and for the calls that it has queued.
struct HeldTrace {
    trace: NonNull<Trace>,
    /// Runs the release function, if the thread that drops the trace must not run it. The children share it.
    releaser: Arc<Mutex<Option<TraceCaller>>>,
}

impl std::fmt::Debug for OwnedTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OwnedTrace").field(self.held.trace()).finish()
    }
}

// SAFETY: what changes in a trace is protected by a lock; the header requires that any thread may call the listener.
unsafe impl Send for HeldTrace {}
// SAFETY: the same.
unsafe impl Sync for HeldTrace {}

impl OwnedTrace {
    /// Takes ownership of a trace; `None` for null.
    ///
    /// # Safety
    /// The handle is null, or a live trace that only its listener uses from now on.
    pub unsafe fn take(trace: *mut Trace) -> Option<Self> {
        let trace = NonNull::new(trace)?;
        Some(Self { held: Arc::new(HeldTrace { trace, releaser: Arc::default() }), teller: None })
    }

    /// The trace of the server, if the handle stands for one.
    pub fn of_server(&self) -> Option<TraceContext> {
        match &self.held.trace().listener {
            TraceListener::Server(trace) => Some(trace.clone()),
            TraceListener::Program(_) => None,
        }
    }

    /// Lets `teller` make the calls of the listener, in the order in which it gets them.
    #[must_use]
    pub fn told_by(self, teller: impl Fn(TraceCall) + Send + Sync + 'static) -> Self {
        Self { teller: Some(Arc::new(teller)), ..self }
    }

    /// Lets `releaser` run the release function, on whatever thread the trace is dropped.
    #[must_use]
    pub fn released_by(self, releaser: impl Fn(TraceCall) + Send + Sync + 'static) -> Self {
        *self.held.releaser.lock() = Some(Arc::new(releaser));
        self
    }

    /// From now on the thread that drops the trace runs the release function.
    pub fn release_here(&self) {
        *self.held.releaser.lock() = None;
    }

    /// The trace, for functions of the listener.
    pub fn as_ptr(&self) -> *mut Trace {
        self.held.trace.as_ptr()
    }

    /// Makes a call, here or where it may block.
    fn call(&self, call: impl FnOnce(&HeldTrace) + Send + 'static) {
        let held = self.held.clone();
        match &self.teller {
            Some(teller) => teller(Box::new(move || call(&held))),
            None => call(&held),
        }
    }
}

impl TraceSink for OwnedTrace {
    fn reached(&self, activity: TraceActivity, at: Timestamp) {
        self.call(move |held| held.trace().report(number_of(activity), at.as_nanos()));
    }

    fn accepted(&self, model: &Name, version: i64, request_id: &Name) {
        self.held.trace().describe(model, version, request_id);
    }

    fn wants_tensors(&self) -> bool {
        let trace = self.held.trace();
        matches!(&trace.listener, TraceListener::Program(listener) if listener.tensor.is_some())
            && trace.level & TENSORS != 0
    }

    fn tensor(&self, activity: TensorActivity, tensor: &Tensor) {
        let activity = match activity {
            TensorActivity::QueueInput => TENSOR_QUEUE_INPUT,
            TensorActivity::BackendOutput => TENSOR_BACKEND_OUTPUT,
        };
        // As Triton: a trace does not contain tensors in memory of a device. Foreign memory is copied as it is now.
        let mut tensor = tensor.clone();
        if tensor.bring_to_host().is_ok() {
            self.call(move |held| held.report_tensor(activity, &tensor));
        }
    }

    fn custom(&self, name: &str, at: Timestamp) {
        let name = Name::from(name);
        self.call(move |held| held.trace().report_custom(at.as_nanos(), &name));
    }

    fn identity(&self) -> TraceIdentity {
        self.held.trace().identity
    }

    fn child(self: Arc<Self>) -> Option<Arc<dyn TraceSink>> {
        let trace = NonNull::from(Box::leak(Box::new(self.held.trace().child()?)));
        let held = Arc::new(HeldTrace { trace, releaser: self.held.releaser.clone() });
        Some(Arc::new(Self { held, teller: self.teller.clone() }))
    }
}

impl HeldTrace {
    fn trace(&self) -> &Trace {
        // SAFETY: the trace lives until it is given back, which needs `self`.
        unsafe { self.trace.as_ref() }
    }

    /// Reports a tensor in host memory. Listeners read as many elements as the shape says. A faulty backend may make a
    /// tensor with fewer elements; such a tensor is not reported.
    fn report_tensor(&self, activity: Activity, tensor: &Tensor) {
        let TraceListener::Program(listener) = &self.trace().listener else { return };
        let (Some(tell), Ok(data)) = (listener.tensor, tensor.host()) else { return };
        let bytes = data.contiguous();
        if !is_whole(tensor.datatype(), tensor.shape(), &bytes) {
            return;
        }
        // SAFETY: the listener's own function, as the header declares it; its arguments live during the call.
        unsafe {
            tell(
                self.trace.as_ptr(),
                activity,
                readable(tensor.name()),
                datatype_number(tensor.datatype()),
                bytes.as_ptr().cast(),
                bytes.len(),
                tensor.shape().as_ptr(),
                tensor.shape().len() as u64,
                MEMORY_CPU,
                0,
                listener.userp,
            );
        }
    }
}

fn is_whole(datatype: DataType, shape: &[i64], bytes: &[u8]) -> bool {
    let elements = element_count(shape).ok().and_then(|count| usize::try_from(count).ok());
    let has = match datatype.byte_size() {
        Some(size) => bytes.len() / size,
        None => bytes_elements(bytes).take_while(Result::is_ok).count(),
    };
    elements.is_some_and(|elements| elements <= has)
}

fn number_of(activity: TraceActivity) -> Activity {
    match activity {
        TraceActivity::RequestStart => REQUEST_START,
        TraceActivity::QueueStart => QUEUE_START,
        TraceActivity::ComputeStart => COMPUTE_START,
        TraceActivity::ComputeInputEnd => COMPUTE_INPUT_END,
        TraceActivity::ComputeOutputStart => COMPUTE_OUTPUT_START,
        TraceActivity::ComputeEnd => COMPUTE_END,
        TraceActivity::RequestEnd => REQUEST_END,
    }
}

impl Drop for HeldTrace {
    fn drop(&mut self) {
        let going = TraceOnItsWay { trace: self.trace, listener: self.trace().listener.clone() };
        let releaser = self.releaser.lock().clone();
        match releaser {
            Some(releaser) => releaser(Box::new(move || going.back())),
            None => going.back(),
        }
    }
}

/// A trace that is being given back.
struct TraceOnItsWay {
    trace: NonNull<Trace>,
    listener: TraceListener,
}

// SAFETY: as for `HeldTrace`.
unsafe impl Send for TraceOnItsWay {}

impl TraceOnItsWay {
    fn back(self) {
        let trace = self.trace.as_ptr();
        match &self.listener {
            TraceListener::Program(ProgramListener { release: Some(release), userp, .. }) => {
                // SAFETY: the listener's own function, which takes ownership of the trace; no other code uses it after
                // this.
                unsafe { release(trace, *userp) };
            }
            TraceListener::Program(_) | TraceListener::Server(_) => {
                // SAFETY: no other code deletes it.
                unsafe { delete(trace) };
            }
        }
    }
}
