//! What the inference protocol means, whichever door it comes by: HTTP and gRPC share these rules.
pub mod classification;
pub mod metadata;
pub mod output;
pub mod parameters;
pub mod statistics;
pub mod version;

use inference::Error;

/// The error of a tensor that names a shared memory region nobody has registered.
pub fn unknown_region(region: &str) -> Error {
    Error::not_found(format!("Unable to find shared memory region: '{region}'"))
}
