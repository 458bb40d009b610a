//! A program takes the log. This test has a process of its own, so that no other test writes to the log.
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

use c_api::types::{
    error::{CError, consume},
    log::TRITONSERVER_LogMessage,
};
use in_process::{options::*, server::*};
use inference::lock::{LockRank, Mutex};

/// What a callback is told about a record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ToldRecord {
    level: u32,
    place: String,
    micros: u64,
    message: String,
}

/// The records so far. The rank makes sure that no thread calls the callback while it holds a lock.
type Records = Mutex<Vec<ToldRecord>>;

unsafe extern "C-unwind" fn keep(
    level: u32,
    file: *const c_char,
    line: c_int,
    micros: u64,
    message: *const c_char,
    records: *mut c_void,
) {
    // SAFETY: texts, and what the test has given.
    let (file, message, records) =
        unsafe { (CStr::from_ptr(file), CStr::from_ptr(message), &*records.cast::<Records>()) };
    let (file, message) = (file.to_string_lossy(), message.to_string_lossy().into_owned());
    if message == "again" {
        log::warn!("of the callback");
    }
    records.lock().push(ToldRecord { level, place: format!("{file}:{line}"), micros, message });
}

fn fine(error: *mut CError) {
    // SAFETY: null or an error that this function owns.
    unsafe { consume(error) }.expect("no error");
}

fn path_of(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL")
}

#[test]
fn a_program_takes_the_records_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (file, models) = (folder.path().join("log"), folder.path().join("models"));
    fs::create_dir_all(models.join("bad/1")).unwrap();
    fs::write(models.join("bad/config.pbtxt"), "backend: 'nothing'").unwrap();
    let records = Records::ranked(LockRank::WorkerInbox, Vec::new());
    let userp = (&raw const records).cast_mut().cast();
    let messages = || records.lock().iter().map(|told| told.message.clone()).collect::<Vec<_>>();
    let (mut options, mut server) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: live options and a live server, deleted once, texts, and places of this function.
    unsafe {
        fine(TRITONSERVER_ServerOptionsNew(&mut options));
        fine(TRITONSERVER_ServerOptionsSetLogFile(options, path_of(&file).as_ptr()));
        fine(TRITONSERVER_ServerOptionsSetLogCallback(options, Some(keep), userp));
        fine(TRITONSERVER_LogMessage(2, c"model.cc".as_ptr(), 42, c"of a \"plug-in\"".as_ptr()));
        let first = records.lock()[0].clone();
        // 2026 has begun.
        assert!(first.micros > 1_767_225_600_000_000, "{first:?}");
        let expected = (2, "model.cc:42", "of a \"plug-in\"");
        assert_eq!((first.level, first.place.as_str(), first.message.as_str()), expected);

        // A level that is off, fields, and what the callback itself logs.
        log::debug!("hidden");
        log::info!(model = "m", version = 1; "with fields");
        log::warn!("again");
        log::logger().flush();
        assert_eq!(messages()[1..], ["with fields [model: m, version: 1]", "again"]);

        // The records of a server, on all of its threads.
        fine(TRITONSERVER_ServerOptionsSetLogVerbose(options, 2));
        fine(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, path_of(&models).as_ptr()));
        fine(TRITONSERVER_ServerOptionsSetExitOnError(options, false));
        fine(TRITONSERVER_ServerNew(&mut server, options));
        fine(TRITONSERVER_ServerDelete(server));
        let told = messages();
        let is_told = |text: &str| told.iter().any(|message| message.contains(text));
        assert!(is_told("failed to load 'bad' version 1") && is_told("unloading models"), "{told:?}");

        fine(TRITONSERVER_ServerOptionsSetLogCallback(options, None, ptr::null_mut()));
        log::error!("to the file");
        assert_eq!(messages().len(), told.len());
        fine(TRITONSERVER_ServerOptionsDelete(options));
    }
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text.lines().map(|line| line.rsplit("] ").next().unwrap()).collect();
    assert_eq!(lines, ["\"of the callback\"", "\"to the file\""]);
}
