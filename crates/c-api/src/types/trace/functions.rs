//! The functions of `TRITONSERVER_InferenceTrace`.
use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

use inference::{Error, Name};

use super::{
    About, Activity, ActivityFn, CUSTOM_ACTIVITY, Listener, MAX, MIN, TENSORS, TIMESTAMPS, TensorActivityFn,
    Trace, TraceLevel, TraceReleaseFn,
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
    let listener = Listener { activity, tensor: None, release, userp };
    // SAFETY: null or writable.
    guard(|| unsafe { give(trace, Trace::new(level, parent_id, listener)) })
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
    let listener = Listener { activity, tensor, release, userp };
    // SAFETY: null or writable.
    guard(|| unsafe { give(trace, Trace::new(level, parent_id, listener)) })
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
        let words = words?;
        if trace.level & TIMESTAMPS != 0 {
            trace.note(timestamp, words);
            trace.report(CUSTOM_ACTIVITY, timestamp);
        }
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
    guard(|| unsafe { put(id, borrow(trace)?.id) })
}

/// Returns the id of the parent trace; 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceParentId(
    trace: *mut Trace,
    parent_id: *mut u64,
) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe { put(parent_id, borrow(trace)?.parent_id) })
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

/// Makes a child trace of the same kind; null for null. The caller owns it until a request takes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceSpawnChildTrace(
    trace: *mut Trace,
    child_trace: *mut *mut Trace,
) -> *mut CError {
    // SAFETY: null or a live trace; null or writable.
    guard(|| unsafe {
        match trace.as_ref() {
            Some(trace) => give(child_trace, trace.child()),
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
    use parking_lot::Mutex;

    use super::{super::*, *};
    use crate::types::error::consume;

    type Heard = Mutex<Vec<(u64, Activity, u64)>>;

    unsafe extern "C-unwind" fn record_activity(
        trace: *mut Trace,
        activity: Activity,
        nanos: u64,
        userp: *mut c_void,
    ) {
        // SAFETY: the tests pass a `Heard` that outlives the trace.
        unsafe { (*userp.cast::<Heard>()).lock().push(((*trace).id, activity, nanos)) };
    }

    unsafe extern "C-unwind" fn record_release(trace: *mut Trace, userp: *mut c_void) {
        // SAFETY: as above; this function owns the trace now.
        unsafe {
            (*userp.cast::<Heard>()).lock().push(((*trace).id, 99, 0));
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
        let (id, owned) = unsafe { ((*trace).id, OwnedTrace::take(trace).unwrap()) };
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
            assert_eq!(*heard.lock(), [((*trace).id, CUSTOM_ACTIVITY, 12)]);
            TRITONSERVER_InferenceTraceDelete(trace);
        }
    }

    #[test]
    fn the_listener_hears_of_a_request_inside_a_request_when_it_has_ended() {
        let heard = Heard::default();
        // SAFETY: made just now; only this trace uses it.
        let parent = unsafe { OwnedTrace::take(trace(TIMESTAMPS, &heard)) }.unwrap();
        let child = parent.child(&"member".into(), 3, &"seven".into()).unwrap();
        child.reached(TraceActivity::RequestStart, Timestamp::from_nanos(1));
        child.reached(TraceActivity::RequestEnd, Timestamp::from_nanos(2));
        assert!(heard.lock().is_empty());
        drop(child);
        let heard: Vec<_> = heard.lock().iter().map(|&(_, activity, nanos)| (activity, nanos)).collect();
        assert_eq!(heard, [(REQUEST_START, 1), (REQUEST_END, 2), (99, 0)]);
        parent.release_here();
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
            assert_eq!(parent_id, (*parent).id);
            (*child).report(REQUEST_END, 1);
            assert_eq!(*heard.lock(), [((*child).id, REQUEST_END, 1)]);
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
