//! The function of a C program that takes the records of the log.
use std::{
    ffi::{c_char, c_int, c_void},
    time::UNIX_EPOCH,
};

use assembly::logging::{LogCallback, LoggedRecord};
use c_api::types::error::c_text;
use log::Level;

/// `TRITONSERVER_LogCallbackFn_t`.
pub(super) type LogFn =
    unsafe extern "C-unwind" fn(u32, *const c_char, c_int, u64, *const c_char, *mut c_void);

/// The function, and its last argument.
#[derive(Debug)]
pub(super) struct CLogCallback {
    pub(super) receive: LogFn,
    pub(super) userp: *mut c_void,
}

// SAFETY: the header requires a function that any thread may call; the pointer is only passed back to it.
unsafe impl Send for CLogCallback {}
// SAFETY: the same.
unsafe impl Sync for CLogCallback {}

impl CLogCallback {
    pub(super) fn boxed(self) -> LogCallback {
        Box::new(move |record| self.call(record))
    }

    fn call(&self, record: &LoggedRecord) {
        let level = match record.level {
            Level::Info => 0,
            Level::Warn => 1,
            Level::Error => 2,
            Level::Debug | Level::Trace => 3,
        };
        let (file, message) = (c_text(&record.file), c_text(&record.message));
        let since_epoch = record.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX);
        let line = record.line.cast_signed();
        // SAFETY: the program's function as the header declares it, and texts that live until it returns.
        unsafe { (self.receive)(level, file.as_ptr(), line, micros, message.as_ptr(), self.userp) }
    }
}
