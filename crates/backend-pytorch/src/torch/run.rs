//! Runs of opened code.
use std::{cell::Cell, ffi::c_int, num::NonZeroUsize, ptr, sync::Arc};

use smallvec::SmallVec;

use super::{OpenedCode, TorchError, TorchInput, TorchOutput, failure::check_code, sys::TensorHandle};

type Handles = SmallVec<[TensorHandle; 8]>;

impl OpenedCode {
    /// Computes all outputs from all inputs, in the order of the call, with so many threads. Blocks.
    ///
    /// # Errors
    /// Those of the code: an input has a shape or a type that the code was not compiled for. Also another number of
    /// inputs.
    pub(crate) fn run(
        self: &Arc<Self>,
        inputs: SmallVec<[TorchInput<'_>; 4]>,
        threads: NonZeroUsize,
    ) -> Result<SmallVec<[TorchOutput; 4]>, TorchError> {
        if inputs.len() != self.inputs() {
            let text = format!("a run with {} inputs of code that has {}", inputs.len(), self.inputs());
            return Err(TorchError::invalid_argument(text));
        }
        if !inputs.iter().all(|input| input.belongs_to(self.torch())) {
            return Err(TorchError::invalid_argument("a tensor of another library"));
        }
        let ranges: SmallVec<[(usize, usize); 4]> = inputs.iter().map(TorchInput::range).collect();
        let mut given: Handles = inputs.into_iter().map(TorchInput::into_handle).collect();
        self.use_threads(threads);
        let made = self.run_handles(&mut given)?;
        let mut made = made.into_iter();
        let mut outputs = SmallVec::new();
        for handle in made.by_ref() {
            // SAFETY: the run has ended and left a tensor that belongs to this function.
            match unsafe { TorchOutput::of(self, handle, &ranges) } {
                Ok(output) => outputs.push(output),
                Err(error) => {
                    self.delete(made);
                    return Err(error);
                }
            }
        }
        Ok(outputs)
    }

    /// Runs, and returns the tensors of the outputs. Tensors of inputs do not exist any more afterwards.
    fn run_handles(&self, given: &mut Handles) -> Result<Handles, TorchError> {
        let mut made = Handles::from_elem(ptr::null_mut(), self.outputs());
        // SAFETY: the container lives; both arrays are as long as the arguments say. The code owns the inputs that it
        // has taken, and sets their places to null. No stream and no executor of other operators are given.
        let status = unsafe {
            (self.functions().AOTInductorModelContainerRun)(
                self.container(),
                given.as_mut_ptr(),
                given.len(),
                made.as_mut_ptr(),
                made.len(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let result = check_code(self.functions(), status, || "run the model".to_owned());
        if result.is_err() {
            self.delete(given.drain(..).chain(made.drain(..)));
        }
        result.map(|()| made)
    }

    /// Frees tensors that nobody else owns. A place may be null.
    fn delete(&self, handles: impl Iterator<Item = TensorHandle>) {
        for handle in handles.filter(|handle| !handle.is_null()) {
            // SAFETY: the caller owns the tensor, and this is the only place that frees it.
            unsafe { (self.torch().functions().aoti_torch_delete_tensor_object)(handle) };
        }
    }

    /// Lets this thread compute with so many threads. The number is one of each thread.
    fn use_threads(&self, threads: NonZeroUsize) {
        thread_local!(static IS_KNOWN: Cell<bool> = const { Cell::new(false) });
        let functions = self.torch().functions();
        // The library sets the number itself when it first computes in a thread.
        if !IS_KNOWN.replace(true)
            && let Some(ask) = functions.torch_get_num_threads
        {
            let mut count = 0;
            // SAFETY: `count` is writable. A failure has no consequence.
            unsafe { ask(&raw mut count) };
        }
        let number = c_int::try_from(threads.get()).unwrap_or(c_int::MAX);
        // The code may have another OpenMP than the library.
        for set in [functions.omp_set_num_threads, self.functions().omp_set_num_threads].into_iter().flatten()
        {
            // SAFETY: a positive number.
            unsafe { set(number) };
        }
    }
}
