//! Options of backends, caches and repository agents.
use std::ffi::c_char;

use c_api::{handle::text, words::error::CError};
use engine::BackendSetting;

use super::{ServerOptions, set};
use crate::not_offered;

/// Sets where backends are looked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetBackendDirectory(
    options: *mut ServerOptions,
    backend_dir: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe { set(options, |own| text(backend_dir).map(|path| path.clone_into(&mut own.backend_directory))) }
}

/// Sets where repository agents are looked for. No model gets one: configurations that name an agent are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetRepoAgentDirectory(
    options: *mut ServerOptions,
    repoagent_dir: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe { set(options, |own| text(repoagent_dir).map(|path| path.clone_into(&mut own.agent_directory))) }
}

/// Sets a setting of a backend, or of all if its name is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetBackendConfig(
    options: *mut ServerOptions,
    backend_name: *const c_char,
    setting: *const c_char,
    value: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; texts or null.
    unsafe {
        set(options, |own| {
            let backend = Some(text(backend_name)?.to_owned()).filter(|name| !name.is_empty());
            let (key, value) = (text(setting)?.to_owned(), text(value)?.to_owned());
            own.backend_settings.push(BackendSetting { backend, key, value });
            Ok(())
        })
    }
}

/// Sets the size of a response cache, which this server does not have; 0 is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    options: *mut ServerOptions,
    size: u64,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { set(options, |_| if size == 0 { Ok(()) } else { Err(not_offered("a response cache")) }) }
}

/// Switches a response cache on, which this server does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCacheConfig(
    options: *mut ServerOptions,
    cache_name: *const c_char,
    config_json: *const c_char,
) -> *mut CError {
    let refusal = || Err(not_offered("a response cache"));
    // SAFETY: null or live options; texts or null.
    unsafe { set(options, |_| text(cache_name).and(text(config_json)).and_then(|_| refusal())) }
}

/// Sets where caches are looked for; without one that is switched on nobody looks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCacheDirectory(
    options: *mut ServerOptions,
    cache_dir: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe { set(options, |_| text(cache_dir).map(drop)) }
}
