//! Converts between pointers of C and types of Rust: null checks, borrowed texts, owned boxes.
//!
//! This module knows nothing about the types of the handles or about error objects.
use std::{
    borrow::Cow,
    ffi::{CStr, CString, OsStr, c_char},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use vocabulary::{Error, Name};

/// A type that C knows as an opaque handle.
pub trait Handle {
    /// Its name in C.
    const NAME: &'static str;
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

/// Takes ownership of the object behind a handle.
///
/// # Errors
/// INVALID_ARG for null.
///
/// # Safety
/// The handle is null, or [`give`] or [`Box::into_raw`] has made it and the caller does not use it after this.
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

/// Writes a result.
///
/// # Errors
/// INVALID_ARG for a null output parameter.
///
/// # Safety
/// The output parameter is null or may be written.
pub unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Error> {
    if place.is_null() {
        return Err(missing("place for an answer"));
    }
    // SAFETY: not null, and writable as the caller promises.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a result if the output parameter is not null.
///
/// # Safety
/// The output parameter is null or may be written.
pub unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and writable as the caller promises.
        unsafe { place.write(value) };
    }
}

/// Gives a new object to the caller, who must delete it.
///
/// # Errors
/// INVALID_ARG for a null output parameter; then the object is dropped.
///
/// # Safety
/// The output parameter is null or may be written.
pub unsafe fn give<T>(place: *mut *mut T, value: T) -> Result<(), Error> {
    if place.is_null() {
        return Err(missing("place for an answer"));
    }
    // SAFETY: as the caller promises.
    unsafe { put(place, Box::into_raw(Box::new(value))) }
}

/// Reads a text.
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

/// Reads a text for people. Bytes that are not UTF-8 become replacement characters.
///
/// # Errors
/// INVALID_ARG for null.
///
/// # Safety
/// As for [`text`].
pub unsafe fn text_lossy<'a>(text: *const c_char) -> Result<Cow<'a, str>, Error> {
    if text.is_null() {
        return Err(missing("text"));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// Reads a path, which may have any bytes.
///
/// # Errors
/// INVALID_ARG for null.
///
/// # Safety
/// As for [`text`].
pub unsafe fn path(text: *const c_char) -> Result<PathBuf, Error> {
    if text.is_null() {
        return Err(missing("path"));
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// A path as a C string. The path of a file has no NUL.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// A text of Rust as a C string that C reads in place.
pub fn readable(name: &Name) -> *const c_char {
    name.with_nul().as_ptr().cast()
}

/// Reads an array; null has no elements.
///
/// # Errors
/// INVALID_ARG for more elements than memory can have.
///
/// # Safety
/// The pointer is null or points to `count` elements that live as long as the reference.
pub unsafe fn array<'a, T>(first: *const T, count: impl TryInto<usize>) -> Result<&'a [T], Error> {
    let count = count.try_into().ok().filter(|count| *count <= isize::MAX as usize / size_of::<T>().max(1));
    let count = count.ok_or_else(|| Error::invalid("an array cannot have so many elements"))?;
    if first.is_null() {
        return Ok(&[]);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_array_is_no_larger_than_memory() {
        let numbers = [1_i64, 2];
        // SAFETY: as many numbers, and none is read of an array that cannot be.
        unsafe {
            assert_eq!(array(numbers.as_ptr(), 2_u32).unwrap(), [1, 2]);
            assert!(array(std::ptr::null::<i64>(), 2_u64).unwrap().is_empty());
            let error = array(numbers.as_ptr(), u64::MAX / 8).unwrap_err();
            assert_eq!(error.message, "an array cannot have so many elements");
        }
    }

    #[test]
    fn texts_for_people_need_not_be_utf_8() {
        // SAFETY: texts.
        unsafe {
            assert_eq!(text_lossy(c"na\xefve".as_ptr()).unwrap(), "na\u{fffd}ve");
            assert!(text(c"na\xefve".as_ptr()).is_err());
            let odd = path(c"/na\xefve".as_ptr()).unwrap();
            assert_eq!(c_path(&odd).as_c_str(), c"/na\xefve");
        }
    }
}
