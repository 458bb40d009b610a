//! Converts numbers and strings of the text format into values.

/// The value of an unsigned decimal, `0x` or octal integer; `None` if it does not fit.
pub(super) fn integer(word: &str) -> Option<u64> {
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&word[2..], 16),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

/// Appends the bytes of the inside of a string literal to `into`.
///
/// # Errors
/// The byte offset in `raw` of an invalid escape, and the reason.
pub(super) fn unescape(raw: &str, into: &mut Vec<u8>) -> Result<(), (usize, String)> {
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        into.extend_from_slice(&rest.as_bytes()[..at]);
        let offset = raw.len() - rest.len() + at;
        let escape = &rest[at + 1..];
        let length = one_escape(escape, into).map_err(|why| (offset, why))?;
        rest = &escape[length..];
    }
    into.extend_from_slice(rest.as_bytes());
    Ok(())
}

/// Appends the character of the escape at the start of `text`, after its backslash. Returns the length of the escape.
fn one_escape(text: &str, into: &mut Vec<u8>) -> Result<usize, String> {
    let Some(letter) = text.chars().next() else { return Err("the string ends in an escape".to_owned()) };
    let byte = match letter {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' | '\'' | '"' | '?' => letter as u8,
        '0'..='7' => return octal(text, into),
        'x' | 'X' => return hexadecimal(text, into),
        'u' | 'U' => return unicode(text, into),
        other => return Err(format!("'\\{other}' is not a known escape")),
    };
    into.push(byte);
    Ok(1)
}

fn octal(text: &str, into: &mut Vec<u8>) -> Result<usize, String> {
    let digits = leading(text, 3, |c| matches!(c, '0'..='7'));
    let value = u8::from_str_radix(digits, 8).map_err(|_| format!("'\\{digits}' is more than a byte"))?;
    into.push(value);
    Ok(digits.len())
}

fn hexadecimal(text: &str, into: &mut Vec<u8>) -> Result<usize, String> {
    let digits = leading(&text[1..], 2, |c| c.is_ascii_hexdigit());
    let value = u8::from_str_radix(digits, 16).map_err(|_| "'\\x' must be followed by hexadecimal digits")?;
    into.push(value);
    Ok(1 + digits.len())
}

/// `uXXXX`, a surrogate pair of these, or `UXXXXXXXX`.
fn unicode(text: &str, into: &mut Vec<u8>) -> Result<usize, String> {
    let (mut code, mut length) = code_point(text)?;
    if (0xd800..0xdc00).contains(&code)
        && let Some(second) = text[length..].strip_prefix('\\')
        && let Ok((low @ 0xdc00..0xe000, more)) = code_point(second)
    {
        code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        length += 1 + more;
    }
    let character =
        char::from_u32(code).ok_or_else(|| format!("'\\{}' is not a character", &text[..length]))?;
    into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(length)
}

fn code_point(text: &str) -> Result<(u32, usize), String> {
    let count = match text.chars().next() {
        Some('u') => 4,
        Some('U') => 8,
        _ => return Err("not a character escape".to_owned()),
    };
    let digits = leading(&text[1..], count, |c| c.is_ascii_hexdigit());
    match u32::from_str_radix(digits, 16) {
        Ok(code) if digits.len() == count => Ok((code, 1 + count)),
        _ => Err(format!("'\\{}' must be followed by {count} hexadecimal digits", &text[..1])),
    }
}

fn leading(text: &str, most: usize, wanted: impl Fn(char) -> bool) -> &str {
    &text[..text.bytes().take(most).take_while(|byte| wanted(char::from(*byte))).count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(raw: &str) -> Result<Vec<u8>, (usize, String)> {
        let mut bytes = Vec::new();
        unescape(raw, &mut bytes).map(|()| bytes)
    }

    #[test]
    fn integers_have_three_notations() {
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("18446744073709551615"), Some(u64::MAX));
        assert_eq!(integer("0xfF"), Some(255));
        assert_eq!(integer("017"), Some(15));
        assert_eq!(integer("18446744073709551616"), None);
    }

    #[test]
    fn escapes_are_those_of_c() {
        assert_eq!(text(r#"a\n\t\x41\101\"\'\\\?\0"#).unwrap(), b"a\n\tAA\"'\\?\0");
        assert_eq!(text(r"\u00e9\U0001F600é").unwrap(), "é😀é".as_bytes());
        assert_eq!(text(r"\ud83d\ude00").unwrap(), "😀".as_bytes());
        assert_eq!(text(r"\xff").unwrap(), [0xff]);
    }

    #[test]
    fn wrong_escapes_are_placed() {
        for raw in [r"ab\q", r"ab\x", r"ab\u12", r"ab\ud83d", r"ab\777", r"ab\U00110000", "ab\\"] {
            assert_eq!(text(raw).unwrap_err().0, 2, "{raw}");
        }
    }
}
