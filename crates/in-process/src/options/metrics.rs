//! Options of metrics.
use std::ffi::c_char;

use c_api::{handle::text, types::error::CError};
use inference::Error;

use super::{ServerOptions, Settings, set};
use crate::not_offered;

/// Sets whether the server shows its own metrics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetMetrics(
    options: *mut ServerOptions,
    metrics: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.metrics = metrics;
            Ok(())
        })
    }
}

/// Sets whether the metrics contain GPUs; without effect, as Nereid uses none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetGpuMetrics(
    options: *mut ServerOptions,
    _gpu_metrics: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { set(options, |_| Ok(())) }
}

/// Sets whether the metrics contain processors and memory of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCpuMetrics(
    options: *mut ServerOptions,
    cpu_metrics: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.host_metrics = cpu_metrics;
            Ok(())
        })
    }
}

/// Sets how often measured values are refreshed; without effect, as Nereid measures them when they are read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetMetricsInterval(
    options: *mut ServerOptions,
    _metrics_interval_ms: u64,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { set(options, |_| Ok(())) }
}

/// Sets which latencies are shown. Only the empty name is allowed, with `counter_latencies` and settings of features
/// that Nereid does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetMetricsConfig(
    options: *mut ServerOptions,
    name: *const c_char,
    setting: *const c_char,
    value: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; texts or null.
    unsafe { set(options, |own| apply(own, text(name)?, text(setting)?, text(value)?)) }
}

fn apply(own: &mut Settings, name: &str, setting: &str, value: &str) -> Result<(), Error> {
    match (name, setting) {
        ("", "counter_latencies") => own.counter_latencies = truth(value)?,
        ("", "summary_latencies" | "histogram_latencies") if !truth(value)? => {}
        // Sets the quantiles of summaries. Nereid has no summaries.
        ("", "summary_quantiles") => {}
        ("", setting) => return Err(not_offered(&format!("metrics setting '{setting}'"))),
        (name, setting) => return Err(not_offered(&format!("metrics setting '{setting}' of '{name}'"))),
    }
    Ok(())
}

fn truth(value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" => Ok(true),
        "false" | "0" | "off" => Ok(false),
        _ => Err(Error::invalid(format!("'{value}' is neither true nor false"))),
    }
}
