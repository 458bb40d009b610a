//! What a server reports about itself and its models, as JSON and as flags.
use std::{
    ffi::{c_char, c_void},
    ptr,
};

use c_api::{
    handle::{borrow, guard, put, put_if_wanted, text},
    types::{
        error::CError,
        message::{Message, give_json},
    },
};
use kserve::{self, show};
use vocabulary::Error;

use super::{Server, choice};

/// `TRITONSERVER_BATCH_UNKNOWN`.
const BATCH_UNKNOWN: u32 = 1;
/// `TRITONSERVER_BATCH_FIRST_DIM`.
const BATCH_FIRST_DIM: u32 = 2;
/// `TRITONSERVER_TXN_ONE_TO_ONE`.
const TXN_ONE_TO_ONE: u32 = 1;
/// `TRITONSERVER_TXN_DECOUPLED`.
const TXN_DECOUPLED: u32 = 2;
/// `TRITONSERVER_INDEX_FLAG_READY`.
const INDEX_READY: u32 = 1;
/// The only version of the configuration format that the header defines.
const CONFIG_VERSION: u32 = 1;

impl Server {
    fn metadata(&self) -> Result<String, Error> {
        Ok(json(show::server(&kserve::metadata::server(self.engine()?.server()))))
    }

    /// Metadata of one version, or of all that are ready.
    fn model_metadata(&self, name: &str, version: i64) -> Result<String, Error> {
        let (engine, model) = (self.serving()?, self.model(name, version)?);
        Ok(json(show::model(&kserve::metadata::of_model(engine, &model, choice(version)))))
    }

    /// Statistics of one model, or of all if the name is empty.
    fn statistics(&self, name: &str, version: i64) -> Result<String, Error> {
        let name = Some(name).filter(|name| !name.is_empty());
        let version = name.and_then(|_| choice(version));
        let statistics = self.serving()?.statistics(name, version)?;
        Ok(json(show::statistics(&kserve::statistics::response(&statistics))))
    }

    fn model_config(&self, name: &str, version: i64, form: u32) -> Result<String, Error> {
        let model = self.model(name, version)?;
        if form != CONFIG_VERSION {
            return Err(Error::invalid(format!(
                "model configuration version {form} not supported, supported versions are: 1"
            )));
        }
        Ok(proto::json::to_json(model.shown()))
    }

    fn index(&self, flags: u32) -> Result<String, Error> {
        let engine = self.serving()?;
        let entries = self.wait(async { Ok(engine.index(flags & INDEX_READY != 0).await) })?;
        Ok(json(show::index(&entries)))
    }

    fn batch_flags(&self, name: &str, version: i64) -> Result<u32, Error> {
        let batches = self.model(name, version)?.config().max_batch_size.is_some();
        Ok(if batches { BATCH_FIRST_DIM } else { BATCH_UNKNOWN })
    }

    fn transaction_flags(&self, name: &str, version: i64) -> Result<u32, Error> {
        let decoupled = self.model(name, version)?.config().decoupled;
        Ok(if decoupled { TXN_DECOUPLED } else { TXN_ONE_TO_ONE })
    }
}

fn json(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|odd| String::from_utf8_lossy(odd.as_bytes()).into_owned())
}

/// Returns how a model takes batches: 1 in no known way, 2 in the first dimension of its tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelBatchProperties(
    server: *mut Server,
    model_name: *const c_char,
    model_version: i64,
    flags: *mut u32,
    voidp: *mut *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null; null or writable.
    guard(|| unsafe {
        put_if_wanted(voidp, ptr::null_mut());
        put(flags, borrow(server)?.batch_flags(text(model_name)?, model_version)?)
    })
}

/// Returns how many responses a request to a model has: 1 exactly one, 2 any number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelTransactionProperties(
    server: *mut Server,
    model_name: *const c_char,
    model_version: i64,
    txn_flags: *mut u32,
    voidp: *mut *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null; null or writable.
    guard(|| unsafe {
        put_if_wanted(voidp, ptr::null_mut());
        put(txn_flags, 0)?;
        put(txn_flags, borrow(server)?.transaction_flags(text(model_name)?, model_version)?)
    })
}

/// Returns name, version and extensions of the server. The caller owns the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerMetadata(
    server: *mut Server,
    server_metadata: *mut *mut Message,
) -> *mut CError {
    // SAFETY: null or a live server; null or writable.
    guard(|| unsafe { give_json(server_metadata, &borrow(server)?.metadata()?) })
}

/// Returns versions, inputs and outputs of a model; -1 for all versions. The caller owns the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelMetadata(
    server: *mut Server,
    model_name: *const c_char,
    model_version: i64,
    model_metadata: *mut *mut Message,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null; null or writable.
    guard(|| unsafe {
        let json = borrow(server)?.model_metadata(text(model_name)?, model_version)?;
        give_json(model_metadata, &json)
    })
}

/// Returns the statistics of a model, -1 for all its versions, or of all models if the name is empty. The caller owns
/// the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelStatistics(
    server: *mut Server,
    model_name: *const c_char,
    model_version: i64,
    model_stats: *mut *mut Message,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null; null or writable.
    guard(|| unsafe {
        let json = borrow(server)?.statistics(text(model_name)?, model_version)?;
        give_json(model_stats, &json)
    })
}

/// Returns the configuration of a model. The version of the configuration format must be 1. The caller owns the
/// message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelConfig(
    server: *mut Server,
    model_name: *const c_char,
    model_version: i64,
    config_version: u32,
    model_config: *mut *mut Message,
) -> *mut CError {
    // SAFETY: null or a live server; a text or null; null or writable.
    guard(|| unsafe {
        let json = borrow(server)?.model_config(text(model_name)?, model_version, config_version)?;
        give_json(model_config, &json)
    })
}

/// Returns all models and their states; with flag 1 those that are ready. The caller owns the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelIndex(
    server: *mut Server,
    flags: u32,
    model_index: *mut *mut Message,
) -> *mut CError {
    // SAFETY: null or a live server; null or writable.
    guard(|| unsafe { give_json(model_index, &borrow(server)?.index(flags)?) })
}
