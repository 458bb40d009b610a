//! `TRITONSERVER_BufferAttributes`: the location and size of a buffer.
use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicI64, AtomicPtr, AtomicU32, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use vocabulary::MemoryKind;

use super::{
    enums::{MEMORY_CPU, MemoryType, memory_number},
    error::CError,
};
use crate::handle::{Handle, borrow, delete, give, guard, put};

/// `TRITONSERVER_BufferAttributes`. The default is an empty buffer in host memory.
#[derive(Debug, Default)]
pub struct BufferAttributes {
    byte_size: AtomicUsize,
    memory_type: AtomicU32,
    memory_type_id: AtomicI64,
    cuda_ipc_handle: AtomicPtr<c_void>,
}

impl Handle for BufferAttributes {
    const NAME: &'static str = "TRITONSERVER_BufferAttributes";
}

impl BufferAttributes {
    /// That many bytes of host memory.
    pub fn host(byte_size: usize) -> Self {
        Self { byte_size: AtomicUsize::new(byte_size), ..Self::default() }
    }

    /// That many bytes in the memory of that kind with the number `id`.
    pub fn of(kind: MemoryKind, id: i64, byte_size: usize) -> Self {
        let (memory_type, memory_type_id) = (AtomicU32::new(memory_number(kind)), AtomicI64::new(id));
        Self { memory_type, memory_type_id, ..Self::host(byte_size) }
    }

    /// The number of bytes.
    pub fn byte_size(&self) -> usize {
        self.byte_size.load(Relaxed)
    }

    /// Sets the number of bytes.
    pub fn set_byte_size(&self, byte_size: usize) {
        self.byte_size.store(byte_size, Relaxed);
    }

    /// Whether the buffer is ordinary host memory.
    pub fn is_host(&self) -> bool {
        self.memory_type.load(Relaxed) == MEMORY_CPU
    }

    /// The kind of memory and its number.
    pub fn memory(&self) -> (MemoryType, i64) {
        (self.memory_type.load(Relaxed), self.memory_type_id.load(Relaxed))
    }

    /// Copies the values of another object.
    pub fn copy_from(&self, other: &Self) {
        self.byte_size.store(other.byte_size.load(Relaxed), Relaxed);
        self.memory_type.store(other.memory_type.load(Relaxed), Relaxed);
        self.memory_type_id.store(other.memory_type_id.load(Relaxed), Relaxed);
        self.cuda_ipc_handle.store(other.cuda_ipc_handle.load(Acquire), Release);
    }
}

/// Makes the attributes of an empty buffer in host memory. The caller owns them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesNew(
    attributes: *mut *mut BufferAttributes,
) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { give(attributes, BufferAttributes::default()) })
}

/// Deletes attributes; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesDelete(
    attributes: *mut BufferAttributes,
) -> *mut CError {
    // SAFETY: null or attributes that the caller does not use after this.
    unsafe { delete(attributes) };
    ptr::null_mut()
}

/// Sets the number of the memory among those of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesSetMemoryTypeId(
    attributes: *mut BufferAttributes,
    memory_type_id: i64,
) -> *mut CError {
    // SAFETY: null or live attributes.
    guard(|| unsafe { borrow(attributes) }.map(|own| own.memory_type_id.store(memory_type_id, Relaxed)))
}

/// Sets the memory type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesSetMemoryType(
    attributes: *mut BufferAttributes,
    memory_type: MemoryType,
) -> *mut CError {
    // SAFETY: null or live attributes.
    guard(|| unsafe { borrow(attributes) }.map(|own| own.memory_type.store(memory_type, Relaxed)))
}

/// Sets the handle by which other processes access the memory. The handle is not copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    attributes: *mut BufferAttributes,
    cuda_ipc_handle: *mut c_void,
) -> *mut CError {
    // SAFETY: null or live attributes.
    guard(|| unsafe { borrow(attributes) }.map(|own| own.cuda_ipc_handle.store(cuda_ipc_handle, Release)))
}

/// Sets the number of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesSetByteSize(
    attributes: *mut BufferAttributes,
    byte_size: usize,
) -> *mut CError {
    // SAFETY: null or live attributes.
    guard(|| unsafe { borrow(attributes) }.map(|own| own.set_byte_size(byte_size)))
}

/// Returns the number of the memory among those of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesMemoryTypeId(
    attributes: *mut BufferAttributes,
    memory_type_id: *mut i64,
) -> *mut CError {
    // SAFETY: null or live attributes; null or writable.
    guard(|| unsafe { put(memory_type_id, borrow(attributes)?.memory_type_id.load(Relaxed)) })
}

/// Returns the memory type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesMemoryType(
    attributes: *mut BufferAttributes,
    memory_type: *mut MemoryType,
) -> *mut CError {
    // SAFETY: null or live attributes; null or writable.
    guard(|| unsafe { put(memory_type, borrow(attributes)?.memory_type.load(Relaxed)) })
}

/// Returns the handle by which other processes access the memory; null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesCudaIpcHandle(
    attributes: *mut BufferAttributes,
    cuda_ipc_handle: *mut *mut c_void,
) -> *mut CError {
    // SAFETY: null or live attributes; null or writable.
    guard(|| unsafe { put(cuda_ipc_handle, borrow(attributes)?.cuda_ipc_handle.load(Acquire)) })
}

/// Returns the number of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_BufferAttributesByteSize(
    attributes: *mut BufferAttributes,
    byte_size: *mut usize,
) -> *mut CError {
    // SAFETY: null or live attributes; null or writable.
    guard(|| unsafe { put(byte_size, borrow(attributes)?.byte_size()) })
}
