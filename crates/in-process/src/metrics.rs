//! `TRITONSERVER_Metrics`: all metrics of a server as text.
use std::{
    ffi::{CString, c_char},
    ptr,
};

use c_api::{
    handle::{Handle, borrow, delete, give, guard, put},
    types::error::CError,
};
use inference::lock::Mutex;
use vocabulary::Error;

use crate::Server;

/// `TRITONSERVER_METRIC_PROMETHEUS`.
const PROMETHEUS: u32 = 0;

/// `TRITONSERVER_Metrics`: the source of the metrics, and the text that was read last.
pub struct MetricsHandle {
    read: Box<dyn Fn() -> String + Send + Sync>,
    text: Mutex<CString>,
}

impl Handle for MetricsHandle {
    const NAME: &'static str = "TRITONSERVER_Metrics";
}

/// Makes a handle on the metrics of a server. The caller owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerMetrics(
    server: *mut Server,
    metrics: *mut *mut MetricsHandle,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server.
        let read = Box::new(unsafe { borrow(server) }?.metrics()?);
        // SAFETY: null or writable.
        unsafe { give(metrics, MetricsHandle { read, text: Mutex::default() }) }
    })
}

/// Deletes metrics; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricsDelete(metrics: *mut MetricsHandle) -> *mut CError {
    // SAFETY: null or metrics that the caller does not use after this.
    unsafe { delete(metrics) };
    ptr::null_mut()
}

/// Reads the metrics. The text belongs to the handle until the handle is read again or deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricsFormatted(
    metrics: *mut MetricsHandle,
    format: u32,
    base: *mut *const c_char,
    byte_size: *mut usize,
) -> *mut CError {
    guard(|| {
        if format != PROMETHEUS {
            return Err(Error::invalid(format!("unknown metrics format '{format}'")));
        }
        // SAFETY: null or live metrics.
        let metrics = unsafe { borrow(metrics) }?;
        let read = CString::new((metrics.read)().replace('\0', "")).unwrap_or_default();
        let mut text = metrics.text.lock();
        *text = read;
        // SAFETY: null or writable.
        unsafe { put(base, text.as_ptr()).and_then(|()| put(byte_size, text.as_bytes().len())) }
    })
}
