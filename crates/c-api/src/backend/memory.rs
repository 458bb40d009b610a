//! `TRITONBACKEND_MemoryManager`: memory that backends allocate from the server.
use std::{
    alloc::{Layout, alloc_zeroed},
    ffi::c_void,
    ptr::NonNull,
};

use vocabulary::{Error, ErrorCode};

use crate::{
    handle::{Handle, borrow, guard, put},
    types::{
        enums::{MEMORY_CPU, MEMORY_CPU_PINNED, MEMORY_GPU, MemoryType},
        error::CError,
    },
};

/// `TRITONBACKEND_MemoryManager`: the allocator of the C library, as Nereid supports no GPUs.
#[derive(Debug, Default)]
pub struct MemoryManager {
    // C needs a unique address, and only a type with a size has one.
    _byte: u8,
}

impl Handle for MemoryManager {
    const NAME: &'static str = "TRITONBACKEND_MemoryManager";
}

/// Allocates memory. [`TRITONBACKEND_MemoryManagerFree`] frees it. Only ordinary host memory is supported.
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

/// Zeros of that length; `None` if the system has not so much memory. Large blocks come directly from the system: they
/// cost nothing until they are written.
pub(super) fn zeroed(len: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(len).ok()?;
    if len == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the size is not zero.
    let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    // SAFETY: from the global allocator, with the layout of a vector of that capacity; all bytes are zero.
    Some(unsafe { Vec::from_raw_parts(memory.as_ptr(), len, len) })
}

/// Memory for `free` of the C library, all zero. A library may send a buffer that it has not written completely; such a
/// buffer must not contain old data of the process.
fn allocate(memory_type: MemoryType, byte_size: u64) -> Result<*mut c_void, Error> {
    match memory_type {
        MEMORY_CPU => {}
        MEMORY_GPU => return Err(Error::unsupported("GPU memory allocation not supported")),
        MEMORY_CPU_PINNED => return Err(Error::unsupported("Pinned memory allocation not supported")),
        other => return Err(Error::invalid(format!("there is no memory type {other}"))),
    }
    // SAFETY: `calloc` accepts any size.
    let memory = unsafe { libc::calloc(1, usize::try_from(byte_size).unwrap_or(usize::MAX)) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_libraries_is_zero_even_where_other_memory_was_freed() {
        for len in [0, 1, 100, 5_000, 1 << 20] {
            drop(vec![0xAA_u8; len]);
            let memory = zeroed(len).unwrap();
            assert_eq!((memory.len(), memory.iter().find(|byte| **byte != 0)), (len, None));
        }
        assert_eq!(zeroed(usize::MAX), None);
        assert_eq!(zeroed(isize::MAX as usize), None);
    }

    #[test]
    fn the_memory_manager_gives_zeros() {
        const LEN: usize = 200;
        // SAFETY: freed once, at the end of this test.
        unsafe {
            let dirty = allocate(MEMORY_CPU, LEN as u64).unwrap().cast::<u8>();
            dirty.write_bytes(0xAA, LEN);
            libc::free(dirty.cast());
            let memory = allocate(MEMORY_CPU, LEN as u64).unwrap().cast::<u8>();
            assert!(std::slice::from_raw_parts(memory, LEN).iter().all(|byte| *byte == 0));
            libc::free(memory.cast());
        }
    }
}
