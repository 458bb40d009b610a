//! Options of the log. The process has one log, so they take effect at once and for every server.
use std::{
    ffi::{c_char, c_int, c_void},
    path::Path,
};

use assembly::logging::{self, Levels, LogFormat, LogSettings};
use c_api::{
    handle::{borrow, guard, text},
    types::error::CError,
};
use vocabulary::Error;

use super::{
    ServerOptions,
    log_callback::{CLogCallback, LogFn},
};

/// Changes the process's log.
///
/// # Safety
/// The options are null or live.
unsafe fn of_log(
    options: *mut ServerOptions,
    change: impl FnOnce(&LogSettings) -> Result<(), Error>,
) -> *mut CError {
    let foreign = || Error::unsupported("the log of this process is not the server's to set");
    // SAFETY: as the caller promises.
    guard(|| unsafe { borrow(options) }.and_then(|_| change(&*logging::of_process().ok_or_else(foreign)?)))
}

/// Changes switches of the process's log.
///
/// # Safety
/// The options are null or live.
unsafe fn turn(options: *mut ServerOptions, change: impl FnOnce(&mut Levels)) -> *mut CError {
    // SAFETY: as the caller promises.
    unsafe {
        of_log(options, |log| {
            log.update(change);
            Ok(())
        })
    }
}

/// Sets the file that log lines are appended to. Null and the empty text mean stdout and stderr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetLogFile(
    options: *mut ServerOptions,
    file: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; a text or null.
    unsafe {
        of_log(options, |log| {
            let file = if file.is_null() { "" } else { text(file)? };
            log.set_file(Some(Path::new(file)).filter(|_| !file.is_empty()))
        })
    }
}

/// Sets a function that receives each record of a level that is logged; null for none. The records go to no file, stdout or
/// stderr then, except for those that the function itself logs, and if 10,000 records wait for it. A call that has begun
/// may go on after this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetLogCallback(
    options: *mut ServerOptions,
    callback: Option<LogFn>,
    userp: *mut c_void,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        of_log(options, |log| {
            log.set_callback(callback.map(|receive| CLogCallback { receive, userp }.boxed()));
            Ok(())
        })
    }
}

/// Sets whether normal operation is logged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetLogInfo(
    options: *mut ServerOptions,
    log: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { turn(options, |levels| levels.info = log) }
}

/// Sets whether warnings are logged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetLogWarn(
    options: *mut ServerOptions,
    log: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { turn(options, |levels| levels.warning = log) }
}

/// Sets whether errors are logged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetLogError(
    options: *mut ServerOptions,
    log: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { turn(options, |levels| levels.error = log) }
}

/// Sets the format of log lines: 0 for the default, 1 for ISO 8601.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetLogFormat(
    options: *mut ServerOptions,
    format: u32,
) -> *mut CError {
    let format = match format {
        0 => LogFormat::Default,
        1 => LogFormat::Iso8601,
        other => return guard(|| Err(Error::invalid(format!("unknown log format '{other}'")))),
    };
    // SAFETY: null or live options.
    unsafe { turn(options, |levels| levels.format = format) }
}

/// Sets the verbosity; 0 and less for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetLogVerbose(
    options: *mut ServerOptions,
    level: c_int,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { turn(options, |levels| levels.verbose = u32::try_from(level).unwrap_or(0)) }
}
