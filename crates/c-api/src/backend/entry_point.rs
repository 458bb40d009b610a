//! The functions that a backend's library defines for objects of the server.
use vocabulary::Error;

use crate::types::error::{CError, consume};

/// A function of a library that takes one object.
pub(super) type EntryPoint<T> = unsafe extern "C-unwind" fn(*mut T) -> *mut CError;

/// Calls a function of a library with an object. A function that the library does not define succeeds.
///
/// # Errors
/// The error of the library.
pub(super) fn call<T>(function: Option<EntryPoint<T>>, object: &T) -> Result<(), Error> {
    let Some(function) = function else { return Ok(()) };
    // SAFETY: the object lives during the call; the library uses it as a handle, and Rust uses it through shared
    // references.
    unsafe { consume(function(std::ptr::from_ref(object).cast_mut())) }
}
