//! Tensors that come out of a run.
use std::{
    ptr::{self, NonNull},
    sync::Arc,
};

use native_backend::byte_count;
use vocabulary::{DataType, Shape};

use super::{
    OpenedCode, Torch, TorchError,
    input::{OwnedHandle, rank, row_major},
    sys::{AtenTensor, TensorHandle},
};

/// An output of a run, in memory of the library, row-major.
///
/// Invariant: no code writes to it any more, so any thread may read it. The memory is freed with this value. An output
/// that is a weight shares the memory of the weight, which the code keeps alive.
pub(crate) struct TorchOutput {
    pointer: NonNull<AtenTensor>,
    datatype: DataType,
    shape: Shape,
    data: NonNull<u8>,
    len: usize,
    code: Arc<OpenedCode>,
}

// SAFETY: the memory is read-only from now on, and the library frees a tensor on any thread.
unsafe impl Send for TorchOutput {}
// SAFETY: as above.
unsafe impl Sync for TorchOutput {}

impl TorchOutput {
    /// The output with this handle. It is copied if it has gaps or another order, or shares memory with an input:
    /// `inputs` are their addresses and lengths.
    ///
    /// # Safety
    /// `handle` is null, or a live tensor of the library without another owner. The run has ended.
    pub(super) unsafe fn of(
        code: &Arc<OpenedCode>,
        handle: TensorHandle,
        inputs: &[(usize, usize)],
    ) -> Result<Self, TorchError> {
        let torch = code.torch();
        // SAFETY: as the caller promises.
        let tensor = unsafe { OwnedHandle::take(torch, handle)? };
        let datatype = datatype(torch, &tensor)?;
        let (shape, is_row_major) = shape(torch, &tensor)?;
        let len = byte_count(datatype, &shape)
            .ok_or_else(|| TorchError::invalid_argument(format!("an output has the shape {shape:?}")))?;
        let is_shared = |address: usize| {
            inputs.iter().any(|&(begin, size)| address < begin + size && begin < address + len)
        };
        let mut data = data(torch, &tensor)?;
        let mut tensor = tensor;
        if len > 0 && (!is_row_major || is_shared(data.addr())) {
            tensor = copy(torch, &tensor, datatype, &shape)?;
            data = self::data(torch, &tensor)?;
        }
        let data = match NonNull::new(data) {
            Some(data) => data,
            None if len == 0 => NonNull::dangling(),
            None => return Err(TorchError::invalid_argument("the library gave no data of an output")),
        };
        Ok(Self { pointer: tensor.into_pointer(), datatype, shape, data, len, code: code.clone() })
    }

    /// Element type.
    pub(crate) fn datatype(&self) -> DataType {
        self.datatype
    }

    /// Dimensions; none for a scalar.
    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The first of two equal rows.
    ///
    /// # Errors
    /// The output has another number of rows.
    pub(crate) fn first_of_two_rows(mut self) -> Result<Self, TorchError> {
        match self.shape.first_mut() {
            Some(rows) if *rows == 2 => *rows = 1,
            _ => {
                let text = format!("an output for two rows has the shape {:?}", self.shape);
                return Err(TorchError::invalid_argument(text));
            }
        }
        self.len /= 2;
        Ok(self)
    }
}

/// The bytes of the output.
impl AsRef<[u8]> for TorchOutput {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the tensor has at least that many bytes in a row, which the run has written, and no code writes them
        // while `self` lives.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl Drop for TorchOutput {
    fn drop(&mut self) {
        // SAFETY: this value owns the tensor and frees it once.
        unsafe { (self.code.torch().functions().aoti_torch_delete_tensor_object)(self.pointer.as_ptr()) };
    }
}

fn datatype(torch: &Torch, tensor: &OwnedHandle<'_>) -> Result<DataType, TorchError> {
    let (mut number, mut device) = (0, 0);
    // SAFETY: the tensor lives; `number` and `device` are writable.
    unsafe {
        let status = (torch.functions().aoti_torch_get_dtype)(tensor.as_ptr(), &raw mut number);
        torch.check(status, || "read the type of an output".to_owned())?;
        let status = (torch.functions().aoti_torch_get_device_type)(tensor.as_ptr(), &raw mut device);
        torch.check(status, || "read the device of an output".to_owned())?;
    }
    if device != torch.cpu() {
        return Err(TorchError::invalid_argument("an output is in memory of a device"));
    }
    torch.datatype(number).ok_or_else(|| {
        TorchError::invalid_argument(format!(
            "an output has the type {number} of PyTorch, which clients lack"
        ))
    })
}

/// The dimensions of a tensor, and whether its elements have no gaps and the usual order.
fn shape(torch: &Torch, tensor: &OwnedHandle<'_>) -> Result<(Shape, bool), TorchError> {
    let (mut rank, mut sizes, mut strides) = (0, ptr::null_mut(), ptr::null_mut());
    let functions = torch.functions();
    let step = || "read the shape of an output".to_owned();
    // SAFETY: the tensor lives; all places are writable. The library has as many sizes and strides as the rank, which
    // live as long as the tensor.
    unsafe {
        torch.check((functions.aoti_torch_get_dim)(tensor.as_ptr(), &raw mut rank), step)?;
        torch.check((functions.aoti_torch_get_sizes)(tensor.as_ptr(), &raw mut sizes), step)?;
        torch.check((functions.aoti_torch_get_strides)(tensor.as_ptr(), &raw mut strides), step)?;
        let rank = usize::try_from(rank).unwrap_or(0);
        if rank == 0 || sizes.is_null() || strides.is_null() {
            return Ok((Shape::new(), true));
        }
        let (shape, strides) =
            (std::slice::from_raw_parts(sizes, rank), std::slice::from_raw_parts(strides, rank));
        // The step along a dimension of one element does not count.
        let expected = row_major(shape);
        let fits = |place: usize| shape[place] <= 1 || strides[place] == expected[place];
        Ok((shape.into(), (0..rank).all(fits)))
    }
}

fn data(torch: &Torch, tensor: &OwnedHandle<'_>) -> Result<*mut u8, TorchError> {
    let mut data = ptr::null_mut();
    // SAFETY: the tensor lives; `data` is writable.
    let status = unsafe { (torch.functions().aoti_torch_get_data_ptr)(tensor.as_ptr(), &raw mut data) };
    torch.check(status, || "read the data of an output".to_owned())?;
    Ok(data.cast())
}

/// The same elements in memory of their own, without gaps and in the usual order.
fn copy<'a>(
    torch: &'a Torch,
    tensor: &OwnedHandle<'_>,
    datatype: DataType,
    shape: &[i64],
) -> Result<OwnedHandle<'a>, TorchError> {
    let (number, strides, mut handle) = (torch.number(datatype)?, row_major(shape), ptr::null_mut());
    // SAFETY: sizes and strides are as many as the rank and are copied; `handle` is writable.
    let status = unsafe {
        (torch.functions().aoti_torch_empty_strided)(
            rank(shape),
            shape.as_ptr(),
            strides.as_ptr(),
            number,
            torch.cpu(),
            0,
            &raw mut handle,
        )
    };
    torch.check(status, || "make a tensor".to_owned())?;
    // SAFETY: the call has left a tensor that belongs to this function.
    let copy = unsafe { OwnedHandle::take(torch, handle)? };
    // SAFETY: both tensors live, and have the same type and shape.
    let status = unsafe { (torch.functions().aoti_torch_copy_)(copy.as_ptr(), tensor.as_ptr(), 0) };
    torch.check(status, || "copy an output".to_owned())?;
    Ok(copy)
}
