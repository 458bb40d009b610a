//! `TRITONBACKEND_MemoryManager`: memory that backends ask the server for.
use std::ffi::c_void;

use inference::{Error, ErrorCode};

use crate::{
    handle::{Handle, borrow, guard, put},
    types::{
        enums::{MEMORY_CPU, MEMORY_CPU_PINNED, MEMORY_GPU, MemoryType},
        error::CError,
    },
};

/// `TRITONBACKEND_MemoryManager`: without GPUs, the C library's allocator.
#[derive(Debug, Default)]
pub struct MemoryManager {
    // C needs an address, and an address needs a byte.
    _byte: u8,
}

impl Handle for MemoryManager {
    const NAME: &'static str = "TRITONBACKEND_MemoryManager";
}

/// Allocates memory, to be freed by [`TRITONBACKEND_MemoryManagerFree`]. Only ordinary host memory is supported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_MemoryManagerAllocate(
    manager: *mut MemoryManager,
    buffer: *mut *mut c_void,
    memory_type: MemoryType,
    _memory_type_id: i64,
    byte_size: u64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live manager.
        unsafe { borrow(manager)? };
        let memory = allocate(memory_type, byte_size)?;
        // SAFETY: null or writable.
        unsafe { put(buffer, memory) }.inspect_err(|_| unsafe { libc::free(memory) })
    })
}

/// Memory to be given to `free`.
fn allocate(memory_type: MemoryType, byte_size: u64) -> Result<*mut c_void, Error> {
    match memory_type {
        MEMORY_CPU => {}
        MEMORY_GPU => return Err(Error::unsupported("GPU memory allocation not supported")),
        MEMORY_CPU_PINNED => return Err(Error::unsupported("Pinned memory allocation not supported")),
        other => return Err(Error::invalid(format!("there is no memory type {other}"))),
    }
    // SAFETY: any size may be asked for.
    let memory = unsafe { libc::malloc(usize::try_from(byte_size).unwrap_or(usize::MAX)) };
    if memory.is_null() && byte_size > 0 {
        return Err(Error::new(ErrorCode::Unavailable, "CPU memory allocation failed"));
    }
    Ok(memory)
}

/// Frees memory of [`TRITONBACKEND_MemoryManagerAllocate`]; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_MemoryManagerFree(
    manager: *mut MemoryManager,
    buffer: *mut c_void,
    memory_type: MemoryType,
    _memory_type_id: i64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live manager.
        unsafe { borrow(manager)? };
        if memory_type == MEMORY_CPU {
            // SAFETY: allocated above, and not freed before.
            unsafe { libc::free(buffer) };
        }
        Ok(())
    })
}
