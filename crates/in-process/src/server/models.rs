//! The served models: repositories, loading and unloading.
use std::{collections::BTreeMap, ffi::c_char};

use c_api::{
    handle::{array, borrow, guard, text},
    types::{error::CError, parameter::NamedParameter},
};
use inference::{Error, Parameter};

use super::Server;
use crate::not_offered;

impl Server {
    fn load_model(&self, name: &str) -> Result<(), Error> {
        self.wait(self.serving()?.load(name))
    }

    fn unload_model(&self, name: &str) -> Result<(), Error> {
        self.wait(self.serving()?.unload(name))
    }
}

/// The directories of models, by the names that the models get.
///
/// # Safety
/// The array is null or has that many parameters, each null or live.
unsafe fn names(
    repository: &str,
    mapping: *const *const NamedParameter,
    count: u32,
) -> Result<BTreeMap<String, String>, Error> {
    if mapping.is_null() && count != 0 {
        return Err(Error::invalid("model mappings are not provided while mapping count is non-zero"));
    }
    let mut names = BTreeMap::new();
    // SAFETY: as the caller promises.
    for parameter in unsafe { array(mapping, count)? } {
        // SAFETY: null or live.
        let NamedParameter { name: directory, value } = unsafe { borrow(*parameter) }?;
        let Parameter::String(model) = value else {
            return Err(Error::invalid(format!(
                "Mapped model name must be a string, found another type for {directory}"
            )));
        };
        if names.insert(model.to_string(), directory.to_string()).is_some() {
            return Err(Error::invalid(format!(
                "failed to register '{repository}', there is a conflicting mapping for '{model}'"
            )));
        }
    }
    Ok(names)
}

/// Adds a model repository. Refused by a server that loads its models once, at the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerRegisterModelRepository(
    server: *mut Server,
    repository_path: *const c_char,
    name_mapping: *const *const NamedParameter,
    mapping_count: u32,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server; a text or null; that many parameters or null.
        unsafe {
            borrow(server)?.engine()?;
            names(text(repository_path)?, name_mapping, mapping_count)?;
        }
        Err(Error::unsupported(
            "repository registration is not allowed if model control mode is not EXPLICIT",
        ))
    })
}

/// Removes a model repository. Refused by a server that loads its models once, at the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnregisterModelRepository(
    server: *mut Server,
    repository_path: *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server; a text or null.
        unsafe { borrow(server)?.engine().and(text(repository_path)) }?;
        Err(Error::unsupported(
            "repository unregistration is not allowed if model control mode is not EXPLICIT",
        ))
    })
}

/// Polls the repositories for changes. Refused by a server that loads its models once, at the start. Does nothing while
/// the server is not ready.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerPollModelRepository(server: *mut Server) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server.
        let ready = unsafe { borrow(server) }?.serving().is_ok();
        if ready { Err(Error::unavailable("polling is disabled")) } else { Ok(()) }
    })
}

/// Loads or reloads a model. Returns when it is ready or has failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerLoadModel(
    server: *mut Server,
    model_name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null.
    guard(|| unsafe { borrow(server)?.load_model(text(model_name)?) })
}

/// Loads a model with a configuration or files of the caller. Refused: Nereid does not support it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerLoadModelWithParameters(
    server: *mut Server,
    model_name: *const c_char,
    parameters: *const *const NamedParameter,
    parameter_count: u64,
) -> *mut CError {
    if parameter_count == 0 {
        // SAFETY: passed on unchanged.
        return unsafe { TRITONSERVER_ServerLoadModel(server, model_name) };
    }
    guard(|| {
        if parameters.is_null() {
            return Err(Error::invalid("load parameters are not provided while parameter count is non-zero"));
        }
        // SAFETY: null or a live server; a text or null.
        unsafe { borrow(server)?.serving().and(text(model_name)) }?;
        Err(not_offered("loading a model with parameters"))
    })
}

/// Unloads a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnloadModel(
    server: *mut Server,
    model_name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null.
    guard(|| unsafe { borrow(server)?.unload_model(text(model_name)?) })
}

/// Unloads a model. Its dependents are ignored: no model of this server depends on another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnloadModelAndDependents(
    server: *mut Server,
    model_name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null.
    guard(|| unsafe { borrow(server)?.unload_model(text(model_name)?) })
}
