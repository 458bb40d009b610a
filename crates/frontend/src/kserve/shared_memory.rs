//! Answers about clients' shared memory, as a server without `--allow-client-shm` gives them: no region is ever
//! registered.
use inference::Error;

/// The error of a tensor that names a region.
pub fn unknown_region(region: &str) -> Error {
    Error::not_found(format!("Unable to find shared memory region: '{region}'"))
}

/// The status of region `name`, or of all regions if `name` is empty. There are no regions, so only the latter
/// succeeds.
///
/// # Errors
/// NOT_FOUND for any name. `kind` is `system` or `cuda`.
pub fn status(kind: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Ok(());
    }
    Err(Error::not_found(format!("Unable to find {kind} shared memory region: '{name}'")))
}

/// The error of registering or unregistering a region.
pub fn disabled() -> Error {
    Error::unsupported(
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
    )
}
