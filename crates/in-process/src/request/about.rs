//! The properties of a request besides its tensors: id, sequence, priority, timeout, parameters.
use std::ffi::c_char;

use c_api::{
    handle::{guard, put, readable, text},
    types::error::CError,
};
use vocabulary::{Error, Parameter};

use super::{
    attributes::Correlation,
    inference_request::{InferenceRequest, change, look},
};

/// The longest correlation id that is a text, in bytes.
const LONGEST_CORRELATION_ID: usize = 128;

/// Returns the id. It belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestId(
    request: *mut InferenceRequest,
    id: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(id, look(request, |request_attributes| Ok(readable(&request_attributes.id)))?) })
}

/// Sets the id, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetId(
    request: *mut InferenceRequest,
    id: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.id = text(id)?.into();
            Ok(())
        })
    }
}

/// Returns the flags of the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestFlags(
    request: *mut InferenceRequest,
    flags: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(flags, look(request, |request_attributes| Ok(request_attributes.flags))?) })
}

/// Sets the flags of the request: 1 begins a sequence, 2 ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetFlags(
    request: *mut InferenceRequest,
    flags: u32,
) -> *mut CError {
    // SAFETY: null or a live request.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.flags = flags;
            Ok(())
        })
    }
}

/// Returns the correlation id if it is a number; 0 for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestCorrelationId(
    request: *mut InferenceRequest,
    correlation_id: *mut u64,
) -> *mut CError {
    let number = |correlation: &Correlation| match correlation {
        Correlation::Number(number) => Ok(*number),
        Correlation::Text(_) => Err(Error::invalid("given request's correlation id is not an unsigned int")),
    };
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe {
        put(correlation_id, look(request, |request_attributes| number(&request_attributes.correlation))?)
    })
}

/// Returns the correlation id if it is a text. It belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestCorrelationIdString(
    request: *mut InferenceRequest,
    correlation_id: *mut *const c_char,
) -> *mut CError {
    let text = |correlation: &Correlation| match correlation {
        Correlation::Text(text) => Ok(readable(text)),
        Correlation::Number(_) => Err(Error::invalid("given request's correlation id is not a string")),
    };
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe {
        put(correlation_id, look(request, |request_attributes| text(&request_attributes.correlation))?)
    })
}

/// Sets the correlation id to a number; 0 is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetCorrelationId(
    request: *mut InferenceRequest,
    correlation_id: u64,
) -> *mut CError {
    // SAFETY: null or a live request.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.correlation = Correlation::Number(correlation_id);
            Ok(())
        })
    }
}

/// Sets the correlation id to a text, which is copied; empty is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetCorrelationIdString(
    request: *mut InferenceRequest,
    correlation_id: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe {
        change(request, |request_attributes, _| {
            let id = text(correlation_id)?;
            request_attributes.correlation = Correlation::Text(short(id)?.into());
            Ok(())
        })
    }
}

fn short(id: &str) -> Result<&str, Error> {
    let too_long = "string correlation ID cannot be longer than 128 characters";
    if id.len() > LONGEST_CORRELATION_ID { Err(Error::unsupported(too_long)) } else { Ok(id) }
}

/// Returns the priority level if it fits in 32 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestPriority(
    request: *mut InferenceRequest,
    priority: *mut u32,
) -> *mut CError {
    let narrow = |wide: u64| {
        u32::try_from(wide).map_err(|_| {
            Error::invalid(format!(
                "request priority overflows uint32_t, use TRITONSERVER_InferenceRequestPriorityUInt64, priority={wide}"
            ))
        })
    };
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe {
        put(priority, look(request, |request_attributes| narrow(request_attributes.priority))?)
    })
}

/// Returns the priority level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestPriorityUInt64(
    request: *mut InferenceRequest,
    priority: *mut u64,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(priority, look(request, |request_attributes| Ok(request_attributes.priority))?) })
}

/// Sets the priority level. See [`TRITONSERVER_InferenceRequestSetPriorityUInt64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetPriority(
    request: *mut InferenceRequest,
    priority: u32,
) -> *mut CError {
    // SAFETY: passed on unchanged.
    unsafe { TRITONSERVER_InferenceRequestSetPriorityUInt64(request, priority.into()) }
}

/// Sets the priority level; 1 is the most urgent. 0, and levels that the model does not have, mean its default level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetPriorityUInt64(
    request: *mut InferenceRequest,
    priority: u64,
) -> *mut CError {
    // SAFETY: null or a live request.
    unsafe {
        change(request, |request_attributes, model| {
            request_attributes.set_priority(model, priority);
            Ok(())
        })
    }
}

/// Returns how long the request may wait in its queue, in microseconds; 0 for no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    request: *mut InferenceRequest,
    timeout_us: *mut u64,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe {
        put(timeout_us, look(request, |request_attributes| Ok(request_attributes.timeout_us))?)
    })
}

/// Sets how long the request may wait in its queue, in microseconds; 0 for no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    request: *mut InferenceRequest,
    timeout_us: u64,
) -> *mut CError {
    // SAFETY: null or a live request.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.timeout_us = timeout_us;
            Ok(())
        })
    }
}

/// Adds a parameter for the model.
///
/// # Safety
/// The request is null or live; the key is null or a text.
unsafe fn add_parameter(
    request: *mut InferenceRequest,
    key: *const c_char,
    value: Result<Parameter, Error>,
) -> *mut CError {
    // SAFETY: as the caller promises.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.parameters.push((text(key)?.into(), value?));
            Ok(())
        })
    }
}

/// Adds a text for the model. The text is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetStringParameter(
    request: *mut InferenceRequest,
    key: *const c_char,
    value: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; texts or null.
    unsafe { add_parameter(request, key, text(value).map(|value| Parameter::String(value.into()))) }
}

/// Adds an integer for the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetIntParameter(
    request: *mut InferenceRequest,
    key: *const c_char,
    value: i64,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe { add_parameter(request, key, Ok(Parameter::Int(value))) }
}

/// Adds a boolean for the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetBoolParameter(
    request: *mut InferenceRequest,
    key: *const c_char,
    value: bool,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe { add_parameter(request, key, Ok(Parameter::Bool(value))) }
}

/// Adds a double for the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetDoubleParameter(
    request: *mut InferenceRequest,
    key: *const c_char,
    value: f64,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe { add_parameter(request, key, Ok(Parameter::Double(value))) }
}
