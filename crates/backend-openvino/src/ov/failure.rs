//! The error of a failed call of OpenVINO, and how it is read.
use std::{ffi::CStr, ptr::NonNull};

use vocabulary::{Error, FailureReason};

use super::sys::{self, FunctionTable};

/// A failed call: the library's code, and what failed why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("openvino error {code}: {message}")]
pub(crate) struct OvError {
    /// `ov_status_e`. It is a number, because a newer library may have more codes.
    pub(crate) code: i32,
    /// The step that failed, and the library's message.
    pub(crate) message: String,
}

impl OvError {
    /// What the library has reported about a step, such as `compile the model`.
    pub(super) fn of_library(code: i32, step: &str, message: &str) -> Self {
        let reason = without_source_places(message);
        if reason.len() < message.trim_end().len() {
            log::debug!("openvino error {code}: cannot {step}: {message}");
        }
        Self { code, message: format!("cannot {step}: {reason}") }
    }

    /// A contradiction that this wrapper finds before the library does.
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self { code: sys::INVALID_ARGUMENT, message: message.into() }
    }
}

impl From<OvError> for Error {
    fn from(failure: OvError) -> Self {
        Self::internal(failure.to_string()).because(FailureReason::Backend)
    }
}

/// Turns a status into a result. `step` completes "cannot ...".
///
/// The library keeps one message for the whole process: if two calls fail at the same time, both errors may have the
/// message of one of them. Code and step are always those of the call.
pub(super) fn check(
    functions: &FunctionTable,
    status: sys::ov_status,
    step: impl FnOnce() -> String,
) -> Result<(), OvError> {
    if status == sys::OK {
        return Ok(());
    }
    // SAFETY: the message is a text that belongs to the caller, copied, then freed once; the description of a code is
    // static. Either may be null.
    let message = unsafe {
        let message = (functions.ov_get_last_err_msg)();
        // The C interface refuses arguments without a message, so the last one is that of an earlier call.
        let is_of_this_call = !message.is_null() && status != sys::INVALID_ARGUMENT;
        let source = if is_of_this_call { message } else { (functions.ov_get_error_info)(status) };
        let text = if source.is_null() {
            String::new()
        } else {
            CStr::from_ptr(source).to_string_lossy().into_owned()
        };
        if !message.is_null() {
            (functions.ov_free)(message);
        }
        text
    };
    Err(OvError::of_library(status, &step(), &message))
}

/// Checks a result that a successful call must set.
pub(super) fn not_null<T>(pointer: *mut T, what: &str) -> Result<NonNull<T>, OvError> {
    NonNull::new(pointer).ok_or_else(|| OvError { code: -1, message: format!("the library gave no {what}") })
}

/// The message in one line, without the lines that only name places in the library's own source: they help nobody who
/// serves a model. A message of such lines alone keeps the last of them.
fn without_source_places(message: &str) -> String {
    let lines = || message.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_place = |line: &&str| {
        let begins = ["Exception from ", "Check '"].iter().any(|begin| line.starts_with(begin));
        begins && line.strip_suffix(':').is_some_and(ends_with_place)
    };
    let told: Vec<&str> = lines().filter(|line| !is_place(line)).collect();
    if told.is_empty() { lines().next_back().unwrap_or("no reason told").to_owned() } else { told.join("; ") }
}

/// Whether a text ends with the place in a source file: `src/a.cpp:12`.
fn ends_with_place(text: &str) -> bool {
    let Some((file, number)) = text.rsplit_once(':') else { return false };
    [".cpp", ".hpp", ".h", ".c"].iter().any(|end| file.ends_with(end))
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_no_places_of_the_librarys_source() {
        let weights = "Exception from src/inference/src/cpp/core.cpp:84:\n\
                       Check 'is_valid_weights_range(size(), offset)' failed at \
                       src/core/xml_util/src/xml_deserialize_util.cpp:900:\n\
                       Incorrect weights in bin file!\n\n";
        let error = OvError::of_library(-1, "read 'm.xml'", weights);
        assert_eq!(
            error.to_string(),
            "openvino error -1: cannot read 'm.xml': Incorrect weights in bin file!"
        );
        let two = "Exception from src/a.cpp:1:\nWhile validating node 'Add':\nShapes differ: (1 and 2)\n";
        assert_eq!(without_source_places(two), "While validating node 'Add':; Shapes differ: (1 and 2)");
    }

    #[test]
    fn a_message_of_places_alone_keeps_the_last_of_them() {
        let places = "Exception from src/a.cpp:1:\nCheck 'x' failed at src/b.hpp:22:\n";
        assert_eq!(without_source_places(places), "Check 'x' failed at src/b.hpp:22:");
        assert_eq!(without_source_places(" \n"), "no reason told");
        let other = "Exception from the user: 5:";
        assert_eq!(without_source_places(other), other);
    }
}
