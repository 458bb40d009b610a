//! The error of a failed call, and how it is read.
use std::ffi::{CStr, c_char};

use vocabulary::{Error, FailureReason};

use super::sys::{self, CodeFunctions, TorchFunctions};

/// A failed call: the code of the interface, and what failed why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pytorch error {code}: {message}")]
pub(crate) struct TorchError {
    /// `AOTIRuntimeError`.
    pub(crate) code: i32,
    /// The step that failed, and the message.
    pub(crate) message: String,
}

impl TorchError {
    /// A contradiction that this wrapper finds before the library does.
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self { code: sys::FAILED, message: message.into() }
    }

    fn of_call(code: sys::TorchStatus, step: &str, told: Option<String>) -> Self {
        let reason = told.unwrap_or_else(|| "the reason is among the lines of stderr".to_owned());
        Self { code, message: format!("cannot {step}: {reason}") }
    }
}

impl From<TorchError> for Error {
    fn from(failure: TorchError) -> Self {
        Self::internal(failure.to_string()).because(FailureReason::Backend)
    }
}

/// Turns the status of a function of the library into a result. `step` completes "cannot ...".
pub(super) fn check(
    functions: &TorchFunctions,
    status: sys::TorchStatus,
    step: impl FnOnce() -> String,
) -> Result<(), TorchError> {
    if status == sys::OK {
        return Ok(());
    }
    // SAFETY: the text belongs to the library, and is copied before the next call of this thread.
    let told =
        functions.torch_exception_get_what_without_backtrace.and_then(|what| unsafe { one_line(what()) });
    Err(TorchError::of_call(status, &step(), told))
}

/// As [`check`], for an entry point of compiled code.
pub(super) fn check_code(
    functions: &CodeFunctions,
    status: sys::TorchStatus,
    step: impl FnOnce() -> String,
) -> Result<(), TorchError> {
    if status == sys::OK {
        return Ok(());
    }
    let told = functions.AOTInductorGetLastError.and_then(|last_error| {
        let mut text = std::ptr::null();
        // SAFETY: `text` is writable; the text belongs to the code, and is copied before the next call of this thread.
        unsafe { if last_error(&raw mut text) == sys::OK { one_line(text) } else { None } }
    });
    Err(TorchError::of_call(status, &step(), told))
}

/// The words of a text; `None` if there are none.
///
/// # Safety
/// `text` is null, or a text that ends with NUL.
unsafe fn one_line(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_text_are_one_line() {
        // SAFETY: texts that end with NUL, or null.
        let line = |text: &CStr| unsafe { one_line(text.as_ptr()) };
        assert_eq!(
            line(c"unmatched dim value\n\n  got: 3 \n").as_deref(),
            Some("unmatched dim value; got: 3")
        );
        assert_eq!(line(c" \n"), None);
        // SAFETY: as above.
        assert_eq!(unsafe { one_line(std::ptr::null()) }, None);
    }

    #[test]
    fn without_a_message_the_reader_is_sent_to_stderr() {
        let error = TorchError::of_call(1, "run the model", None);
        assert_eq!(
            error.to_string(),
            "pytorch error 1: cannot run the model: the reason is among the lines of stderr"
        );
    }
}
