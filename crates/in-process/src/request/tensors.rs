//! The inputs of a request, whose memory the application owns, and its requested outputs.
use std::{
    ffi::{c_char, c_void},
    ptr::NonNull,
};

use c_api::{
    handle::{array, borrow, text},
    types::{
        buffer_attributes::BufferAttributes,
        enums::{self, CDataType, MEMORY_GPU, MemoryType},
        error::CError,
    },
};
use vocabulary::{DeviceRange, Error};

use super::{
    borrowed_inputs::{BorrowedHostInput, BorrowedInput},
    inference_request::{InferenceRequest, change},
};

/// Adds an input without data. Name and shape are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAddInput(
    request: *mut InferenceRequest,
    name: *const c_char,
    datatype: CDataType,
    shape: *const i64,
    dim_count: u64,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null; null or that many dimensions.
    unsafe {
        change(request, |request_attributes, _| {
            let (name, shape) = (text(name)?, array(shape, dim_count)?);
            let unknown = || Error::invalid(format!("input '{name}' has no datatype of number {datatype}"));
            request_attributes.add_input(name, enums::datatype(datatype).ok_or_else(unknown)?, shape.into())
        })
    }
}

/// Adds the only input of the request. Its name, datatype and shape follow from the model's configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAddRawInput(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe { change(request, |request_attributes, _| request_attributes.add_raw_input(text(name)?)) }
}

/// Removes an input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveInput(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe { change(request, |request_attributes, _| request_attributes.remove_input(text(name)?)) }
}

/// Removes all inputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveAllInputs(
    request: *mut InferenceRequest,
) -> *mut CError {
    // SAFETY: null or a live request.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.remove_all_inputs();
            Ok(())
        })
    }
}

/// Memory of the application for an input.
///
/// # Safety
/// The memory is null, or the application does not change it while the request has it.
unsafe fn piece(
    base: *const c_void,
    byte_size: usize,
    memory: (MemoryType, i64),
) -> Result<BorrowedInput, Error> {
    if isize::try_from(byte_size).is_err() {
        return Err(Error::invalid(format!("input data cannot have {byte_size} bytes")));
    }
    let base = match NonNull::new(base.cast_mut().cast()) {
        Some(base) => base,
        None if byte_size == 0 => NonNull::dangling(),
        None => return Err(Error::invalid("unexpected null input data")),
    };
    if let (MEMORY_GPU, id) = memory {
        return Ok(BorrowedInput::Gpu(id, DeviceRange { address: base.addr().get(), byte_size }));
    }
    // SAFETY: as the caller promises.
    Ok(BorrowedInput::Host(unsafe { BorrowedHostInput::new(base, byte_size) }))
}

/// Appends memory to an input. The memory is not copied. The application must not change it until the request is given
/// back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAppendInputData(
    request: *mut InferenceRequest,
    name: *const c_char,
    base: *const c_void,
    byte_size: usize,
    memory_type: MemoryType,
    memory_type_id: i64,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null; memory as `piece` asks.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.append(
                text(name)?,
                piece(base, byte_size, (memory_type, memory_type_id))?,
                None,
            )
        })
    }
}

/// Appends memory to the contents of an input for instances with a host policy. The memory is not copied. The
/// application must not change it until the request is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    request: *mut InferenceRequest,
    name: *const c_char,
    base: *const c_void,
    byte_size: usize,
    memory_type: MemoryType,
    memory_type_id: i64,
    host_policy_name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; texts or null; memory as `piece` asks.
    unsafe {
        change(request, |request_attributes, _| {
            let policy = Some(text(host_policy_name)?);
            request_attributes.append(
                text(name)?,
                piece(base, byte_size, (memory_type, memory_type_id))?,
                policy,
            )
        })
    }
}

/// Appends memory to an input, as large as its attributes say. The memory is not copied. The application must not
/// change it until the request is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    request: *mut InferenceRequest,
    name: *const c_char,
    base: *const c_void,
    buffer_attributes: *mut BufferAttributes,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null; null or live attributes; memory as `piece` asks.
    unsafe {
        change(request, |request_attributes, _| {
            let attributes = borrow(buffer_attributes)?;
            let piece = piece(base, attributes.byte_size(), attributes.memory())?;
            request_attributes.append(text(name)?, piece, None)
        })
    }
}

/// Removes the data of an input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveAllInputData(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe { change(request, |request_attributes, _| request_attributes.remove_data(text(name)?)) }
}

/// Requests an output. If no output is requested, all are given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAddRequestedOutput(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe { change(request, |request_attributes, _| request_attributes.add_output(text(name)?)) }
}

/// Removes a requested output, whether it was requested or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.remove_output(text(name)?);
            Ok(())
        })
    }
}

/// Removes all requested outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    request: *mut InferenceRequest,
) -> *mut CError {
    // SAFETY: null or a live request.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.remove_all_outputs();
            Ok(())
        })
    }
}
