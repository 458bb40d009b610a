//! Tensors that come out of a run.
use std::{
    ptr::{self, NonNull},
    sync::Arc,
};

use smallvec::SmallVec;
use vocabulary::{DataType, Shape};

use super::{
    ModelPort, OpenVino, OvError, OvInput, PortElement,
    failure::not_null,
    sys,
    tensor::{OwnedTensor, shape_of, with_shape},
};

/// An output of a run, in memory of the library.
///
/// Invariant: no code writes to it any more, so any thread may read it. The memory is freed with this value.
pub(crate) struct RunOutput {
    pointer: NonNull<sys::ov_tensor>,
    datatype: DataType,
    shape: Shape,
    data: NonNull<u8>,
    len: usize,
    openvino: Arc<OpenVino>,
}

// SAFETY: the memory is read-only from now on, and the tensor may be freed on any thread.
unsafe impl Send for RunOutput {}
// SAFETY: as above.
unsafe impl Sync for RunOutput {}

impl RunOutput {
    /// Element type.
    pub(crate) fn datatype(&self) -> DataType {
        self.datatype
    }

    /// Dimensions; none for a scalar.
    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }
}

/// The bytes of the output.
impl AsRef<[u8]> for RunOutput {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the tensor has that many bytes, which the run has written, and no code writes them while `self`
        // lives.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl Drop for RunOutput {
    fn drop(&mut self) {
        // SAFETY: this value owns the tensor and frees it once.
        unsafe { (self.openvino.functions().ov_tensor_free)(self.pointer.as_ptr()) };
    }
}

/// A tensor that a run will fill.
pub(super) struct PendingOutput<'a> {
    tensor: OwnedTensor<'a>,
    datatype: DataType,
    openvino: &'a OpenVino,
}

impl<'a> PendingOutput<'a> {
    /// A tensor for an output. If its shape is not fixed, the tensor is empty, and the run gives it the shape.
    pub(super) fn of(openvino: &'a OpenVino, port: &ModelPort) -> Result<Self, OvError> {
        let shape = port.shape.as_deref().unwrap_or(&[0]);
        let dims: SmallVec<[i64; 6]> = shape.iter().map(|&dim| dim.max(0)).collect();
        Self::with_shape(openvino, port, &dims)
    }

    /// A copy of the input that the output is.
    pub(super) fn copied(
        openvino: &'a OpenVino,
        port: &ModelPort,
        input: &OvInput<'_>,
    ) -> Result<Self, OvError> {
        input.with_elements(|shape, elements| {
            let output = Self::with_shape(openvino, port, shape)?;
            let (target, len) = (output.tensor.data()?, output.byte_size()?);
            // SAFETY: both have the type of the output and the same shape, so as many bytes; the library has checked
            // the type of the input. The target is new memory.
            unsafe { target.copy_from_nonoverlapping(elements, len) };
            Ok(output)
        })?
    }

    fn with_shape(openvino: &'a OpenVino, port: &ModelPort, shape: &[i64]) -> Result<Self, OvError> {
        let PortElement::Known(datatype) = port.element else {
            let text = format!("an output has the unsupported type {}", port.element.name());
            return Err(OvError::invalid_argument(text));
        };
        if datatype == DataType::Bytes {
            let text = "an output has strings, which OpenVINO's C interface cannot read";
            return Err(OvError::invalid_argument(text));
        }
        let element = openvino.element_numbers().number(datatype)?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the shape is only read, and copied; `pointer` is writable.
        let status =
            unsafe { (openvino.functions().ov_tensor_create)(element, shape_of(shape), &raw mut pointer) };
        openvino.check(status, || "make a tensor".to_owned())?;
        // SAFETY: the call has left a tensor that belongs to this function.
        Ok(Self { tensor: unsafe { OwnedTensor::take(openvino, pointer)? }, datatype, openvino })
    }

    pub(super) fn as_ptr(&self) -> *const sys::ov_tensor {
        self.tensor.as_ptr()
    }

    /// The output, once a run has filled it.
    ///
    /// # Safety
    /// The run has ended, and no request writes to the tensor any more.
    pub(super) unsafe fn filled(self, openvino: &Arc<OpenVino>) -> Result<RunOutput, OvError> {
        let shape = with_shape(openvino, self.tensor.as_ptr(), Shape::from_slice)?;
        let (data, len) = (self.tensor.data()?, self.byte_size()?);
        let data = if len == 0 { NonNull::dangling() } else { not_null(data, "data")? };
        let pointer = self.tensor.into_pointer();
        Ok(RunOutput { pointer, datatype: self.datatype, shape, data, len, openvino: openvino.clone() })
    }

    fn byte_size(&self) -> Result<usize, OvError> {
        let mut len = 0;
        // SAFETY: the tensor lives; `len` is writable.
        let status = unsafe {
            (self.openvino.functions().ov_tensor_get_byte_size)(self.tensor.as_ptr(), &raw mut len)
        };
        self.openvino.check(status, || "read the size of a tensor".to_owned())?;
        Ok(len)
    }
}
