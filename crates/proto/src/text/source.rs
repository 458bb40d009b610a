//! What can be done with the text form of a configuration.
use super::{
    encoding,
    error::TextError,
    format::format as format_text,
    outline::{SourceField, outline as read_outline},
    parser,
};
use crate::Parsed;

/// Reads a configuration from its text form; an empty source is an empty configuration.
///
/// # Errors
/// The first mistake in the source. Its [`TextError::others`] contains the further ones.
pub fn parse(source: &[u8]) -> Result<Parsed, TextError> {
    let (parsed, error) = parse_what_can_be(source);
    match error {
        None => Ok(parsed),
        Some(error) => Err(error),
    }
}

/// As [`parse`], but returns what could be read of a source with mistakes, too. A misspelt name counts as the name that
/// was probably meant.
pub fn parse_what_can_be(source: &[u8]) -> (Parsed, Option<TextError>) {
    match encoding::decode(source) {
        Ok(source) => {
            let (parsed, faults) = parser::parse(&source);
            (parsed, TextError::all(&source, faults))
        }
        Err((shown, at)) => (Parsed::default(), TextError::all(&shown, vec![encoding::fault(at)])),
    }
}

/// Formats a configuration: its comments, its order and its blank lines stay, and its meaning. Formatting twice changes
/// nothing more.
///
/// # Errors
/// The mistakes of a source that is not a configuration. A source that is not UTF-8 cannot be formatted, even if the other
/// bytes are only in comments.
pub fn format(source: &[u8]) -> Result<String, TextError> {
    parse(source)?;
    let source = str::from_utf8(source).map_err(|error| {
        TextError::new(&String::from_utf8_lossy(source), encoding::fault(error.valid_up_to()))
    })?;
    format_text(source).map_err(|fault| TextError::new(source, fault))
}

/// The fields of a configuration with their places in its source, so that a program can change some of them.
///
/// # Errors
/// The mistakes of a source that is not a configuration.
pub fn outline(source: &str) -> Result<Vec<SourceField<'_>>, TextError> {
    parse(source.as_bytes())?;
    read_outline(source).map_err(|fault| TextError::new(source, fault))
}
