//! Texts from outside, for terminals.
use std::borrow::Cow;

/// The text with its control characters escaped, except for tabs. A terminal obeys such characters, and some of them change
/// the order in which it shows a line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_obeyed(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

fn is_obeyed(letter: char) -> bool {
    let changes_order = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    changes_order || letter.is_control() && letter != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_obeys_are_escaped() {
        assert!(matches!(printable("plain \t gr\u{fc}n \\"), Cow::Borrowed("plain \t gr\u{fc}n \\")));
        assert_eq!(
            printable("\u{1b}[31mred\r\n\u{9b}2J\u{202e}x\0"),
            "\\u{1b}[31mred\\r\\n\\u{9b}2J\\u{202e}x\\u{0}"
        );
    }
}
