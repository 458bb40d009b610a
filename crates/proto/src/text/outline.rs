//! Tells where each field of a source is.
use std::ops::Range;

use super::{cursor::TokenCursor, fault::TextFault, lexer::Token};

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
pub(super) fn outline(source: &str) -> Result<Vec<SourceField<'_>>, TextFault> {
    OutlineReader { tokens: TokenCursor::new(source)? }.body(None)
}

struct OutlineReader<'a> {
    tokens: TokenCursor<'a>,
}

impl<'a> OutlineReader<'a> {
    /// Reads up to the closing symbol, which is not skipped, or to the end of the source.
    fn body(&mut self, close: Option<char>) -> Result<Vec<SourceField<'a>>, TextFault> {
        let mut fields = Vec::new();
        loop {
            let is_closed = close.is_some_and(|close| self.tokens.token == Token::Symbol(close));
            if is_closed || self.tokens.token == Token::End {
                return Ok(fields);
            }
            let begin = self.tokens.at;
            let mut name = "";
            if close != Some(']') {
                name = &self.tokens.source[self.tokens.at..self.tokens.end];
                self.tokens.advance()?;
                self.tokens.takes(&[':'])?;
            }
            let first = self.tokens.at;
            let inside = self.value()?;
            let value = first..self.tokens.before;
            self.tokens.takes(&[',', ';'])?;
            fields.push(SourceField { name, whole: begin..self.tokens.before, value, inside });
        }
    }

    fn value(&mut self) -> Result<Vec<SourceField<'a>>, TextFault> {
        let close = match self.tokens.token {
            Token::Symbol('{') => '}',
            Token::Symbol('<') => '>',
            Token::Symbol('[') => ']',
            _ => {
                self.tokens.takes(&['-'])?;
                let is_text = matches!(self.tokens.token, Token::Text(_));
                self.tokens.advance()?;
                while is_text && matches!(self.tokens.token, Token::Text(_)) {
                    self.tokens.advance()?;
                }
                return Ok(Vec::new());
            }
        };
        self.tokens.advance()?;
        let inside = self.body(Some(close))?;
        self.tokens.advance()?;
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
