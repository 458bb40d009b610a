//! Options of metrics.
use std::{ffi::c_char, time::Duration};

use c_api::{handle::text, types::error::CError};
use engine::MetricsOptions;
use vocabulary::Error;

use super::{OptionSettings, ServerOptions, set};

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
            own.shown_metrics.host = cpu_metrics;
            Ok(())
        })
    }
}

/// Sets the interval of measured values: a measurement is used for half of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetMetricsInterval(
    options: *mut ServerOptions,
    metrics_interval_ms: u64,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.shown_metrics.interval = Duration::from_millis(metrics_interval_ms);
            Ok(())
        })
    }
}

/// Sets which latencies are shown. The name is empty. Unknown names and settings have no effect, as in Triton.
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

fn apply(own: &mut OptionSettings, name: &str, setting: &str, value: &str) -> Result<(), Error> {
    if !name.is_empty() {
        return Ok(());
    }
    let shown = &mut own.shown_metrics;
    match setting {
        "counter_latencies" => shown.counter_latencies = truth(value)?,
        "summary_latencies" => shown.summary_latencies = truth(value)?,
        "histogram_latencies" => shown.histogram_latencies = truth(value)?,
        "model_histograms" => shown.model_histograms = truth(value)?,
        "summary_quantiles" => shown.quantiles = quantiles(value)?,
        _ => {}
    }
    Ok(())
}

/// `0.5:0.05,0.99:0.001`
fn quantiles(text: &str) -> Result<Vec<f64>, Error> {
    let refused =
        |pair: &str| Error::invalid(format!("'{pair}' is not <quantile>:<error>, both from 0 to 1"));
    text.split(',').map(|pair| MetricsOptions::quantile(pair).ok_or_else(|| refused(pair))).collect()
}

fn truth(value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" => Ok(true),
        "false" | "0" | "off" => Ok(false),
        _ => Err(Error::invalid(format!("'{value}' is neither true nor false"))),
    }
}
