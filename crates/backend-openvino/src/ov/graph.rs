//! A model that has been read from its files.
use std::{
    ffi::CString,
    path::Path,
    ptr::{self, NonNull},
    sync::Arc,
};

use vocabulary::Shape;

use super::{
    ModelPorts, OpenVino, OvError,
    failure::not_null,
    openvino::path_text,
    ports::{OwnedPort, PortGroup},
    sys::{self, NamedPortFunction},
};

/// A model as its files describe it. It is compiled before it runs.
///
/// It owns its weights, and does not refer to its files any more.
pub(crate) struct ModelGraph {
    pointer: NonNull<sys::ov_model>,
    openvino: Arc<OpenVino>,
}

// SAFETY: the graph is changed only through `&mut self`, and belongs to no thread.
unsafe impl Send for ModelGraph {}

impl ModelGraph {
    /// Reads the model at `path`. Blocks.
    ///
    /// The format follows from path and content: OpenVINO's own (`.xml`, with the weights in the `.bin` of the same
    /// name), `.onnx`, `.pdmodel`, `.pb`, `.tflite`, or the folder of a TensorFlow SavedModel.
    ///
    /// # Errors
    /// Those of the library: it cannot find the file or its weights, or cannot read them. They name the path.
    pub(crate) fn read(openvino: &Arc<OpenVino>, path: &Path) -> Result<Self, OvError> {
        let text = path_text(path)?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the core lives, the path ends with NUL, no path of weights is given, `pointer` is writable.
        let status = unsafe {
            (openvino.functions().ov_core_read_model)(
                openvino.core(),
                text.as_ptr(),
                ptr::null(),
                &raw mut pointer,
            )
        };
        openvino.check(status, || format!("read '{}'", path.display()))?;
        Ok(Self { pointer: not_null(pointer, "model")?, openvino: openvino.clone() })
    }

    /// Its inputs and outputs.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn ports(&self) -> Result<ModelPorts, OvError> {
        let (openvino, model) = (self.openvino.as_ref(), self.pointer);
        let functions = openvino.functions();
        let (count, port) = (functions.ov_model_inputs_size, functions.ov_model_const_input_by_index);
        let inputs = PortGroup { openvino, model, count, port, kind: "input" };
        let (count, port) = (functions.ov_model_outputs_size, functions.ov_model_const_output_by_index);
        let outputs = PortGroup { openvino, model, count, port, kind: "output" };
        Ok(ModelPorts { inputs: inputs.read()?, outputs: outputs.read()? })
    }

    /// The position of the input that has a name, which need not be the one that [`ModelGraph::ports`] tells.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn input_position(&self, name: &str) -> Result<Option<usize>, OvError> {
        let told = self.told_name(self.openvino.functions().ov_model_const_input_by_name, name);
        Ok(self.ports()?.inputs.iter().position(|port| told.is_some() && port.name == told))
    }

    /// As [`ModelGraph::input_position`], for outputs.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn output_position(&self, name: &str) -> Result<Option<usize>, OvError> {
        let told = self.told_name(self.openvino.functions().ov_model_const_output_by_name, name);
        Ok(self.ports()?.outputs.iter().position(|port| told.is_some() && port.name == told))
    }

    /// The name that [`ModelGraph::ports`] tells of what has a name; `None` if nothing has it. In frozen graphs of
    /// TensorFlow the name of an operator means its first output.
    fn told_name(&self, function: NamedPortFunction, name: &str) -> Option<vocabulary::Name> {
        self.own_name(function, name).or_else(|| self.own_name(function, &format!("{name}:0")))
    }

    fn own_name(&self, function: NamedPortFunction, name: &str) -> Option<vocabulary::Name> {
        let symbol = CString::new(name).ok()?;
        let mut port = ptr::null_mut();
        // SAFETY: the model lives, the name ends with NUL, `port` is writable.
        let status = unsafe { function(self.pointer.as_ptr(), symbol.as_ptr(), &raw mut port) };
        // The call fails because nothing has the name.
        self.openvino.check(status, String::new).ok()?;
        OwnedPort { pointer: not_null(port, "port").ok()?, openvino: &self.openvino }.name()
    }

    /// Gives inputs other shapes: their positions, and dimensions of which -1 is not fixed. The library derives the
    /// shapes of everything else.
    ///
    /// # Errors
    /// Those of the library: the model cannot compute with these shapes. Then it stays as it was. Also a dimension
    /// below -1.
    pub(crate) fn reshape(&mut self, inputs: &[(usize, Shape)]) -> Result<(), OvError> {
        let dims = inputs.iter().map(|(_, shape)| shape.iter().map(|&dim| dimension(dim)).collect());
        let mut dims = dims.collect::<Result<Vec<Vec<sys::ov_dimension>>, OvError>>()?;
        let positions: Vec<usize> = inputs.iter().map(|(position, _)| *position).collect();
        let shapes: Vec<sys::ov_partial_shape> = dims
            .iter_mut()
            .map(|dims| {
                let rank = i64::try_from(dims.len()).unwrap_or(i64::MAX);
                let rank = sys::ov_dimension { min: rank, max: rank };
                sys::ov_partial_shape { rank, dims: dims.as_mut_ptr() }
            })
            .collect();
        // SAFETY: this value owns the model and is borrowed mutably; both arrays are as long as the argument says; each
        // shape has as many dimensions as its rank. The library copies them.
        let status = unsafe {
            (self.openvino.functions().ov_model_reshape_by_port_indexes)(
                self.pointer.as_ptr(),
                positions.as_ptr(),
                shapes.as_ptr(),
                positions.len(),
            )
        };
        self.openvino.check(status, || "reshape the inputs".to_owned())
    }

    pub(super) fn as_ptr(&self) -> *const sys::ov_model {
        self.pointer.as_ptr()
    }

    pub(super) fn openvino(&self) -> &Arc<OpenVino> {
        &self.openvino
    }
}

impl Drop for ModelGraph {
    fn drop(&mut self) {
        // SAFETY: this value owns the model and frees it once. A compiled model has references of its own.
        unsafe { (self.openvino.functions().ov_model_free)(self.pointer.as_ptr()) };
    }
}

/// A dimension in the library's form.
fn dimension(dim: i64) -> Result<sys::ov_dimension, OvError> {
    match dim {
        ..-1 => Err(OvError::invalid_argument(format!("{dim} is no dimension"))),
        _ => Ok(sys::ov_dimension { min: dim, max: dim }),
    }
}
