//! Reads tokens and checks the grammar: goes through a document once, without recursion, and calls a visitor for each
//! value.
use std::borrow::Cow;

use kserve::{json_text::plain_len, long_write::PIECE};
use smallvec::SmallVec;

use super::{
    long_read::{JsonText, LongRead},
    steps,
    syntax::{JsonSyntaxError, Number, reason},
};

mod number;

/// A value that is not a container.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(Number),
    /// Bytes. Escapes have been resolved.
    Text(Cow<'a, [u8]>),
}

/// An array or an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Array,
    Object,
}

/// The visitor that [`JsonReader::walk`] calls for each value, in document order.
pub(super) trait JsonVisitor<'a> {
    fn scalar(&mut self, scalar: Scalar<'a>);
    fn key(&mut self, key: Cow<'a, [u8]>);
    fn open(&mut self, container: Container);
    fn close(&mut self, container: Container);

    /// The bytes of what the visitor has made so far.
    fn held(&self) -> usize;

    /// Takes a number, and optionally the numbers that follow it directly. The default takes one number.
    fn numbers(&mut self, reader: &mut JsonReader<'a>) -> Result<(), JsonSyntaxError> {
        let number = reader.number()?;
        self.scalar(Scalar::Number(number));
        Ok(())
    }

    /// May read the whole container that begins at the reader. Then the reader does not call the visitor for its
    /// content.
    fn take(&mut self, container: Container, reader: &mut JsonReader<'a>) -> Result<bool, JsonSyntaxError> {
        let _ = (container, reader);
        Ok(false)
    }
}

/// A position in a document.
#[derive(Debug, Clone)]
pub(super) struct JsonReader<'a> {
    source: &'a [u8],
    at: usize,
    /// Where the piece ends that is being read. A text that is read at once is one piece.
    piece_end: usize,
    reading: Option<&'a LongRead<'a>>,
}

/// What the grammar allows next.
#[derive(Clone, Copy)]
enum Expect {
    FirstElement,
    Element,
    AfterElement,
    FirstName,
    Name,
    Colon,
    MemberValue,
    AfterMember,
}

impl<'a> JsonReader<'a> {
    /// A reader at the first byte of `text`, after a byte order mark.
    pub(super) fn new(text: impl Into<JsonText<'a>>) -> Self {
        let text = text.into();
        Self::back_at(text, if text.bytes().starts_with(b"\xef\xbb\xbf") { 3 } else { 0 })
    }

    /// The byte offset of the position.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// A reader of the same document at offset `at`.
    pub(super) fn back_at(text: JsonText<'a>, at: usize) -> Self {
        let (source, reading) = (text.bytes(), text.reading());
        let piece_end = if reading.is_some() { at + PIECE } else { usize::MAX };
        Self { source, at, piece_end, reading }
    }

    /// The number of bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.source.len() - self.at
    }

    /// Reads a whole document.
    pub(super) fn document(&mut self, visitor: &mut impl JsonVisitor<'a>) -> Result<(), JsonSyntaxError> {
        self.skip_space(visitor)?;
        if matches!(self.peek(), 0 | b']' | b'}' | b',' | b':') {
            return Err(self.error(reason::EMPTY));
        }
        self.walk(visitor)?;
        self.skip_space(visitor)?;
        if self.peek() != 0 { Err(self.error(reason::NOT_SINGULAR)) } else { Ok(()) }
    }

    /// Reads one value that begins at the position, and all it contains.
    pub(super) fn walk(&mut self, visitor: &mut impl JsonVisitor<'a>) -> Result<(), JsonSyntaxError> {
        let mut open = SmallVec::<[Container; 16]>::new();
        let Some(mut expect) = self.value(visitor, &mut open)? else { return Ok(()) };
        loop {
            steps::add(1);
            self.skip_space(visitor)?;
            let byte = self.peek();
            expect = match (expect, byte) {
                (Expect::AfterElement, b',') => self.step(Expect::Element),
                (Expect::FirstElement | Expect::AfterElement, b']')
                | (Expect::FirstName | Expect::AfterMember, b'}') => {
                    self.at += 1;
                    if let Some(container) = open.pop() {
                        visitor.close(container);
                    }
                    match open.last() {
                        None => return Ok(()),
                        Some(container) => after(*container),
                    }
                }
                (Expect::FirstElement | Expect::Element | Expect::MemberValue, byte) => {
                    if matches!(byte, 0 | b']' | b'}' | b',' | b':') {
                        return Err(self.error(reason::INVALID_VALUE));
                    }
                    match (self.value(visitor, &mut open)?, open.last()) {
                        (Some(expect), _) => expect,
                        (None, Some(container)) => after(*container),
                        (None, None) => return Ok(()),
                    }
                }
                (Expect::FirstName | Expect::Name, b'"') => {
                    let key = self.string()?;
                    visitor.key(key);
                    Expect::Colon
                }
                (Expect::Colon, b':') => self.step(Expect::MemberValue),
                (Expect::AfterMember, b',') => self.step(Expect::Name),
                (Expect::AfterElement, _) => return Err(self.error(reason::MISSING_COMMA_IN_ARRAY)),
                (Expect::FirstName | Expect::Name, _) => return Err(self.error(reason::MISSING_NAME)),
                (Expect::Colon, _) => return Err(self.error(reason::MISSING_COLON)),
                (Expect::AfterMember, _) => return Err(self.error(reason::MISSING_COMMA_IN_OBJECT)),
            };
        }
    }

    /// Reads a scalar, or opens a container. Returns what may follow.
    fn value(
        &mut self,
        visitor: &mut impl JsonVisitor<'a>,
        open: &mut SmallVec<[Container; 16]>,
    ) -> Result<Option<Expect>, JsonSyntaxError> {
        match self.peek() {
            bracket @ (b'[' | b'{') => {
                let (container, inside) = match bracket {
                    b'[' => (Container::Array, Expect::FirstElement),
                    _ => (Container::Object, Expect::FirstName),
                };
                if visitor.take(container, self)? {
                    return Ok(None);
                }
                open.push(container);
                visitor.open(container);
                return Ok(Some(self.step(inside)));
            }
            b'"' => {
                let text = self.string()?;
                visitor.scalar(Scalar::Text(text));
            }
            b't' => {
                self.literal(b"true")?;
                visitor.scalar(Scalar::Bool(true));
            }
            b'f' => {
                self.literal(b"false")?;
                visitor.scalar(Scalar::Bool(false));
            }
            b'n' => {
                self.literal(b"null")?;
                visitor.scalar(Scalar::Null);
            }
            _ => visitor.numbers(self)?,
        }
        Ok(None)
    }

    /// The byte at the position. NUL after the end, because the dialect treats both alike.
    pub(super) fn peek(&self) -> u8 {
        self.source.get(self.at).copied().unwrap_or(0)
    }

    fn step(&mut self, next: Expect) -> Expect {
        self.at += 1;
        next
    }

    pub(super) fn error(&self, reason: &'static str) -> JsonSyntaxError {
        JsonSyntaxError { reason, at: self.at }
    }

    /// Goes to the next byte that is no space, and to the next piece when one has been read.
    fn skip_space(&mut self, visitor: &impl JsonVisitor<'a>) -> Result<(), JsonSyntaxError> {
        loop {
            while self.at < self.piece_end && matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
                steps::add(1);
                self.at += 1;
            }
            if self.at < self.piece_end {
                return Ok(());
            }
            self.next_piece(|reading| reading.begin_piece(visitor.held()))?;
        }
    }

    /// Begins the next piece, if `begin` permits it.
    #[cold]
    fn next_piece(&mut self, begin: impl FnOnce(&LongRead<'_>) -> bool) -> Result<(), JsonSyntaxError> {
        self.piece_end = self.at.saturating_add(PIECE);
        match self.reading {
            Some(reading) if !begin(reading) => Err(self.error(reason::STOPPED)),
            _ => Ok(()),
        }
    }

    /// Tells that a tensor of so many bytes has been read.
    pub(super) fn keep(&self, bytes: usize) {
        if let Some(reading) = self.reading {
            reading.keep(bytes);
        }
    }

    pub(super) fn consume(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    pub(super) fn literal(&mut self, word: &[u8]) -> Result<(), JsonSyntaxError> {
        for &byte in word {
            if !self.consume(byte) {
                return Err(self.error(reason::INVALID_VALUE));
            }
        }
        Ok(())
    }

    /// Reads a string whose opening quotation mark is at the position.
    fn string(&mut self) -> Result<Cow<'a, [u8]>, JsonSyntaxError> {
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        if self.peek() == b'"' {
            let text = &self.source[start..self.at];
            self.at += 1;
            if self.at >= self.piece_end {
                self.next_piece(|reading| reading.begin_piece_of_string(text.len()))?;
            }
            return Ok(Cow::Borrowed(text));
        }
        let mut text = self.source[start..self.at].to_vec();
        loop {
            if self.at >= self.piece_end {
                // The visitor will copy it.
                self.next_piece(|reading| reading.begin_piece_of_string(2 * text.len()))?;
            }
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(Cow::Owned(text));
                }
                b'\\' => {
                    let escape = self.at;
                    self.escape(&mut text)?;
                    steps::add(self.at - escape);
                }
                0 => return Err(self.error(reason::QUOTATION_MARK)),
                // A control character; RapidJSON 1.1.0 says the same of it as of a wrong escape.
                _ => return Err(self.error(reason::ESCAPE)),
            }
            let plain = self.at;
            self.skip_plain();
            text.extend_from_slice(&self.source[plain..self.at]);
        }
    }

    /// Skips to the next quotation mark, backslash or control character.
    fn skip_plain(&mut self) {
        let len = plain_len(&self.source[self.at..]);
        steps::add(len + 1);
        self.at += len;
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), JsonSyntaxError> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.at += 1;
                let letter = self.code_point(start)?;
                text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(JsonSyntaxError { reason: reason::ESCAPE, at: start }),
        };
        self.at += 1;
        text.push(plain);
        Ok(())
    }

    fn code_point(&mut self, escape: usize) -> Result<char, JsonSyntaxError> {
        let broken = JsonSyntaxError { reason: reason::SURROGATE, at: escape };
        let first = self.hex4(escape)?;
        let code = match first {
            0xd800..=0xdbff => {
                if !self.consume(b'\\') || !self.consume(b'u') {
                    return Err(broken);
                }
                let second = self.hex4(escape)?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(broken);
                }
                0x10000 + ((first - 0xd800) << 10 | (second - 0xdc00))
            }
            code => code,
        };
        char::from_u32(code).ok_or(broken)
    }

    fn hex4(&mut self, escape: usize) -> Result<u32, JsonSyntaxError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = char::from(self.peek()).to_digit(16);
            code = code * 16 + digit.ok_or(JsonSyntaxError { reason: reason::HEX_DIGIT, at: escape })?;
            self.at += 1;
        }
        Ok(code)
    }
}

/// A visitor that stores nothing, to check the grammar.
pub(super) struct SyntaxOnly;

impl<'a> JsonVisitor<'a> for SyntaxOnly {
    fn scalar(&mut self, _: Scalar<'a>) {}
    fn key(&mut self, _: Cow<'a, [u8]>) {}
    fn open(&mut self, _: Container) {}
    fn close(&mut self, _: Container) {}
    fn held(&self) -> usize {
        0
    }
}

fn after(container: Container) -> Expect {
    match container {
        Container::Array => Expect::AfterElement,
        Container::Object => Expect::AfterMember,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A visitor that stores the scalars.
    #[derive(Default)]
    struct Scalars<'a>(Vec<Scalar<'a>>);

    impl<'a> JsonVisitor<'a> for Scalars<'a> {
        fn scalar(&mut self, scalar: Scalar<'a>) {
            self.0.push(scalar);
        }
        fn key(&mut self, _: Cow<'a, [u8]>) {}
        fn open(&mut self, _: Container) {}
        fn close(&mut self, _: Container) {}
        fn held(&self) -> usize {
            0
        }
    }

    fn read(source: &[u8]) -> Result<Vec<Scalar<'_>>, JsonSyntaxError> {
        let mut scalars = Scalars::default();
        JsonReader::new(source).document(&mut scalars)?;
        Ok(scalars.0)
    }

    #[test]
    fn refusals_name_reason_and_offset() {
        use reason::*;
        let table: [(&[u8], &str, usize); 39] = [
            (b"", EMPTY, 0),
            (b"  ", EMPTY, 2),
            (b"]", EMPTY, 0),
            (b"hello", INVALID_VALUE, 0),
            (b"{\"inputs\":[]} x", NOT_SINGULAR, 14),
            (b"{", MISSING_NAME, 1),
            (b"{/*c*/", MISSING_NAME, 1),
            (b"{\"a\":1,}", MISSING_NAME, 7),
            (b"{1:2}", MISSING_NAME, 1),
            (b"{\"a\"}", MISSING_COLON, 4),
            (b"{\"a\":}", INVALID_VALUE, 5),
            (b"{\"a\":1 \"b\"", MISSING_COMMA_IN_OBJECT, 7),
            (b"[1 2]", MISSING_COMMA_IN_ARRAY, 3),
            (b"[1}", MISSING_COMMA_IN_ARRAY, 2),
            (b"[01]", MISSING_COMMA_IN_ARRAY, 2),
            (b"[1,]", INVALID_VALUE, 3),
            (b"[", INVALID_VALUE, 1),
            (b"[1,", INVALID_VALUE, 3),
            (b"[1", MISSING_COMMA_IN_ARRAY, 2),
            (b"{\"a\":1", MISSING_COMMA_IN_OBJECT, 6),
            (b"[nan]", INVALID_VALUE, 2),
            (b"[tru]", INVALID_VALUE, 4),
            (b"[Infx]", MISSING_COMMA_IN_ARRAY, 4),
            (b"[Infini]", INVALID_VALUE, 7),
            (b"[Nan]", INVALID_VALUE, 3),
            (b"[-]", INVALID_VALUE, 2),
            (b"[+1]", INVALID_VALUE, 1),
            (b"[1.]", FRACTION, 3),
            (b"[1.e5]", FRACTION, 3),
            (b"[1e]", EXPONENT, 3),
            (b"[1e+]", EXPONENT, 4),
            (b"[1, 1e400]", TOO_BIG, 4),
            (b"[\"ab", QUOTATION_MARK, 4),
            (b"[\"a\0\"]", QUOTATION_MARK, 3),
            (b"[\"a\n\"]", ESCAPE, 3),
            (b"[\"a\\x\"]", ESCAPE, 3),
            (b"[\"\\u12g4\"]", HEX_DIGIT, 2),
            (b"[\"\\ud800\"]", SURROGATE, 2),
            (b"[\"\\udc00\"]", SURROGATE, 2),
        ];
        for (source, reason, at) in table {
            assert_eq!(read(source), Err(JsonSyntaxError { reason, at }), "{}", source.escape_ascii());
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_a_nul_ends() {
        assert_eq!(read(b"\xef\xbb\xbf 1 \0garbage"), Ok(vec![Scalar::Number(Number::Int(1))]));
        assert_eq!(read(b"\xef\xbb\xbfx"), Err(JsonSyntaxError { reason: reason::INVALID_VALUE, at: 3 }));
    }

    #[test]
    fn escapes_are_resolved_and_other_bytes_kept() {
        let texts = read(
            b"[\"h\\u00e9llo\", \"\\u0000x\", \"\\\"q\\\\\\/\\b\\f\\n\\r\\t\", \"\\ud83d\\ude00\", \"\xff\"]",
        )
        .unwrap();
        let expected: [&[u8]; 5] =
            ["h\u{e9}llo".as_bytes(), b"\0x", b"\"q\\/\x08\x0c\n\r\t", "\u{1f600}".as_bytes(), b"\xff"];
        assert_eq!(texts, expected.map(|text| Scalar::Text(Cow::Borrowed(text))));
    }

    #[test]
    fn deep_nesting_takes_no_stack() {
        let depth = 1_000_000;
        let source = ["[".repeat(depth), "]".repeat(depth)].concat();
        assert_eq!(read(source.as_bytes()), Ok(vec![]));
    }
}
