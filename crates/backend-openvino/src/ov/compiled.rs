//! A model that is ready to run on a device.
use std::{
    ffi::{CString, c_char},
    num::NonZeroUsize,
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{
    ModelGraph, ModelPort, ModelPorts, OpenVino, OvError,
    failure::not_null,
    ports::PortGroup,
    sys::{self, PROPERTY_ARGUMENTS},
};

/// The device that computes on the processors of the host.
const PROCESSORS: &str = "CPU";

/// The value of `NUM_STREAMS` for runs on the thread that asks for them.
const CALLERS_THREAD: &str = "0";

/// The device of a compiled model, and properties by the library's own names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompileOptions {
    device: String,
    properties: Vec<(String, String)>,
}

impl CompileOptions {
    /// For the processors of the host, with the precision of the model, and that many threads for each run, which the
    /// host may move.
    ///
    /// The library itself would compute in BF16 on processors that have it, with results that differ from the third
    /// digit on, and would bind its threads to the first processors, which other models of the server use as well. It
    /// computes INT64 as INT32 and FP64 as FP32, whatever the options are.
    ///
    /// With one thread, a run computes on the thread that asks for it, and the runs of one compiled model follow each
    /// other. `NUM_STREAMS` of n has n runs at the same time, each on threads of the library.
    pub(crate) fn processors(threads: NonZeroUsize) -> Self {
        let mut options = Self::device(PROCESSORS);
        options.set("INFERENCE_PRECISION_HINT", "f32");
        options.set("ENABLE_CPU_PINNING", "NO");
        options.set("INFERENCE_NUM_THREADS", &threads.to_string());
        options.set("NUM_STREAMS", if threads.get() == 1 { CALLERS_THREAD } else { "1" });
        options
    }

    /// For a device by the library's name, such as `GPU.0` or `AUTO`, with its own defaults.
    pub(crate) fn device(name: &str) -> Self {
        Self { device: name.to_owned(), properties: Vec::new() }
    }

    /// Sets a property, such as `INFERENCE_NUM_THREADS` or `NUM_STREAMS`. It replaces the earlier value.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.properties.retain(|(other, _)| other != key);
        self.properties.push((key.to_owned(), value.to_owned()));
    }

    /// As [`CompileOptions::set`], but leaves the choice to the library.
    pub(crate) fn unset(&mut self, key: &str) {
        self.properties.retain(|(other, _)| other != key);
    }
}

/// A model that is ready to run. Its requests share its weights.
pub(crate) struct CompiledModel {
    pointer: NonNull<sys::ov_compiled_model>,
    ports: ModelPorts,
    /// For each output the input that it is, if the model returns an input unchanged.
    returned_inputs: Vec<Option<usize>>,
    loses_errors: bool,
    has_parallel_streams: bool,
    has_request: AtomicBool,
    is_broken: AtomicBool,
    openvino: Arc<OpenVino>,
}

// SAFETY: the library allows requests to be made and properties to be read from any thread; the rest never changes.
unsafe impl Send for CompiledModel {}
// SAFETY: as above.
unsafe impl Sync for CompiledModel {}

impl CompiledModel {
    /// Compiles a graph. Blocks, for seconds if the model is large.
    ///
    /// # Errors
    /// Those of the library: the device is missing, does not know a property, or cannot run the model. Also more than
    /// 16 properties.
    pub(crate) fn compile(graph: &ModelGraph, options: &CompileOptions) -> Result<Arc<Self>, OvError> {
        let openvino = graph.openvino();
        let device = text(&options.device)?;
        let texts = options.properties.iter().map(|(key, value)| Ok([text(key)?, text(value)?]));
        let texts = texts.collect::<Result<Vec<_>, OvError>>()?;
        let mut arguments = [ptr::null(); PROPERTY_ARGUMENTS];
        let count = 2 * texts.len();
        let places = arguments.get_mut(..count).ok_or_else(|| {
            OvError::invalid_argument(format!("more than {} properties", PROPERTY_ARGUMENTS / 2))
        })?;
        for (place, text) in places.iter_mut().zip(texts.as_flattened()) {
            *place = text.as_ptr();
        }
        let mut pointer = ptr::null_mut();
        let status = compile(openvino, graph.as_ptr(), &device, (count, arguments), &raw mut pointer);
        openvino.check(status, || format!("compile the model for {}", options.device))?;
        let pointer = not_null(pointer, "compiled model")?;
        let ports = ModelPorts { inputs: Vec::new(), outputs: Vec::new() };
        let mut model = Self {
            pointer,
            ports,
            returned_inputs: Vec::new(),
            loses_errors: false,
            has_parallel_streams: false,
            has_request: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            openvino: openvino.clone(),
        };
        model.ports = model.read_ports()?;
        model.returned_inputs = model.ports.returned_inputs();
        // Other devices than the processors need not have these properties.
        let number = |key| model.property(key).ok().and_then(|value| value.parse::<u32>().ok());
        let (streams, threads) = (number("NUM_STREAMS"), number("INFERENCE_NUM_THREADS"));
        model.loses_errors = (streams, threads) == (Some(1), Some(1));
        model.has_parallel_streams = streams.is_none_or(|streams| streams > 1);
        Ok(Arc::new(model))
    }

    /// Its inputs and outputs.
    pub(crate) fn ports(&self) -> &ModelPorts {
        &self.ports
    }

    /// The value of a property that the model really has, such as `INFERENCE_PRECISION_HINT`.
    ///
    /// There is none for the memory that a model holds: the device of the processors does not tell it.
    ///
    /// # Errors
    /// Those of the library: the device does not know the property.
    pub(crate) fn property(&self, key: &str) -> Result<String, OvError> {
        let (symbol, mut value) = (text(key)?, ptr::null_mut());
        // SAFETY: the model lives; the text ends with NUL; `value` is writable. The value belongs to this function.
        let value = unsafe {
            let functions = self.openvino.functions();
            let status = (functions.ov_compiled_model_get_property)(
                self.pointer.as_ptr(),
                symbol.as_ptr(),
                &raw mut value,
            );
            self.openvino.check(status, || format!("read the property {key}"))?;
            self.openvino.take_text(value)?
        };
        Ok(value.to_string_lossy().into_owned())
    }

    /// Whether it may have several requests. It may not if the shape of an input or output is open: then a run that
    /// fails could change the results of the runs of other requests. Each instance compiles the graph for itself.
    pub(crate) fn can_be_shared(&self) -> bool {
        let ports = self.ports.inputs.iter().chain(&self.ports.outputs);
        ports.into_iter().all(ModelPort::has_fixed_shape)
    }

    /// Whether it must be compiled again, because a run has failed that the library does not get over. All its runs
    /// fail.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    pub(super) fn set_broken(&self) {
        self.is_broken.store(true, Relaxed);
    }

    pub(super) fn has_open_inputs(&self) -> bool {
        !self.ports.inputs.iter().all(ModelPort::has_fixed_shape)
    }

    /// Whether its runs may use more than one copy of the graph.
    pub(super) fn has_parallel_streams(&self) -> bool {
        self.has_parallel_streams
    }

    /// For each output the input that it is, if the model returns an input unchanged.
    pub(super) fn returned_inputs(&self) -> &[Option<usize>] {
        &self.returned_inputs
    }

    /// Whether a synchronous run of the library reports success also if it fails. That is so in the releases 2025.4 to
    /// 2026.4, at least, with one stream of one thread. Such a run leaves the outputs as they were.
    pub(super) fn loses_errors(&self) -> bool {
        self.loses_errors
    }

    pub(super) fn as_ptr(&self) -> *const sys::ov_compiled_model {
        self.pointer.as_ptr()
    }

    /// The library of the model.
    pub(crate) fn openvino(&self) -> &Arc<OpenVino> {
        &self.openvino
    }

    fn read_ports(&self) -> Result<ModelPorts, OvError> {
        let (openvino, model) = (self.openvino.as_ref(), self.pointer);
        let functions = openvino.functions();
        let (count, port) =
            (functions.ov_compiled_model_inputs_size, functions.ov_compiled_model_input_by_index);
        let inputs = PortGroup { openvino, model, count, port, kind: "input" };
        let (count, port) =
            (functions.ov_compiled_model_outputs_size, functions.ov_compiled_model_output_by_index);
        let outputs = PortGroup { openvino, model, count, port, kind: "output" };
        Ok(ModelPorts { inputs: inputs.read()?, outputs: outputs.read()? })
    }
}

impl Drop for CompiledModel {
    fn drop(&mut self) {
        // SAFETY: this value owns the model and frees it once; no request is left, because each holds a reference to
        // it.
        unsafe { (self.openvino.functions().ov_compiled_model_free)(self.pointer.as_ptr()) };
    }
}

/// The right of a request to use a model. A model that cannot be shared gives one.
pub(super) struct RequestClaim(Arc<CompiledModel>);

impl RequestClaim {
    pub(super) fn of(model: &Arc<CompiledModel>) -> Result<Self, OvError> {
        if model.has_request.swap(true, Relaxed) && !model.can_be_shared() {
            let text = "a model with open shapes can have one request only";
            return Err(OvError::invalid_argument(text));
        }
        Ok(Self(model.clone()))
    }
}

impl Drop for RequestClaim {
    fn drop(&mut self) {
        self.0.has_request.store(false, Relaxed);
    }
}

/// Calls the variadic function. It gets all arguments, and reads the first `count` of them.
fn compile(
    openvino: &OpenVino,
    graph: *const sys::ov_model,
    device: &CString,
    (count, a): (usize, [*const c_char; PROPERTY_ARGUMENTS]),
    compiled: *mut *mut sys::ov_compiled_model,
) -> sys::ov_status {
    let function = openvino.functions().ov_core_compile_model;
    // SAFETY: core and graph live; the name of the device ends with NUL; `compiled` is writable. The first `count`
    // arguments are texts that end with NUL and are copied, keys and values in turn.
    unsafe {
        function(
            openvino.core(),
            graph,
            device.as_ptr(),
            count,
            compiled,
            a[0],
            a[1],
            a[2],
            a[3],
            a[4],
            a[5],
            a[6],
            a[7],
            a[8],
            a[9],
            a[10],
            a[11],
            a[12],
            a[13],
            a[14],
            a[15],
            a[16],
            a[17],
            a[18],
            a[19],
            a[20],
            a[21],
            a[22],
            a[23],
            a[24],
            a[25],
            a[26],
            a[27],
            a[28],
            a[29],
            a[30],
            a[31],
        )
    }
}

fn text(text: &str) -> Result<CString, OvError> {
    CString::new(text).map_err(|_| OvError::invalid_argument(format!("{text:?} has a NUL inside")))
}
