//! Options of the server as a whole: its name, its models, how it starts and stops, the rate limiter.
use std::ffi::{c_char, c_int};

use c_api::{handle::text, types::error::CError};
use engine::ControlMode;
use vocabulary::Error;

use super::{ServerOptions, set};

/// Sets the name of the server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetServerId(
    options: *mut ServerOptions,
    server_id: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe { set(options, |own| text(server_id).map(|id| id.clone_into(&mut own.id))) }
}

/// Adds a model repository.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelRepositoryPath(
    options: *mut ServerOptions,
    model_repository_path: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe {
        set(options, |own| {
            own.repositories.insert(text(model_repository_path)?.to_owned());
            Ok(())
        })
    }
}

fn control_mode(mode: u32) -> Result<ControlMode, Error> {
    match mode {
        0 => Ok(ControlMode::None),
        1 => Ok(ControlMode::Poll),
        2 => Ok(ControlMode::Explicit),
        other => Err(Error::invalid(format!("unknown control mode '{other}'"))),
    }
}

/// Sets when models are loaded: 0 is once, at the start; 1 is also when the program asks to look for changes; 2 is when the
/// program loads them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelControlMode(
    options: *mut ServerOptions,
    mode: u32,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.control_mode = control_mode(mode)?;
            Ok(())
        })
    }
}

/// Names a model to load at the start if the program loads models: `*` stands for all. May be called several times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetStartupModel(
    options: *mut ServerOptions,
    model_name: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe {
        set(options, |own| {
            own.startup_models.insert(text(model_name)?.to_owned());
            Ok(())
        })
    }
}

/// Sets whether configurations must be complete. If not, backends complete them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetStrictModelConfig(
    options: *mut ServerOptions,
    strict: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.auto_complete = !strict;
            Ok(())
        })
    }
}

/// Sets which configuration of a model is used; empty for the default one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelConfigName(
    options: *mut ServerOptions,
    model_config_name: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe {
        set(options, |own| {
            own.config_name = Some(text(model_config_name)?.to_owned()).filter(|name| !name.is_empty());
            Ok(())
        })
    }
}

/// Sets the rate limiter: 0 for none, 1 if instances share resources in the order of how often they ran.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetRateLimiterMode(
    options: *mut ServerOptions,
    mode: u32,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            let unknown = || Error::invalid(format!("unknown rate limit mode '{mode}'"));
            own.rate_limit = [false, true].get(mode as usize).copied().ok_or_else(unknown)?;
            Ok(())
        })
    }
}

/// Adds units of a resource on a device; -1 for each device. If a resource is set twice, the smaller number counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsAddRateLimiterResource(
    options: *mut ServerOptions,
    resource_name: *const c_char,
    resource_count: usize,
    device: c_int,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe {
        set(options, |own| {
            let (device, name) = (u32::try_from(device).ok(), text(resource_name)?.to_owned());
            let count = u32::try_from(resource_count).unwrap_or(u32::MAX);
            let known = own.resources.entry((device, name)).or_insert(count);
            *known = count.min(*known);
            Ok(())
        })
    }
}

/// Sets whether making the server fails if a model cannot be loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetExitOnError(
    options: *mut ServerOptions,
    exit: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.exit_on_error = exit;
            Ok(())
        })
    }
}

/// Sets whether the server is ready only if all its models are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetStrictReadiness(
    options: *mut ServerOptions,
    strict: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.strict_readiness = strict;
            Ok(())
        })
    }
}

/// Sets how many seconds stopping may take.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetExitTimeout(
    options: *mut ServerOptions,
    timeout: u32,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.exit_timeout_secs = timeout;
            Ok(())
        })
    }
}

/// Sets how many model versions load at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelLoadThreadCount(
    options: *mut ServerOptions,
    thread_count: u32,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.load_threads = thread_count;
            Ok(())
        })
    }
}

/// Sets how often a load that has failed is tried again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelLoadRetryCount(
    options: *mut ServerOptions,
    retry_count: u32,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.load_retries = retry_count;
            Ok(())
        })
    }
}

/// Sets whether several repositories may have models of the same name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelNamespacing(
    options: *mut ServerOptions,
    enable_namespace: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.namespacing = enable_namespace;
            Ok(())
        })
    }
}
