//! `TRITONSERVER_InferenceTrace`: reports the times and the tensors of a request to a listener.
pub mod functions;
pub mod owned;

use std::{
    collections::BTreeMap,
    ffi::{c_char, c_void},
    ptr,
};

use inference::{Timestamp, TraceContext, TraceIdentity, lock::Mutex};
use vocabulary::Name;

use super::enums::{CDataType, MemoryType};
use crate::handle::Handle;

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
const TENSOR_QUEUE_INPUT: Activity = 7;
/// An output as the backend gave it.
const TENSOR_BACKEND_OUTPUT: Activity = 9;
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
    identity: TraceIdentity,
    listener: TraceListener,
    about: Mutex<About>,
}

/// The listener of a trace and of its children.
#[derive(Debug, Clone)]
enum TraceListener {
    /// Functions of a program.
    Program(ProgramListener),
    /// A trace of the server, which a plug-in sees as a handle.
    Server(TraceContext),
}

/// Functions of a program, as it has given them.
#[derive(Debug, Clone, Copy)]
struct ProgramListener {
    activity: Option<ActivityFn>,
    tensor: Option<TensorActivityFn>,
    release: Option<TraceReleaseFn>,
    userp: *mut c_void,
}

// SAFETY: the header requires that any thread may call the functions with their pointer.
unsafe impl Send for ProgramListener {}
// SAFETY: the same.
unsafe impl Sync for ProgramListener {}

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
    fn of_program(level: TraceLevel, parent_id: u64, listener: ProgramListener) -> Self {
        let timestamps = if level & (MIN | MAX) == 0 { 0 } else { TIMESTAMPS };
        let level = level & !(MIN | MAX) | timestamps;
        let (identity, about) = (TraceIdentity::unique(parent_id), Mutex::default());
        Self { level, identity, listener: TraceListener::Program(listener), about }
    }

    /// A trace of the server as a plug-in sees it.
    pub(crate) fn of_server(trace: TraceContext) -> Self {
        let context = Name::from(trace.propagated().unwrap_or_default());
        let about = Mutex::new(About { context, ..About::default() });
        Self { level: TIMESTAMPS, identity: trace.identity(), listener: TraceListener::Server(trace), about }
    }

    /// A child trace of the same kind. `None` if the server does not trace such requests.
    fn child(&self) -> Option<Self> {
        match &self.listener {
            TraceListener::Program(listener) => {
                Some(Self::of_program(self.level, self.identity.id, *listener))
            }
            TraceListener::Server(trace) => trace.child().map(Self::of_server),
        }
    }

    fn report(&self, activity: Activity, nanos: u64) {
        let TraceListener::Program(listener) = &self.listener else { return };
        if self.level & TIMESTAMPS != 0
            && let Some(tell) = listener.activity
        {
            // SAFETY: the listener's own function, as the header declares it; the trace lives during the call.
            unsafe { tell(ptr::from_ref(self).cast_mut(), activity, nanos, listener.userp) };
        }
    }

    /// A plug-in or the program reports an activity with a name of its own.
    fn report_custom(&self, nanos: u64, name: &str) {
        if self.level & TIMESTAMPS == 0 {
            return;
        }
        match &self.listener {
            TraceListener::Program(_) => {
                self.note(nanos, name);
                self.report(CUSTOM_ACTIVITY, nanos);
            }
            TraceListener::Server(trace) => trace.custom(name, Timestamp::from_nanos(nanos)),
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

    /// Sets the request that the trace belongs to.
    fn describe(&self, model_name: &Name, model_version: i64, request_id: &Name) {
        let mut about = self.about.lock();
        about.model_name = model_name.clone();
        about.model_version = model_version;
        about.request_id = request_id.clone();
    }
}
