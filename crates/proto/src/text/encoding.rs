//! Decodes a source. It is UTF-8, except for its comments: many are in Latin-1.
//!
//! As Triton: protobuf's TextFormat skips the bytes of comments. It also keeps such bytes in strings. Strings of a
//! configuration go to clients in JSON and in messages of gRPC, which must be UTF-8, so they are refused.
use std::borrow::Cow;

use super::fault::TextFault;

/// Where the scanner is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    Plain,
    Comment,
    /// A string with this quote.
    Text(char),
    /// The character after a backslash of such a string.
    Escape(char),
}

impl Region {
    fn after(self, c: char) -> Self {
        match (self, c) {
            // A string ends with its line, too: the parser refuses it then.
            (_, '\n') => Self::Plain,
            (Self::Plain, '#') => Self::Comment,
            (Self::Plain, '"' | '\'') => Self::Text(c),
            (Self::Text(quote), '\\') => Self::Escape(quote),
            (Self::Text(quote), c) if c == quote => Self::Plain,
            (Self::Escape(quote), _) => Self::Text(quote),
            (region, _) => region,
        }
    }
}

/// The source as text. A byte of a comment that is not UTF-8 becomes a replacement character.
///
/// Fails at the first other byte that is not UTF-8, with a text to show and the offset of the byte in that text.
pub(super) fn decode(source: &[u8]) -> Result<Cow<'_, str>, (String, usize)> {
    if let Ok(text) = str::from_utf8(source) {
        return Ok(Cow::Borrowed(text));
    }
    let (mut text, mut region, mut fault) = (String::with_capacity(source.len()), Region::Plain, None);
    for chunk in source.utf8_chunks() {
        region = chunk.valid().chars().fold(region, Region::after);
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() && region != Region::Comment {
            fault = fault.or(Some(text.len()));
        }
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    match fault {
        None => Ok(Cow::Owned(text)),
        Some(at) => Err((text, at)),
    }
}

/// The mistake at a byte that is not UTF-8.
pub(super) fn fault(at: usize) -> TextFault {
    TextFault::new(at, "the file is not valid UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_may_have_any_bytes() {
        for source in [
            &b"# M\xfcller\nname: 'm'"[..],
            b"name: 'm' # \xff\xfe",
            b"name: 'a#b' # '\xe9\nbackend: 'x' # \xe9",
            b"name: 'it\\'s' # \xe9",
        ] {
            let text = decode(source).unwrap();
            let replaced = source.iter().filter(|byte| **byte >= 0x80).count();
            assert_eq!(
                text.chars().filter(|c| *c == char::REPLACEMENT_CHARACTER).count(),
                replaced,
                "{text}"
            );
            assert_eq!(text.chars().count(), source.len(), "the columns stay");
        }
    }

    #[test]
    fn other_parts_must_be_utf_8() {
        for (source, at) in [
            (&b"name: 'M\xfcller'"[..], 8),
            (b"\xff\xfename: 'm'", 0),
            // The byte before is replaced by three.
            (b"# \xe9\nname: '#\xe9'", 14),
            (b"name: 'a\\'#\xe9'", 11),
            (b"name: \"it's # \xe9\"", 14),
        ] {
            let (shown, found) = decode(source).unwrap_err();
            assert_eq!(found, at, "{shown}");
            assert!(shown[at..].starts_with(char::REPLACEMENT_CHARACTER), "{shown}");
        }
    }
}
