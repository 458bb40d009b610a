//! `TRITONSERVER_ResponseAllocator`: the application's functions that allocate memory for outputs.
use std::{
    ffi::{c_char, c_void},
    ptr,
};

use c_api::{
    handle::{Handle, borrow, delete, give, guard, readable},
    types::{
        buffer_attributes::BufferAttributes,
        enums::{MEMORY_CPU, MEMORY_GPU, MemoryType, memory_kind, memory_number},
        error::{CError, consume},
    },
};
use inference::{OutputPlacement, lock::Mutex};
use vocabulary::{Error, MemoryKind, Name, Tensor, TensorData};

/// `TRITONSERVER_ResponseAllocatorAllocFn_t`.
pub type AllocFn = unsafe extern "C-unwind" fn(
    *mut ResponseAllocator,
    *const c_char,
    usize,
    MemoryType,
    i64,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut MemoryType,
    *mut i64,
) -> *mut CError;
/// `TRITONSERVER_ResponseAllocatorBufferAttributesFn_t`.
pub type BufferAttributesFn = unsafe extern "C-unwind" fn(
    *mut ResponseAllocator,
    *const c_char,
    *mut BufferAttributes,
    *mut c_void,
    *mut c_void,
) -> *mut CError;
/// `TRITONSERVER_ResponseAllocatorQueryFn_t`.
pub type QueryFn = unsafe extern "C-unwind" fn(
    *mut ResponseAllocator,
    *mut c_void,
    *const c_char,
    *mut usize,
    *mut MemoryType,
    *mut i64,
) -> *mut CError;
/// `TRITONSERVER_ResponseAllocatorReleaseFn_t`.
pub type BufferReleaseFn = unsafe extern "C-unwind" fn(
    *mut ResponseAllocator,
    *mut c_void,
    *mut c_void,
    usize,
    MemoryType,
    i64,
) -> *mut CError;
/// `TRITONSERVER_ResponseAllocatorStartFn_t`.
pub type StartFn = unsafe extern "C-unwind" fn(*mut ResponseAllocator, *mut c_void) -> *mut CError;

/// `TRITONSERVER_ResponseAllocator`: functions of the application.
#[derive(Debug)]
pub struct ResponseAllocator {
    alloc: AllocFn,
    release: BufferReleaseFn,
    start: Option<StartFn>,
    query: Mutex<Option<QueryFn>>,
    attributes: Mutex<Option<BufferAttributesFn>>,
}

impl Handle for ResponseAllocator {
    const NAME: &'static str = "TRITONSERVER_ResponseAllocator";
}

/// An allocator as one request uses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocator {
    handle: *mut ResponseAllocator,
    userp: *mut c_void,
}

// SAFETY: the header requires allocator functions that any thread may call; the pointers are only passed back to them.
unsafe impl Send for Allocator {}
// SAFETY: the same.
unsafe impl Sync for Allocator {}

/// Memory of the application that contains an output. Dropping it gives the memory back.
#[derive(Debug)]
pub(crate) struct Buffer {
    allocator: Allocator,
    base: *mut c_void,
    userp: *mut c_void,
    byte_size: usize,
    memory: (MemoryType, i64),
}

// SAFETY: as for `Allocator`; the memory is written before any other code gets the buffer.
unsafe impl Send for Buffer {}
// SAFETY: the same.
unsafe impl Sync for Buffer {}

impl Allocator {
    /// # Errors
    /// INVALID_ARG for null.
    ///
    /// # Safety
    /// The allocator is null or outlives every response that is made with it.
    pub(crate) unsafe fn new(handle: *mut ResponseAllocator, userp: *mut c_void) -> Result<Self, Error> {
        // SAFETY: as the caller promises.
        unsafe { borrow(handle) }?;
        Ok(Self { handle, userp })
    }

    fn functions(&self) -> &ResponseAllocator {
        // SAFETY: the allocator outlives the request and its responses, as the caller of `new` promised.
        unsafe { &*self.handle }
    }

    /// Tells the application that the following allocations belong to another response.
    pub(crate) fn start(&self) {
        let Some(start) = self.functions().start else { return };
        // SAFETY: the application's function as the header declares it; this function owns the error it returns.
        if let Err(error) = unsafe { consume(start(self.handle, self.userp)) } {
            log::error!("response allocation start failed: {}", error.with_code());
        }
    }

    /// Copies an output into memory of the application, which may choose the kind of memory.
    ///
    /// # Errors
    /// The application's error, or UNSUPPORTED if the output is in memory of a device, or the application gives such
    /// memory. No memory is not an error.
    pub(crate) fn copy(&self, output: &Tensor) -> Result<Buffer, Error> {
        let (name, data) = (output.name(), output.host()?);
        let byte_size = data.len();
        let (mut kind, mut number) = (MEMORY_CPU, 0);
        let (mut base, mut userp) = (ptr::null_mut(), ptr::null_mut());
        let alloc = self.functions().alloc;
        // SAFETY: the application's function as the header declares it, with places of this function; this function
        // owns the error it returns.
        unsafe {
            consume(alloc(
                self.handle,
                readable(name),
                byte_size,
                kind,
                number,
                self.userp,
                &mut base,
                &mut userp,
                &mut kind,
                &mut number,
            ))
        }?;
        let buffer = Buffer { allocator: *self, base, userp, byte_size, memory: (kind, number) };
        buffer.report_attributes(name)?;
        buffer.fill(name, &data)?;
        Ok(buffer)
    }
}

impl OutputPlacement for Allocator {
    fn placement(
        &self,
        name: Option<&Name>,
        byte_size: Option<usize>,
        (kind, mut number): (MemoryKind, i64),
    ) -> Result<(MemoryKind, i64), Error> {
        let query = *self.functions().query.lock();
        let query = query.ok_or_else(|| Error::unavailable("Output properties are not available"))?;
        let (mut size, mut kind) = (byte_size, memory_number(kind));
        let size = size.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: the application's function as the header declares it, with places of this function; this function
        // owns the error it returns.
        unsafe {
            let name = name.map_or(ptr::null(), readable);
            consume(query(self.handle, self.userp, name, size, &mut kind, &mut number))?;
        }
        Ok((memory_kind(kind)?, number))
    }
}

impl Buffer {
    /// Lets the application describe the buffer further. Size and kind of memory are known already.
    fn report_attributes(&self, name: &Name) -> Result<(), Error> {
        let Allocator { handle, userp } = self.allocator;
        let tell = *self.allocator.functions().attributes.lock();
        let Some(tell) = tell else { return Ok(()) };
        let attributes = BufferAttributes::host(self.byte_size);
        let place = ptr::from_ref(&attributes).cast_mut();
        // SAFETY: the application's function as the header declares it; this function owns the error it returns.
        unsafe { consume(tell(handle, readable(name), place, userp, self.userp)) }
    }

    fn fill(&self, name: &Name, data: &TensorData) -> Result<(), Error> {
        if self.memory.0 == MEMORY_GPU {
            let text = format!("output '{name}' cannot be written to memory of type GPU");
            return Err(Error::unsupported(text));
        }
        // As Triton: an application that gives no memory, and no error, gets a response without the bytes.
        if data.is_empty() || self.base.is_null() {
            return Ok(());
        }
        // SAFETY: the application has given that many writable bytes, which it need not have initialised, and no other
        // code has the buffer yet.
        data.copy_to_uninit(unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.byte_size) });
        Ok(())
    }

    /// The address, the size and the kind of memory.
    pub(crate) fn parts(&self) -> (*const c_void, usize, (MemoryType, i64)) {
        (self.base, self.byte_size, self.memory)
    }

    /// The pointer that the application stores with the buffer.
    pub(crate) fn userp(&self) -> *mut c_void {
        self.userp
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.base.is_null() {
            return;
        }
        let (handle, (kind, number)) = (self.allocator.handle, self.memory);
        let release = self.allocator.functions().release;
        // SAFETY: the application's function as the header declares it; the buffer is given back once; this function
        // owns the error.
        let released =
            unsafe { consume(release(handle, self.base, self.userp, self.byte_size, kind, number)) };
        if let Err(error) = released {
            log::error!("failed to release the buffer of an output: {}", error.with_code());
        }
    }
}

/// Makes an allocator from functions of the application, of which the last may be null. The caller owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ResponseAllocatorNew(
    allocator: *mut *mut ResponseAllocator,
    alloc: Option<AllocFn>,
    release: Option<BufferReleaseFn>,
    start: Option<StartFn>,
) -> *mut CError {
    guard(|| {
        let missing = || Error::invalid("unexpected null function for a response allocator");
        let (alloc, release) = (alloc.ok_or_else(missing)?, release.ok_or_else(missing)?);
        let (query, attributes) = Default::default();
        // SAFETY: null or writable.
        unsafe { give(allocator, ResponseAllocator { alloc, release, start, query, attributes }) }
    })
}

/// Sets the function that describes buffers after they were allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    allocator: *mut ResponseAllocator,
    buffer_attributes: Option<BufferAttributesFn>,
) -> *mut CError {
    // SAFETY: null or a live allocator.
    guard(|| unsafe { borrow(allocator) }.map(|own| *own.attributes.lock() = buffer_attributes))
}

/// Sets the function that states the preferred memory before any is allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ResponseAllocatorSetQueryFunction(
    allocator: *mut ResponseAllocator,
    query: Option<QueryFn>,
) -> *mut CError {
    // SAFETY: null or a live allocator.
    guard(|| unsafe { borrow(allocator) }.map(|own| *own.query.lock() = query))
}

/// Deletes an allocator; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ResponseAllocatorDelete(
    allocator: *mut ResponseAllocator,
) -> *mut CError {
    // SAFETY: null or an allocator that the caller does not use after this.
    unsafe { delete(allocator) };
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use bytes::Bytes;
    use vocabulary::DataType;

    use super::*;

    /// Gives memory that nobody has written.
    unsafe extern "C-unwind" fn alloc(
        _: *mut ResponseAllocator,
        _: *const c_char,
        byte_size: usize,
        _: MemoryType,
        _: i64,
        _: *mut c_void,
        buffer: *mut *mut c_void,
        _: *mut *mut c_void,
        _: *mut MemoryType,
        _: *mut i64,
    ) -> *mut CError {
        let memory = Box::into_raw(Box::<[u8]>::new_uninit_slice(byte_size));
        // SAFETY: the caller passes a place for the address.
        unsafe { *buffer = memory.cast() };
        ptr::null_mut()
    }

    unsafe extern "C-unwind" fn release(
        _: *mut ResponseAllocator,
        buffer: *mut c_void,
        _: *mut c_void,
        byte_size: usize,
        _: MemoryType,
        _: i64,
    ) -> *mut CError {
        let memory = ptr::slice_from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), byte_size);
        // SAFETY: `alloc` has made a box of that many bytes, which is given back once.
        drop(unsafe { Box::from_raw(memory) });
        ptr::null_mut()
    }

    #[test]
    fn an_output_in_pieces_fills_memory_that_nobody_has_written() {
        let (query, attributes) = Default::default();
        let mut functions = ResponseAllocator { alloc, release, start: None, query, attributes };
        let allocator = Allocator { handle: &raw mut functions, userp: ptr::null_mut() };
        let data = TensorData::from_pieces([Bytes::from_static(b"abc"), Bytes::from_static(b"de")]);
        let output = Tensor::new("OUT".into(), DataType::Uint8, [5][..].into(), data);
        let buffer = allocator.copy(&output).unwrap();
        let (base, byte_size, _) = buffer.parts();
        // SAFETY: the buffer has that many bytes, which `copy` has written.
        assert_eq!(unsafe { std::slice::from_raw_parts(base.cast::<u8>(), byte_size) }, b"abcde");
    }
}
