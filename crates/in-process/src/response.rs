//! `TRITONSERVER_InferenceResponse`: one response, with its outputs in the application's memory.
use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::{Arc, OnceLock},
};

use c_api::{
    handle::{Handle, borrow, delete, guard, put, put_if_wanted, readable},
    types::{
        enums::{CDataType, MemoryType, ParameterType, datatype_number},
        error::CError,
        parameter,
    },
};
use engine::Model;
use inference::Response;
use vocabulary::{DataType, Error, Name, Parameters, Shape, Tensor};

use crate::allocator::{Allocator, Buffer};

/// `TRITONSERVER_InferenceResponse`.
#[derive(Debug)]
pub struct InferenceResponse {
    model: Arc<Model>,
    /// The version that has answered.
    version: i64,
    request_id: Name,
    /// The error, if there are no outputs.
    error: Option<Error>,
    outputs: Vec<ResponseOutput>,
    parameters: Parameters,
}

/// One output.
#[derive(Debug)]
pub(crate) struct ResponseOutput {
    pub(crate) name: Name,
    pub(crate) datatype: DataType,
    pub(crate) shape: Shape,
    pub(crate) buffer: Buffer,
    /// Class labels as C strings, made at the first call that needs them.
    labels: OnceLock<Box<[Name]>>,
}

/// `TRITONSERVER_InferenceResponseCompleteFn_t`.
pub type ResponseFn = unsafe extern "C-unwind" fn(*mut InferenceResponse, u32, *mut c_void);

/// `TRITONSERVER_RESPONSE_COMPLETE_FINAL`.
const FINAL: u32 = 1;

/// The callback that receives the responses, and its argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipient {
    pub(crate) allocator: Allocator,
    pub(crate) respond: ResponseFn,
    pub(crate) userp: *mut c_void,
}

// SAFETY: the header requires a callback that any thread may call; the pointer is only passed back to it.
unsafe impl Send for Recipient {}
// SAFETY: the same.
unsafe impl Sync for Recipient {}

impl Recipient {
    /// Calls the application with a response, or with null if the request ends without one.
    pub(crate) fn call(&self, response: *mut InferenceResponse, last: bool) {
        // SAFETY: the application's function as the header declares it; the application owns the response from now on.
        unsafe { (self.respond)(response, if last { FINAL } else { 0 }, self.userp) };
    }
}

impl Handle for InferenceResponse {
    const NAME: &'static str = "TRITONSERVER_InferenceResponse";
}

impl InferenceResponse {
    /// Makes a response to a request with that id, and copies its outputs into memory of the application's allocator.
    /// If that fails, the response is the error.
    pub(crate) fn new(
        (model, version): (&Arc<Model>, i64),
        request_id: &Name,
        allocator: &Allocator,
        result: Result<Response, Error>,
    ) -> Self {
        allocator.start();
        let copied = result.and_then(|Response { outputs, parameters }| {
            let outputs: Result<Vec<_>, Error> =
                outputs.iter().map(|tensor| ResponseOutput::of(tensor, allocator)).collect();
            Ok((outputs?, parameters))
        });
        let (error, (outputs, parameters)) = match copied {
            Ok(parts) => (None, parts),
            Err(error) => (Some(error), Default::default()),
        };
        Self { model: model.clone(), version, request_id: request_id.clone(), error, outputs, parameters }
    }

    fn output(&self, index: u32) -> Result<&ResponseOutput, Error> {
        at(&self.outputs, index, "outputs")
    }
}

impl ResponseOutput {
    fn of(tensor: &Tensor, allocator: &Allocator) -> Result<Self, Error> {
        let (name, datatype, shape) = (tensor.name().clone(), tensor.datatype(), tensor.shape().into());
        let buffer = allocator.copy(tensor)?;
        Ok(Self { name, datatype, shape, buffer, labels: OnceLock::new() })
    }

    unsafe fn show(
        &self,
        name: *mut *const c_char,
        datatype: *mut CDataType,
        shape: *mut *const i64,
        dim_count: *mut u64,
    ) {
        // SAFETY: null or writable, as the caller promises.
        unsafe {
            put_if_wanted(name, readable(&self.name));
            put_if_wanted(datatype, datatype_number(self.datatype));
            put_if_wanted(shape, self.shape.as_ptr());
            put_if_wanted(dim_count, self.shape.len() as u64);
        }
    }

    fn label(&self, model: &Model, class: usize) -> Option<&Name> {
        let read = || {
            let spec = model.config().output(&self.name);
            spec.into_iter().flat_map(|spec| spec.labels.iter()).map(|label| label.as_str().into()).collect()
        };
        self.labels.get_or_init(read).get(class).filter(|label| !label.is_empty())
    }
}

fn at<'a, T>(all: &'a [T], index: u32, what: &str) -> Result<&'a T, Error> {
    usize::try_from(index).ok().and_then(|index| all.get(index)).ok_or_else(|| {
        Error::invalid(format!("out of bounds index {index}: response has {} {what}", all.len()))
    })
}

/// Deletes a response, which gives its buffers back to the allocator; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseDelete(
    response: *mut InferenceResponse,
) -> *mut CError {
    // SAFETY: null or a response that the caller does not use after this.
    unsafe { delete(response) };
    ptr::null_mut()
}

/// Returns the error of the request; null if it has none. Each call makes a new error, which the caller owns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseError(
    response: *mut InferenceResponse,
) -> *mut CError {
    // SAFETY: null or a live response.
    guard(|| unsafe { borrow(response) }?.error.clone().map_or(Ok(()), Err))
}

/// Returns the name and the version of the model. The name belongs to the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseModel(
    response: *mut InferenceResponse,
    model_name: *mut *const c_char,
    model_version: *mut i64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live response.
        let response = unsafe { borrow(response) }?;
        let name = readable(response.model.name());
        // SAFETY: null or writable.
        unsafe { put(model_name, name).and_then(|()| put(model_version, response.version)) }
    })
}

/// Returns the id of the request. It belongs to the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseId(
    response: *mut InferenceResponse,
    request_id: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live response; null or writable.
    guard(|| unsafe { put(request_id, readable(&borrow(response)?.request_id)) })
}

/// Returns the number of parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseParameterCount(
    response: *mut InferenceResponse,
    count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live response; null or writable.
    guard(|| unsafe { put(count, count_of(&borrow(response)?.parameters)) })
}

fn count_of<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

/// Returns a parameter, which belongs to the response. The value of a text is the text; the value of other types is a
/// pointer to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseParameter(
    response: *mut InferenceResponse,
    index: u32,
    name: *mut *const c_char,
    kind: *mut ParameterType,
    value: *mut *const c_void,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live response.
        let (own_name, own) = at(&unsafe { borrow(response) }?.parameters, index, "parameters")?;
        let (own_kind, own_value) = parameter::show(own);
        // SAFETY: null or writable.
        unsafe { put(name, readable(own_name)).and(put(kind, own_kind)).and(put(value, own_value)) }
    })
}

/// Returns the number of outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseOutputCount(
    response: *mut InferenceResponse,
    count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live response; null or writable.
    guard(|| unsafe { put(count, count_of(&borrow(response)?.outputs)) })
}

/// Returns an output, which belongs to the response. `userp` is the pointer that the allocator has set. Output
/// parameters that the caller does not need may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseOutput(
    response: *mut InferenceResponse,
    index: u32,
    name: *mut *const c_char,
    datatype: *mut CDataType,
    shape: *mut *const i64,
    dim_count: *mut u64,
    base: *mut *const c_void,
    byte_size: *mut usize,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
    userp: *mut *mut c_void,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live response.
        let output = unsafe { borrow(response) }?.output(index)?;
        // SAFETY: null or writable, all of them.
        unsafe {
            output.show(name, datatype, shape, dim_count);
            show_buffer(&output.buffer, base, byte_size, memory_type, memory_type_id);
            put_if_wanted(userp, output.buffer.userp());
        }
        Ok(())
    })
}

unsafe fn show_buffer(
    buffer: &Buffer,
    base: *mut *const c_void,
    byte_size: *mut usize,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
) {
    let (own_base, own_size, (kind, number)) = buffer.parts();
    // SAFETY: null or writable, as the caller promises.
    unsafe {
        put_if_wanted(base, own_base);
        put_if_wanted(byte_size, own_size);
        put_if_wanted(memory_type, kind);
        put_if_wanted(memory_type_id, number);
    }
}

/// Returns the label of a class of an output; null if it has none. The label belongs to the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseOutputClassificationLabel(
    response: *mut InferenceResponse,
    index: u32,
    class_index: usize,
    label: *mut *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live response.
        let response = unsafe { borrow(response) }?;
        let found = response.output(index)?.label(&response.model, class_index);
        // SAFETY: null or writable.
        unsafe { put(label, found.map_or(ptr::null(), readable)) }
    })
}
