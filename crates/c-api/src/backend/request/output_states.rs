//! The states that a request writes for its sequence.
use std::ffi::c_char;

use vocabulary::{DataType, Error};

use super::Request;
use crate::{
    backend::state::State,
    handle::{array, borrow, guard, put, text},
    stable_box::StableBox,
    types::{
        enums::{CDataType, datatype},
        error::CError,
    },
};

impl Request {
    /// The state that an output of that name replaces. The library is about to write it.
    fn new_state(&self, name: &str, datatype: DataType, shape: &[i64]) -> Result<*mut State, Error> {
        let memory = self.state.clone().ok_or_else(|| {
            Error::invalid(format!(
                "unable to add state '{name}'. State configuration is missing for model '{}'.",
                self.model.name()
            ))
        })?;
        if !memory.has_state(name) {
            return Err(Error::invalid(format!("state '{name}' is not a valid state name.")));
        }
        let state = StableBox::new(State::new(memory, name, datatype, shape));
        let address = state.as_ptr();
        self.states.lock().push(state);
        Ok(address)
    }
}

/// Begins a new value of a state of the request's sequence. The shape is copied. The state belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_StateNew(
    state: *mut *mut State,
    request: *mut Request,
    name: *const c_char,
    kind: CDataType,
    shape: *const i64,
    dims_count: u32,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live request; a text or null; that many dims.
        let (request, name, shape) = unsafe { (borrow(request)?, text(name)?, array(shape, dims_count)?) };
        let datatype = datatype(kind)
            .ok_or_else(|| Error::invalid(format!("state '{name}' has an unknown datatype, {kind}")))?;
        let made = request.new_state(name, datatype, shape)?;
        // SAFETY: null or writable.
        unsafe { put(state, made) }
    })
}
