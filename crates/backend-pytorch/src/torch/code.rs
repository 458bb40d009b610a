//! The opened code of a model, and its runs.
use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int},
    num::NonZeroUsize,
    path::Path,
    ptr::{self, NonNull},
    sync::Arc,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use smallvec::SmallVec;

use super::{
    Torch, TorchError, TorchInput, TorchOutput, are_inputs_checked,
    failure::check_code,
    library::loader_message,
    sys::{self, CodeFunctions, Container, MissingFunction, TensorHandle},
};

/// The device of all models.
const CPU: &CStr = c"cpu";

/// The machine code of a model with its weights.
///
/// Any number of threads may run it. As many runs as it has been opened for compute at the same time, and others wait.
pub(crate) struct ModelCode {
    container: NonNull<Container>,
    functions: CodeFunctions,
    inputs: usize,
    outputs: usize,
    torch: Arc<Torch>,
    /// Declared last: it is closed after the container has been freed.
    _library: Library,
}

// SAFETY: the container is made for runs on several threads at the same time, and belongs to none.
unsafe impl Send for ModelCode {}
// SAFETY: as above.
unsafe impl Sync for ModelCode {}

impl ModelCode {
    /// Opens the code in a file and loads the weights, for so many runs at the same time. Blocks. The file is not
    /// needed any more afterwards.
    ///
    /// # Errors
    /// The loader refuses the code, for example because it needs a function that the library lacks; an entry point is
    /// missing; the weights cannot be loaded; the checks of inputs are not switched on.
    pub(crate) fn open(torch: &Arc<Torch>, file: &Path, runs: NonZeroUsize) -> Result<Arc<Self>, TorchError> {
        if !are_inputs_checked() {
            let text = "the variable AOTI_RUNTIME_CHECK_INPUTS is not set, without which code does not check its inputs";
            return Err(TorchError::invalid_argument(text));
        }
        // SAFETY: running the initialisers of the code is what the operator asks for by serving the model. What it
        // needs of the processor has been compared before.
        let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| TorchError::invalid_argument(loader_refusal(torch, file, &error)))?;
        let functions = CodeFunctions::of(&library).map_err(|MissingFunction(name)| {
            TorchError::invalid_argument(format!("the code has no function {name}"))
        })?;
        let mut container = ptr::null_mut();
        // SAFETY: `container` is writable; the device is a text that ends with NUL; no other files are given.
        let status = unsafe {
            (functions.AOTInductorModelContainerCreateWithDevice)(
                &raw mut container,
                runs.get(),
                CPU.as_ptr(),
                ptr::null(),
            )
        };
        check_code(&functions, status, || "load the weights".to_owned())?;
        let container = NonNull::new(container)
            .ok_or_else(|| TorchError::invalid_argument("the code gave no container"))?;
        let torch = torch.clone();
        let mut code = Self { container, functions, inputs: 0, outputs: 0, torch, _library: library };
        code.inputs = code.count(functions.AOTInductorModelContainerGetNumInputs)?;
        code.outputs = code.count(functions.AOTInductorModelContainerGetNumOutputs)?;
        Ok(Arc::new(code))
    }

    fn count(
        &self,
        function: unsafe extern "C" fn(*mut Container, *mut usize) -> sys::Status,
    ) -> Result<usize, TorchError> {
        let mut count = 0;
        // SAFETY: the container lives; `count` is writable.
        let status = unsafe { function(self.container.as_ptr(), &raw mut count) };
        check_code(&self.functions, status, || "count inputs and outputs".to_owned())?;
        Ok(count)
    }

    /// The number of inputs of a run.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// The number of outputs of a run.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// The specifications of the inputs and of the outputs of a call, in JSON.
    ///
    /// # Errors
    /// Those of the code.
    pub(crate) fn call_spec(&self) -> Result<(String, String), TorchError> {
        let (mut inputs, mut outputs) = (ptr::null(), ptr::null());
        // SAFETY: the container lives; both places are writable.
        let status = unsafe {
            (self.functions.AOTInductorModelContainerGetCallSpec)(
                self.container.as_ptr(),
                &raw mut inputs,
                &raw mut outputs,
            )
        };
        check_code(&self.functions, status, || "read the specification of a call".to_owned())?;
        // SAFETY: the code has left texts that end with NUL and live as long as the container, or null.
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Ok((text(inputs), text(outputs)))
    }

    /// The library that it computes with.
    pub(crate) fn torch(&self) -> &Torch {
        &self.torch
    }

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
        if inputs.len() != self.inputs {
            let text = format!("a run with {} inputs of code that has {}", inputs.len(), self.inputs);
            return Err(TorchError::invalid_argument(text));
        }
        if !inputs.iter().all(|input| input.belongs_to(&self.torch)) {
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
        let mut made = Handles::from_elem(ptr::null_mut(), self.outputs);
        // SAFETY: the container lives; both arrays are as long as the arguments say. The code owns the inputs that it
        // has taken, and sets their places to null. No stream and no executor of other operators are given.
        let status = unsafe {
            (self.functions.AOTInductorModelContainerRun)(
                self.container.as_ptr(),
                given.as_mut_ptr(),
                given.len(),
                made.as_mut_ptr(),
                made.len(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let result = check_code(&self.functions, status, || "run the model".to_owned());
        if result.is_err() {
            self.delete(given.drain(..).chain(made.drain(..)));
        }
        result.map(|()| made)
    }

    /// Frees tensors that nobody else owns. A place may be null.
    fn delete(&self, handles: impl Iterator<Item = TensorHandle>) {
        for handle in handles.filter(|handle| !handle.is_null()) {
            // SAFETY: the caller owns the tensor, and this is the only place that frees it.
            unsafe { (self.torch.functions().aoti_torch_delete_tensor_object)(handle) };
        }
    }

    /// Lets this thread compute with so many threads. The number is one of each thread.
    fn use_threads(&self, threads: NonZeroUsize) {
        thread_local!(static IS_KNOWN: Cell<bool> = const { Cell::new(false) });
        let functions = self.torch.functions();
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
        for set in [functions.omp_set_num_threads, self.functions.omp_set_num_threads].into_iter().flatten() {
            // SAFETY: a positive number.
            unsafe { set(number) };
        }
    }
}

impl Drop for ModelCode {
    fn drop(&mut self) {
        // SAFETY: this value owns the container and frees it once. All outputs have been freed: each has a reference to
        // this value.
        unsafe { (self.functions.AOTInductorModelContainerDelete)(self.container.as_ptr()) };
    }
}

type Handles = SmallVec<[TensorHandle; 8]>;

fn loader_refusal(torch: &Torch, file: &Path, error: &libloading::Error) -> String {
    let message = loader_message(error);
    // The path is that of a temporary file.
    let path = format!("{}: ", file.display());
    let message = message.strip_prefix(&path).unwrap_or(&message);
    match message.strip_prefix("undefined symbol: ") {
        None => message.to_owned(),
        Some(symbol) => format!(
            "the code needs the function {symbol}, which PyTorch {} in '{}' lacks: compile the model with that release",
            torch.release(),
            torch.path().display()
        ),
    }
}

/// The calls of the C interface that a run of one input needs, without the wrapper: what its overhead is measured
/// against.
pub(crate) struct BareRun {
    code: Arc<ModelCode>,
    shape: SmallVec<[i64; 4]>,
    strides: super::input::Strides,
    number: i32,
    /// Zeros, aligned for any element.
    input: Vec<u64>,
}

impl BareRun {
    /// Zeros of FP32 in that shape.
    ///
    /// # Errors
    /// The code has other inputs and outputs than one of each.
    pub(crate) fn new(code: &Arc<ModelCode>, shape: &[i64]) -> Result<Self, TorchError> {
        if (code.inputs, code.outputs) != (1, 1) {
            return Err(TorchError::invalid_argument(
                "the code has other tensors than one input and one output",
            ));
        }
        let datatype = vocabulary::DataType::Fp32;
        let bytes = native_backend::byte_count(datatype, shape)
            .ok_or_else(|| TorchError::invalid_argument("the input has no size"))?;
        Ok(Self {
            code: code.clone(),
            shape: shape.into(),
            strides: super::input::row_major(shape),
            number: code.torch.number(datatype)?,
            input: vec![0; bytes.div_ceil(8)],
        })
    }

    /// Makes the tensor, computes, reads the address of the output, and frees it.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn run(&mut self) -> Result<(), TorchError> {
        let (code, functions) = (&self.code, self.code.torch.functions());
        let (mut input, mut output, mut data) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: as in `TorchInput` and `ModelCode::run_handles`; the bytes are this value's.
        unsafe {
            let mut status = (functions.aoti_torch_create_tensor_from_blob)(
                self.input.as_mut_ptr().cast(),
                super::input::rank(&self.shape),
                self.shape.as_ptr(),
                self.strides.as_ptr(),
                0,
                self.number,
                code.torch.cpu(),
                0,
                &raw mut input,
            );
            status |= (code.functions.AOTInductorModelContainerRun)(
                code.container.as_ptr(),
                &raw mut input,
                1,
                &raw mut output,
                1,
                ptr::null_mut(),
                ptr::null_mut(),
            );
            check_code(&code.functions, status, || "run without the wrapper".to_owned())?;
            status |= (functions.aoti_torch_get_data_ptr)(output, &raw mut data);
            status |= (functions.aoti_torch_delete_tensor_object)(output);
            code.torch.check(status, || "read without the wrapper".to_owned())
        }
    }
}
