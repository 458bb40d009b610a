//! Compares texts as a client reads them: numbers by value, everything else by character.

/// How `ours` differs from `expected`; `None` if a client cannot distinguish them.
///
/// Outside of quotes, numbers that are not integers are equal if they are the same single-precision number: 0.1 and
/// 0.10000000149011612 are both the text of one FP32 element. The order of members and the spelling of strings matter.
pub fn difference(expected: &str, ours: &str) -> Option<String> {
    let mut expected_rest = Tokens::of(expected);
    let mut our_rest = Tokens::of(ours);
    loop {
        let place = our_rest.at;
        match (expected_rest.next(), our_rest.next()) {
            (None, None) => return None,
            (Some(left), Some(right)) if same(left, right) => {}
            (left, right) => {
                let equal = common(left.unwrap_or_default(), right.unwrap_or_default());
                let wanted = around(expected, expected_rest.before + equal);
                let got = around(ours, place + equal);
                return Some(format!("expected …{wanted}… got …{got}…"));
            }
        }
    }
}

/// The number of bytes that two texts have in common at their beginning.
fn common(left: &str, right: &str) -> usize {
    left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count()
}

fn same(left: &str, right: &str) -> bool {
    if left == right {
        return true;
    }
    let fractional = |text: &str| {
        text.contains(['.', 'e', 'E']) && text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
    };
    if !fractional(left) || !fractional(right) {
        return false;
    }
    match (left.parse::<f64>(), right.parse::<f64>()) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "that is the point: equal as single-precision numbers"
        )]
        (Ok(left), Ok(right)) => left == right || (left as f32).to_bits() == (right as f32).to_bits(),
        _ => false,
    }
}

/// The text around a position, for a message.
fn around(text: &str, at: usize) -> &str {
    let start = (0..=at.saturating_sub(30)).rev().find(|&start| text.is_char_boundary(start)).unwrap_or(0);
    let end =
        (text.len().min(at + 90)..=text.len()).find(|&end| text.is_char_boundary(end)).unwrap_or(text.len());
    &text[start..end]
}

/// Cuts a text into quoted strings, words (numbers among them) and single characters.
struct Tokens<'t> {
    text: &'t str,
    at: usize,
    before: usize,
}

impl<'t> Tokens<'t> {
    fn of(text: &'t str) -> Self {
        Self { text, at: 0, before: 0 }
    }
}

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        self.before = self.at;
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_');
        let len = match first {
            '"' => quoted(rest),
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        self.at += len;
        Some(&rest[..len])
    }
}

/// Length of the quoted string at the beginning of `text`; the length of `text` if the quote never ends.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return index + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

/// Replaces the values that differ from run to run in the JSON of statistics by 0: numbers after these member names. The
/// memory of models, which not every server reports, becomes an empty list.
pub fn without_measures(text: &str) -> String {
    const MEASURES: [&str; 5] = ["last_inference", "inference_count", "execution_count", "count", "ns"];
    let mut after_name: Option<&str> = None;
    let mut calm = String::with_capacity(text.len());
    let mut tokens = Tokens::of(text);
    while let Some(token) = tokens.next() {
        if token == "[" && after_name == Some("\"memory_usage\"") {
            // Its elements have no lists.
            while tokens.next().is_some_and(|token| token != "]") {}
            calm.push_str("[]");
            continue;
        }
        let measured = after_name.is_some_and(|name| MEASURES.contains(&name.trim_matches('"')));
        let number = token.bytes().all(|byte| byte.is_ascii_digit());
        calm.push_str(if measured && number { "0" } else { token });
        if token != ":" {
            after_name = Some(token);
        }
    }
    calm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_value_and_the_rest_by_character() {
        assert_eq!(difference(r#"{"a":[0.10000000149011612,NaN]}"#, r#"{"a":[0.1,NaN]}"#), None);
        assert_eq!(difference("1e308", "1E308"), None);
        for (left, right) in [
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
            ("[1]", "[1.0]"),
            (r#""0.10000000149011612""#, r#""0.1""#),
            ("[0.1]", "[0.2]"),
            ("[1]", "[1,1]"),
            (r#""a\"b""#, r#""a\"c""#),
        ] {
            assert!(difference(left, right).is_some(), "{left} {right}");
        }
    }

    #[test]
    fn a_difference_shows_its_place() {
        let text = difference(r#"{"error":"a"}"#, r#"{"error":"b"}"#).unwrap();
        assert!(text.contains(r#""a"}…"#) && text.contains(r#""b"}…"#), "{text}");
    }

    #[test]
    fn measures_become_zero_and_nothing_else() {
        assert_eq!(
            without_measures(
                r#"{"version":"1","last_inference":17,"batch_size":2,"queue":{"count":3,"ns":50}}"#
            ),
            r#"{"version":"1","last_inference":0,"batch_size":2,"queue":{"count":0,"ns":0}}"#
        );
        assert_eq!(
            without_measures(r#"{"memory_usage":[{"type":"CPU","byte_size":7}],"id":1}"#),
            r#"{"memory_usage":[],"id":1}"#
        );
    }
}
