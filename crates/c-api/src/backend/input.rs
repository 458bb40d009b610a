//! `TRITONBACKEND_Input`: one input of a request, in the pieces in which the network delivered it.
use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::OnceLock,
};

use inference::{
    Tensor,
    backend::{StateBuffer, StateInput},
};

use crate::{
    handle::{Handle, borrow, guard, put, put_if_wanted, readable},
    types::{
        buffer_attributes::BufferAttributes,
        enums::{CDataType, MEMORY_CPU, MemoryType, datatype_number},
        error::CError,
    },
};

/// `TRITONBACKEND_Input`.
#[derive(Debug)]
pub struct Input {
    /// Without bytes if there is a buffer.
    tensor: Tensor,
    /// A state that the library writes in place, in one piece.
    buffer: Option<StateBuffer>,
    /// Of each piece; made when somebody asks.
    attributes: OnceLock<Box<[BufferAttributes]>>,
}

impl Handle for Input {
    const NAME: &'static str = "TRITONBACKEND_Input";
}

impl Input {
    pub(super) fn new(tensor: Tensor) -> Self {
        Self { tensor, buffer: None, attributes: OnceLock::new() }
    }

    pub(super) fn of_state(state: StateInput) -> Self {
        Self { tensor: state.tensor, buffer: state.buffer, attributes: OnceLock::new() }
    }

    pub(super) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Where its bytes lie and how many there are, piece by piece, no piece empty.
    fn pieces(&self) -> impl Iterator<Item = (*const u8, usize)> {
        let buffer = self.buffer.iter().map(|buffer| (buffer.as_ptr().cast_const(), buffer.byte_size()));
        let pieces = self.tensor.data().pieces().iter().map(|piece| (piece.as_ptr(), piece.len()));
        buffer.filter(|(_, byte_size)| *byte_size > 0).chain(pieces)
    }

    /// Where a piece lies and how long it is; nothing beyond the last.
    fn piece(&self, index: u32) -> (*const c_void, u64) {
        let piece = usize::try_from(index).ok().and_then(|index| self.pieces().nth(index));
        piece.map_or((ptr::null(), 0), |(base, byte_size)| (base.cast(), byte_size as u64))
    }

    /// The attributes of a piece.
    fn attributes(&self, index: u32) -> Option<&BufferAttributes> {
        let all = self
            .attributes
            .get_or_init(|| self.pieces().map(|(_, byte_size)| BufferAttributes::host(byte_size)).collect());
        usize::try_from(index).ok().and_then(|index| all.get(index))
    }
}

/// Returns the properties of an input. Each output parameter may be null. The shape includes the batch dimension.
/// Everything belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputProperties(
    input: *mut Input,
    name: *mut *const c_char,
    datatype: *mut CDataType,
    shape: *mut *const i64,
    dims_count: *mut u32,
    byte_size: *mut u64,
    buffer_count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live input; null or writable.
    guard(|| unsafe {
        let input = borrow(input)?;
        put_if_wanted(name, readable(input.tensor.name()));
        put_if_wanted(datatype, datatype_number(input.tensor.datatype()));
        put_if_wanted(shape, input.tensor.shape().as_ptr());
        put_if_wanted(dims_count, u32::try_from(input.tensor.shape().len()).unwrap_or(u32::MAX));
        put_if_wanted(byte_size, input.pieces().map(|(_, byte_size)| byte_size as u64).sum());
        put_if_wanted(buffer_count, u32::try_from(input.pieces().count()).unwrap_or(u32::MAX));
        Ok(())
    })
}

/// Returns the properties of an input. The host policy is ignored: all host policies share one copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputPropertiesForHostPolicy(
    input: *mut Input,
    _host_policy_name: *const c_char,
    name: *mut *const c_char,
    datatype: *mut CDataType,
    shape: *mut *const i64,
    dims_count: *mut u32,
    byte_size: *mut u64,
    buffer_count: *mut u32,
) -> *mut CError {
    // SAFETY: the same promises as those of the called function.
    unsafe {
        TRITONBACKEND_InputProperties(input, name, datatype, shape, dims_count, byte_size, buffer_count)
    }
}

/// Returns a piece of an input: null and 0 bytes beyond the last. The memory belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBuffer(
    input: *mut Input,
    index: u32,
    buffer: *mut *const c_void,
    buffer_byte_size: *mut u64,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
) -> *mut CError {
    // SAFETY: null or a live input; null or writable.
    guard(|| unsafe {
        let (base, byte_size) = borrow(input)?.piece(index);
        put(buffer, base)?;
        put(buffer_byte_size, byte_size)?;
        put_if_wanted(memory_type, MEMORY_CPU);
        put_if_wanted(memory_type_id, 0);
        Ok(())
    })
}

/// Returns a piece of an input. The host policy is ignored: all host policies share one copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBufferForHostPolicy(
    input: *mut Input,
    _host_policy_name: *const c_char,
    index: u32,
    buffer: *mut *const c_void,
    buffer_byte_size: *mut u64,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
) -> *mut CError {
    // SAFETY: the same promises as those of the called function.
    unsafe { TRITONBACKEND_InputBuffer(input, index, buffer, buffer_byte_size, memory_type, memory_type_id) }
}

/// Returns a piece of an input and its attributes: null beyond the last. Both belong to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBufferAttributes(
    input: *mut Input,
    index: u32,
    buffer: *mut *const c_void,
    buffer_attributes: *mut *mut BufferAttributes,
) -> *mut CError {
    // SAFETY: null or a live input; null or writable.
    guard(|| unsafe {
        let input = borrow(input)?;
        put(buffer, input.piece(index).0)?;
        let attributes = input.attributes(index).map_or(ptr::null(), ptr::from_ref);
        put(buffer_attributes, attributes.cast_mut())
    })
}
