//! Splits the text format into words, numbers, strings and punctuation.
//!
//! As Triton: the tokenizer of protobuf's TextFormat, with C-like numbers and escapes.

use super::fault::TextFault;

/// One token of the source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A field name or a named value.
    Identifier(&'a str),
    /// A decimal, hexadecimal or octal number without sign.
    Integer(&'a str),
    /// A number with a point, an exponent or the suffix `f`; without the suffix.
    Float(&'a str),
    /// The inside of a string literal, with its escapes unchanged.
    Text(&'a str),
    /// Any other character. The parser decides whether it is valid.
    Symbol(char),
    /// The end of the source.
    End,
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Identifier(word) | Self::Integer(word) | Self::Float(word) => write!(f, "'{word}'"),
            Self::Text(_) => f.write_str("a string"),
            Self::Symbol(symbol) => write!(f, "'{symbol}'"),
            Self::End => f.write_str("the end of the file"),
        }
    }
}

/// Splits a source into tokens, one at a time. A copy reads on from the same place.
#[derive(Clone, Copy)]
pub(super) struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
    /// The byte up to which characters are counted: where the last token begins.
    counted: usize,
    /// The characters before it on its line.
    column: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Self { source, at: 0, line: 1, counted: 0, column: 0 }
    }

    /// The next token, with the byte offset and the line, counted from 1, where the token begins.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, usize, usize), TextFault> {
        self.skip_blank();
        let start = self.at;
        self.count_characters(start);
        let Some(first) = self.peek() else { return Ok((Token::End, start, self.line)) };
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
                Token::Identifier(&self.source[start..self.at])
            }
            '0'..='9' => self.number()?,
            '.' if self.source[start + 1..].starts_with(|c: char| c.is_ascii_digit()) => self.number()?,
            '"' | '\'' => self.text(first)?,
            other => self.symbol(other)?,
        };
        Ok((token, start, self.line))
    }

    /// A part of the source.
    pub(super) fn between(&self, from: usize, to: usize) -> &'a str {
        self.source.get(from..to).unwrap_or_default()
    }

    /// The byte offset behind the last token.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// The column where the last token begins: characters from the beginning of its line, counted from 1.
    pub(super) fn column(&self) -> usize {
        self.column + 1
    }

    /// Counts the characters up to the beginning of a token. Each is counted once, however long the line is.
    fn count_characters(&mut self, start: usize) {
        let passed = &self.source[self.counted..start];
        #[cfg(test)]
        tests::note_counted(passed.len());
        (self.counted, self.column) = match passed.rfind('\n') {
            Some(newline) => (start, passed[newline + 1..].chars().count()),
            None => (start, self.column + passed.chars().count()),
        };
    }

    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) -> usize {
        let rest = &self.source[self.at..];
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        length
    }

    fn skip_if(&mut self, wanted: &[char]) -> bool {
        let found = self.source[self.at..].starts_with(wanted);
        self.at += usize::from(found);
        found
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) {
        let bytes = self.source.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c' => {}
                b'#' => {
                    self.skip_while(|c| c != '\n');
                    continue;
                }
                _ => return,
            }
            self.at += 1;
        }
    }

    fn symbol(&mut self, symbol: char) -> Result<Token<'a>, TextFault> {
        if symbol == '\u{feff}' {
            return Err(TextFault::new(self.at, "the file has a byte-order mark, which is not allowed"));
        }
        if !symbol.is_ascii_graphic() {
            let why = format!("unexpected character {symbol:?} outside of a string");
            return Err(TextFault::new(self.at, why));
        }
        self.at += symbol.len_utf8();
        Ok(Token::Symbol(symbol))
    }

    fn number(&mut self) -> Result<Token<'a>, TextFault> {
        let start = self.at;
        let mut float = false;
        let plain = !self.hexadecimal_or_octal()?;
        if plain {
            self.skip_while(|c| c.is_ascii_digit());
            if self.skip_if(&['.']) {
                float = true;
                self.skip_while(|c| c.is_ascii_digit());
            }
            if self.skip_if(&['e', 'E']) {
                float = true;
                self.skip_if(&['+', '-']);
                if self.skip_while(|c| c.is_ascii_digit()) == 0 {
                    return Err(TextFault::new(self.at, "'e' must be followed by an exponent"));
                }
            }
        }
        let word = &self.source[start..self.at];
        if plain && self.skip_if(&['f', 'F']) {
            float = true;
        }
        match self.peek() {
            Some(next) if next.is_ascii_alphanumeric() || next == '_' => {
                let why = format!("'{next}' may not follow the number '{word}' without a space");
                Err(TextFault::new(self.at, why))
            }
            Some('.') => Err(TextFault::new(self.at, format!("'.' may not follow the number '{word}'"))),
            _ if float => Ok(Token::Float(word)),
            _ => Ok(Token::Integer(word)),
        }
    }

    /// Skips a number that starts with `0x` or with `0` and a digit. Returns whether there was one.
    fn hexadecimal_or_octal(&mut self) -> Result<bool, TextFault> {
        let mut following = self.source[self.at..].chars().skip(1);
        if self.peek() != Some('0') {
            return Ok(false);
        }
        match following.next() {
            Some('x' | 'X') => {
                self.at += 2;
                if self.skip_while(|c| c.is_ascii_hexdigit()) == 0 {
                    return Err(TextFault::new(self.at, "'0x' must be followed by hexadecimal digits"));
                }
                Ok(true)
            }
            Some('0'..='9') => {
                self.skip_while(|c| matches!(c, '0'..='7'));
                if self.peek().is_some_and(|c| c.is_ascii_digit()) {
                    let why = "a number with a leading zero is octal and may not contain 8 or 9";
                    return Err(TextFault::new(self.at, why));
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn text(&mut self, quote: char) -> Result<Token<'a>, TextFault> {
        let opening = self.at;
        self.at += 1;
        let start = self.at;
        loop {
            self.skip_while(|c| c != quote && c != '\\' && c != '\n');
            match self.peek() {
                Some('\\') => {
                    self.at += 1;
                    if let Some(escaped) = self.peek().filter(|c| *c != '\n') {
                        self.at += escaped.len_utf8();
                    }
                }
                Some(found) if found == quote => {
                    self.at += 1;
                    return Ok(Token::Text(&self.source[start..self.at - 1]));
                }
                _ => return Err(TextFault::new(opening, "the string has no closing quote on its line")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static COUNTED: Cell<usize> = const { Cell::new(0) };
    }

    /// Notes that so many bytes were counted for columns.
    pub(super) fn note_counted(bytes: usize) {
        COUNTED.set(COUNTED.get() + bytes);
    }

    #[test]
    fn columns_count_characters_and_each_once() {
        let source = format!("x: 'é' y # é\n  {}z", "ab ".repeat(1000));
        let mut lexer = Lexer::new(&source);
        let mut columns = Vec::new();
        while lexer.next().unwrap().0 != Token::End {
            columns.push((lexer.line, lexer.column()));
        }
        assert_eq!(columns[..5], [(1, 1), (1, 2), (1, 4), (1, 8), (2, 3)]);
        assert_eq!(columns.last(), Some(&(2, 3003)));
        assert_eq!(COUNTED.get(), source.len());
    }

    fn tokens(source: &str) -> Result<Vec<Token<'_>>, TextFault> {
        let mut lexer = Lexer::new(source);
        let mut tokens = Vec::new();
        loop {
            match lexer.next()?.0 {
                Token::End => return Ok(tokens),
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn numbers_are_told_apart() {
        for (word, token) in [
            ("0", Token::Integer("0")),
            ("12", Token::Integer("12")),
            ("0x1F", Token::Integer("0x1F")),
            ("017", Token::Integer("017")),
            ("1.5", Token::Float("1.5")),
            ("0.5", Token::Float("0.5")),
            (".5", Token::Float(".5")),
            ("5.", Token::Float("5.")),
            ("1e-3", Token::Float("1e-3")),
            ("1f", Token::Float("1")),
            ("1.5F", Token::Float("1.5")),
        ] {
            assert_eq!(tokens(word).unwrap(), [token], "{word}");
        }
    }

    #[test]
    fn malformed_words_are_refused() {
        for word in
            ["0x", "08", "1e", "1e+", "12ab", "1.2.3", "0x1.5", "0x1Fg", "'a", "\"a\nb\"", "\u{feff}", "é"]
        {
            assert!(tokens(word).is_err(), "{word}");
        }
    }

    #[test]
    fn comments_end_with_their_line() {
        let mut lexer = Lexer::new("# one\r\n a # two\n b");
        assert_eq!(lexer.next().unwrap(), (Token::Identifier("a"), 8, 2));
        assert_eq!(lexer.next().unwrap(), (Token::Identifier("b"), 17, 3));
    }
}
