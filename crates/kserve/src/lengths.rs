//! How long the ids and names of an infer request may be, whatever the protocol: the server copies them into queues, logs and
//! error texts.
use vocabulary::{Error, Name, check_length};

/// The longest id of a request, and the longest name in an infer request, in bytes.
pub const MAX_ID: usize = 64 << 10;

/// The id of a request.
///
/// # Errors
/// INVALID_ARG if it is too long.
pub fn id(text: &str) -> Result<Name, Error> {
    check_length("the id of the request", text, MAX_ID)?;
    Ok(Name::new(text))
}

/// The name of `what`, such as an input, in an infer request.
///
/// # Errors
/// INVALID_ARG if it is too long.
pub fn name(what: &str, text: &str) -> Result<Name, Error> {
    check_length(what, text, MAX_ID)?;
    Ok(Name::new(text))
}

/// The id of a request for its answer. Empty if it is too long: the error says so without it.
pub fn short_id(id: &str) -> Name {
    if id.len() <= MAX_ID { Name::new(id) } else { Name::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_too_long_is_not_repeated() {
        assert_eq!(short_id(&"x".repeat(MAX_ID)).len(), MAX_ID);
        assert!(short_id(&"x".repeat(MAX_ID + 1)).is_empty());
        assert!(id(&"x".repeat(MAX_ID)).is_ok());
        let error = id(&"x".repeat(MAX_ID + 1)).unwrap_err();
        assert_eq!(error.message, "the id of the request has 65537 bytes, and at most 65536 are allowed");
    }
}
