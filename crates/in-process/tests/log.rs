//! The options of the log. This test has a process of its own, so that no other test writes to the log.
use std::{ffi::CString, fs, ptr};

use assembly::logging;
use c_api::types::error::{CError, consume};
use in_process::options::*;
use kserve::log_control::{LogControl, LogState};

fn fine(error: *mut CError) {
    // SAFETY: null or an error that this function owns.
    unsafe { consume(error) }.expect("no error");
}

#[test]
fn log_options_act_on_the_log_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let file = CString::new(path.to_str().unwrap()).unwrap();
    let mut options = ptr::null_mut();
    // SAFETY: live options, deleted once, and texts.
    unsafe {
        fine(TRITONSERVER_ServerOptionsNew(&mut options));
        fine(TRITONSERVER_ServerOptionsSetLogFile(options, file.as_ptr()));
        log::info!("one");
        fine(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
        log::info!("hidden");
        log::warn!("two");
        fine(TRITONSERVER_ServerOptionsSetLogWarn(options, false));
        log::warn!("hidden");
        log::error!("three");
        fine(TRITONSERVER_ServerOptionsSetLogError(options, false));
        log::error!("hidden");
        log::debug!("hidden");
        fine(TRITONSERVER_ServerOptionsSetLogVerbose(options, 1));
        fine(TRITONSERVER_ServerOptionsSetLogFormat(options, 1));
        log::debug!("four");
        let log = logging::of_process().unwrap();
        let expected = LogState {
            file: path.display().to_string(),
            info: false,
            warning: false,
            error: false,
            verbose_level: 1,
            format: "ISO8601",
        };
        assert_eq!(log.state(), expected, "clients see what the program has set");
        fine(TRITONSERVER_ServerOptionsSetLogVerbose(options, -1));
        log::debug!("hidden");
        fine(TRITONSERVER_ServerOptionsSetLogFile(options, ptr::null()));
        let missing = CString::new(folder.path().join("no/such").to_str().unwrap()).unwrap();
        let error = consume(TRITONSERVER_ServerOptionsSetLogFile(options, missing.as_ptr())).unwrap_err();
        assert!(error.message.starts_with("failed to open log file '"), "{error}");
        fine(TRITONSERVER_ServerOptionsDelete(options));
    }
    let text = fs::read_to_string(&path).unwrap();
    let messages: Vec<_> = text.lines().map(|line| line.rsplit("] ").next().unwrap()).collect();
    assert_eq!(messages, ["\"one\"", "\"two\"", "\"three\"", "\"four\""]);
    assert!(text.lines().last().unwrap().contains("Z I "), "the last line begins by ISO 8601");
}
