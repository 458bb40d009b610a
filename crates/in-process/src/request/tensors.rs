//! The inputs of a request, whose memory stays the application's, and the outputs it wants.
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
use inference::Error;

use super::{InferenceRequest, change};
use crate::infer::Piece;

/// Adds an input, without data yet. Name and shape are copied.
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

/// Adds the only input of the request, whose name, datatype and shape follow from the model's configuration.
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

/// Memory of the application that an input may have.
///
/// # Safety
/// The memory is null or stays as it is while the request has it.
unsafe fn piece(base: *const c_void, byte_size: usize, kind: MemoryType) -> Result<Piece, Error> {
    if kind == MEMORY_GPU {
        return Err(crate::not_offered("input data in memory of type GPU"));
    }
    if isize::try_from(byte_size).is_err() {
        return Err(Error::invalid(format!("input data cannot have {byte_size} bytes")));
    }
    let base = match NonNull::new(base.cast_mut().cast()) {
        Some(base) => base,
        None if byte_size == 0 => NonNull::dangling(),
        None => return Err(Error::invalid("unexpected null input data")),
    };
    // SAFETY: as the caller promises.
    Ok(unsafe { Piece::new(base, byte_size) })
}

/// Appends memory to an input. It is not copied, and must stay as it is until the request has come back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAppendInputData(
    request: *mut InferenceRequest,
    name: *const c_char,
    base: *const c_void,
    byte_size: usize,
    memory_type: MemoryType,
    _memory_type_id: i64,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null; memory as `piece` asks.
    unsafe {
        change(request, |request_attributes, _| {
            request_attributes.append(text(name)?, piece(base, byte_size, memory_type)?, None)
        })
    }
}

/// Appends memory to what instances with a host policy read of an input; otherwise as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    request: *mut InferenceRequest,
    name: *const c_char,
    base: *const c_void,
    byte_size: usize,
    memory_type: MemoryType,
    _memory_type_id: i64,
    host_policy_name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; texts or null; memory as `piece` asks.
    unsafe {
        change(request, |request_attributes, _| {
            let policy = Some(text(host_policy_name)?);
            request_attributes.append(text(name)?, piece(base, byte_size, memory_type)?, policy)
        })
    }
}

/// Appends memory to an input, as large as its attributes say; otherwise as above.
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
            let piece = piece(base, attributes.byte_size(), attributes.memory().0)?;
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

/// Asks for an output. Without any, all are given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAddRequestedOutput(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null.
    unsafe { change(request, |request_attributes, _| request_attributes.add_output(text(name)?)) }
}

/// Asks for an output no more, whether it was asked for or not.
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

/// Asks for no output in particular.
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
