//! `TRITONSERVER_Error`: null is success. The receiver of an error must delete it.
use std::ffi::{CString, c_char};

use vocabulary::{Error, ErrorCode};

use crate::pointers;

/// `TRITONSERVER_Error`: an error as C holds it.
pub struct CError {
    code: ErrorCode,
    message: CString,
    /// `TRITONSERVER_ErrorCodeString`.
    code_text: CString,
}

/// In the order of the numbers.
const CODES: [ErrorCode; 8] = [
    ErrorCode::Unknown,
    ErrorCode::Internal,
    ErrorCode::NotFound,
    ErrorCode::InvalidArgument,
    ErrorCode::Unavailable,
    ErrorCode::Unsupported,
    ErrorCode::AlreadyExists,
    ErrorCode::Cancelled,
];

impl CError {
    fn new(code: ErrorCode, message: &str) -> Self {
        Self { code, message: c_text(message), code_text: c_text(code.as_str()) }
    }

    /// The error as a Rust value.
    pub fn to_error(&self) -> Error {
        Error::new(self.code, self.message.to_string_lossy().into_owned())
    }
}

/// A text as a C string, cut at its first NUL.
pub fn c_text(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// Makes an error object. The caller must delete it.
pub fn into_c(error: &Error) -> *mut CError {
    Box::into_raw(Box::new(CError::new(error.code, &error.message)))
}

/// Takes ownership of what a function of a plug-in has returned.
///
/// # Errors
/// The error of the plug-in.
///
/// # Safety
/// `error` is null, or an error object that no other code deletes.
pub unsafe fn consume(error: *mut CError) -> Result<(), Error> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: not null, and owned by this function as the caller promises.
    Err(unsafe { Box::from_raw(error) }.to_error())
}

/// Makes an error. A code out of range becomes unknown, a null message becomes empty. The caller owns the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorNew(code: u32, message: *const c_char) -> *mut CError {
    let code = usize::try_from(code).ok().and_then(|code| CODES.get(code)).copied();
    // SAFETY: a text or null.
    let message = unsafe { pointers::text_lossy(message) }.unwrap_or_default();
    Box::into_raw(Box::new(CError::new(code.unwrap_or(ErrorCode::Unknown), &message)))
}

/// Deletes an error; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorDelete(error: *mut CError) {
    // SAFETY: null or an error that the caller does not use after this.
    unsafe { pointers::delete(error) };
}

/// Returns the code of an error; 0 (unknown) for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorCode(error: *mut CError) -> u32 {
    // SAFETY: null or a live error.
    let code = unsafe { error.as_ref() }.map_or(ErrorCode::Unknown, |error| error.code);
    CODES.iter().position(|known| *known == code).and_then(|index| u32::try_from(index).ok()).unwrap_or(0)
}

/// Returns the name of an error's code. It belongs to the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorCodeString(error: *mut CError) -> *const c_char {
    // SAFETY: null or a live error.
    unsafe { error.as_ref() }.map_or(c"<invalid>".as_ptr(), |error| error.code_text.as_ptr())
}

/// Returns the message of an error. It belongs to the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorMessage(error: *mut CError) -> *const c_char {
    // SAFETY: null or a live error.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn an_error_goes_to_c_and_comes_back() {
        for (number, code) in (0..).zip(CODES) {
            let error = into_c(&Error::new(code, "why\0not"));
            // SAFETY: made just now, consumed once.
            unsafe {
                assert_eq!(TRITONSERVER_ErrorCode(error), number);
                assert_eq!(CStr::from_ptr(TRITONSERVER_ErrorMessage(error)), c"why");
                assert_eq!(
                    CStr::from_ptr(TRITONSERVER_ErrorCodeString(error)).to_str().unwrap(),
                    code.as_str()
                );
                assert_eq!(consume(error).unwrap_err(), Error::new(code, "why"));
            }
        }
    }

    #[test]
    fn strange_arguments_make_an_unknown_error() {
        // SAFETY: null is allowed.
        let error = unsafe { TRITONSERVER_ErrorNew(99, std::ptr::null()) };
        // SAFETY: made just now, consumed once.
        assert_eq!(unsafe { consume(error) }.unwrap_err(), Error::new(ErrorCode::Unknown, ""));
    }
}
