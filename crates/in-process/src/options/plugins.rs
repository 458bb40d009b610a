//! Options of backends, caches and repository agents.
use std::{collections::BTreeMap, ffi::c_char};

use c_api::{handle::text, types::error::CError};
use inference::BackendSetting;
use serde_json::Value;
use vocabulary::Error;

use super::{ServerOptions, set};

/// Sets the directory of backends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetBackendDirectory(
    options: *mut ServerOptions,
    backend_dir: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe { set(options, |own| text(backend_dir).map(|path| path.clone_into(&mut own.backend_directory))) }
}

/// Sets the directory of repository agents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetRepoAgentDirectory(
    options: *mut ServerOptions,
    repoagent_dir: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe { set(options, |own| text(repoagent_dir).map(|path| path.clone_into(&mut own.agent_directory))) }
}

/// Sets a setting of a backend, or of all backends if its name is empty.
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

/// Switches the cache `local` on with that size in bytes, or off with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    options: *mut ServerOptions,
    size: u64,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.caches.remove("local");
            if size > 0 {
                let settings = BTreeMap::from([("size".to_owned(), size.to_string())]);
                own.caches.insert("local".to_owned(), settings);
            }
            Ok(())
        })
    }
}

/// Switches a response cache on. Its settings are a JSON object of texts, numbers and booleans.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCacheConfig(
    options: *mut ServerOptions,
    cache_name: *const c_char,
    config_json: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; texts or null.
    unsafe {
        set(options, |own| {
            let (name, settings) = (text(cache_name)?, cache_settings(text(config_json)?)?);
            own.caches.insert(name.to_owned(), settings);
            Ok(())
        })
    }
}

fn cache_settings(json: &str) -> Result<BTreeMap<String, String>, Error> {
    let parsed: BTreeMap<String, Value> = serde_json::from_str(json)
        .map_err(|error| Error::invalid(format!("failed to parse the settings of a cache: {error}")))?;
    let plain = |(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(Error::invalid(format!("setting '{name}' of a cache is no text, number or truth value")))
        }
    };
    parsed.into_iter().map(plain).collect()
}

/// Sets the directory of caches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCacheDirectory(
    options: *mut ServerOptions,
    cache_dir: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe { set(options, |own| text(cache_dir).map(|path| path.clone_into(&mut own.cache_directory))) }
}
