//! `TRITONBACKEND_Output`: one output of a response, and the memory the backend writes it into.
use std::ffi::c_void;

use inference::lock::Mutex;
use vocabulary::{DataType, Error, ErrorCode, ForeignMemory, Name, Shape, Tensor, TensorData, TensorMemory};

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
    memory: Mutex<Option<OutputMemory>>,
    /// Memory of the sender of the request, which the output may be in.
    offered: Option<ForeignMemory>,
    attributes: BufferAttributes,
}

/// The memory of an output.
#[derive(Debug)]
enum OutputMemory {
    Own(Vec<u8>),
    /// The beginning of the offered memory.
    Offered(ForeignMemory),
}

impl Handle for Output {
    const NAME: &'static str = "TRITONBACKEND_Output";
}

impl Output {
    pub(super) fn new(name: Name, datatype: DataType, shape: Shape, offered: Option<ForeignMemory>) -> Self {
        let attributes = BufferAttributes::default();
        Self { name, datatype, shape, memory: Mutex::default(), offered, attributes }
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

    /// Memory of that size, at most once: the offered memory if it suffices, otherwise memory of the server. The latter is
    /// all zero, because a client may see the bytes that the library does not write. Null for 0 bytes, as the front ends of
    /// Triton give it.
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
        if let Some(offered) = self.offered.as_ref().filter(|_| len > 0).and_then(|memory| memory.first(len))
        {
            self.attributes.set_byte_size(len);
            let buffer = offered.address().cast();
            *place = Some(OutputMemory::Offered(offered));
            return Ok(buffer);
        }
        let mut memory = zeroed(len).ok_or_else(no_room)?;
        self.attributes.set_byte_size(len);
        let buffer = if len == 0 { std::ptr::null_mut() } else { memory.as_mut_ptr().cast() };
        *place = Some(OutputMemory::Own(memory));
        Ok(buffer)
    }

    /// The tensor that the backend has written.
    pub(super) fn into_tensor(self) -> Tensor {
        let byte_size = self.attributes.byte_size();
        let memory: TensorMemory = match self.memory.into_inner() {
            None => TensorData::default().into(),
            Some(OutputMemory::Own(mut memory)) => {
                memory.truncate(byte_size);
                memory.into()
            }
            Some(OutputMemory::Offered(memory)) => memory.first(byte_size).unwrap_or(memory).into(),
        };
        Tensor::new(self.name, self.datatype, self.shape, memory)
    }
}

/// Allocates the memory of an output, which the library writes before it sends the response. The memory belongs to the
/// response. It is host memory, whatever memory type is preferred. It is filled with zeros, unless the sender of the request
/// provides it. A second call is ALREADY_EXISTS.
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
