//! Tensors over memory that a run borrows, and tensors that belong to this crate.
use std::{
    marker::PhantomData,
    mem,
    ptr::{self, NonNull},
};

use native_backend::{byte_count, can_be_used, is_aligned};
use smallvec::SmallVec;
use vocabulary::{DataType, ForeignMemory};

use super::{
    Torch, TorchError,
    sys::{AtenTensor, TensorHandle},
};

/// The steps from an element to the next one along each dimension, in elements.
pub(super) type Strides = SmallVec<[i64; 6]>;

/// A tensor of the library, which this value frees.
pub(super) struct OwnedHandle<'a> {
    pointer: NonNull<AtenTensor>,
    torch: &'a Torch,
}

impl<'a> OwnedHandle<'a> {
    /// Takes ownership of a tensor that a call has left at `handle`.
    ///
    /// # Safety
    /// `handle` is null, or a live tensor of the library without another owner.
    pub(super) unsafe fn take(torch: &'a Torch, handle: TensorHandle) -> Result<Self, TorchError> {
        let pointer =
            NonNull::new(handle).ok_or_else(|| TorchError::invalid_argument("the library gave no tensor"))?;
        Ok(Self { pointer, torch })
    }

    pub(super) fn as_ptr(&self) -> TensorHandle {
        self.pointer.as_ptr()
    }

    /// The tensor without its owner: the caller frees it.
    pub(super) fn into_pointer(self) -> NonNull<AtenTensor> {
        let pointer = self.pointer;
        mem::forget(self);
        pointer
    }
}

impl Drop for OwnedHandle<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the tensor and frees it once.
        unsafe { (self.torch.functions().aoti_torch_delete_tensor_object)(self.pointer.as_ptr()) };
    }
}

/// An input of a run.
pub(crate) struct TorchInput<'a> {
    tensor: OwnedHandle<'a>,
    address: *const u8,
    len: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> TorchInput<'a> {
    /// A tensor that uses these bytes in place, row-major.
    ///
    /// # Errors
    /// Bytes that are not as many as datatype and shape need, or not aligned; and those of the library.
    pub(crate) fn over(
        torch: &'a Torch,
        datatype: DataType,
        shape: &[i64],
        bytes: &'a [u8],
    ) -> Result<Self, TorchError> {
        if byte_count(datatype, shape) != Some(bytes.len()) || !is_aligned(datatype, bytes) {
            let (len, name) = (bytes.len(), datatype.protocol_name());
            let text = format!("{len} bytes at this address cannot be a {name} tensor of shape {shape:?}");
            return Err(TorchError::invalid_argument(text));
        }
        let address = if bytes.is_empty() { NOTHING.as_ptr().cast() } else { bytes.as_ptr() };
        // SAFETY: the bytes are readable for as long as this value lives, as many as needed, and aligned.
        unsafe { Self::at(torch, datatype, shape, (address, bytes.len())) }
    }

    /// A tensor that uses foreign memory in place. `None` if datatype, shape or address do not allow that, or if the
    /// owner of the memory does not.
    ///
    /// # Errors
    /// That of the library.
    pub(crate) fn over_foreign(
        torch: &'a Torch,
        datatype: DataType,
        shape: &[i64],
        memory: &'a ForeignMemory,
    ) -> Result<Option<Self>, TorchError> {
        if !can_be_used(datatype, shape, memory) {
            return Ok(None);
        }
        let place = (memory.address().cast_const(), memory.byte_size());
        // SAFETY: the memory exists for as long as it is borrowed, its owner allows libraries to read it, it has as
        // many bytes as needed, and is aligned.
        unsafe { Self::at(torch, datatype, shape, place) }.map(Some)
    }

    /// # Safety
    /// The address has as many bytes as datatype and shape need, aligned for an element, for as long as `'a`. Compiled
    /// code may read them. It writes to an input only if the program does, which then is the program's own input.
    unsafe fn at(
        torch: &'a Torch,
        datatype: DataType,
        shape: &[i64],
        (address, len): (*const u8, usize),
    ) -> Result<Self, TorchError> {
        let (number, strides) = (torch.number(datatype)?, row_major(shape));
        let mut handle = ptr::null_mut();
        // SAFETY: as the caller promises; sizes and strides are as many as the rank and are copied; `handle` is
        // writable.
        let status = unsafe {
            (torch.functions().aoti_torch_create_tensor_from_blob)(
                address.cast_mut().cast(),
                rank(shape),
                shape.as_ptr(),
                strides.as_ptr(),
                0,
                number,
                torch.cpu(),
                0,
                &raw mut handle,
            )
        };
        torch.check(status, || "make a tensor".to_owned())?;
        // SAFETY: the call has left a tensor that belongs to this function.
        let tensor = unsafe { OwnedHandle::take(torch, handle)? };
        Ok(Self { tensor, address, len, bytes: PhantomData })
    }

    pub(super) fn belongs_to(&self, torch: &Torch) -> bool {
        ptr::eq(self.tensor.torch, torch)
    }

    /// The bytes, which are not read.
    pub(super) fn range(&self) -> (usize, usize) {
        (self.address.addr(), self.len)
    }

    /// The tensor for a run, which frees it.
    pub(super) fn into_handle(self) -> TensorHandle {
        self.tensor.into_pointer().as_ptr()
    }
}

/// An empty slice may have any address; the library needs a readable one.
static NOTHING: [u64; 1] = [0];

/// A rank in the library's form.
pub(super) fn rank(shape: &[i64]) -> i64 {
    i64::try_from(shape.len()).unwrap_or(i64::MAX)
}

/// The strides of a tensor without gaps, as PyTorch has them: a dimension of size 0 counts as 1.
pub(super) fn row_major(shape: &[i64]) -> Strides {
    let mut strides = Strides::from_elem(1, shape.len());
    for place in (1..shape.len()).rev() {
        strides[place - 1] = strides[place].saturating_mul(shape[place].max(1));
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_row_major() {
        assert_eq!(row_major(&[])[..], [0_i64; 0]);
        assert_eq!(row_major(&[5])[..], [1]);
        assert_eq!(row_major(&[2, 3, 4])[..], [12, 4, 1]);
        assert_eq!(row_major(&[2, 0, 4])[..], [4, 4, 1]);
    }
}
