//! The functions of `TRITONSERVER_InferenceTrace`.
use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

use vocabulary::{Error, Name};

use super::{
    About, Activity, ActivityFn, MAX, MIN, ProgramListener, TENSORS, TIMESTAMPS, TensorActivityFn, Trace,
    TraceLevel, TraceReleaseFn,
};
use crate::{
    handle::{borrow, delete, give, guard, put, readable, text},
    types::error::CError,
};

/// Returns the name of a trace level; `<unknown>` for other numbers and combinations. Never null; static.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InferenceTraceLevelString(level: TraceLevel) -> *const c_char {
    let name = match level {
        0 => c"DISABLED",
        MIN => c"MIN",
        MAX => c"MAX",
        TIMESTAMPS => c"TIMESTAMPS",
        TENSORS => c"TENSORS",
        _ => c"<unknown>",
    };
    name.as_ptr()
}

/// Returns the name of an activity; `<unknown>` for other numbers. Never null; static.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InferenceTraceActivityString(activity: Activity) -> *const c_char {
    let index = usize::try_from(activity).ok();
    index.and_then(|index| ACTIVITIES.get(index)).unwrap_or(&c"<unknown>").as_ptr()
}

/// In the order of their numbers.
const ACTIVITIES: [&CStr; 11] = [
    c"REQUEST_START",
    c"QUEUE_START",
    c"COMPUTE_START",
    c"COMPUTE_INPUT_END",
    c"COMPUTE_OUTPUT_START",
    c"COMPUTE_END",
    c"REQUEST_END",
    c"TENSOR_QUEUE_INPUT",
    c"TENSOR_BACKEND_INPUT",
    c"TENSOR_BACKEND_OUTPUT",
    c"CUSTOM_ACTIVITY",
];

/// Makes a trace that reports times. The caller owns it until a request takes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceNew(
    trace: *mut *mut Trace,
    level: TraceLevel,
    parent_id: u64,
    activity: Option<ActivityFn>,
    release: Option<TraceReleaseFn>,
    userp: *mut c_void,
) -> *mut CError {
    let listener = ProgramListener { activity, tensor: None, release, userp };
    // SAFETY: null or writable.
    guard(|| unsafe { give(trace, Trace::of_program(level, parent_id, listener)) })
}

/// Makes a trace that reports times and tensors. The caller owns it until a request takes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceTensorNew(
    trace: *mut *mut Trace,
    level: TraceLevel,
    parent_id: u64,
    activity: Option<ActivityFn>,
    tensor: Option<TensorActivityFn>,
    release: Option<TraceReleaseFn>,
    userp: *mut c_void,
) -> *mut CError {
    let listener = ProgramListener { activity, tensor, release, userp };
    // SAFETY: null or writable.
    guard(|| unsafe { give(trace, Trace::of_program(level, parent_id, listener)) })
}

/// Reports an activity with a name of the caller's choice, which the context stores. Does nothing for null or without
/// timestamps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceReportActivity(
    trace: *mut Trace,
    timestamp: u64,
    activity_name: *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live trace; a text or null.
        let (trace, words) = unsafe { (trace.as_ref(), text(activity_name)) };
        let Some(trace) = trace else { return Ok(()) };
        trace.report_custom(timestamp, words?);
        Ok(())
    })
}

/// Deletes a trace; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceDelete(trace: *mut Trace) -> *mut CError {
    // SAFETY: null or a trace that the caller does not use after this.
    unsafe { delete(trace) };
    ptr::null_mut()
}

/// Returns the id of a trace, unique in the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceId(trace: *mut Trace, id: *mut u64) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe { put(id, borrow(trace)?.identity.id) })
}

/// Returns the id of the parent trace; 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceParentId(
    trace: *mut Trace,
    parent_id: *mut u64,
) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe { put(parent_id, borrow(trace)?.identity.parent_id) })
}

/// Returns a text of a trace. The text belongs to the trace.
unsafe fn show(
    trace: *mut Trace,
    place: *mut *const c_char,
    pick: impl FnOnce(&About) -> &Name,
) -> Result<(), Error> {
    // SAFETY: null or a live trace; null or writable.
    unsafe { put(place, readable(pick(&borrow(trace)?.about.lock()))) }
}

/// Returns the model of the traced request. The name belongs to the trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceModelName(
    trace: *mut Trace,
    model_name: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe { show(trace, model_name, |about| &about.model_name) })
}

/// Returns the version of the model of the traced request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceModelVersion(
    trace: *mut Trace,
    model_version: *mut i64,
) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe { put(model_version, borrow(trace)?.about.lock().model_version) })
}

/// Returns the id of the traced request. It belongs to the trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceRequestId(
    trace: *mut Trace,
    request_id: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe { show(trace, request_id, |about| &about.request_id) })
}

/// Makes a child trace of the same kind; null for null, and if the server does not trace further requests. The caller owns it until a request takes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceSpawnChildTrace(
    trace: *mut Trace,
    child_trace: *mut *mut Trace,
) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe {
        match trace.as_ref().and_then(Trace::child) {
            Some(child) => give(child_trace, child),
            None => put(child_trace, ptr::null_mut()),
        }
    })
}

/// Replaces the context of a trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceSetContext(
    trace: *mut Trace,
    trace_context: *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live trace; a text or null.
        let (trace, context) = unsafe { (borrow(trace)?, text(trace_context)?) };
        trace.about.lock().context = context.into();
        Ok(())
    })
}

/// Returns the context of a trace. It belongs to the trace until it is replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceContext(
    trace: *mut Trace,
    trace_context: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe { show(trace, trace_context, |about| &about.context) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use inference::{Timestamp, TraceActivity, TraceContext, TraceIdentity, TraceSink, lock::Mutex};

    use super::{
        super::{owned::OwnedTrace, *},
        *,
    };
    use crate::types::error::consume;

    type Heard = Mutex<Vec<(u64, Activity, u64)>>;

    unsafe extern "C-unwind" fn record_activity(
        trace: *mut Trace,
        activity: Activity,
        nanos: u64,
        userp: *mut c_void,
    ) {
        // SAFETY: the tests pass a `Heard` that outlives the trace.
        unsafe { (*userp.cast::<Heard>()).lock().push(((*trace).identity.id, activity, nanos)) };
    }

    unsafe extern "C-unwind" fn record_release(trace: *mut Trace, userp: *mut c_void) {
        // SAFETY: as above; this function owns the trace now.
        unsafe {
            (*userp.cast::<Heard>()).lock().push(((*trace).identity.id, 99, 0));
            TRITONSERVER_InferenceTraceDelete(trace);
        }
    }

    fn trace(level: TraceLevel, heard: &Heard) -> *mut Trace {
        let mut trace = ptr::null_mut();
        let userp = ptr::from_ref(heard).cast_mut().cast();
        // SAFETY: places and functions of this module.
        unsafe {
            let made = TRITONSERVER_InferenceTraceNew(
                &raw mut trace,
                level,
                7,
                Some(record_activity),
                Some(record_release),
                userp,
            );
            consume(made).unwrap();
        }
        trace
    }

    #[test]
    fn a_trace_reports_each_activity_and_is_released_once() {
        let heard = Heard::default();
        let trace = trace(MAX, &heard);
        // SAFETY: made just now.
        let (id, owned) = unsafe { ((*trace).identity.id, OwnedTrace::take(trace).unwrap()) };
        owned.reached(TraceActivity::QueueStart, Timestamp::from_nanos(5));
        drop(owned);
        assert_eq!(*heard.lock(), [(id, QUEUE_START, 5), (id, 99, 0)]);
    }

    #[test]
    fn without_timestamps_no_activity_is_reported() {
        let heard = Heard::default();
        let trace = trace(TENSORS, &heard);
        // SAFETY: made just now, deleted once.
        unsafe {
            (*trace).report(QUEUE_START, 5);
            consume(TRITONSERVER_InferenceTraceReportActivity(trace, 1, c"mine".as_ptr())).unwrap();
            assert_eq!((*trace).about.lock().context, "");
            TRITONSERVER_InferenceTraceDelete(trace);
        }
        assert!(heard.lock().is_empty());
    }

    #[test]
    fn custom_activities_are_kept_in_the_context() {
        let heard = Heard::default();
        let trace = trace(TIMESTAMPS, &heard);
        let mut context = ptr::null();
        // SAFETY: made just now, deleted once.
        unsafe {
            consume(TRITONSERVER_InferenceTraceSetContext(trace, c"{\"a\":1}".as_ptr())).unwrap();
            consume(TRITONSERVER_InferenceTraceReportActivity(trace, 12, c"mine".as_ptr())).unwrap();
            consume(TRITONSERVER_InferenceTraceContext(trace, &raw mut context)).unwrap();
            assert_eq!(CStr::from_ptr(context), c"{\"12\":\"mine\",\"a\":1}");
            assert_eq!(*heard.lock(), [((*trace).identity.id, CUSTOM_ACTIVITY, 12)]);
            TRITONSERVER_InferenceTraceDelete(trace);
        }
    }

    #[test]
    fn the_listener_hears_of_a_request_inside_a_request_at_once() {
        let heard = Heard::default();
        // SAFETY: made just now; only this trace uses it.
        let parent = Arc::new(unsafe { OwnedTrace::take(trace(TIMESTAMPS, &heard)) }.unwrap());
        let child = parent.clone().child().unwrap();
        let id = child.identity().id;
        assert_eq!(child.identity().parent_id, parent.identity().id);
        child.reached(TraceActivity::RequestStart, Timestamp::from_nanos(1));
        assert_eq!(*heard.lock(), [(id, REQUEST_START, 1)]);
        drop(child);
        assert_eq!(heard.lock()[1..], [(id, 99, 0)]);
        drop(parent);
    }

    #[test]
    fn calls_of_the_listener_are_made_in_order_and_the_release_after_the_last_one() {
        type Calls = Arc<Mutex<Vec<Box<dyn FnOnce() + Send>>>>;
        let (heard, calls) = (Heard::default(), Calls::default());
        // SAFETY: made just now; only this trace uses it.
        let owned = unsafe { OwnedTrace::take(trace(TIMESTAMPS, &heard)) }.unwrap();
        let queue = calls.clone();
        let owned = owned.told_by(move |call| queue.lock().push(call));
        owned.reached(TraceActivity::RequestStart, Timestamp::from_nanos(1));
        owned.custom("mine", Timestamp::from_nanos(2));
        drop(owned);
        assert!(heard.lock().is_empty());
        let waiting = std::mem::take(&mut *calls.lock());
        waiting.into_iter().for_each(|call| call());
        let activities: Vec<_> = heard.lock().iter().map(|&(_, activity, nanos)| (activity, nanos)).collect();
        assert_eq!(activities, [(REQUEST_START, 1), (CUSTOM_ACTIVITY, 2), (99, 0)]);
    }

    #[test]
    fn a_child_is_released_in_the_way_of_its_parent() {
        type Calls = Arc<Mutex<Vec<Box<dyn FnOnce() + Send>>>>;
        let (heard, calls) = (Heard::default(), Calls::default());
        // SAFETY: made just now; only this trace uses it.
        let owned = unsafe { OwnedTrace::take(trace(TIMESTAMPS, &heard)) }.unwrap();
        let queue = calls.clone();
        let parent = Arc::new(owned.released_by(move |release| queue.lock().push(release)));
        drop(parent.clone().child());
        assert_eq!(heard.lock().len(), 0);
        assert_eq!(calls.lock().len(), 1);
        let other = parent.clone().child();
        parent.release_here();
        drop(other);
        assert_eq!(heard.lock().len(), 1);
        let waiting = std::mem::take(&mut *calls.lock());
        waiting.into_iter().for_each(|call| call());
        assert_eq!(heard.lock().len(), 2);
    }

    #[derive(Default)]
    struct ServerSink(Mutex<Vec<(String, u64)>>);

    impl TraceSink for ServerSink {
        fn reached(&self, _: TraceActivity, _: Timestamp) {}
        fn custom(&self, name: &str, at: Timestamp) {
            self.0.lock().push((name.to_owned(), at.as_nanos()));
        }
        fn identity(&self) -> TraceIdentity {
            TraceIdentity { id: 40, parent_id: 30 }
        }
        fn propagated(&self) -> Option<String> {
            Some("{\"traceparent\":\"x\"}".to_owned())
        }
        fn child(self: Arc<Self>) -> Option<Arc<dyn TraceSink>> {
            Some(Arc::new(Self::default()))
        }
    }

    #[test]
    fn a_trace_of_the_server_gets_what_a_plug_in_reports() {
        let sink = Arc::new(ServerSink::default());
        let seen = Trace::of_server(TraceContext::new(sink.clone()));
        let handle = ptr::from_ref(&seen).cast_mut();
        let (mut context, mut child, mut id, mut parent_id) = (ptr::null(), ptr::null_mut(), 0, 0);
        // SAFETY: a live trace and places of this function.
        unsafe {
            consume(TRITONSERVER_InferenceTraceId(handle, &raw mut id)).unwrap();
            consume(TRITONSERVER_InferenceTraceParentId(handle, &raw mut parent_id)).unwrap();
            consume(TRITONSERVER_InferenceTraceContext(handle, &raw mut context)).unwrap();
            assert_eq!(CStr::from_ptr(context), c"{\"traceparent\":\"x\"}");
            consume(TRITONSERVER_InferenceTraceReportActivity(handle, 7, c"PRE_START".as_ptr())).unwrap();
            consume(TRITONSERVER_InferenceTraceSpawnChildTrace(handle, &raw mut child)).unwrap();
            let owned = OwnedTrace::take(child).unwrap();
            assert!(owned.of_server().is_some_and(|trace| trace.sink::<ServerSink>().is_some()));
        }
        assert_eq!((id, parent_id), (40, 30));
        assert_eq!(*sink.0.lock(), [("PRE_START".to_owned(), 7)]);
    }

    #[test]
    fn a_child_has_the_listener_and_the_level_of_its_parent() {
        let heard = Heard::default();
        let parent = trace(TIMESTAMPS, &heard);
        let (mut child, mut parent_id) = (ptr::null_mut(), 0);
        // SAFETY: made just now, each deleted once.
        unsafe {
            consume(TRITONSERVER_InferenceTraceSpawnChildTrace(parent, &raw mut child)).unwrap();
            consume(TRITONSERVER_InferenceTraceParentId(child, &raw mut parent_id)).unwrap();
            assert_eq!(parent_id, (*parent).identity.id);
            (*child).report(REQUEST_END, 1);
            assert_eq!(*heard.lock(), [((*child).identity.id, REQUEST_END, 1)]);
            TRITONSERVER_InferenceTraceDelete(child);
            TRITONSERVER_InferenceTraceDelete(parent);
            consume(TRITONSERVER_InferenceTraceSpawnChildTrace(ptr::null_mut(), &raw mut child)).unwrap();
        }
        assert!(child.is_null());
    }

    #[test]
    fn names_are_those_of_the_header() {
        // SAFETY: static texts.
        let read = |name| unsafe { CStr::from_ptr(name) }.to_str().unwrap();
        assert_eq!(read(TRITONSERVER_InferenceTraceLevelString(TENSORS)), "TENSORS");
        assert_eq!(read(TRITONSERVER_InferenceTraceLevelString(12)), "<unknown>");
        assert_eq!(read(TRITONSERVER_InferenceTraceActivityString(10)), "CUSTOM_ACTIVITY");
        assert_eq!(read(TRITONSERVER_InferenceTraceActivityString(11)), "<unknown>");
    }
}
