//! The calls of the C interface that a run needs, without this wrapper: what its overhead is measured against.
use std::{ptr, sync::Arc};

use native_backend::byte_count;
use smallvec::SmallVec;
use vocabulary::DataType;

use super::{
    OpenedCode, TorchError,
    failure::check_code,
    input::{Strides, rank, row_major},
};

/// The calls of the C interface that a run of one input needs, without the wrapper: what its overhead is measured
/// against.
pub(crate) struct BareCodeRun {
    code: Arc<OpenedCode>,
    shape: SmallVec<[i64; 4]>,
    strides: Strides,
    number: i32,
    /// Zeros, aligned for any element.
    input: Vec<u64>,
}

impl BareCodeRun {
    /// Zeros of FP32 in that shape.
    ///
    /// # Errors
    /// The code has other inputs and outputs than one of each.
    pub(crate) fn new(code: &Arc<OpenedCode>, shape: &[i64]) -> Result<Self, TorchError> {
        if (code.inputs(), code.outputs()) != (1, 1) {
            return Err(TorchError::invalid_argument(
                "the code has other tensors than one input and one output",
            ));
        }
        let datatype = DataType::Fp32;
        let bytes = byte_count(datatype, shape)
            .ok_or_else(|| TorchError::invalid_argument("the input has no size"))?;
        Ok(Self {
            code: code.clone(),
            shape: shape.into(),
            strides: row_major(shape),
            number: code.torch().number(datatype)?,
            input: vec![0; bytes.div_ceil(8)],
        })
    }

    /// Makes the tensor, computes, reads the address of the output, and frees it.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn run(&mut self) -> Result<(), TorchError> {
        let (code, functions) = (&self.code, self.code.torch().functions());
        let (mut input, mut output, mut data) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: as in `TorchInput` and `OpenedCode::run`; the bytes are this value's.
        unsafe {
            let mut status = (functions.aoti_torch_create_tensor_from_blob)(
                self.input.as_mut_ptr().cast(),
                rank(&self.shape),
                self.shape.as_ptr(),
                self.strides.as_ptr(),
                0,
                self.number,
                code.torch().cpu(),
                0,
                &raw mut input,
            );
            status |= (code.functions().AOTInductorModelContainerRun)(
                code.container(),
                &raw mut input,
                1,
                &raw mut output,
                1,
                ptr::null_mut(),
                ptr::null_mut(),
            );
            check_code(code.functions(), status, || "run without the wrapper".to_owned())?;
            status |= (functions.aoti_torch_get_data_ptr)(output, &raw mut data);
            status |= (functions.aoti_torch_delete_tensor_object)(output);
            code.torch().check(status, || "read without the wrapper".to_owned())
        }
    }
}
