//! `TRITONSERVER_Log*`: plug-ins write into the server's log.
use std::ffi::{c_char, c_int};

use ::log::{Level, Record};
use vocabulary::log_target::PLUGIN;

use super::error::CError;
use crate::handle::{guard, text_lossy};

/// `TRITONSERVER_LogLevel` as a level of the `log` crate; other numbers are the verbose level.
fn level(number: u32) -> Level {
    match number {
        0 => Level::Info,
        1 => Level::Warn,
        2 => Level::Error,
        _ => Level::Debug,
    }
}

/// Returns whether messages of that level are logged.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_LogIsEnabled(log_level: u32) -> bool {
    ::log::log_enabled!(target: PLUGIN, level(log_level))
}

/// Logs a message with the given file and line of the plug-in's source.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_LogMessage(
    log_level: u32,
    file: *const c_char,
    line: c_int,
    message: *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: texts or null.
        let (file, message) = unsafe { (text_lossy(file).ok(), text_lossy(message)?) };
        log(level(log_level), file.as_deref(), u32::try_from(line).ok(), &message);
        Ok(())
    })
}

fn log(level: Level, file: Option<&str>, line: Option<u32>, message: &str) {
    let mut record = Record::builder();
    record.level(level).target(PLUGIN).file(file).line(line);
    ::log::logger().log(&record.args(format_args!("{message}")).build());
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_message_that_is_not_utf_8_is_logged_all_the_same() {
        // SAFETY: texts.
        let error = unsafe { TRITONSERVER_LogMessage(0, c"file.c".as_ptr(), 1, c"na\xefve".as_ptr()) };
        assert!(error.is_null());
        // SAFETY: null is allowed.
        assert!(!unsafe { TRITONSERVER_LogMessage(0, ptr::null(), 1, ptr::null()) }.is_null());
    }
}
