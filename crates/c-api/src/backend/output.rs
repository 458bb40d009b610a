//! `TRITONBACKEND_Output`: one output of a response, and the memory the backend writes it into.
use std::ffi::c_void;

use inference::{DataType, Error, ErrorCode, Name, Shape, Tensor};
use parking_lot::Mutex;

use super::memory::zeroed;
use crate::{
    handle::{Handle, borrow, guard, put, put_if_wanted},
    types::{
        buffer_attributes::BufferAttributes,
        enums::{MEMORY_CPU, MemoryType},
        error::CError,
    },
};

/// `TRITONBACKEND_Output`.
#[derive(Debug)]
pub struct Output {
    name: Name,
    datatype: DataType,
    /// The shape that a client sees.
    shape: Shape,
    memory: Mutex<Option<Vec<u8>>>,
    attributes: BufferAttributes,
}

impl Handle for Output {
    const NAME: &'static str = "TRITONBACKEND_Output";
}

impl Output {
    pub(super) fn new(name: Name, datatype: DataType, shape: Shape) -> Self {
        Self { name, datatype, shape, memory: Mutex::default(), attributes: BufferAttributes::default() }
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn datatype(&self) -> DataType {
        self.datatype
    }

    pub(super) fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Memory of that size, all zero, at most once. Zero, because a client may see the bytes that the library does not
    /// write. Null for 0 bytes, as the front ends of Triton give it.
    fn allocate(&self, byte_size: u64) -> Result<*mut c_void, Error> {
        let mut place = self.memory.lock();
        if place.is_some() {
            return Err(Error::new(
                ErrorCode::AlreadyExists,
                format!("allocated buffer for output '{}' already exists", self.name),
            ));
        }
        let no_room =
            || Error::unavailable(format!("failed to allocate {byte_size} bytes for output '{}'", self.name));
        let len = usize::try_from(byte_size).map_err(|_| no_room())?;
        let mut memory = zeroed(len).ok_or_else(no_room)?;
        self.attributes.set_byte_size(len);
        let buffer = if len == 0 { std::ptr::null_mut() } else { memory.as_mut_ptr().cast() };
        *place = Some(memory);
        Ok(buffer)
    }

    /// The tensor that the backend has written.
    pub(super) fn into_tensor(self) -> Tensor {
        let mut memory = self.memory.into_inner().unwrap_or_default();
        memory.truncate(self.attributes.byte_size());
        Tensor::new(self.name, self.datatype, self.shape, memory)
    }
}

/// Allocates the memory of an output, which the library writes before it sends the response. The memory belongs to the
/// response. It is host memory, whatever memory type is preferred, and is filled with zeros. A second call is
/// ALREADY_EXISTS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_OutputBuffer(
    output: *mut Output,
    buffer: *mut *mut c_void,
    buffer_byte_size: u64,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
) -> *mut CError {
    // SAFETY: null or a live output; null or writable.
    guard(|| unsafe {
        put(buffer, std::ptr::null_mut())?;
        put(buffer, borrow(output)?.allocate(buffer_byte_size)?)?;
        put_if_wanted(memory_type, MEMORY_CPU);
        put_if_wanted(memory_type_id, 0);
        Ok(())
    })
}

/// Returns the attributes of an output's memory. They belong to the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_OutputBufferAttributes(
    output: *mut Output,
    buffer_attributes: *mut *mut BufferAttributes,
) -> *mut CError {
    // SAFETY: null or a live output; null or writable.
    guard(|| unsafe { put(buffer_attributes, std::ptr::from_ref(&borrow(output)?.attributes).cast_mut()) })
}
