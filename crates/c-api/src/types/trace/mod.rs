//! `TRITONSERVER_InferenceTrace`: reports the times and the tensors of a request to a listener.
mod child;
mod functions;

use std::{
    collections::BTreeMap,
    ffi::{c_char, c_void},
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

pub use functions::*;
use inference::{Name, Timestamp, TraceActivity, TraceSink, bytes_elements, element_count};
use parking_lot::Mutex;

use super::enums::{CDataType, MEMORY_CPU, MemoryType, datatype_number};
use crate::handle::{Handle, delete, readable};

/// `TRITONSERVER_InferenceTraceLevel`, whose bits may be combined.
pub type TraceLevel = u32;
/// `TRITONSERVER_InferenceTraceActivity`.
pub type Activity = u32;

/// `TRITONSERVER_TRACE_LEVEL_MIN`, an old name of [`TIMESTAMPS`].
const MIN: TraceLevel = 1;
/// `TRITONSERVER_TRACE_LEVEL_MAX`, an old name of [`TIMESTAMPS`].
const MAX: TraceLevel = 2;
/// `TRITONSERVER_TRACE_LEVEL_TIMESTAMPS`.
pub const TIMESTAMPS: TraceLevel = 4;
/// `TRITONSERVER_TRACE_LEVEL_TENSORS`.
pub const TENSORS: TraceLevel = 8;

/// The request has arrived.
const REQUEST_START: Activity = 0;
/// The request has entered its queue.
const QUEUE_START: Activity = 1;
/// The execution has begun.
const COMPUTE_START: Activity = 2;
/// Inputs are in place.
const COMPUTE_INPUT_END: Activity = 3;
/// Outputs are computed.
const COMPUTE_OUTPUT_START: Activity = 4;
/// The execution has ended.
const COMPUTE_END: Activity = 5;
/// The request has ended.
const REQUEST_END: Activity = 6;
/// An input as it enters the queue.
pub const TENSOR_QUEUE_INPUT: Activity = 7;
/// An output as the backend gave it.
pub const TENSOR_BACKEND_OUTPUT: Activity = 9;
/// A plug-in reports an activity with a name of its own.
const CUSTOM_ACTIVITY: Activity = 10;

/// `TRITONSERVER_InferenceTraceActivityFn_t`.
pub type ActivityFn = unsafe extern "C-unwind" fn(*mut Trace, Activity, u64, *mut c_void);
/// `TRITONSERVER_InferenceTraceTensorActivityFn_t`.
pub type TensorActivityFn = unsafe extern "C-unwind" fn(
    *mut Trace,
    Activity,
    *const c_char,
    CDataType,
    *const c_void,
    usize,
    *const i64,
    u64,
    MemoryType,
    i64,
    *mut c_void,
);
/// `TRITONSERVER_InferenceTraceReleaseFn_t`.
pub type TraceReleaseFn = unsafe extern "C-unwind" fn(*mut Trace, *mut c_void);

/// `TRITONSERVER_InferenceTrace`.
#[derive(Debug)]
pub struct Trace {
    level: TraceLevel,
    /// Unique in the process, from 1.
    id: u64,
    /// 0 for none.
    parent_id: u64,
    listener: Listener,
    about: Mutex<About>,
}

/// The listener of a trace and of its children.
#[derive(Debug, Clone, Copy)]
struct Listener {
    activity: Option<ActivityFn>,
    tensor: Option<TensorActivityFn>,
    release: Option<TraceReleaseFn>,
    userp: *mut c_void,
}

/// What a trace stores about its request.
#[derive(Debug, Default)]
struct About {
    model_name: Name,
    model_version: i64,
    request_id: Name,
    context: Name,
}

impl Handle for Trace {
    const NAME: &'static str = "TRITONSERVER_InferenceTrace";
}

impl Trace {
    fn new(level: TraceLevel, parent_id: u64, listener: Listener) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let timestamps = if level & (MIN | MAX) == 0 { 0 } else { TIMESTAMPS };
        let level = level & !(MIN | MAX) | timestamps;
        Self { level, id: NEXT_ID.fetch_add(1, Relaxed), parent_id, listener, about: Mutex::default() }
    }

    /// A child trace of the same kind.
    fn child(&self) -> Self {
        Self::new(self.level, self.id, self.listener)
    }

    fn report(&self, activity: Activity, nanos: u64) {
        if self.level & TIMESTAMPS != 0
            && let Some(tell) = self.listener.activity
        {
            // SAFETY: the listener's own function, as the header declares it; the trace lives during the call.
            unsafe { tell(ptr::from_ref(self).cast_mut(), activity, nanos, self.listener.userp) };
        }
    }

    /// Adds the name and the time of a custom activity to the context.
    fn note(&self, nanos: u64, words: &str) {
        let mut about = self.about.lock();
        let mut noted: BTreeMap<String, serde_json::Value> = match about.context.as_str() {
            "" => BTreeMap::new(),
            context => serde_json::from_str(context).unwrap_or_else(|error| {
                log::error!("Error parsing trace context: {error}");
                BTreeMap::new()
            }),
        };
        noted.insert(nanos.to_string(), words.into());
        about.context = serde_json::Value::from_iter(noted).to_string().into();
    }
}

/// A trace that Rust owns. Dropping it gives it back exactly once.
pub struct OwnedTrace {
    trace: NonNull<Trace>,
    /// Runs the release function, if the thread that drops the trace must not run it.
    releaser: Option<Releaser>,
    /// Receives the activities of the trace, if the threads that work on the request must not call the listener.
    teller: Option<Teller>,
}

/// Takes an activity and its time, in nanoseconds of CLOCK_MONOTONIC.
type Teller = Box<dyn Fn(Activity, u64) + Send + Sync>;

/// Runs a release function on a thread where it may block.
type Releaser = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

impl std::fmt::Debug for OwnedTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OwnedTrace").field(self.trace()).finish()
    }
}

// SAFETY: what changes in a trace is protected by a lock; the header requires that any thread may call the listener.
unsafe impl Send for OwnedTrace {}
// SAFETY: the same.
unsafe impl Sync for OwnedTrace {}

impl OwnedTrace {
    /// Takes ownership of a trace; `None` for null.
    ///
    /// # Safety
    /// The handle is null, or a live trace that only its listener uses from now on.
    pub unsafe fn take(trace: *mut Trace) -> Option<Self> {
        NonNull::new(trace).map(|trace| Self { trace, releaser: None, teller: None })
    }

    /// Lets `releaser` run the release function, on whatever thread the trace is dropped.
    #[must_use]
    pub fn released_by(self, releaser: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static) -> Self {
        let mut own = self;
        own.releaser = Some(Arc::new(releaser));
        own
    }

    /// Lets `teller` receive the activities of the trace. It [reports](Self::report) them later, in the same order.
    #[must_use]
    pub fn told_by(self, teller: impl Fn(Activity, u64) + Send + Sync + 'static) -> Self {
        let mut own = self;
        own.teller = Some(Box::new(teller));
        own
    }

    /// Reports an activity to the listener, if the trace wants times.
    pub fn report(&self, activity: Activity, nanos: u64) {
        self.trace().report(activity, nanos);
    }

    /// Gives the trace back on this thread.
    pub fn release_here(mut self) {
        self.releaser = None;
    }

    fn trace(&self) -> &Trace {
        // SAFETY: the trace lives until it is given back, which needs `self`.
        unsafe { self.trace.as_ref() }
    }

    /// The trace, for functions of the listener.
    pub fn as_ptr(&self) -> *mut Trace {
        self.trace.as_ptr()
    }

    /// Sets the request that the trace belongs to.
    pub fn describe(&self, model_name: &Name, model_version: i64, request_id: &Name) {
        let mut about = self.trace().about.lock();
        about.model_name = model_name.clone();
        about.model_version = model_version;
        about.request_id = request_id.clone();
    }

    /// Whether the trace wants tensors.
    pub fn wants_tensors(&self) -> bool {
        self.trace().level & TENSORS != 0 && self.trace().listener.tensor.is_some()
    }

    /// Reports a tensor in host memory, if the trace wants tensors. Listeners read as many elements as the shape says.
    /// A faulty backend may make a tensor with fewer elements; such a tensor is not reported.
    pub fn report_tensor(&self, activity: Activity, tensor: &TracedTensor<'_>) {
        let told = self.wants_tensors() && tensor.is_whole();
        let Some(tell) = self.trace().listener.tensor.filter(|_| told) else { return };
        let TracedTensor { name, datatype, shape, bytes } = tensor;
        // SAFETY: the listener's own function, as the header declares it; its arguments live during the call.
        unsafe {
            tell(
                self.as_ptr(),
                activity,
                readable(name),
                datatype_number(*datatype),
                bytes.as_ptr().cast(),
                bytes.len(),
                shape.as_ptr(),
                shape.len() as u64,
                MEMORY_CPU,
                0,
                self.trace().listener.userp,
            );
        }
    }
}

impl TraceSink for OwnedTrace {
    /// Calls the listener, or passes the activity to the [teller](OwnedTrace::told_by). The header lets any thread call
    /// the listener.
    fn reached(&self, activity: TraceActivity, at: Timestamp) {
        let activity = number_of(activity);
        match &self.teller {
            Some(teller) => teller(activity, at.as_nanos()),
            None => self.report(activity, at.as_nanos()),
        }
    }

    fn child(&self, model: &Name, version: i64, request_id: &Name) -> Option<Arc<dyn TraceSink>> {
        Some(self.child_sink(model, version, request_id))
    }
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

/// A tensor as a listener receives it.
#[derive(Debug, Clone, Copy)]
pub struct TracedTensor<'a> {
    /// Its name.
    pub name: &'a Name,
    /// Its element type.
    pub datatype: inference::DataType,
    /// Its dimensions.
    pub shape: &'a [i64],
    /// Its bytes, contiguous.
    pub bytes: &'a [u8],
}

impl TracedTensor<'_> {
    fn is_whole(&self) -> bool {
        let elements = element_count(self.shape).ok().and_then(|count| usize::try_from(count).ok());
        let has = match self.datatype.byte_size() {
            Some(size) => self.bytes.len() / size,
            None => bytes_elements(self.bytes).take_while(Result::is_ok).count(),
        };
        elements.is_some_and(|elements| elements <= has)
    }
}

impl Drop for OwnedTrace {
    fn drop(&mut self) {
        let going = TraceOnItsWay { trace: self.trace, listener: self.trace().listener };
        match &self.releaser {
            Some(releaser) => releaser(Box::new(move || going.back())),
            None => going.back(),
        }
    }
}

/// A trace that is being given back.
struct TraceOnItsWay {
    trace: NonNull<Trace>,
    listener: Listener,
}

// SAFETY: as for `OwnedTrace`.
unsafe impl Send for TraceOnItsWay {}

impl TraceOnItsWay {
    fn back(self) {
        let trace = self.trace.as_ptr();
        match self.listener.release {
            // SAFETY: the listener's own function, which takes ownership of the trace; no other code uses it after
            // this.
            Some(release) => unsafe { release(trace, self.listener.userp) },
            // SAFETY: no other code deletes it.
            None => unsafe { delete(trace) },
        }
    }
}
