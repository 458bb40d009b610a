//! From what C passes to what Rust may use, and back: null checks, borrowed texts, owned boxes, caught panics.
//!
//! Handles become shared references only; what changes behind them lies in atomics and locks, so that a function that
//! calls out may be entered again.
use std::{
    any::Any,
    ffi::{CStr, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use inference::{Error, Name};

use crate::words::error::{CError, into_c};

/// A type that C knows as an opaque handle.
pub trait Handle {
    /// Its name in C.
    const NAME: &'static str;
}

/// Runs the body of an exported function. An error, or a panic, becomes an error object that the caller owns.
pub fn guard(body: impl FnOnce() -> Result<(), Error>) -> *mut CError {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(error)) => into_c(&error),
        Err(panic) => into_c(&Error::internal(format!("the server panicked: {}", words_of(&*panic)))),
    }
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("for an unknown reason")
}

fn missing(what: &str) -> Error {
    Error::invalid(format!("unexpected null {what}"))
}

/// The object behind a handle.
///
/// # Errors
/// INVALID_ARG for null.
///
/// # Safety
/// The handle is null or points to a live `T`, which stays alive while the reference is used.
pub unsafe fn borrow<'a, T: Handle>(handle: *const T) -> Result<&'a T, Error> {
    // SAFETY: as the caller promises.
    unsafe { handle.as_ref() }.ok_or_else(|| missing(T::NAME))
}

/// Takes the object behind a handle over.
///
/// # Errors
/// INVALID_ARG for null.
///
/// # Safety
/// The handle is null or has come from [`give`] or [`Box::into_raw`], and nobody uses it after this.
pub unsafe fn take<T: Handle>(handle: *mut T) -> Result<Box<T>, Error> {
    if handle.is_null() {
        return Err(missing(T::NAME));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { Box::from_raw(handle) })
}

/// Deletes the object behind a handle; null is fine.
///
/// # Safety
/// As for [`take`].
pub unsafe fn delete<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// Writes an answer.
///
/// # Errors
/// INVALID_ARG if there is no place for it.
///
/// # Safety
/// The place is null or may be written.
pub unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Error> {
    if place.is_null() {
        return Err(missing("place for an answer"));
    }
    // SAFETY: not null, and writable as the caller promises.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes an answer if the caller wants it.
///
/// # Safety
/// The place is null or may be written.
pub unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and writable as the caller promises.
        unsafe { place.write(value) };
    }
}

/// Hands a new object to the caller, who must delete it.
///
/// # Errors
/// INVALID_ARG if there is no place for the handle; the object is dropped then.
///
/// # Safety
/// The place is null or may be written.
pub unsafe fn give<T>(place: *mut *mut T, value: T) -> Result<(), Error> {
    if place.is_null() {
        return Err(missing("place for an answer"));
    }
    // SAFETY: as the caller promises.
    unsafe { put(place, Box::into_raw(Box::new(value))) }
}

/// A text.
///
/// # Errors
/// INVALID_ARG for null and for what is not UTF-8.
///
/// # Safety
/// The pointer is null or points to a text with a closing NUL that lives as long as the reference.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(missing("text"));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::invalid(format!("'{}' is not UTF-8", text.to_string_lossy())))
}

/// A text of ours, to be read in place by C.
pub fn readable(name: &Name) -> *const c_char {
    name.with_nul().as_ptr().cast()
}

/// An array.
///
/// # Safety
/// The pointer is null or points to `len` elements that live as long as the reference.
pub unsafe fn array<'a, T>(first: *const T, len: usize) -> &'a [T] {
    if first.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(first, len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::error::consume;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let error = guard(|| panic!("no {}", "way"));
        // SAFETY: made just now.
        let error = unsafe { consume(error) }.unwrap_err();
        assert_eq!(error.with_code(), "Internal: the server panicked: no way");
    }

    #[test]
    fn null_is_named() {
        // SAFETY: null is allowed.
        let error = unsafe { text(std::ptr::null()) }.unwrap_err();
        assert_eq!(error.with_code(), "Invalid argument: unexpected null text");
        // SAFETY: null is allowed.
        assert!(unsafe { put(std::ptr::null_mut(), 1) }.is_err());
        // SAFETY: null is allowed.
        unsafe { delete::<u8>(std::ptr::null_mut()) };
    }
}
