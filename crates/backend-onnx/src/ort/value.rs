//! Tensors that go into a run.
use std::{
    cell::Cell,
    ffi::c_void,
    marker::PhantomData,
    ops::Range,
    ptr::{self, NonNull},
    sync::Arc,
};

use native_backend::{byte_count, can_be_used, is_aligned};
use ort_sys as sys;
use vocabulary::{DataType, ForeignMemory};

use super::{Element, OrtError, Runtime, runtime::not_null};

/// An input of numbers. It borrows the bytes it was made over.
///
/// Invariant: the number of borrowed bytes is exactly what datatype and shape need, and they are aligned to the element
/// size.
pub(crate) struct InputValue<'a> {
    pointer: NonNull<sys::OrtValue>,
    runtime: &'a Runtime,
    /// Addresses of the borrowed bytes.
    range: Range<usize>,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> InputValue<'a> {
    /// A tensor that uses these bytes in place. A shape without dimensions is a scalar.
    ///
    /// # Errors
    /// Bytes that are not aligned or whose number does not fit the shape; strings.
    pub(crate) fn over(
        runtime: &'a Runtime,
        datatype: DataType,
        shape: &[i64],
        bytes: &'a [u8],
    ) -> Result<Self, OrtError> {
        let needed = byte_count(datatype, shape);
        if needed != Some(bytes.len()) || !is_aligned(datatype, bytes) {
            return Err(OrtError::invalid_argument(format!(
                "{} bytes cannot be a {} tensor of shape {shape:?}",
                bytes.len(),
                datatype.protocol_name()
            )));
        }
        // An empty slice may have any address. The runtime needs a readable one.
        static NOTHING: [u64; 1] = [0];
        let data = if bytes.is_empty() { NOTHING.as_ptr().cast() } else { bytes.as_ptr() };
        // SAFETY: `data` has `bytes.len()` readable bytes for as long as this value lives, aligned for the element. The
        // runtime does not write to inputs of a run.
        let pointer = unsafe { tensor_over(runtime, datatype, shape, data.cast_mut(), bytes.len())? };
        let start = data.addr();
        let range = start..start + bytes.len();
        Ok(Self { pointer, runtime, range, bytes: PhantomData })
    }

    /// A tensor that uses foreign memory in place.
    ///
    /// # Errors
    /// Datatype, shape or address do not allow that, or the owner of the memory does not; those of the runtime.
    pub(crate) fn over_foreign(
        runtime: &'a Runtime,
        datatype: DataType,
        shape: &[i64],
        memory: &'a ForeignMemory,
    ) -> Result<Self, OrtError> {
        require_usable(datatype, shape, memory)?;
        let (data, len) = (memory.address(), memory.byte_size());
        // SAFETY: the memory exists for as long as it is borrowed, its owner allows libraries to read it, and it is
        // aligned. The runtime does not write to inputs of a run.
        let pointer = unsafe { tensor_over(runtime, datatype, shape, data, len)? };
        let range = data.addr()..data.addr() + len;
        Ok(Self { pointer, runtime, range, bytes: PhantomData })
    }
}

/// An input of a run.
pub(crate) struct RunInput<'a> {
    /// Position among [`Signature::feeds`](native_backend::Signature::feeds).
    pub(crate) slot: usize,
    /// The tensor.
    pub(crate) tensor: RunTensor<'a>,
}

/// The tensor for an input.
pub(crate) enum RunTensor<'a> {
    Numbers(InputValue<'a>),
    Strings(&'a Strings),
}

impl RunTensor<'_> {
    /// The address of the tensor, for a run.
    pub(super) fn as_ptr(&self) -> *const sys::OrtValue {
        match self {
            Self::Numbers(value) => value.pointer.as_ptr(),
            Self::Strings(strings) => {
                strings.has_been_input.set(true);
                strings.pointer.as_ptr()
            }
        }
    }

    pub(super) fn belongs_to(&self, runtime: &Runtime) -> bool {
        match self {
            Self::Numbers(value) => ptr::eq(value.runtime, runtime),
            Self::Strings(strings) => ptr::eq(&*strings.runtime, runtime),
        }
    }

    /// Whether that address is among borrowed bytes.
    pub(super) fn lends(&self, address: usize) -> bool {
        match self {
            Self::Numbers(value) => value.range.contains(&address),
            Self::Strings(_) => false,
        }
    }
}

/// Requires that a tensor of that datatype and shape can be the whole of the memory, where it is.
fn require_usable(datatype: DataType, shape: &[i64], memory: &ForeignMemory) -> Result<(), OrtError> {
    if can_be_used(datatype, shape, memory) {
        return Ok(());
    }
    let name = datatype.protocol_name();
    Err(OrtError::invalid_argument(format!("memory cannot be a {name} tensor of shape {shape:?}")))
}

/// A tensor that uses these bytes in place.
///
/// # Safety
/// The address has that many bytes, aligned for the element, as long as the tensor exists. They are readable, and
/// writable if the tensor is an output.
unsafe fn tensor_over(
    runtime: &Runtime,
    datatype: DataType,
    shape: &[i64],
    data: *mut u8,
    len: usize,
) -> Result<NonNull<sys::OrtValue>, OrtError> {
    let mut pointer = ptr::null_mut();
    // SAFETY: as the caller promises. The runtime takes all bytes as mutable, because the same call makes outputs.
    runtime.check(unsafe {
        ((*runtime.api()).CreateTensorWithDataAsOrtValue)(
            runtime.memory(),
            data.cast::<c_void>(),
            len,
            shape.as_ptr(),
            shape.len(),
            Element::sys(datatype),
            &raw mut pointer,
        )
    })?;
    not_null(pointer, "tensor")
}

/// Foreign memory that a run writes an output to.
pub(crate) struct OutputPlace<'a> {
    pointer: NonNull<sys::OrtValue>,
    runtime: &'a Runtime,
    memory: &'a ForeignMemory,
}

impl<'a> OutputPlace<'a> {
    /// The whole memory for an output of that datatype and shape.
    ///
    /// # Errors
    /// As [`InputValue::over_foreign`].
    pub(crate) fn over(
        runtime: &'a Runtime,
        datatype: DataType,
        shape: &[i64],
        memory: &'a ForeignMemory,
    ) -> Result<Self, OrtError> {
        require_usable(datatype, shape, memory)?;
        // SAFETY: the memory exists for as long as it is borrowed, its owner allows libraries to write it, and it is
        // aligned.
        let pointer = unsafe { tensor_over(runtime, datatype, shape, memory.address(), memory.byte_size())? };
        Ok(Self { pointer, runtime, memory })
    }

    pub(super) fn as_mut_ptr(&self) -> *mut sys::OrtValue {
        self.pointer.as_ptr()
    }

    pub(super) fn belongs_to(&self, runtime: &Runtime) -> bool {
        ptr::eq(self.runtime, runtime)
    }

    /// Whether a run has left the output in the memory, and not somewhere else.
    pub(super) fn is_used(&self) -> bool {
        let mut data = ptr::null_mut();
        // SAFETY: the value lives and is a tensor of fixed-size elements.
        let status =
            unsafe { ((*self.runtime.api()).GetTensorMutableData)(self.pointer.as_ptr(), &raw mut data) };
        self.runtime.check(status).is_ok() && data.addr() == self.memory.address().addr()
    }
}

impl Drop for OutputPlace<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the tensor and frees it once. The memory belongs to somebody else.
        unsafe { ((*self.runtime.api()).ReleaseValue)(self.pointer.as_ptr()) };
    }
}

/// A tensor of strings.
///
/// Invariant: it never changes after it has been the input of a run, because an output may share its strings.
pub(crate) struct Strings {
    pointer: NonNull<sys::OrtValue>,
    runtime: Arc<Runtime>,
    has_been_input: Cell<bool>,
}

impl Strings {
    /// As many empty strings as the shape has elements.
    pub(crate) fn new(runtime: &Arc<Runtime>, shape: &[i64]) -> Result<Self, OrtError> {
        let mut pointer = ptr::null_mut();
        // SAFETY: the shape has as many dimensions as the argument says; the strings live in the default allocator's
        // memory.
        runtime.check(unsafe {
            ((*runtime.api()).CreateTensorAsOrtValue)(
                runtime.allocator(),
                shape.as_ptr(),
                shape.len(),
                Element::sys(DataType::Bytes),
                &raw mut pointer,
            )
        })?;
        let pointer = not_null(pointer, "tensor")?;
        Ok(Self { pointer, runtime: runtime.clone(), has_been_input: Cell::new(false) })
    }

    /// Sets the length of the string at `index` to `len` bytes, and returns the bytes for writing.
    ///
    /// # Errors
    /// An index beyond the shape; the tensor has been the input of a run.
    pub(crate) fn resized(&mut self, index: usize, len: usize) -> Result<&mut [u8], OrtError> {
        if self.has_been_input.get() {
            return Err(OrtError::invalid_argument("an output may share these strings"));
        }
        let mut bytes = ptr::null_mut();
        // SAFETY: this value owns the tensor, is borrowed mutably and holds strings; the runtime checks the index.
        self.runtime.check(unsafe {
            ((*self.runtime.api()).GetResizedStringTensorElementBuffer)(
                self.pointer.as_ptr(),
                index,
                len,
                &raw mut bytes,
            )
        })?;
        let bytes = not_null(bytes, "string")?;
        // SAFETY: the string was just given `len` initialised bytes and is not resized while the slice is borrowed.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr().cast::<u8>(), len) })
    }
}

impl Drop for Strings {
    fn drop(&mut self) {
        // SAFETY: this value owns the tensor and frees it once.
        unsafe { ((*self.runtime.api()).ReleaseValue)(self.pointer.as_ptr()) };
    }
}

impl Drop for InputValue<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns it and frees it once; the call does not free borrowed bytes.
        unsafe { ((*self.runtime.api()).ReleaseValue)(self.pointer.as_ptr()) };
    }
}
