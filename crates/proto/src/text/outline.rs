//! Tells where each field of a source is.
use std::ops::Range;

use super::lexer::{Fault, Lexer, Token};

/// A field of a source, or an element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceField<'a> {
    /// Its name. Empty for an element of a list.
    pub name: &'a str,
    /// From the name to the end of the value, in bytes. A separator belongs to it.
    pub whole: Range<usize>,
    /// The value, with its braces or brackets.
    pub value: Range<usize>,
    /// The fields of a message, or the elements of a list.
    pub inside: Vec<SourceField<'a>>,
}

/// Reads a source that the parser accepts.
pub(super) fn outline(source: &str) -> Result<Vec<SourceField<'_>>, Fault> {
    let mut reader =
        OutlineReader { source, lexer: Lexer::new(source), token: Token::End, at: 0, end: 0, before: 0 };
    reader.advance()?;
    reader.body(None)
}

struct OutlineReader<'a> {
    source: &'a str,
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// Where the token begins and ends.
    at: usize,
    end: usize,
    /// Where the token before it ends.
    before: usize,
}

impl<'a> OutlineReader<'a> {
    fn advance(&mut self) -> Result<(), Fault> {
        self.before = self.end;
        (self.token, self.at, _) = self.lexer.next()?;
        self.end = self.lexer.offset();
        Ok(())
    }

    fn takes(&mut self, symbols: &[char]) -> Result<bool, Fault> {
        let found = matches!(self.token, Token::Symbol(symbol) if symbols.contains(&symbol));
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Reads up to the closing symbol, which is not skipped, or to the end of the source.
    fn body(&mut self, close: Option<char>) -> Result<Vec<SourceField<'a>>, Fault> {
        let mut fields = Vec::new();
        loop {
            let is_closed = close.is_some_and(|close| self.token == Token::Symbol(close));
            if is_closed || self.token == Token::End {
                return Ok(fields);
            }
            let begin = self.at;
            let mut name = "";
            if close != Some(']') {
                name = &self.source[self.at..self.end];
                self.advance()?;
                self.takes(&[':'])?;
            }
            let first = self.at;
            let inside = self.value()?;
            let value = first..self.before;
            self.takes(&[',', ';'])?;
            fields.push(SourceField { name, whole: begin..self.before, value, inside });
        }
    }

    fn value(&mut self) -> Result<Vec<SourceField<'a>>, Fault> {
        let close = match self.token {
            Token::Symbol('{') => '}',
            Token::Symbol('<') => '>',
            Token::Symbol('[') => ']',
            _ => {
                self.takes(&['-'])?;
                let is_text = matches!(self.token, Token::Text(_));
                self.advance()?;
                while is_text && matches!(self.token, Token::Text(_)) {
                    self.advance()?;
                }
                return Ok(Vec::new());
            }
        };
        self.advance()?;
        let inside = self.body(Some(close))?;
        self.advance()?;
        Ok(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_place() {
        let source = "# first\nname: 'a' \"b\"; max_batch_size: 8\n\
                      instance_group [ { count: 2 kind: KIND_CPU }, <count: 1> ] # last\n\
                      parameters { key: \"k\" value: { string_value: \"-1\" } }\n";
        let fields = outline(source).unwrap();
        let names: Vec<_> = fields.iter().map(|field| field.name).collect();
        assert_eq!(names, ["name", "max_batch_size", "instance_group", "parameters"]);
        let text = |range: &Range<usize>| &source[range.clone()];
        assert_eq!(text(&fields[0].whole), "name: 'a' \"b\";");
        assert_eq!(text(&fields[0].value), "'a' \"b\"");
        assert_eq!(text(&fields[1].value), "8");
        assert_eq!(text(&fields[2].inside[0].whole), "{ count: 2 kind: KIND_CPU },");
        assert_eq!(text(&fields[2].inside[1].inside[0].value), "1");
        assert_eq!(text(&fields[3].inside[1].inside[0].value), "\"-1\"");
    }

    #[test]
    fn a_source_without_fields_has_none() {
        assert!(outline("").unwrap().is_empty());
        assert!(outline("# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn a_negative_number_is_one_value() {
        let source = "input { dims: [ -1, 3 ] }";
        let fields = outline(source).unwrap();
        let dims = &fields[0].inside[0].inside;
        assert_eq!(dims.iter().map(|dim| &source[dim.value.clone()]).collect::<Vec<_>>(), ["-1", "3"]);
    }
}
