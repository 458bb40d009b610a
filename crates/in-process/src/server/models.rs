//! The served models: repositories, loading and unloading.
use std::{collections::BTreeMap, ffi::c_char};

use bytes::Bytes;
use c_api::{
    handle::{array, borrow, guard, text},
    types::{error::CError, parameter::NamedParameter},
};
use repository::LoadParameters;
use vocabulary::{Error, Name, Parameter};

use super::Server;

impl Server {
    fn load_model(&self, name: &str, overrides: LoadParameters) -> Result<(), Error> {
        self.wait(self.serving()?.repository().load(name, overrides))
    }

    fn unload_model(&self, name: &str) -> Result<(), Error> {
        self.wait(self.serving()?.repository().unload(name))
    }

    fn unload_model_with_dependents(&self, name: &str) -> Result<(), Error> {
        self.wait(self.serving()?.repository().unload_with_dependents(name))
    }
}

/// The names of directories, by the names that their models get.
///
/// # Safety
/// The array is null or has that many parameters, each null or live.
unsafe fn mapped_models(
    repository: &str,
    mapping: *const *const NamedParameter,
    count: u32,
) -> Result<BTreeMap<Name, String>, Error> {
    if mapping.is_null() && count != 0 {
        return Err(Error::invalid("model mappings are not provided while mapping count is non-zero"));
    }
    let mut mapped = BTreeMap::new();
    // SAFETY: as the caller promises.
    for parameter in unsafe { array(mapping, count)? } {
        // SAFETY: null or live.
        let NamedParameter { name: directory, value } = unsafe { borrow(*parameter) }?;
        let Parameter::String(model) = value else {
            return Err(Error::invalid(format!(
                "Mapped model name must be a string, found another type for {directory}"
            )));
        };
        if mapped.insert(model.clone(), directory.to_string()).is_some() {
            return Err(Error::invalid(format!(
                "failed to register '{repository}', there is a conflicting mapping for '{model}'"
            )));
        }
    }
    Ok(mapped)
}

/// What a load brings.
///
/// # Safety
/// The array is null or has that many parameters, each null or live.
unsafe fn load_parameters(
    parameters: *const *const NamedParameter,
    count: u64,
) -> Result<LoadParameters, Error> {
    if parameters.is_null() {
        return Err(Error::invalid("load parameters are not provided while parameter count is non-zero"));
    }
    let count =
        u32::try_from(count).map_err(|_| Error::invalid(format!("{count} load parameters are too many")))?;
    let mut overrides = LoadParameters::default();
    // SAFETY: as the caller promises.
    for parameter in unsafe { array(parameters, count)? } {
        // SAFETY: null or live.
        let NamedParameter { name, value } = unsafe { borrow(*parameter) }?;
        match (name.strip_prefix("file:"), value) {
            (None, Parameter::String(config)) if **name == *"config" => {
                overrides.config = Some(config.to_string());
            }
            (Some(path), Parameter::Bytes(content)) => {
                // The caller's memory ends with the call; the load may last longer.
                overrides.files.push((path.to_owned(), Bytes::copy_from_slice(content)));
            }
            (_, value) => {
                return Err(Error::invalid(format!(
                    "Unrecognized load parameter '{name}' with type '{}'",
                    type_name(value)
                )));
            }
        }
    }
    Ok(overrides)
}

/// The type of a parameter, as Triton shows it.
fn type_name(value: &Parameter) -> &'static str {
    match value {
        Parameter::String(_) => "STRING",
        Parameter::Int(_) => "INT",
        Parameter::Bool(_) => "BOOL",
        Parameter::Double(_) => "DOUBLE",
        Parameter::Bytes(_) => "BYTES",
    }
}

/// Adds a model repository. The mapping gives models other names than their directories have:
/// one or more for each directory. A mapped name has priority over directories of that name in other repositories. Refused unless the models
/// are loaded explicitly.
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
            let (server, path) = (borrow(server)?, text(repository_path)?);
            let mapped = mapped_models(path, name_mapping, mapping_count)?;
            server.wait(server.engine()?.repository().register(path.into(), mapped))
        }
    })
}

/// Removes a model repository. Its models stay loaded. Refused unless the models are loaded explicitly.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnregisterModelRepository(
    server: *mut Server,
    repository_path: *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server; a text or null.
        let (server, path) = unsafe { (borrow(server)?, text(repository_path)?) };
        server.wait(server.engine()?.repository().unregister(path.into()))
    })
}

/// Looks for changes in the repositories and performs them. Returns when the loads that follow have ended. Refused
/// unless the server polls. Does nothing while the server is not ready.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerPollModelRepository(server: *mut Server) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server.
        let server = unsafe { borrow(server) }?;
        match server.serving() {
            Ok(engine) => server.wait(engine.repository().poll()),
            Err(_) => Ok(()),
        }
    })
}

/// Loads or reloads a model. Returns when it is ready or has failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerLoadModel(
    server: *mut Server,
    model_name: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null.
    guard(|| unsafe { borrow(server)?.load_model(text(model_name)?, LoadParameters::default()) })
}

/// Loads a model with a configuration or files of the caller: the string parameter `config`, and parameters of bytes
/// whose names are `file:` and a path. Their content is copied.
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
    // SAFETY: null or a live server; a text or null; null or that many parameters, each null or live.
    guard(|| unsafe {
        let overrides = load_parameters(parameters, parameter_count)?;
        borrow(server)?.load_model(text(model_name)?, overrides)
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
    guard(|| unsafe { borrow(server)?.unload_model_with_dependents(text(model_name)?) })
}
