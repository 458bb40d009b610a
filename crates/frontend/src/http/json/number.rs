//! Numbers: fast where a product or quotient of two exact doubles is the answer, exact elsewhere.
use super::{JsonSyntaxError, Number, reader::JsonReader, reason};

impl<'a> JsonReader<'a> {
    /// Reads a number and, while only a comma and perhaps one space lie between, those behind it. What stops the run is
    /// left for [`JsonReader::walk`] to judge.
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

    /// Reads a number, or one of the words that stand for one.
    pub(super) fn number(&mut self) -> Result<Number, JsonSyntaxError> {
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
        let start = self.at;
        for (index, byte) in self.source[start..].iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                self.at = start + index;
                return mantissa;
            }
            mantissa = mantissa.wrapping_mul(10).wrapping_add(digit.into());
        }
        self.at = self.source.len();
        mantissa
    }

    fn integer(
        &self,
        start: usize,
        minus: bool,
        value: u64,
        digits: usize,
    ) -> Result<Number, JsonSyntaxError> {
        // Nineteen digits always fit; twenty may.
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
        // Anything longer is far beyond what a double holds; the exact way sorts it out.
        let value = if len > 9 { i32::MAX } else { i32::try_from(value).unwrap_or(i32::MAX) };
        Ok(if minus { -value } else { value })
    }

    /// The double nearest to the token that began at `start` and ends here.
    fn exact(&self, start: usize) -> Result<Number, JsonSyntaxError> {
        match self.token(start).parse::<f64>() {
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
