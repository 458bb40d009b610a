//! `TRITONSERVER_ApiVersion`.
use super::error::CError;
use crate::handle::{guard, put};

/// The version of `tritonserver.h` that is spoken here.
const VERSION: (u32, u32) = (1, 34);

/// The version of this interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ApiVersion(major: *mut u32, minor: *mut u32) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { put(major, VERSION.0).and_then(|()| put(minor, VERSION.1)) })
}
