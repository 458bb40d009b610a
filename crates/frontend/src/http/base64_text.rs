//! Base64 in members of JSON.
use std::borrow::Cow;

use base64::{
    DecodeError, Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// The bytes of a text as programs write it: in lines, between blanks, with or without padding.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    const LOOSE: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    let symbols: Cow<'_, [u8]> = if text.iter().any(u8::is_ascii_whitespace) {
        Cow::Owned(text.iter().copied().filter(|symbol| !symbol.is_ascii_whitespace()).collect())
    } else {
        Cow::Borrowed(text)
    };
    LOOSE.decode(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_padding_do_not_matter() {
        for text in ["eHk=", "eHk", " eH\nk= ", "eHl="] {
            assert_eq!(decode(text.as_bytes()).unwrap(), b"xy", "{text}");
        }
        assert!(decode(b"e?k=").is_err());
    }
}
