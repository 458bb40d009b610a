//! What every exported function starts with: null checks, borrowed texts, owned boxes, caught panics.
//!
//! Handles become shared references only. What changes in an object is protected by atomics and locks. So a library may
//! call an exported function while another exported function has called the library.
use std::panic::{AssertUnwindSafe, catch_unwind};

use vocabulary::{Error, panic_message};

use crate::types::error::{CError, into_c};

pub use crate::pointers::*;

/// Runs the body of an exported function. An error, or a panic, becomes an error object that the caller owns.
pub fn guard(body: impl FnOnce() -> Result<(), Error>) -> *mut CError {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(error)) => into_c(&error),
        Err(panic) => into_c(&Error::internal(format!("the server panicked: {}", panic_message(&*panic)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::consume;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let error = guard(|| panic!("no {}", "way"));
        // SAFETY: made just now.
        let error = unsafe { consume(error) }.unwrap_err();
        assert_eq!(error.with_code(), "Internal: the server panicked: no way");
    }
}
