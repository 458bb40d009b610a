//! `TRITONBACKEND_Response`: a response that a backend is making.
use std::{ffi::c_char, ptr, sync::Arc};

use inference::{OutputPlacement, Responder, lock::Mutex};
use smallvec::SmallVec;
use vocabulary::{Error, FailureReason, Name, Parameter, Parameters};

use super::{Model, Request, in_use::InUseGuard, output::Output};
use crate::{
    handle::{Handle, array, borrow, delete, give, guard, put, readable, take, text},
    stable_box::StableBox,
    types::{
        enums::{CDataType, datatype, datatype_number},
        error::CError,
    },
};

/// `TRITONBACKEND_Response`. Deleting a response without sending it sends nothing to the client.
#[derive(Debug)]
pub struct Response {
    responder: Responder,
    model: Arc<Model>,
    /// Offers memory for outputs.
    placement: Option<Arc<dyn OutputPlacement>>,
    /// The library knows their addresses.
    outputs: Mutex<SmallVec<[StableBox<Output>; 2]>>,
    parameters: Mutex<Parameters>,
    _in_use: Option<InUseGuard>,
}

impl Handle for Response {
    const NAME: &'static str = "TRITONBACKEND_Response";
}

/// The final flag: no response follows.
pub(super) const FINAL: u32 = 1;

impl Response {
    pub(super) fn new(
        responder: &Responder,
        model: &Arc<Model>,
        placement: Option<Arc<dyn OutputPlacement>>,
        in_use: Option<InUseGuard>,
    ) -> Self {
        Self {
            placement,
            responder: responder.clone(),
            model: model.clone(),
            outputs: Mutex::default(),
            parameters: Mutex::default(),
            _in_use: in_use,
        }
    }

    /// Adds an output. Its address does not change while the response lives.
    fn add_output(&self, name: &str, kind: CDataType, shape: &[i64]) -> Result<*mut Output, Error> {
        let config = self.model.typed();
        let spec = config.and_then(|config| config.output(name));
        let (Some(config), Some(spec)) = (config, spec) else {
            let model = self.model.name();
            return Err(Error::invalid(format!("unexpected inference output '{name}' for model '{model}'")));
        };
        let datatype = datatype(kind)
            .ok_or_else(|| Error::invalid(format!("output '{name}' has an unknown datatype, {kind}")))?;
        let shape = config.client_shape(spec, shape);
        // A model that is decoupled needs other memory for each of its responses.
        let placement = self.placement.as_ref().filter(|_| !config.decoupled);
        let offered = placement.and_then(|placement| placement.memory(&spec.name));
        let output = StableBox::new(Output::new(spec.name.clone(), datatype, shape, offered));
        let address = output.as_ptr();
        self.outputs.lock().push(output);
        Ok(address)
    }

    fn set(&self, name: Name, value: Parameter) {
        self.parameters.lock().push((name, value));
    }

    /// Sends the response, or the error that replaces it.
    fn send(self, flags: u32, error: Option<Error>) {
        let Self { responder, outputs, parameters, .. } = self;
        let is_last = flags & FINAL != 0;
        if let Some(error) = error {
            let error = error.because(FailureReason::Backend);
            return if is_last { responder.fail(error) } else { responder.send_error(error) };
        }
        let outputs =
            outputs.into_inner().into_iter().map(|output| output.into_inner().into_tensor()).collect();
        let response = inference::Response { outputs, parameters: parameters.into_inner() };
        if is_last { responder.complete(response) } else { responder.send(response) }
    }
}

/// Begins a response. The library sends or deletes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseNew(
    response: *mut *mut Response,
    request: *mut Request,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe {
        put(response, ptr::null_mut())?;
        let request = borrow(request)?;
        let (placement, in_use) = (request.output_placement(), request.hold());
        give(response, Response::new(request.responder()?, request.model(), placement, in_use))
    })
}

/// Deletes a response that is not sent; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseDelete(response: *mut Response) -> *mut CError {
    // SAFETY: null or a response that the library does not use after this.
    guard(|| unsafe {
        delete(response);
        Ok(())
    })
}

unsafe fn set_parameter(
    response: *mut Response,
    name: *const c_char,
    value: impl FnOnce() -> Result<Parameter, Error>,
) -> *mut CError {
    guard(|| {
        if response.is_null() {
            return Err(Error::invalid("response was nullptr"));
        }
        // SAFETY: a live response; a text or null.
        let (response, name) = unsafe { (borrow(response)?, text(name)?) };
        response.set(name.into(), value()?);
        Ok(())
    })
}

/// Adds a text to the parameters of the response. The text is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSetStringParameter(
    response: *mut Response,
    name: *const c_char,
    value: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live response; texts or null.
    unsafe { set_parameter(response, name, || Ok(Parameter::String(text(value)?.into()))) }
}

/// Adds an integer to the parameters of the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSetIntParameter(
    response: *mut Response,
    name: *const c_char,
    value: i64,
) -> *mut CError {
    // SAFETY: null or a live response; a text or null.
    unsafe { set_parameter(response, name, || Ok(Parameter::Int(value))) }
}

/// Adds a boolean to the parameters of the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSetBoolParameter(
    response: *mut Response,
    name: *const c_char,
    value: bool,
) -> *mut CError {
    // SAFETY: null or a live response; a text or null.
    unsafe { set_parameter(response, name, || Ok(Parameter::Bool(value))) }
}

/// Adds a double to the parameters of the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSetDoubleParameter(
    response: *mut Response,
    name: *const c_char,
    value: f64,
) -> *mut CError {
    // SAFETY: null or a live response; a text or null.
    unsafe { set_parameter(response, name, || Ok(Parameter::Double(value))) }
}

/// Adds an output to the response. The shape includes the batch dimension and is copied. The output belongs to the
/// response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseOutput(
    response: *mut Response,
    output: *mut *mut Output,
    name: *const c_char,
    datatype: CDataType,
    shape: *const i64,
    dims_count: u32,
) -> *mut CError {
    guard(|| {
        if response.is_null() {
            return Err(Error::invalid("response was nullptr"));
        }
        // SAFETY: a live response; a text or null; that many dims; null or writable.
        unsafe {
            put(output, ptr::null_mut())?;
            let shape = array(shape, dims_count)?;
            put(output, borrow(response)?.add_output(text(name)?, datatype, shape)?)
        }
    })
}

/// Sends a response. The library no longer owns it afterwards. If `error` is not null, it is sent instead; the library
/// keeps owning the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSend(
    response: *mut Response,
    send_flags: u32,
    error: *mut CError,
) -> *mut CError {
    guard(|| {
        if response.is_null() {
            return Err(Error::invalid("response was nullptr"));
        }
        // SAFETY: a response that the library does not use after this; null or a live error.
        let (response, error) = unsafe { (take(response)?, error.as_ref()) };
        response.send(send_flags, error.map(CError::to_error));
        Ok(())
    })
}

/// Returns the properties of an output by its index. Name and shape belong to the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InferenceResponseOutput(
    response: *mut Response,
    index: u32,
    name: *mut *const c_char,
    datatype: *mut CDataType,
    shape: *mut *const i64,
    dim_count: *mut u64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live response.
        let outputs = unsafe { borrow(response)? }.outputs.lock();
        let has = outputs.len();
        let output = usize::try_from(index).ok().and_then(|index| outputs.get(index)).ok_or_else(|| {
            Error::invalid(format!("out of bounds index {index}: response has {has} outputs"))
        })?;
        // SAFETY: null or writable.
        unsafe { put(name, readable(output.name())).and_then(|()| show(output, datatype, shape, dim_count)) }
    })
}

/// Returns the properties of the output of that name. The shape belongs to the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InferenceResponseOutputByName(
    response: *mut Response,
    name: *const c_char,
    datatype: *mut CDataType,
    shape: *mut *const i64,
    dim_count: *mut u64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live response; a text or null.
        let (outputs, name) = unsafe { (borrow(response)?.outputs.lock(), text(name)?) };
        let output = outputs.iter().find(|output| *output.name() == name);
        let output = output.ok_or_else(|| Error::not_found(format!("Output name {name}not found.")))?;
        // SAFETY: null or writable.
        unsafe { show(output, datatype, shape, dim_count) }
    })
}

unsafe fn show(
    output: &Output,
    datatype: *mut CDataType,
    shape: *mut *const i64,
    dim_count: *mut u64,
) -> Result<(), Error> {
    // SAFETY: null or writable, as the callers say.
    unsafe {
        put(datatype, datatype_number(output.datatype()))?;
        put(shape, output.shape().as_ptr())?;
        put(dim_count, output.shape().len() as u64)
    }
}
