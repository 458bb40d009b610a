//! The calls of the C interface that a run needs, without this wrapper: what its overhead is measured against.
use std::ptr;

use super::{InferRequest, ModelPort, OvError, sys, tensor::shape_of};

/// An input or output of a bare run.
struct BareTensor {
    element: sys::ov_element_type,
    shape: Vec<i64>,
    /// Zeros, aligned for any element.
    bytes: Vec<u64>,
}

/// A request with memory for its inputs and outputs.
pub(crate) struct BareRun {
    request: InferRequest,
    inputs: Vec<BareTensor>,
    outputs: Vec<BareTensor>,
}

impl BareRun {
    /// Zeros for all inputs and outputs. A dimension that is not fixed becomes 1.
    ///
    /// # Errors
    /// An element type without a fixed size.
    pub(crate) fn new(request: InferRequest) -> Result<Self, OvError> {
        let tensors = |ports: &[ModelPort]| ports.iter().map(|port| zeros(&request, port)).collect();
        let (inputs, outputs): (Result<Vec<_>, OvError>, Result<Vec<_>, OvError>) =
            (tensors(&request.model().ports().inputs), tensors(&request.model().ports().outputs));
        Ok(Self { inputs: inputs?, outputs: outputs?, request })
    }

    /// Makes the tensors, gives them to the library, computes, and frees them.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn run(&mut self) -> Result<(), OvError> {
        let model = self.request.model().clone();
        let functions = model.openvino().functions();
        let request = self.request.as_ptr();
        let mut made = [ptr::null_mut(); 8];
        let groups = [
            (&mut self.inputs, functions.ov_infer_request_set_input_tensor_by_index),
            (&mut self.outputs, functions.ov_infer_request_set_output_tensor_by_index),
        ];
        let (mut status, mut count) = (sys::OK, 0);
        for (tensors, set) in groups {
            for (index, tensor) in tensors.iter_mut().enumerate() {
                let place =
                    made.get_mut(count).ok_or_else(|| OvError::invalid_argument("too many tensors"))?;
                count += 1;
                let data = tensor.bytes.as_mut_ptr().cast();
                // SAFETY: the bytes are as many as element and shape need, and live as long as the request, which is
                // this value's; `place` is writable, and used only after success. The request is used by this thread
                // only.
                unsafe {
                    status |= (functions.ov_tensor_create_from_host_ptr)(
                        tensor.element,
                        shape_of(&tensor.shape),
                        data,
                        place,
                    );
                    status |= set(request, index, *place);
                }
            }
        }
        // SAFETY: as above; each tensor is freed once, and the request has a reference of its own.
        unsafe {
            status |= (functions.ov_infer_request_infer)(request);
            for tensor in made.into_iter().take(count) {
                (functions.ov_tensor_free)(tensor);
            }
        }
        model.openvino().check(status, || "run without the wrapper".to_owned())
    }
}

fn zeros(request: &InferRequest, port: &ModelPort) -> Result<BareTensor, OvError> {
    let refusal = || OvError::invalid_argument("an element type without a fixed size");
    let datatype = port.element.datatype().ok_or_else(refusal)?;
    let size = datatype.byte_size().ok_or_else(refusal)?;
    let dims = port.shape.as_deref().unwrap_or_default();
    let shape: Vec<i64> = dims.iter().map(|&dim| if dim < 0 { 1 } else { dim }).collect();
    let count = super::tensor::element_count(&shape).ok_or_else(refusal)?;
    let words = count.checked_mul(size).ok_or_else(refusal)?.div_ceil(8).max(1);
    let element = request.model().openvino().element_numbers().number(datatype)?;
    Ok(BareTensor { element, shape, bytes: vec![0; words] })
}
