//! Reads numbers. The bytes of a short number are read eight at a time. A double is the product or quotient of two
//! exact doubles if that result is correctly rounded. A single needs only the first digits of most long numbers.
//! `fast-float2` rounds all other numbers.
use super::{
    super::{
        steps,
        syntax::{JsonSyntaxError, Number, reason},
    },
    JsonReader,
};

impl<'a> JsonReader<'a> {
    /// Reads a number, and the numbers after it while only a comma and at most one space separate them. At any other
    /// byte, and at the end of a piece, the run stops, and [`JsonReader::walk`] goes on from there.
    ///
    /// With `SINGLE`, a double is only as exact as its conversion to a single needs.
    #[inline(always)]
    pub(in super::super) fn number_run<const SINGLE: bool>(
        &mut self,
        mut take: impl FnMut(Number),
    ) -> Result<(), JsonSyntaxError> {
        // The position is a variable, because the next number waits for it: a field would be stored and loaded again.
        let (source, mut at) = (self.source, self.at);
        loop {
            let number = match short_number::<SINGLE>(source, at) {
                Some((number, end)) => {
                    at = end;
                    number
                }
                None => {
                    self.at = at;
                    let number = self.any_number()?;
                    at = self.at;
                    number
                }
            };
            take(number);
            at += match source.get(at..).filter(|_| at < self.piece_end) {
                Some([b',', b' ', b'-' | b'0'..=b'9', ..]) => 2,
                Some([b',', b'-' | b'0'..=b'9', ..]) => 1,
                _ => {
                    self.at = at;
                    return Ok(());
                }
            };
        }
    }

    /// Reads a number, or a word that stands for a number.
    #[inline(always)]
    pub(in super::super) fn number(&mut self) -> Result<Number, JsonSyntaxError> {
        match short_number::<false>(self.source, self.at) {
            Some((number, end)) => {
                self.at = end;
                Ok(number)
            }
            None => self.any_number(),
        }
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

/// Reads the number at `at` if it has one of the usual forms: up to seven digits, or a fraction. Returns the number and its
/// end. [`JsonReader::any_number`] reads all other numbers and reports all errors.
// Inlining avoids a round trip through memory: without it the result is stored in halves and read as a whole, which takes
// longer than the parsing.
#[inline(always)]
fn short_number<const SINGLE: bool>(source: &[u8], at: usize) -> Option<(Number, usize)> {
    let begin: &[u8; 9] = source.get(at..)?.first_chunk()?;
    // The next number waits for the length of this one. So both words are loaded at once, and a mask selects one: the
    // compiler would make one load of a condition, which has to wait for the first byte.
    let [unsigned, signed] =
        [begin.first_chunk()?, begin.last_chunk()?].map(|bytes| u64::from_le_bytes(*bytes));
    let minus = unsigned & 0xff == u64::from(b'-');
    let start = at + usize::from(minus);
    let word = Word::new(unsigned ^ ((unsigned ^ signed) & u64::from(minus).wrapping_neg()));
    let whole = word.digits();
    let leading_zero = whole > 1 && word.byte(0) == b'0';
    if whole == 0 || whole == 8 || leading_zero {
        return None;
    }
    match word.byte(whole) {
        b'.' => {}
        b'e' | b'E' => return None,
        _ => {
            steps::add(start + whole - at);
            let value = word.value(whole).cast_signed();
            return Some((Number::Int(if minus { -value } else { value }), start + whole));
        }
    }
    let digits = word.digits_around(whole);
    if digits == whole {
        return None;
    }
    let mantissa = word.without(whole);
    let (value, end) = if digits < 7 {
        if matches!(word.byte(digits + 1), b'e' | b'E') {
            return None;
        }
        (quotient(mantissa.value(digits), digits - whole), start + digits + 1)
    } else {
        let (mantissa, fraction) = (mantissa.value(7), 7 - whole);
        let next = Word::at(source, start + 8)?;
        let more = next.digits();
        if more == 8 {
            let mantissa = mantissa * POWERS_OF_TEN_U64[8] + next.whole_value();
            long_fraction::<SINGLE>(source, start, mantissa, fraction + 8)?
        } else {
            if matches!(next.byte(more), b'e' | b'E') {
                return None;
            }
            let mantissa = mantissa * POWERS_OF_TEN_U64[more] + next.value(more);
            (quotient(mantissa, fraction + more), start + 8 + more)
        }
    };
    steps::add(end - at);
    Some((Number::Double(if minus { -value } else { value }), end))
}

/// Reads a number of sixteen bytes or more that begins at `start`. The first sixteen bytes are the digits of `mantissa`, and
/// a point before the last `fraction` of them.
#[inline(never)]
fn long_fraction<const SINGLE: bool>(
    source: &[u8],
    start: usize,
    mantissa: u64,
    fraction: usize,
) -> Option<(f64, usize)> {
    let mut end = start + 16;
    loop {
        let digits = Word::at(source, end)?.digits();
        end += digits;
        if digits < 8 {
            break;
        }
    }
    if matches!(source.get(end), Some(b'e' | b'E')) {
        return None;
    }
    let low = quotient(mantissa, fraction);
    if end == start + 16 {
        return Some((low, end));
    }
    if SINGLE {
        // The number lies between these two. Rounding keeps the order, so if both give the same single, the number does.
        let high = quotient(mantissa + 1, fraction);
        #[expect(clippy::cast_possible_truncation, reason = "a single is wanted")]
        if (low as f32).to_bits() == (high as f32).to_bits() {
            return Some((low, end));
        }
    }
    steps::add(end - start);
    fast_float2::parse::<f64, _>(&source[start..end]).ok().map(|value| (value, end))
}

/// The double nearest to `mantissa`, which has at most sixteen digits, with `fraction` of them behind the point.
#[inline(always)]
fn quotient(mantissa: u64, fraction: usize) -> f64 {
    debug_assert!(mantissa <= 1 << 53, "a double holds the mantissa");
    // Both numbers are exact, so their quotient is correctly rounded.
    #[expect(clippy::cast_precision_loss, reason = "not above 2^53")]
    let mantissa = mantissa as f64;
    mantissa / POWERS_OF_TEN[fraction]
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
        Some(Self::new(u64::from_le_bytes(*source.get(at..)?.first_chunk()?)))
    }

    #[inline]
    fn new(bytes: u64) -> Self {
        let values = bytes ^ (Self::ONES * 0x30);
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

    /// The number that the first `count` bytes stand for. They must be digits, and fewer than eight.
    #[inline]
    fn value(self, count: usize) -> u64 {
        debug_assert!(count < 8, "the shifts are below 64");
        // Zeros come in front of the digits, in the lower bytes.
        Self { values: self.values << (8 * (7 - count)) << 8, ..self }.whole_value()
    }

    /// The number that all eight bytes stand for. They must be digits.
    #[inline]
    fn whole_value(self) -> u64 {
        let digits = self.values;
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
    fn the_exponent_of_a_long_number_counts_before_its_size() {
        let digits = "1".repeat(400);
        assert_eq!(number(&format!("{digits}e-400")), Number::Double(1.0 / 9.0));
        assert_eq!(number(&format!("0.{digits}")), Number::Double(1.0 / 9.0));
        for text in [digits.clone(), format!("-{digits}"), format!("{digits}.0"), format!("{digits}e-1")] {
            assert!(JsonReader::new(text.as_bytes()).number().is_err(), "{text}");
        }
    }

    #[test]
    fn digits_end_at_every_other_byte() {
        for other in (0..=255_u8).filter(|byte| !byte.is_ascii_digit()) {
            for count in 0..8 {
                let mut bytes = *b"98765432";
                bytes[count] = other;
                let expected = std::str::from_utf8(&bytes[..count]).unwrap().parse().unwrap_or(0);
                let word = Word::new(u64::from_le_bytes(bytes));
                assert_eq!((word.digits(), word.value(count)), (count, expected), "{other} at {count}");
                assert_eq!((word.byte(count), word.digits_around(count)), (other, 7));
                let mut without = "98765432".to_owned();
                without.remove(count);
                assert_eq!(word.without(count).value(7).to_string(), without);
            }
        }
        let word = Word::new(u64::from_le_bytes(*b"98765432"));
        assert_eq!((word.digits(), word.whole_value()), (8, 98_765_432));
    }

    /// Reads a run of numbers that ends at a bracket.
    fn run<const SINGLE: bool>(source: &str) -> Vec<Number> {
        let mut numbers = Vec::new();
        let mut reader = JsonReader::new(source.as_bytes());
        reader.number_run::<SINGLE>(|number| numbers.push(number)).unwrap();
        assert!(source[reader.at..].starts_with(']'), "{source}");
        numbers
    }

    /// As in the reference, a single is what a double becomes, and not what is nearest to the text.
    #[expect(clippy::cast_possible_truncation, reason = "a single is wanted")]
    fn assert_run(texts: &[String], comma: &str) {
        let source = texts.join(comma) + "]                    ";
        let (doubles, singles) = (run::<false>(&source), run::<true>(&source));
        assert_eq!((doubles.len(), singles.len()), (texts.len(), texts.len()));
        for ((text, double), single) in texts.iter().zip(doubles).zip(singles) {
            let expected: f64 = text.parse().unwrap();
            // An integer has no negative zero.
            let same = |read: f64, expected: f64| {
                read.to_bits() == expected.to_bits() || (text == "-0" && read == 0.0)
            };
            assert!(same(double.as_double(), expected), "{text}: {double:?}");
            let (single, expected) = (single.as_double() as f32, expected as f32);
            assert!(same(single.into(), expected.into()), "{text}: {single:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn runs_mean_the_nearest_doubles_and_their_singles(
            texts in proptest::collection::vec("-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,20})?([eE]-?[0-9])?", 1..20),
            spaced: bool,
        ) {
            assert_run(&texts, if spaced { ", " } else { "," });
        }

        /// Between two neighbouring singles, the digits far behind the point decide.
        #[test]
        fn the_middle_between_two_singles_is_rounded_as_its_digits_demand(
            value in 1e-7_f32..1e7, digits in 14..40_usize, last in 0..10_u8, minus: bool,
        ) {
            let middle = f64::midpoint(value.into(), value.next_up().into());
            let sign = if minus { "-" } else { "" };
            let texts = [
                format!("{sign}{value}"),
                format!("{sign}{}", f64::from(value)),
                format!("{sign}{middle}"),
                format!("{sign}{middle:.digits$}"),
                format!("{sign}{middle:.digits$}{last}"),
            ];
            assert_run(&texts, ",");
        }

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
