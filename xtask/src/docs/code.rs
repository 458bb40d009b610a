//! Colours of examples: comments, texts, numbers and words of the language. One rule for all languages that pages use.

use super::html::escaped;

/// What a language has.
struct Syntax {
    comment: &'static str,
    words: &'static [&'static str],
}

const PYTHON: &[&str] = &[
    "import", "from", "as", "def", "class", "return", "for", "in", "if", "else", "with", "await", "async",
    "yield", "None", "True", "False", "not", "and", "or", "raise", "try", "except", "while", "print",
];
const C: &[&str] = &[
    "int", "char", "const", "void", "struct", "static", "return", "if", "else", "for", "while", "NULL",
    "size_t", "typedef", "sizeof", "uint64_t", "int64_t", "bool", "true", "false", "float",
];
const JAVASCRIPT: &[&str] = &[
    "const", "let", "function", "return", "for", "of", "if", "else", "new", "throw", "async", "await",
    "true", "false", "null",
];
const SHELL: &[&str] = &["nereid", "curl", "cargo", "python3", "pip", "docker", "export"];

fn syntax(language: &str) -> Option<Syntax> {
    let (comment, words) = match language {
        "python" => ("#", PYTHON),
        "c" | "rust" => ("//", C),
        "javascript" => ("//", JAVASCRIPT),
        "bash" | "console" => ("#", SHELL),
        "pbtxt" | "toml" | "yaml" | "promql" => ("#", &["true", "false"][..]),
        "json" => ("//", &["true", "false", "null"][..]),
        _ => return None,
    };
    Some(Syntax { comment, words })
}

/// The text of an example as HTML.
pub(super) fn highlighted(language: &str, text: &str) -> String {
    let Some(syntax) = syntax(language) else { return escaped(text) };
    let mut html = String::with_capacity(text.len() * 2);
    let mut before = ' ';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        // Comments begin a word: `a#b` and `http://` have none.
        let begins = !before.is_alphanumeric() && before != ':';
        let (class, length) = if begins && rest.starts_with(syntax.comment) {
            ("c", rest.find('\n').unwrap_or(rest.len()))
        } else if matches!(first, '"' | '\'') && begins {
            ("s", quoted(rest, first))
        } else if first.is_alphanumeric() || first == '_' {
            let length = rest.find(|one: char| !one.is_alphanumeric() && one != '_').unwrap_or(rest.len());
            (word_class(&rest[..length], &syntax), length)
        } else {
            ("", first.len_utf8())
        };
        let (token, after) = rest.split_at(length);
        match class {
            "" => html.push_str(&escaped(token)),
            class => html.push_str(&format!("<span class=\"{class}\">{}</span>", escaped(token))),
        }
        before = token.chars().last().unwrap_or(' ');
        rest = after;
    }
    html
}

fn word_class(word: &str, syntax: &Syntax) -> &'static str {
    if syntax.words.contains(&word) {
        "k"
    } else if word.bytes().all(|byte| byte.is_ascii_digit()) {
        "n"
    } else {
        ""
    }
}

/// The length of a text in quotation marks, or one character if it does not end on its line.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (index, one) in text.char_indices().skip(1) {
        match one {
            '\n' => break,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if one == mark => return index + 1,
            _ => {}
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_texts_numbers_and_words_have_colours() {
        let html = highlighted("bash", "nereid --id=\"a b\" 12 # <all>\n");
        assert_eq!(
            html,
            "<span class=\"k\">nereid</span> --id=<span class=\"s\">&quot;a b&quot;</span> <span class=\"n\">12</span> \
             <span class=\"c\"># &lt;all&gt;</span>\n"
        );
    }

    #[test]
    fn nothing_is_lost() {
        for text in ["it's", "\"open", "é\"ü\\\"\" // x", "a#b http://x"] {
            for language in ["c", "bash", "text"] {
                let html = highlighted(language, text);
                let mut plain = String::new();
                for piece in html.split('<') {
                    plain.push_str(piece.split_once('>').map_or(piece, |(_, text)| text));
                }
                assert_eq!(plain, escaped(text));
            }
        }
    }
}
