//! Keys without quotation marks, which Triton's JSON reader accepts: `{direct: {}}`.
use std::borrow::Cow;

/// Returns the same document, with quotation marks around each key that is a bare name. A name is a key if a colon
/// follows it. The rest of the document does not change. The function scans the document once.
pub(super) fn quoted(source: &str) -> Cow<'_, str> {
    let bytes = source.as_bytes();
    let mut target = String::new();
    // The end of the part of `source` that has been copied to `target`.
    let mut copied = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => at = behind_string(bytes, at),
            byte if may_begin_name(byte) => {
                at += count(&bytes[at..], |byte| may_begin_name(byte) || byte.is_ascii_digit());
                let space = count(&bytes[at..], |byte| byte.is_ascii_whitespace());
                if bytes.get(at + space) == Some(&b':') {
                    let name = &source[start..at];
                    target.extend([&source[copied..start], "\"", name, "\""]);
                    copied = at;
                }
                at += space;
            }
            // Letters within a number do not belong to a name.
            byte if byte.is_ascii_digit() => {
                at += count(&bytes[at..], |byte| byte.is_ascii_alphanumeric());
            }
            _ => {}
        }
    }
    if copied == 0 {
        return Cow::Borrowed(source);
    }
    target.push_str(&source[copied..]);
    Cow::Owned(target)
}

fn may_begin_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$')
}

fn count(bytes: &[u8], is_part: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| is_part(**byte)).count()
}

/// The offset after the quotation mark that ends a string.
fn behind_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => break,
            b'\\' => at += 1,
            _ => {}
        }
    }
    at.min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn bare_keys_are_quoted_and_nothing_else_is_touched() {
        for (source, expected) in [
            ("{direct: {}}", r#"{"direct": {}}"#),
            (
                r#"{a1_$ : [true, null, 1e5], "b": {c:"d: e"}}"#,
                r#"{"a1_$" : [true, null, 1e5], "b": {"c":"d: e"}}"#,
            ),
            ("{\n\tnull: 1,é: 2}", "{\n\t\"null\": 1,é: 2}"),
        ] {
            assert_eq!(quoted(source), expected);
        }
        for same in [r#"{"a": "x\"y: z"}"#, "[true, false]", "{", r#""open: "#, r#"{"a\"#, "1e5: 2", ""] {
            assert_eq!(quoted(same), same);
        }
    }
}
