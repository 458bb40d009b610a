//! One run of a compiled model, from its inputs to its outputs.
use std::{
    ptr::{self, NonNull},
    sync::Arc,
};

use smallvec::SmallVec;

use super::{
    CompiledModel, OpenVino, OvError, OvInput, PortElement, RunOutput, RunPlace, compiled::RequestClaim,
    failure::not_null, output::PendingOutput, sys,
};

/// Where a run leaves an output. A run computes all outputs.
pub(crate) enum OutputTarget<'a> {
    /// Memory of the library, which the caller gets.
    New,
    /// Borrowed memory. The output must have the shape of the place.
    Place(RunPlace<'a>),
    /// Memory of the request, which nobody reads.
    Unread,
}

/// What runs a compiled model: the state of one run at a time.
///
/// Invariant: each run gives the library all tensors before it computes. So what an earlier run has borrowed, and
/// perhaps ended since, is never used.
pub(crate) struct InferRequest {
    pointer: NonNull<sys::ov_infer_request>,
    model: Arc<CompiledModel>,
    /// The tensors of the request itself, for outputs that nobody reads. They are freed before the request is.
    own_outputs: Vec<NonNull<sys::ov_tensor>>,
    _claim: RequestClaim,
}

// SAFETY: a request belongs to no thread, and is used by one at a time, because a run needs `&mut self`.
unsafe impl Send for InferRequest {}

impl InferRequest {
    /// A request of a model. It has memory for its own outputs and shares the weights.
    ///
    /// # Errors
    /// Those of the library; also if the model cannot be shared ([`CompiledModel::can_be_shared`]) and has a request.
    pub(crate) fn new(model: &Arc<CompiledModel>) -> Result<Self, OvError> {
        let openvino = model.openvino();
        let claim = RequestClaim::of(model)?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the model lives; `pointer` is writable.
        let status = unsafe {
            (openvino.functions().ov_compiled_model_create_infer_request)(model.as_ptr(), &raw mut pointer)
        };
        openvino.check(status, || "make a request".to_owned())?;
        let pointer = not_null(pointer, "request")?;
        let mut request = Self { pointer, model: model.clone(), own_outputs: Vec::new(), _claim: claim };
        for index in 0..model.ports().outputs.len() {
            let mut tensor = ptr::null_mut();
            // SAFETY: the request lives, `index` is below the number of outputs, `tensor` is writable.
            let status = unsafe {
                (openvino.functions().ov_infer_request_get_output_tensor_by_index)(
                    pointer.as_ptr(),
                    index,
                    &raw mut tensor,
                )
            };
            openvino.check(status, || format!("read output {index}"))?;
            request.own_outputs.push(not_null(tensor, "output")?);
        }
        Ok(request)
    }

    /// The model of the request.
    pub(crate) fn model(&self) -> &Arc<CompiledModel> {
        &self.model
    }

    /// Computes all outputs from all inputs, in the order of [`CompiledModel::ports`]. Returns those with the target
    /// [`OutputTarget::New`], in their order. Blocks. The first run of each new shape takes longer.
    ///
    /// # Errors
    /// Those of the library, or another number of inputs or outputs than the model has; also if an output has another
    /// shape than its place. The places may have been written then. The request stays usable, unless the model is
    /// broken ([`CompiledModel::is_broken`]).
    pub(crate) fn run(
        &mut self,
        inputs: &[OvInput<'_>],
        targets: &[OutputTarget<'_>],
    ) -> Result<SmallVec<[RunOutput; 4]>, OvError> {
        self.require(inputs, targets)?;
        let model = self.model.clone();
        let openvino = model.openvino();
        for (index, input) in inputs.iter().enumerate() {
            self.set_input(index, input.as_ptr())?;
        }
        let pending = self.set_outputs(openvino, inputs, targets)?;
        if let Err(error) = self.compute() {
            self.reset_shapes();
            return Err(error);
        }
        for (index, target) in targets.iter().enumerate() {
            let OutputTarget::Place(place) = target else { continue };
            let is_there = match self.returned_input(inputs, index) {
                Some(input) => place.copy_from(input)?,
                None => place.is_used()?,
            };
            if !is_there {
                let name = self.output_name(index);
                return Err(OvError::invalid_argument(format!("{name} has another shape than its place")));
            }
        }
        // SAFETY: the run has ended. The next one gives the request other tensors before it computes.
        pending.into_iter().map(|output| unsafe { output.filled(openvino) }).collect()
    }

    /// Gives the library a tensor for each output, and returns the new ones.
    ///
    /// An output that is an input has only one tensor, which is set as the input. So it is copied.
    fn set_outputs<'a>(
        &mut self,
        openvino: &'a OpenVino,
        inputs: &[OvInput<'_>],
        targets: &[OutputTarget<'_>],
    ) -> Result<SmallVec<[PendingOutput<'a>; 4]>, OvError> {
        let mut pending: SmallVec<[PendingOutput<'_>; 4]> = SmallVec::new();
        for (index, target) in targets.iter().enumerate() {
            let returned = self.returned_input(inputs, index);
            let tensor = match target {
                OutputTarget::Place(_) | OutputTarget::Unread if returned.is_some() => continue,
                OutputTarget::Place(place) => place.as_ptr(),
                OutputTarget::Unread => self.own_outputs[index].as_ptr(),
                OutputTarget::New => {
                    let port = &self.model.ports().outputs[index];
                    pending.push(match returned {
                        Some(input) => PendingOutput::copied(openvino, port, input)?,
                        None => PendingOutput::of(openvino, port)?,
                    });
                    pending[pending.len() - 1].as_ptr()
                }
            };
            if returned.is_none() {
                self.set_output(index, tensor)?;
            }
        }
        Ok(pending)
    }

    /// Gives the library the tensor of an input. By the invariant, it is not used after the run.
    pub(super) fn set_input(&mut self, index: usize, tensor: *const sys::ov_tensor) -> Result<(), OvError> {
        let openvino = self.model.openvino();
        let set = openvino.functions().ov_infer_request_set_input_tensor_by_index;
        // SAFETY: request and tensor live; the library keeps a reference of its own to the tensor.
        let status = unsafe { set(self.pointer.as_ptr(), index, tensor) };
        openvino.check(status, || format!("use the tensor for {}", self.input_name(index)))
    }

    /// Gives the library the tensor of the request itself for an output, unless the output is an input.
    pub(super) fn set_own_output(&mut self, index: usize) -> Result<(), OvError> {
        match self.model.returned_inputs()[index] {
            Some(_) => Ok(()),
            None => self.set_output(index, self.own_outputs[index].as_ptr()),
        }
    }

    fn set_output(&mut self, index: usize, tensor: *const sys::ov_tensor) -> Result<(), OvError> {
        let openvino = self.model.openvino();
        let set = openvino.functions().ov_infer_request_set_output_tensor_by_index;
        // SAFETY: as for inputs.
        let status = unsafe { set(self.pointer.as_ptr(), index, tensor) };
        openvino.check(status, || format!("use the tensor for {}", self.output_name(index)))
    }

    /// Runs, once all tensors are set.
    pub(super) fn compute(&mut self) -> Result<(), OvError> {
        let openvino = self.model.openvino();
        let (functions, request) = (openvino.functions(), self.pointer.as_ptr());
        let step = || "run the model".to_owned();
        if !self.model.loses_errors() {
            // SAFETY: the request lives and is used by this thread only; all its tensors have been set.
            let status = unsafe { (functions.ov_infer_request_infer)(request) };
            return openvino.check(status, step);
        }
        // SAFETY: as above.
        let status = unsafe { (functions.ov_infer_request_start_async)(request) };
        openvino.check(status, step)?;
        // SAFETY: as above. The run has ended when the call returns, also if it reports an error of the run.
        let status = unsafe { (functions.ov_infer_request_wait)(request) };
        openvino.check(status, step)
    }

    fn returned_input<'a, 'b>(&self, inputs: &'a [OvInput<'b>], output: usize) -> Option<&'a OvInput<'b>> {
        let input = self.model.returned_inputs().get(output).copied().flatten()?;
        inputs.get(input)
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ov_infer_request {
        self.pointer.as_ptr()
    }

    fn require(&self, inputs: &[OvInput<'_>], targets: &[OutputTarget<'_>]) -> Result<(), OvError> {
        let (ports, openvino) = (self.model.ports(), self.model.openvino());
        if self.model.is_broken() {
            let message = "the model must be compiled again after a run that failed".to_owned();
            return Err(OvError { code: -1, message });
        }
        let numbers =
            [("inputs", inputs.len(), ports.inputs.len()), ("outputs", targets.len(), ports.outputs.len())];
        for (kind, given, needed) in numbers {
            if given != needed {
                let text = format!("a run with {given} {kind} of a model that has {needed}");
                return Err(OvError::invalid_argument(text));
            }
        }
        if !inputs.iter().all(|input| input.belongs_to(openvino)) {
            return Err(OvError::invalid_argument("a tensor of another library"));
        }
        for (index, target) in targets.iter().enumerate() {
            let OutputTarget::Place(place) = target else { continue };
            if !place.belongs_to(openvino) {
                return Err(OvError::invalid_argument("a place of another library"));
            }
            // The library does not see the place of an output that is an input.
            if ports.outputs[index].element != PortElement::Known(place.datatype()) {
                let name = self.output_name(index);
                return Err(OvError::invalid_argument(format!("{name} has another type than its place")));
            }
        }
        Ok(())
    }

    fn input_name(&self, index: usize) -> String {
        let name = self.model.ports().inputs.get(index).and_then(|port| port.name.as_ref());
        name.map_or_else(|| format!("input {index}"), |name| format!("input '{name}'"))
    }

    fn output_name(&self, index: usize) -> String {
        let name = self.model.ports().outputs.get(index).and_then(|port| port.name.as_ref());
        name.map_or_else(|| format!("output {index}"), |name| format!("output '{name}'"))
    }
}

impl Drop for InferRequest {
    fn drop(&mut self) {
        let functions = self.model.openvino().functions();
        for tensor in self.own_outputs.drain(..) {
            // SAFETY: this value owns the tensor and frees it once; the request has a reference of its own.
            unsafe { (functions.ov_tensor_free)(tensor.as_ptr()) };
        }
        // SAFETY: this value owns the request and frees it once; its model still lives.
        unsafe { (functions.ov_infer_request_free)(self.pointer.as_ptr()) };
    }
}
