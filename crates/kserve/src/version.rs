//! Reads versions of models as clients write them.
use vocabulary::Error;

/// The version that a client requests. The empty text requests the default version.
///
/// # Errors
/// INVALID_ARG if the whole text is not a number from 0 to 2^63 - 1. The details contain the name of C's `stol`,
/// because clients expect that.
pub fn parse(text: &str) -> Result<Option<i64>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    let version: i64 = text.parse().map_err(|_| {
        Error::invalid(format!(
            "failed to get model version from specified version string '{text}' (details: stol), version should be an \
             integral value > 0"
        ))
    })?;
    if version < 0 {
        return Err(Error::invalid(format!(
            "invalid model version specified '{text}' , version should be an integral value > 0"
        )));
    }
    Ok(Some(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_number_is_a_version() {
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("0"), Ok(Some(0)));
        assert_eq!(parse("17"), Ok(Some(17)));
        for text in ["1abc", "x", "99999999999999999999"] {
            let expected = format!(
                "failed to get model version from specified version string '{text}' (details: stol), version should be an integral value > 0"
            );
            assert_eq!(parse(text).unwrap_err().message, expected);
        }
        assert_eq!(
            parse("-5").unwrap_err().message,
            "invalid model version specified '-5' , version should be an integral value > 0"
        );
    }
}
