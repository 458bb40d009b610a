//! `TRITONSERVER_ApiVersion`.
use super::error::CError;
use crate::handle::{guard, put};

/// The version of `tritonserver.h` that this library implements.
const VERSION: (u32, u32) = (1, 34);

/// Returns the version of this interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ApiVersion(major: *mut u32, minor: *mut u32) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { put(major, VERSION.0).and_then(|()| put(minor, VERSION.1)) })
}
