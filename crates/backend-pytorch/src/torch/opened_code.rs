//! The opened code of a model.
use std::{
    ffi::{CStr, c_char},
    num::NonZeroUsize,
    path::Path,
    ptr::{self, NonNull},
    sync::Arc,
};

use super::{
    Torch, TorchError, are_inputs_checked,
    failure::check_code,
    library::loader_message,
    sys::{self, CodeFunctions, MissingTorchSymbol, ModelContainer},
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// The device of all models.
const CPU: &CStr = c"cpu";

/// The machine code of a model with its weights.
///
/// Any number of threads may run it. As many runs as it has been opened for compute at the same time, and others wait.
pub(crate) struct OpenedCode {
    container: NonNull<ModelContainer>,
    functions: CodeFunctions,
    inputs: usize,
    outputs: usize,
    torch: Arc<Torch>,
    /// Declared last: it is closed after the container has been freed.
    _library: Library,
}

// SAFETY: the container is made for runs on several threads at the same time, and belongs to none.
unsafe impl Send for OpenedCode {}
// SAFETY: as above.
unsafe impl Sync for OpenedCode {}

impl OpenedCode {
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
        let functions = CodeFunctions::of(&library).map_err(|MissingTorchSymbol(name)| {
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
        function: unsafe extern "C" fn(*mut ModelContainer, *mut usize) -> sys::TorchStatus,
    ) -> Result<usize, TorchError> {
        let mut count = 0;
        // SAFETY: the container lives; `count` is writable.
        let status = unsafe { function(self.container.as_ptr(), &raw mut count) };
        check_code(&self.functions, status, || "count inputs and outputs".to_owned())?;
        Ok(count)
    }

    pub(super) fn container(&self) -> *mut ModelContainer {
        self.container.as_ptr()
    }

    pub(super) fn functions(&self) -> &CodeFunctions {
        &self.functions
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
        let text = |text: *const c_char| {
            if text.is_null() {
                return String::new();
            }
            // SAFETY: the code has left a text that ends with NUL and lives as long as the container.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Ok((text(inputs), text(outputs)))
    }

    /// The library that it computes with.
    pub(crate) fn torch(&self) -> &Torch {
        &self.torch
    }
}

impl Drop for OpenedCode {
    fn drop(&mut self) {
        // SAFETY: this value owns the container and frees it once. All outputs have been freed: each has a reference to
        // this value.
        unsafe { (self.functions.AOTInductorModelContainerDelete)(self.container.as_ptr()) };
    }
}

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
