//! The tokens of a source one after the other, with their places.
use super::fault::TextFault;
use super::lexer::{Lexer, Token};

/// Stands at a token of a source.
pub(super) struct TokenCursor<'a> {
    pub(super) source: &'a str,
    lexer: Lexer<'a>,
    pub(super) token: Token<'a>,
    /// Where the token begins, in bytes.
    pub(super) at: usize,
    /// Where the token ends.
    pub(super) end: usize,
    /// Where the token before it ends.
    pub(super) before: usize,
}

impl<'a> TokenCursor<'a> {
    /// Stands at the first token.
    pub(super) fn new(source: &'a str) -> Result<Self, TextFault> {
        let mut cursor =
            Self { source, lexer: Lexer::new(source), token: Token::End, at: 0, end: 0, before: 0 };
        cursor.advance()?;
        Ok(cursor)
    }

    pub(super) fn advance(&mut self) -> Result<(), TextFault> {
        self.before = self.end;
        (self.token, self.at, _) = self.lexer.next()?;
        self.end = self.lexer.offset();
        Ok(())
    }

    /// Whether the token is one of these symbols.
    pub(super) fn is_any(&self, symbols: &[char]) -> bool {
        matches!(self.token, Token::Symbol(symbol) if symbols.contains(&symbol))
    }

    /// Skips the token if it is one of these symbols. Returns whether it was.
    pub(super) fn takes(&mut self, symbols: &[char]) -> Result<bool, TextFault> {
        let found = self.is_any(symbols);
        if found {
            self.advance()?;
        }
        Ok(found)
    }
}
