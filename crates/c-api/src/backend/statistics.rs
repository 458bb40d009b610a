//! The times that backends report: of executions, of requests, and of single responses of decoupled requests. Clients
//! see them in `inference_stats`, `batch_stats` and `response_stats`.
//!
//! Times are those of the monotonic clock (`CLOCK_MONOTONIC`) in nanoseconds, as in the whole server.
use std::ptr;

use inference::{ReportedTimes, ResponseReport, Timestamp, lock::Mutex};
use vocabulary::{Error, ErrorCode};

use super::{ModelInstance, Request, factory::ResponseFactory};
use crate::{
    handle::{Handle, borrow, delete, give, guard},
    types::error::CError,
};

fn times(exec_start: u64, compute_start: u64, compute_end: u64, exec_end: u64) -> ReportedTimes {
    ReportedTimes {
        exec_start: Timestamp::from_nanos(exec_start),
        compute_start: Timestamp::from_nanos(compute_start),
        compute_end: Timestamp::from_nanos(compute_end),
        exec_end: Timestamp::from_nanos(exec_end),
    }
}

/// Reports the times of a request before the library releases it. The `success` flag is ignored: the responses have
/// told whether the request succeeded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceReportStatistics(
    instance: *mut ModelInstance,
    request: *mut Request,
    _success: bool,
    exec_start_ns: u64,
    compute_start_ns: u64,
    compute_end_ns: u64,
    exec_end_ns: u64,
) -> *mut CError {
    // SAFETY: null or live.
    guard(|| unsafe {
        borrow(instance)?;
        let times = times(exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns);
        borrow(request)?.responder()?.report(times);
        Ok(())
    })
}

/// Reports the times of the latest batch of an instance. The batch size is ignored: the server knows the number of
/// rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceReportBatchStatistics(
    instance: *mut ModelInstance,
    _batch_size: u64,
    exec_start_ns: u64,
    compute_start_ns: u64,
    compute_end_ns: u64,
    exec_end_ns: u64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live instance.
        if let Some(reporter) = unsafe { borrow(instance)? }.reporter() {
            reporter.report(times(exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns));
        }
        Ok(())
    })
}

/// `TRITONBACKEND_ModelInstanceResponseStatistics`: a report about one response of a decoupled request.
#[derive(Debug, Default)]
pub struct ResponseStatistics {
    reported: Mutex<ReportedStatistics>,
}

#[derive(Debug)]
struct ReportedStatistics {
    instance: *mut ModelInstance,
    factory: *mut ResponseFactory,
    start: u64,
    compute_output_start: u64,
    end: u64,
    error: Option<ErrorCode>,
}

impl ReportedStatistics {
    fn report(&self) -> Result<ResponseReport, Error> {
        let computed = Some(self.compute_output_start).filter(|at| *at > 0);
        let (start, end) = (Timestamp::from_nanos(self.start), Timestamp::from_nanos(self.end));
        ResponseReport::new(start, computed.map(Timestamp::from_nanos), end, self.error)
    }
}

impl Default for ReportedStatistics {
    fn default() -> Self {
        Self {
            instance: ptr::null_mut(),
            factory: ptr::null_mut(),
            start: 0,
            compute_output_start: 0,
            end: 0,
            error: None,
        }
    }
}

impl Handle for ResponseStatistics {
    const NAME: &'static str = "TRITONBACKEND_ModelInstanceResponseStatistics";
}

unsafe fn record(
    statistics: *mut ResponseStatistics,
    what: impl FnOnce(&mut ReportedStatistics),
) -> *mut CError {
    // SAFETY: null or live statistics.
    guard(|| unsafe { borrow(statistics) }.map(|own| what(&mut own.reported.lock())))
}

/// Makes an empty report. The library deletes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    statistics: *mut *mut ResponseStatistics,
) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { give(statistics, ResponseStatistics::default()) })
}

/// Deletes a report; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    statistics: *mut ResponseStatistics,
) -> *mut CError {
    // SAFETY: null or a report that the library does not use after this.
    unsafe { delete(statistics) };
    ptr::null_mut()
}

/// Sets the instance that made the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    statistics: *mut ResponseStatistics,
    instance: *mut ModelInstance,
) -> *mut CError {
    // SAFETY: null or live.
    unsafe { record(statistics, |reported| reported.instance = instance) }
}

/// Sets the request that the response belongs to, by a response factory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    statistics: *mut ResponseStatistics,
    factory: *mut ResponseFactory,
) -> *mut CError {
    // SAFETY: null or live.
    unsafe { record(statistics, |reported| reported.factory = factory) }
}

/// Sets when the work on the response began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    statistics: *mut ResponseStatistics,
    response_start: u64,
) -> *mut CError {
    // SAFETY: null or live.
    unsafe { record(statistics, |reported| reported.start = response_start) }
}

/// Sets when its outputs were computed; 0 for a response without outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    statistics: *mut ResponseStatistics,
    compute_output_start: u64,
) -> *mut CError {
    // SAFETY: null or live.
    unsafe { record(statistics, |reported| reported.compute_output_start = compute_output_start) }
}

/// Sets when the response was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    statistics: *mut ResponseStatistics,
    response_end: u64,
) -> *mut CError {
    // SAFETY: null or live.
    unsafe { record(statistics, |reported| reported.end = response_end) }
}

/// Sets the error of the response. The caller keeps owning the error. Only its code is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    statistics: *mut ResponseStatistics,
    error: *mut CError,
) -> *mut CError {
    // SAFETY: null or live.
    let code = unsafe { error.as_ref() }.map(|error| error.to_error().code);
    // SAFETY: null or live.
    unsafe { record(statistics, |reported| reported.error = code) }
}

/// Reports a response: the next one of its request. Times that do not increase are an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceReportResponseStatistics(
    statistics: *mut ResponseStatistics,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or live statistics.
        let statistics = unsafe { borrow(statistics)? };
        let (instance, factory, report) = {
            let reported = statistics.reported.lock();
            (reported.instance, reported.factory, reported.report())
        };
        // SAFETY: null or live, as the callers of the setters promised.
        unsafe { borrow(instance).and(borrow(factory))? }.report(report)
    })
}
