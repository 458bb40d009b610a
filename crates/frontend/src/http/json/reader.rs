//! Tokens and grammar: walks a document once, without recursion, and tells a handler what it meets.
use std::borrow::Cow;

use smallvec::SmallVec;

use super::{Number, SyntaxError, reason};

/// What stands where a value may stand and is not a container.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(Number),
    /// Bytes with escapes resolved.
    Text(Cow<'a, [u8]>),
}

/// Array or object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Array,
    Object,
}

/// Is told what [`Reader::walk`] meets, in document order.
pub(super) trait Handler<'a> {
    fn scalar(&mut self, scalar: Scalar<'a>);
    fn key(&mut self, key: Cow<'a, [u8]>);
    fn open(&mut self, container: Container);
    fn close(&mut self, container: Container);

    /// May read the container that begins at the reader itself, in place of being told of it.
    fn take(&mut self, container: Container, reader: &mut Reader<'a>) -> Result<bool, SyntaxError> {
        let _ = (container, reader);
        Ok(false)
    }
}

/// A place in a document.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    source: &'a [u8],
    at: usize,
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

impl<'a> Reader<'a> {
    /// At the first byte of `source`, behind a byte order mark.
    pub(super) fn new(source: &'a [u8]) -> Self {
        let at = if source.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { source, at }
    }

    /// The byte offset.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The same document from offset `at` on.
    pub(super) fn back_at(source: &'a [u8], at: usize) -> Self {
        Self { source, at }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.source.len() - self.at
    }

    /// Reads a whole document.
    pub(super) fn document(&mut self, handler: &mut impl Handler<'a>) -> Result<(), SyntaxError> {
        self.skip_space();
        if matches!(self.peek(), 0 | b']' | b'}' | b',' | b':') {
            return Err(self.error(reason::EMPTY));
        }
        self.walk(handler)?;
        self.skip_space();
        if self.peek() != 0 { Err(self.error(reason::NOT_SINGULAR)) } else { Ok(()) }
    }

    /// Reads one value that begins here, and all it contains.
    pub(super) fn walk(&mut self, handler: &mut impl Handler<'a>) -> Result<(), SyntaxError> {
        let mut open = SmallVec::<[Container; 16]>::new();
        let Some(mut expect) = self.value(handler, &mut open)? else { return Ok(()) };
        loop {
            self.skip_space();
            let byte = self.peek();
            expect = match (expect, byte) {
                (Expect::AfterElement, b',') => self.step(Expect::Element),
                (Expect::FirstElement | Expect::AfterElement, b']')
                | (Expect::FirstName | Expect::AfterMember, b'}') => {
                    self.at += 1;
                    if let Some(container) = open.pop() {
                        handler.close(container);
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
                    match (self.value(handler, &mut open)?, open.last()) {
                        (Some(expect), _) => expect,
                        (None, Some(container)) => after(*container),
                        (None, None) => return Ok(()),
                    }
                }
                (Expect::FirstName | Expect::Name, b'"') => {
                    let key = self.string()?;
                    handler.key(key);
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

    /// Reads a scalar, or opens a container and says what may follow.
    fn value(
        &mut self,
        handler: &mut impl Handler<'a>,
        open: &mut SmallVec<[Container; 16]>,
    ) -> Result<Option<Expect>, SyntaxError> {
        match self.peek() {
            bracket @ (b'[' | b'{') => {
                let (container, inside) = match bracket {
                    b'[' => (Container::Array, Expect::FirstElement),
                    _ => (Container::Object, Expect::FirstName),
                };
                if handler.take(container, self)? {
                    return Ok(None);
                }
                open.push(container);
                handler.open(container);
                return Ok(Some(self.step(inside)));
            }
            b'"' => {
                let text = self.string()?;
                handler.scalar(Scalar::Text(text));
            }
            b't' => {
                self.literal(b"true")?;
                handler.scalar(Scalar::Bool(true));
            }
            b'f' => {
                self.literal(b"false")?;
                handler.scalar(Scalar::Bool(false));
            }
            b'n' => {
                self.literal(b"null")?;
                handler.scalar(Scalar::Null);
            }
            _ => {
                let number = self.number()?;
                handler.scalar(Scalar::Number(number));
            }
        }
        Ok(None)
    }

    /// The byte here; NUL behind the end, as the dialect treats both alike.
    fn peek(&self) -> u8 {
        self.source.get(self.at).copied().unwrap_or(0)
    }

    fn step(&mut self, next: Expect) -> Expect {
        self.at += 1;
        next
    }

    fn error(&self, reason: &'static str) -> SyntaxError {
        SyntaxError { reason, at: self.at }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    fn consume(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), SyntaxError> {
        for &byte in word {
            if !self.consume(byte) {
                return Err(self.error(reason::INVALID_VALUE));
            }
        }
        Ok(())
    }

    /// Reads a string whose opening quotation mark is here.
    fn string(&mut self) -> Result<Cow<'a, [u8]>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        if self.peek() == b'"' {
            self.at += 1;
            return Ok(Cow::Borrowed(&self.source[start..self.at - 1]));
        }
        let mut text = self.source[start..self.at].to_vec();
        loop {
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(Cow::Owned(text));
                }
                b'\\' => self.escape(&mut text)?,
                0 => return Err(self.error(reason::QUOTATION_MARK)),
                _ => return Err(self.error(reason::ENCODING)),
            }
            let plain = self.at;
            self.skip_plain();
            text.extend_from_slice(&self.source[plain..self.at]);
        }
    }

    /// Goes to the next quotation mark, backslash or control character.
    fn skip_plain(&mut self) {
        let rest = &self.source[self.at..];
        let len = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\');
        self.at += len.unwrap_or(rest.len());
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), SyntaxError> {
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
            _ => return Err(SyntaxError { reason: reason::ESCAPE, at: start }),
        };
        self.at += 1;
        text.push(plain);
        Ok(())
    }

    fn code_point(&mut self, escape: usize) -> Result<char, SyntaxError> {
        let broken = SyntaxError { reason: reason::SURROGATE, at: escape };
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

    fn hex4(&mut self, escape: usize) -> Result<u32, SyntaxError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = char::from(self.peek()).to_digit(16);
            code = code * 16 + digit.ok_or(SyntaxError { reason: reason::HEX_DIGIT, at: escape })?;
            self.at += 1;
        }
        Ok(code)
    }

    /// Reads a number, or one of the words that stand for one.
    fn number(&mut self) -> Result<Number, SyntaxError> {
        let start = self.at;
        let minus = self.consume(b'-');
        let mut mantissa = 0;
        let first = self.at;
        match self.peek() {
            b'0' => self.at += 1,
            b'1'..=b'9' => mantissa = self.digits(0),
            b'N' | b'I' => return self.word(minus),
            _ => return Err(self.error(reason::INVALID_VALUE)),
        }
        let mut digits = self.at - first;
        if !matches!(self.peek(), b'.' | b'e' | b'E') {
            return self.integer(start, minus, mantissa, digits);
        }

        let mut exponent: i32 = 0;
        if self.consume(b'.') {
            let fraction = self.at;
            mantissa = self.digits(mantissa);
            let len = self.at - fraction;
            if len == 0 {
                return Err(self.error(reason::FRACTION));
            }
            digits += len;
            exponent = -i32::try_from(len).unwrap_or(i32::MAX);
        }
        if matches!(self.peek(), b'e' | b'E') {
            exponent = exponent.saturating_add(self.exponent()?);
        }
        // Both factors are exact, so their product or quotient is correctly rounded.
        if digits <= 19 && mantissa <= 1 << 53 && exponent.unsigned_abs() <= 22 {
            #[expect(clippy::cast_precision_loss, reason = "not above 2^53")]
            let mantissa = mantissa as f64;
            let power = POWERS_OF_TEN[exponent.unsigned_abs() as usize];
            let value = if exponent < 0 { mantissa / power } else { mantissa * power };
            return Ok(Number::Double(if minus { -value } else { value }));
        }
        self.exact(start)
    }

    /// Reads digits onto `mantissa`, which may wrap around: whoever calls counts them.
    fn digits(&mut self, mut mantissa: u64) -> u64 {
        while let digit @ 0..=9 = self.peek().wrapping_sub(b'0') {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(digit.into());
            self.at += 1;
        }
        mantissa
    }

    fn integer(&self, start: usize, minus: bool, value: u64, digits: usize) -> Result<Number, SyntaxError> {
        // Nineteen digits always fit; twenty may.
        if digits > 20 || (digits == 20 && self.token(start).trim_start_matches('-').parse::<u64>().is_err()) {
            return self.exact(start);
        }
        if minus {
            // The most negative number has no positive counterpart.
            return match 0_i64.checked_sub_unsigned(value) {
                Some(value) => Ok(Number::Int(value)),
                None => self.exact(start),
            };
        }
        Ok(i64::try_from(value).map_or(Number::Uint(value), Number::Int))
    }

    fn exponent(&mut self) -> Result<i32, SyntaxError> {
        self.at += 1;
        let minus = self.consume(b'-');
        if !minus {
            self.consume(b'+');
        }
        let first = self.at;
        let value = self.digits(0);
        let len = self.at - first;
        if len == 0 {
            return Err(self.error(reason::EXPONENT));
        }
        // Anything longer is far beyond what a double holds; the exact way sorts it out.
        let value = if len > 9 { i32::MAX } else { i32::try_from(value).unwrap_or(i32::MAX) };
        Ok(if minus { -value } else { value })
    }

    /// The double nearest to the token that began at `start` and ends here.
    fn exact(&self, start: usize) -> Result<Number, SyntaxError> {
        match self.token(start).parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Number::Double(value)),
            _ => Err(SyntaxError { reason: reason::TOO_BIG, at: start }),
        }
    }

    fn token(&self, start: usize) -> &'a str {
        std::str::from_utf8(&self.source[start..self.at]).expect("a number is written in ASCII")
    }

    fn word(&mut self, minus: bool) -> Result<Number, SyntaxError> {
        if self.peek() == b'N' {
            self.literal(b"NaN")?;
            return Ok(Number::Double(f64::NAN));
        }
        self.literal(b"Inf")?;
        if self.peek() == b'i' {
            self.literal(b"inity")?;
        }
        Ok(Number::Double(if minus { f64::NEG_INFINITY } else { f64::INFINITY }))
    }
}

/// Checks the grammar and keeps nothing.
pub(super) struct PassOver;

impl<'a> Handler<'a> for PassOver {
    fn scalar(&mut self, _: Scalar<'a>) {}
    fn key(&mut self, _: Cow<'a, [u8]>) {}
    fn open(&mut self, _: Container) {}
    fn close(&mut self, _: Container) {}
}

fn after(container: Container) -> Expect {
    match container {
        Container::Array => Expect::AfterElement,
        Container::Object => Expect::AfterMember,
    }
}

/// All powers of ten that a double holds exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the scalars.
    #[derive(Default)]
    struct Scalars<'a>(Vec<Scalar<'a>>);

    impl<'a> Handler<'a> for Scalars<'a> {
        fn scalar(&mut self, scalar: Scalar<'a>) {
            self.0.push(scalar);
        }
        fn key(&mut self, _: Cow<'a, [u8]>) {}
        fn open(&mut self, _: Container) {}
        fn close(&mut self, _: Container) {}
    }

    fn read(source: &[u8]) -> Result<Vec<Scalar<'_>>, SyntaxError> {
        let mut scalars = Scalars::default();
        Reader::new(source).document(&mut scalars)?;
        Ok(scalars.0)
    }

    fn number(source: &str) -> Number {
        match &read(source.as_bytes()).unwrap()[..] {
            [Scalar::Number(number)] => *number,
            other => panic!("{source} is {other:?}"),
        }
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
            (b"[\"a\n\"]", ENCODING, 3),
            (b"[\"a\\x\"]", ESCAPE, 3),
            (b"[\"\\u12g4\"]", HEX_DIGIT, 2),
            (b"[\"\\ud800\"]", SURROGATE, 2),
            (b"[\"\\udc00\"]", SURROGATE, 2),
        ];
        for (source, reason, at) in table {
            assert_eq!(read(source), Err(SyntaxError { reason, at }), "{}", source.escape_ascii());
        }
    }

    #[test]
    fn numbers_are_classified_by_how_they_are_written() {
        assert_eq!(number("0"), Number::Int(0));
        assert_eq!(number("-0"), Number::Int(0));
        assert_eq!(number("9223372036854775807"), Number::Int(i64::MAX));
        assert_eq!(number("-9223372036854775808"), Number::Int(i64::MIN));
        assert_eq!(number("9223372036854775808"), Number::Uint(1 << 63));
        assert_eq!(number("18446744073709551615"), Number::Uint(u64::MAX));
        assert_eq!(number("18446744073709551616"), Number::Double(18_446_744_073_709_551_616.0));
        assert_eq!(number("-9223372036854775809"), Number::Double(-9_223_372_036_854_775_808.0));
        assert_eq!(number("123456789012345678901234567890"), Number::Double(1.234_567_890_123_456_8e29));
        assert_eq!(number("1.0"), Number::Double(1.0));
        assert_eq!(number("1E2"), Number::Double(100.0));
        assert_eq!(number("-0.0"), Number::Double(-0.0));
        assert_eq!(number("1e-400"), Number::Double(0.0));
        assert_eq!(number("0.1"), Number::Double(0.1));
        assert_eq!(number("Inf"), Number::Double(f64::INFINITY));
        assert_eq!(number("-Infinity"), Number::Double(f64::NEG_INFINITY));
        assert!(matches!(number("-NaN"), Number::Double(value) if value.is_nan()));
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_a_nul_ends() {
        assert_eq!(read(b"\xef\xbb\xbf 1 \0garbage"), Ok(vec![Scalar::Number(Number::Int(1))]));
        assert_eq!(read(b"\xef\xbb\xbfx"), Err(SyntaxError { reason: reason::INVALID_VALUE, at: 3 }));
    }

    #[test]
    fn escapes_are_resolved_and_other_bytes_kept() {
        let texts = read(b"[\"h\\u00e9llo\", \"\\u0000x\", \"\\\"q\\\\\\/\\b\\f\\n\\r\\t\", \"\\ud83d\\ude00\", \"\xff\"]").unwrap();
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

    proptest::proptest! {
        #[test]
        fn doubles_read_back_as_they_were_printed(value: f64) {
            if value.is_finite() {
                for text in [format!("{value:?}"), format!("{value}"), format!("{value:e}")] {
                    assert_eq!(number(&text).as_double().to_bits(), if text == "-0" { 0 } else { value.to_bits() }, "{text}");
                }
            }
        }
    }
}
