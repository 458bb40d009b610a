//! `TRITONSERVER_Log*`: what plug-ins have to say, in the server's own log.
use std::ffi::{c_char, c_int};

use ::log::{Level, Record};

use super::error::CError;
use crate::handle::{guard, text};

/// `TRITONSERVER_LogLevel` as the log knows it; other numbers are details.
fn level(number: u32) -> Level {
    match number {
        0 => Level::Info,
        1 => Level::Warn,
        2 => Level::Error,
        _ => Level::Debug,
    }
}

/// Whether a message of that level would be seen.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_LogIsEnabled(log_level: u32) -> bool {
    ::log::log_enabled!(target: "plugin", level(log_level))
}

/// Logs a message as coming from that place of the plug-in's source.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_LogMessage(
    log_level: u32,
    file: *const c_char,
    line: c_int,
    message: *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: texts or null.
        let (file, message) = unsafe { (text(file).ok(), text(message)?) };
        let mut record = Record::builder();
        record.level(level(log_level)).target("plugin").file(file).line(u32::try_from(line).ok());
        ::log::logger().log(&record.args(format_args!("{message}")).build());
        Ok(())
    })
}
