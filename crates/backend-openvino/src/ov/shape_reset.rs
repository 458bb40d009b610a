//! What a request does after a run that failed.
//!
//! The library computes the shapes inside a model again only where an input has another shape than in the last run that
//! succeeded. A failed run has changed the shapes, but does not count. So the next run with the shapes of the last
//! success would compute with those of the failed run, and fail, or give wrong results. The releases 2024.6 to 2026.4
//! do that. A run without rows makes the library compute all shapes again.
use std::ptr;

use smallvec::SmallVec;

use super::{
    InferRequest, ModelPort, OvError, PortElement,
    tensor::{OwnedTensor, shape_of},
};

impl InferRequest {
    /// Makes the library forget the shapes of a failed run. If that is not possible, the model cannot run any more.
    pub(super) fn reset_shapes(&mut self) {
        let model = self.model().clone();
        let result = match model.has_open_inputs() && !model.has_parallel_streams() {
            true => self.run_without_rows(),
            false => Err(OvError::invalid_argument("the model has no run that would reset it")),
        };
        if let Err(error) = result {
            log::debug!("a model cannot run any more: {error}");
            model.set_broken();
        }
    }

    fn run_without_rows(&mut self) -> Result<(), OvError> {
        let model = self.model().clone();
        let openvino = model.openvino();
        let functions = openvino.functions();
        // The request keeps the tensors, and replaces them before its next run.
        for (index, port) in model.ports().inputs.iter().enumerate() {
            let element = match port.element {
                PortElement::Known(datatype) => openvino.element_numbers().number(datatype)?,
                PortElement::Other(number) => number,
            };
            let dims = smallest_dims(port);
            let mut pointer = ptr::null_mut();
            // SAFETY: the shape is only read, and copied; `pointer` is writable. The tensor belongs to this function.
            let tensor = unsafe {
                let status = (functions.ov_tensor_create)(element, shape_of(&dims), &raw mut pointer);
                openvino.check(status, || "make a tensor".to_owned())?;
                OwnedTensor::take(openvino, pointer)?
            };
            self.set_input(index, tensor.as_ptr())?;
        }
        for index in 0..model.ports().outputs.len() {
            self.set_own_output(index)?;
        }
        self.compute()
    }
}

/// The smallest shape that an input may have.
fn smallest_dims(port: &ModelPort) -> SmallVec<[i64; 6]> {
    port.shape.as_deref().unwrap_or(&[0]).iter().map(|&dim| dim.max(0)).collect()
}
