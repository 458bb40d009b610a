//! Tensors over memory that a run borrows: its inputs, and places for its outputs.
use std::{
    ffi::{CString, c_char},
    marker::PhantomData,
    ptr::{self, NonNull},
};

use native_backend::{byte_count, can_be_used, is_aligned};
use vocabulary::{DataType, ForeignMemory};

use super::{OpenVino, OvError, failure::not_null, sys};

/// A tensor of the library, which this value frees.
pub(super) struct OwnedTensor<'a> {
    pointer: NonNull<sys::ov_tensor>,
    openvino: &'a OpenVino,
}

impl<'a> OwnedTensor<'a> {
    /// Takes ownership of a tensor that a call has left at `pointer`.
    ///
    /// # Safety
    /// `pointer` is null, or a live tensor of the library without another owner.
    pub(super) unsafe fn take(openvino: &'a OpenVino, pointer: *mut sys::ov_tensor) -> Result<Self, OvError> {
        Ok(Self { pointer: not_null(pointer, "tensor")?, openvino })
    }

    /// A tensor that uses these bytes in place.
    ///
    /// # Safety
    /// The address has as many bytes as datatype and shape need, aligned for the element, as long as the library can
    /// use the tensor. They are readable, and writable if the tensor is an output.
    unsafe fn over(
        openvino: &'a OpenVino,
        datatype: DataType,
        shape: &[i64],
        data: *mut u8,
    ) -> Result<Self, OvError> {
        let element = openvino.element_numbers().number(datatype)?;
        let mut pointer = ptr::null_mut();
        // SAFETY: as the caller promises; the shape is only read, and copied; `pointer` is writable.
        let status = unsafe {
            (openvino.functions().ov_tensor_create_from_host_ptr)(
                element,
                shape_of(shape),
                data.cast(),
                &raw mut pointer,
            )
        };
        openvino.check(status, || "make a tensor".to_owned())?;
        Ok(Self { pointer: not_null(pointer, "tensor")?, openvino })
    }

    pub(super) fn as_ptr(&self) -> *const sys::ov_tensor {
        self.pointer.as_ptr()
    }

    /// The address of its elements. It may change when the shape does.
    pub(super) fn data(&self) -> Result<*mut u8, OvError> {
        let mut data = ptr::null_mut();
        // SAFETY: the tensor lives; `data` is writable.
        let status =
            unsafe { (self.openvino.functions().ov_tensor_data)(self.pointer.as_ptr(), &raw mut data) };
        self.openvino.check(status, || "find the elements of a tensor".to_owned())?;
        Ok(data.cast())
    }

    /// Gives the tensor to a value that frees it.
    pub(super) fn into_pointer(self) -> NonNull<sys::ov_tensor> {
        let pointer = self.pointer;
        std::mem::forget(self);
        pointer
    }
}

impl Drop for OwnedTensor<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the tensor and frees it once; the call does not free borrowed bytes.
        unsafe { (self.openvino.functions().ov_tensor_free)(self.pointer.as_ptr()) };
    }
}

/// An input of a run. It borrows the bytes it was made over. It owns strings.
pub(crate) struct OvInput<'a> {
    tensor: OwnedTensor<'a>,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> OvInput<'a> {
    /// A tensor that uses these bytes in place. A shape without dimensions is a scalar.
    ///
    /// # Errors
    /// Bytes that are not aligned or whose number does not fit the shape; strings.
    pub(crate) fn over(
        openvino: &'a OpenVino,
        datatype: DataType,
        shape: &[i64],
        bytes: &'a [u8],
    ) -> Result<Self, OvError> {
        require(datatype, shape, bytes)?;
        // SAFETY: the bytes are readable for as long as this value lives, as many as needed, and aligned. A request
        // uses them only during the run to which this value is lent, and does not write to inputs.
        let tensor = unsafe { OwnedTensor::over(openvino, datatype, shape, address_of(bytes).cast_mut())? };
        Ok(Self { tensor, bytes: PhantomData })
    }

    /// A tensor that uses foreign memory in place. `None` if datatype, shape or address do not allow that, or if the
    /// owner of the memory does not.
    ///
    /// # Errors
    /// That of the library.
    pub(crate) fn over_foreign(
        openvino: &'a OpenVino,
        datatype: DataType,
        shape: &[i64],
        memory: &'a ForeignMemory,
    ) -> Result<Option<Self>, OvError> {
        if !can_be_used(datatype, shape, memory) {
            return Ok(None);
        }
        // SAFETY: the memory exists for as long as it is borrowed, its owner allows libraries to read it, and it is
        // aligned.
        let tensor = unsafe { OwnedTensor::over(openvino, datatype, shape, memory.address())? };
        Ok(Some(Self { tensor, bytes: PhantomData }))
    }

    /// A tensor of strings, which are copied.
    ///
    /// # Errors
    /// A number of strings that does not fit the shape, and a NUL in a string: the C interface passes texts that end
    /// with NUL.
    pub(crate) fn strings(openvino: &'a OpenVino, shape: &[i64], strings: &[&[u8]]) -> Result<Self, OvError> {
        if element_count(shape) != Some(strings.len()) {
            let count = strings.len();
            return Err(OvError::invalid_argument(format!(
                "{count} strings cannot have the shape {shape:?}"
            )));
        }
        let texts = strings.iter().enumerate().map(|(position, text)| {
            let refusal =
                |_| format!("string {position} has a NUL, which OpenVINO's C interface cannot pass");
            CString::new(*text).map_err(|error| OvError::invalid_argument(refusal(error)))
        });
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let mut pointer = ptr::null_mut();
        // SAFETY: the array has as many texts as the argument says, which end with NUL and are copied; `pointer` is
        // writable.
        let status = unsafe {
            (openvino.functions().ov_tensor_create_from_string_array)(
                pointers.as_mut_ptr(),
                pointers.len(),
                shape_of(shape),
                &raw mut pointer,
            )
        };
        openvino.check(status, || "make a tensor of strings".to_owned())?;
        // SAFETY: the call has left a tensor that belongs to this function.
        let tensor = unsafe { OwnedTensor::take(openvino, pointer)? };
        Ok(Self { tensor, bytes: PhantomData })
    }

    pub(super) fn as_ptr(&self) -> *const sys::ov_tensor {
        self.tensor.as_ptr()
    }

    pub(super) fn belongs_to(&self, openvino: &OpenVino) -> bool {
        ptr::eq(self.tensor.openvino, openvino)
    }

    /// Calls a function with shape and address of the elements.
    pub(super) fn with_elements<T>(&self, read: impl FnOnce(&[i64], *const u8) -> T) -> Result<T, OvError> {
        let data = self.tensor.data()?;
        with_shape(self.tensor.openvino, self.tensor.as_ptr(), |shape| read(shape, data))
    }
}

/// Memory that a run writes an output to.
pub(crate) struct RunPlace<'a> {
    tensor: OwnedTensor<'a>,
    datatype: DataType,
    shape: &'a [i64],
    address: *mut u8,
    len: usize,
    bytes: PhantomData<&'a mut [u8]>,
}

impl<'a> RunPlace<'a> {
    /// The place for an output of that datatype and shape: exactly these bytes.
    ///
    /// # Errors
    /// As [`OvInput::over`].
    #[cfg(test)]
    pub(crate) fn over(
        openvino: &'a OpenVino,
        datatype: DataType,
        shape: &'a [i64],
        bytes: &'a mut [u8],
    ) -> Result<Self, OvError> {
        require(datatype, shape, bytes)?;
        let len = bytes.len();
        let address = if bytes.is_empty() { address_of(bytes).cast_mut() } else { bytes.as_mut_ptr() };
        // SAFETY: the bytes are writable for as long as this value lives, as many as needed, and aligned. A request
        // uses them only during the run to which this value is lent.
        let tensor = unsafe { OwnedTensor::over(openvino, datatype, shape, address)? };
        Ok(Self { tensor, datatype, shape, address, len, bytes: PhantomData })
    }

    /// The whole foreign memory. `None` as for [`OvInput::over_foreign`].
    ///
    /// # Errors
    /// That of the library.
    pub(crate) fn over_foreign(
        openvino: &'a OpenVino,
        datatype: DataType,
        shape: &'a [i64],
        memory: &'a ForeignMemory,
    ) -> Result<Option<Self>, OvError> {
        if !can_be_used(datatype, shape, memory) {
            return Ok(None);
        }
        let (address, len) = (memory.address(), memory.byte_size());
        // SAFETY: the memory exists for as long as it is borrowed, its owner allows libraries to write it, and it is
        // aligned.
        let tensor = unsafe { OwnedTensor::over(openvino, datatype, shape, address)? };
        Ok(Some(Self { tensor, datatype, shape, address, len, bytes: PhantomData }))
    }

    pub(super) fn as_ptr(&self) -> *const sys::ov_tensor {
        self.tensor.as_ptr()
    }

    pub(super) fn belongs_to(&self, openvino: &OpenVino) -> bool {
        ptr::eq(self.tensor.openvino, openvino)
    }

    /// The type of the output that has a place here.
    pub(super) fn datatype(&self) -> DataType {
        self.datatype
    }

    /// Whether a run has left the output in the memory with the shape of the place.
    pub(super) fn is_used(&self) -> Result<bool, OvError> {
        let is_there = ptr::eq(self.tensor.data()?, self.address);
        with_shape(self.tensor.openvino, self.tensor.as_ptr(), |shape| is_there && shape == self.shape)
    }

    /// Copies an input that the model returns. `false` if it has another shape than the place.
    ///
    /// The request has checked that the place has the type of the output.
    pub(super) fn copy_from(&self, input: &OvInput<'_>) -> Result<bool, OvError> {
        input.with_elements(|shape, elements| {
            let fits = shape == self.shape;
            if fits {
                // SAFETY: both have the type of the output and this shape, so as many bytes: the library has checked
                // the type of the input, and the request that of the place. Clients may name the same memory for both.
                unsafe { self.address.copy_from(elements, self.len) };
            }
            fits
        })
    }
}

/// Calls a function with the shape of a live tensor.
pub(super) fn with_shape<T>(
    openvino: &OpenVino,
    tensor: *const sys::ov_tensor,
    read: impl FnOnce(&[i64]) -> T,
) -> Result<T, OvError> {
    let mut shape = sys::ov_shape { rank: 0, dims: ptr::null_mut() };
    // SAFETY: the caller keeps the tensor alive; `shape` is writable.
    let status = unsafe { (openvino.functions().ov_tensor_get_shape)(tensor, &raw mut shape) };
    openvino.check(status, || "read the shape of a tensor".to_owned())?;
    let rank = usize::try_from(shape.rank).unwrap_or(0);
    // SAFETY: the call has filled in an array of that many dimensions; freed once, after it has been read.
    unsafe {
        let dims = if rank == 0 || shape.dims.is_null() {
            &[]
        } else {
            std::slice::from_raw_parts(shape.dims, rank)
        };
        let result = read(dims);
        (openvino.functions().ov_shape_free)(&raw mut shape);
        Ok(result)
    }
}

/// A shape in the library's form, which borrows it. The library only reads it.
pub(super) fn shape_of(shape: &[i64]) -> sys::ov_shape {
    let rank = i64::try_from(shape.len()).unwrap_or(i64::MAX);
    sys::ov_shape { rank, dims: shape.as_ptr().cast_mut() }
}

/// Elements of a tensor; `None` for negative dimensions and sizes beyond any memory.
pub(super) fn element_count(shape: &[i64]) -> Option<usize> {
    // An element of one byte.
    byte_count(DataType::Uint8, shape)
}

/// Requires that the bytes can be a tensor of that datatype and shape.
fn require(datatype: DataType, shape: &[i64], bytes: &[u8]) -> Result<(), OvError> {
    if byte_count(datatype, shape) == Some(bytes.len()) && is_aligned(datatype, bytes) {
        return Ok(());
    }
    let (len, name) = (bytes.len(), datatype.protocol_name());
    let text = format!("{len} bytes at this address cannot be a {name} tensor of shape {shape:?}");
    Err(OvError::invalid_argument(text))
}

/// The address of bytes. An empty slice may have any address; the library needs a readable one.
fn address_of(bytes: &[u8]) -> *const u8 {
    static NOTHING: [u64; 1] = [0];
    if bytes.is_empty() { NOTHING.as_ptr().cast() } else { bytes.as_ptr() }
}
