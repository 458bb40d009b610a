//! How the errors of the program begin.
use std::borrow::Cow;

/// The text with `error: ` before it. Some texts of Triton begin so themselves, also as `Error: `.
pub fn error_line(text: &str) -> Cow<'_, str> {
    let begins = text.get(..7).is_some_and(|begin| begin.eq_ignore_ascii_case("error: "));
    if begins { Cow::Borrowed(text) } else { Cow::Owned(format!("error: {text}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_begins_alike() {
        for (text, line) in [
            ("no", "error: no"),
            ("Error: no", "Error: no"),
            ("error: no", "error: no"),
            ("ääää", "error: ääää"),
        ] {
            assert_eq!(error_line(text), line);
        }
    }
}
