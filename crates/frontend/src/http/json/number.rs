//! Reads numbers. The bytes of a short number are read eight at a time. A double is the product or quotient of two
//! exact doubles if that result is correctly rounded. `fast-float2` rounds all other numbers.
use super::{
    reader::JsonReader,
    steps,
    syntax::{JsonSyntaxError, Number, reason},
};

impl<'a> JsonReader<'a> {
    /// Reads a number, and the numbers after it while only a comma and at most one space separate them. At any other
    /// byte the run stops, and [`JsonReader::walk`] goes on from there.
    pub(super) fn number_run(&mut self, mut take: impl FnMut(Number)) -> Result<(), JsonSyntaxError> {
        loop {
            take(self.number()?);
            let next = match self.source.get(self.at..) {
                Some([b',', b' ', b'-' | b'0'..=b'9', ..]) => 2,
                Some([b',', b'-' | b'0'..=b'9', ..]) => 1,
                _ => return Ok(()),
            };
            self.at += next;
        }
    }

    /// Reads a number, or a word that stands for a number.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Result<Number, JsonSyntaxError> {
        match self.short_number() {
            Some(number) => Ok(number),
            None => self.any_number(),
        }
    }

    /// Reads a number in one of the usual forms: up to seven digits, or a fraction. [`JsonReader::any_number`] reads
    /// all other numbers and reports all errors.
    // Inlining avoids a round trip through memory: without it the result is stored in halves and read as a whole, which
    // takes longer than the parsing.
    #[inline(always)]
    fn short_number(&mut self) -> Option<Number> {
        let minus = self.peek() == b'-';
        let start = self.at + usize::from(minus);
        let word = Word::at(self.source, start)?;
        let whole = word.digits();
        let leading_zero = whole > 1 && word.byte(0) == b'0';
        if whole == 0 || whole == 8 || leading_zero {
            return None;
        }
        let (mut end, mut mantissa) = (start + whole, word.value(whole));
        match word.byte(whole) {
            b'.' => {}
            b'e' | b'E' => return None,
            _ => {
                self.at = end;
                steps::add(whole);
                let value = mantissa.cast_signed();
                return Some(Number::Int(if minus { -value } else { value }));
            }
        }
        let all = word.digits_around(whole);
        let mut fraction = all - whole;
        if fraction == 0 {
            return None;
        }
        mantissa = word.without(whole).value(all);
        end += 1 + fraction;
        if all == 7 {
            let more = Word::at(self.source, end)?;
            let count = more.digits();
            if count == 8 {
                return self.long_fraction();
            }
            mantissa = mantissa * POWERS_OF_TEN_U64[count] + more.value(count);
            fraction += count;
            end += count;
        }
        if matches!(self.source.get(end), Some(b'e' | b'E')) {
            return None;
        }
        steps::add(end - self.at);
        self.at = end;
        // Both numbers have at most fourteen digits and are exact, so their quotient is correctly rounded.
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let value = mantissa as f64 / POWERS_OF_TEN[fraction];
        Some(Number::Double(if minus { -value } else { value }))
    }

    /// Reads a number that has digits on both sides of its point. The caller has checked that.
    fn long_fraction(&mut self) -> Option<Number> {
        let (value, len) = fast_float2::parse_partial::<f64, _>(&self.source[self.at..]).ok()?;
        steps::add(len);
        let whole = !matches!(self.source.get(self.at + len), Some(b'e' | b'E'));
        (whole && value.is_finite()).then(|| {
            self.at += len;
            Number::Double(value)
        })
    }

    /// Reads any number, one byte at a time.
    #[inline(never)]
    fn any_number(&mut self) -> Result<Number, JsonSyntaxError> {
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

    /// Appends digits to `mantissa`, which may wrap around: the caller counts the digits.
    fn digits(&mut self, mut mantissa: u64) -> u64 {
        let start = self.at;
        while let digit @ 0..=9 = self.peek().wrapping_sub(b'0') {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(digit.into());
            self.at += 1;
        }
        steps::add(self.at - start + 1);
        mantissa
    }

    fn integer(
        &self,
        start: usize,
        minus: bool,
        value: u64,
        digits: usize,
    ) -> Result<Number, JsonSyntaxError> {
        // Nineteen digits always fit. Twenty digits may fit.
        if digits > 20 || (digits == 20 && self.token(start).trim_start_matches('-').parse::<u64>().is_err())
        {
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

    fn exponent(&mut self) -> Result<i32, JsonSyntaxError> {
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
        // A longer exponent is far outside the range of a double. The exact method handles it.
        let value = if len > 9 { i32::MAX } else { i32::try_from(value).unwrap_or(i32::MAX) };
        Ok(if minus { -value } else { value })
    }

    /// The double nearest to the token from `start` to the current position.
    fn exact(&self, start: usize) -> Result<Number, JsonSyntaxError> {
        steps::add(self.at - start);
        match fast_float2::parse::<f64, _>(&self.source[start..self.at]) {
            Ok(value) if value.is_finite() => Ok(Number::Double(value)),
            _ => Err(JsonSyntaxError { reason: reason::TOO_BIG, at: start }),
        }
    }

    fn token(&self, start: usize) -> &'a str {
        std::str::from_utf8(&self.source[start..self.at]).expect("a number is written in ASCII")
    }

    fn word(&mut self, minus: bool) -> Result<Number, JsonSyntaxError> {
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

/// Eight bytes of a text, the first byte in the lowest bits. Some of the bytes are digits.
#[derive(Clone, Copy)]
struct Word {
    /// Each byte minus the byte of the digit zero.
    values: u64,
    /// The top bit of each byte that is not a digit.
    others: u64,
}

impl Word {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);

    #[inline]
    fn at(source: &[u8], at: usize) -> Option<Self> {
        Some(Self::new(*source.get(at..)?.first_chunk()?))
    }

    #[inline]
    fn new(bytes: [u8; 8]) -> Self {
        let values = u64::from_le_bytes(bytes) ^ (Self::ONES * 0x30);
        // Adding 0x76 carries ten and more into the top bit of a byte, and never beyond that bit.
        let above_nine = (values & (Self::ONES * 0x7f)) + Self::ONES * 0x76;
        Self { values, others: (above_nine | values) & (Self::ONES * 0x80) }
    }

    #[inline]
    fn byte(self, index: usize) -> u8 {
        (self.values >> (8 * index)) as u8 ^ 0x30
    }

    /// The number of digits before the first byte that is not a digit.
    #[inline]
    fn digits(self) -> usize {
        self.others.trailing_zeros() as usize / 8
    }

    /// The number of digits before the second byte that is not a digit. The first such byte is at `point`.
    #[inline]
    fn digits_around(self, point: usize) -> usize {
        debug_assert!(self.digits() == point && point < 8, "the first byte that is no digit");
        let others = self.others & (self.others - 1);
        others.trailing_zeros() as usize / 8 - 1
    }

    /// The bytes without the byte at `index`. The last byte of the result is undefined.
    #[inline]
    fn without(self, index: usize) -> Self {
        let before = (1 << (8 * index)) - 1;
        Self { values: (self.values & before) | (self.values >> 8 & !before), ..self }
    }

    /// The number that the first `count` bytes stand for. They must be digits.
    #[inline]
    fn value(self, count: usize) -> u64 {
        if count == 0 {
            return 0;
        }
        // The shift puts zeros in front of the digits, in the lower bytes.
        let digits = self.values << (64 - 8 * count);
        // Each even byte becomes a pair of digits. The products put the four pairs into the upper half.
        let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
        let outer = (pairs & 0xff_0000_00ff).wrapping_mul(100 + (1_000_000 << 32));
        let inner = (pairs >> 16 & 0xff_0000_00ff).wrapping_mul(1 + (10_000 << 32));
        outer.wrapping_add(inner) >> 32
    }
}

/// The factor for a number to which `n` more digits are appended.
const POWERS_OF_TEN_U64: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// All powers of ten that a double holds exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn number(source: &str) -> Number {
        let mut reader = JsonReader::new(source.as_bytes());
        let number = reader.number().unwrap();
        assert_eq!(reader.left(), 0, "{source}");
        number
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
    fn digits_end_at_every_other_byte() {
        for other in (0..=255_u8).filter(|byte| !byte.is_ascii_digit()) {
            for count in 0..8 {
                let mut bytes = *b"98765432";
                bytes[count] = other;
                let expected = std::str::from_utf8(&bytes[..count]).unwrap().parse().unwrap_or(0);
                let word = Word::new(bytes);
                assert_eq!((word.digits(), word.value(count)), (count, expected), "{other} at {count}");
                assert_eq!((word.byte(count), word.digits_around(count)), (other, 7));
                let mut without = "98765432".to_owned();
                without.remove(count);
                assert_eq!(word.without(count).value(7).to_string(), without);
            }
        }
        let word = Word::new(*b"98765432");
        assert_eq!((word.digits(), word.value(8)), (8, 98_765_432));
    }

    proptest::proptest! {
        #[test]
        fn integers_read_back_as_they_were_printed(value: i64, large: u64, shift in 0..64_u32) {
            assert_eq!(number(&(value >> shift).to_string()), Number::Int(value >> shift));
            let expected = i64::try_from(large).map_or(Number::Uint(large), Number::Int);
            assert_eq!(number(&large.to_string()), expected);
        }

        #[test]
        fn a_text_means_the_double_that_is_nearest(text in "-?(0|[1-9][0-9]{0,24})\\.[0-9]{1,30}([eE][-+]?[0-9]{1,2})?") {
            assert_eq!(number(&text), Number::Double(text.parse().unwrap()), "{text}");
        }

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
