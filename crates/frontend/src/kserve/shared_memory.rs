//! Shared memory of clients, as a server without `--allow-client-shm` answers: no region is ever registered.
use inference::Error;

/// The error of a tensor that names a region.
pub fn unknown_region(region: &str) -> Error {
    Error::not_found(format!("Unable to find shared memory region: '{region}'"))
}

/// Whether the status of `name`, or of all regions if it is empty, can be told: of all, there are none.
///
/// # Errors
/// NOT_FOUND for any name. `kind` is `system` or `cuda`.
pub fn status(kind: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Ok(());
    }
    Err(Error::not_found(format!("Unable to find {kind} shared memory region: '{name}'")))
}

/// The error of registering and unregistering.
pub fn disabled() -> Error {
    Error::unsupported(
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
    )
}
