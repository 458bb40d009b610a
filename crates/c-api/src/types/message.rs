//! `TRITONSERVER_Message`: JSON that passes between C and Rust.
use std::{
    ffi::{CString, c_char},
    ptr,
};

use vocabulary::Error;

use super::error::{CError, c_text};
use crate::handle::{Handle, array, borrow, delete, give, guard, put};

/// `TRITONSERVER_Message`: an immutable JSON text with a closing NUL.
#[derive(Debug, Default)]
pub struct Message {
    json: CString,
}

impl Handle for Message {
    const NAME: &'static str = "TRITONSERVER_Message";
}

impl Message {
    /// A message with that JSON.
    pub fn new(json: &str) -> Self {
        Self { json: c_text(json) }
    }

    /// The JSON of the message.
    pub fn json(&self) -> &str {
        // The text was a `str`, or was checked when C passed it.
        self.json.to_str().unwrap_or_default()
    }
}

/// Gives a message to the caller, who must delete it.
///
/// # Errors
/// INVALID_ARG for a null output parameter.
///
/// # Safety
/// The output parameter is null or may be written.
pub unsafe fn give_json(place: *mut *mut Message, json: &str) -> Result<(), Error> {
    // SAFETY: as the caller promises.
    unsafe { give(place, Message::new(json)) }
}

/// Parses that many bytes of JSON and copies them. The caller owns the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MessageNewFromSerializedJson(
    message: *mut *mut Message,
    base: *const c_char,
    byte_size: usize,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or that many bytes.
        let bytes = unsafe { array(base.cast::<u8>(), byte_size)? };
        let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(bytes);
        parsed.map_err(|error| Error::invalid(format!("failed to parse JSON message: {error}")))?;
        let json = String::from_utf8_lossy(bytes);
        // SAFETY: null or writable.
        unsafe { give(message, Message::new(&json)) }
    })
}

/// Deletes a message; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MessageDelete(message: *mut Message) -> *mut CError {
    // SAFETY: null or a message that the caller does not use after this.
    unsafe { delete(message) };
    ptr::null_mut()
}

/// Returns the JSON of a message. It belongs to the message. It has a closing NUL, which `byte_size` does not count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MessageSerializeToJson(
    message: *mut Message,
    base: *mut *const c_char,
    byte_size: *mut usize,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live message; null or writable.
        unsafe {
            let message = borrow(message)?;
            put(base, message.json.as_ptr())?;
            put(byte_size, message.json.as_bytes().len())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::consume;

    #[test]
    fn only_json_makes_a_message() {
        let mut message = ptr::null_mut();
        // SAFETY: bytes and places of this function.
        let error = unsafe { TRITONSERVER_MessageNewFromSerializedJson(&raw mut message, c"{]".as_ptr(), 2) };
        // SAFETY: made just now.
        assert!(unsafe { consume(error) }.unwrap_err().message.starts_with("failed to parse JSON message"));
        assert!(message.is_null());
    }

    #[test]
    fn a_message_gives_back_its_json_with_a_nul() {
        let (mut message, mut base, mut size) = (ptr::null_mut(), ptr::null(), 0);
        // SAFETY: bytes and places of this function.
        unsafe {
            let made = TRITONSERVER_MessageNewFromSerializedJson(&raw mut message, c"{\"a\":1}x".as_ptr(), 7);
            assert!(consume(made).is_ok());
            assert!(
                consume(TRITONSERVER_MessageSerializeToJson(message, &raw mut base, &raw mut size)).is_ok()
            );
            assert_eq!((std::ffi::CStr::from_ptr(base), size), (c"{\"a\":1}", 7));
            TRITONSERVER_MessageDelete(message);
        }
    }
}
