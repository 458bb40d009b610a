//! Writes JSON texts: strings as bytes, numbers in the shortest form that reads back as the same value.

/// Appends `text` as a JSON string. Only quotation marks, backslashes and control characters are escaped. Bytes that
/// are not UTF-8 would stay as they are; the caller passes none.
pub fn write_string(to: &mut Vec<u8>, text: &[u8]) {
    to.push(b'"');
    write_escaped(to, text);
    to.push(b'"');
}

/// Appends the content of a JSON string, or a part of it: each byte has its own text.
#[inline]
pub fn write_escaped(to: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    loop {
        let at = plain_len(rest);
        to.extend_from_slice(&rest[..at]);
        if at == rest.len() {
            break;
        }
        to.push(b'\\');
        match rest[at] {
            byte @ (b'"' | b'\\') => to.push(byte),
            8 => to.push(b'b'),
            12 => to.push(b'f'),
            b'\n' => to.push(b'n'),
            b'\r' => to.push(b'r'),
            b'\t' => to.push(b't'),
            byte => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                to.extend_from_slice(b"u00");
                to.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        rest = &rest[at + 1..];
    }
}

/// Appends an unsigned integer.
pub fn write_uint(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a signed integer.
pub fn write_int(to: &mut Vec<u8>, value: i64) {
    to.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the shortest text that reads back to this double.
pub fn write_double(to: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        layout(to, ryu::Buffer::new().format_finite(value).as_bytes());
    } else {
        word(to, value.is_nan(), value > 0.0);
    }
}

/// Appends the shortest text that reads back as this single: `0.1`. The same value as a double would print as
/// `0.10000000149011612` (P-W50).
pub fn write_single(to: &mut Vec<u8>, value: f32) {
    if value.is_finite() {
        layout(to, ryu::Buffer::new().format_finite(value).as_bytes());
    } else {
        word(to, value.is_nan(), value > 0.0);
    }
}

fn word(to: &mut Vec<u8>, nan: bool, positive: bool) {
    let word: &[u8] = match (nan, positive) {
        (true, _) => b"NaN",
        (false, true) => b"Infinity",
        (false, false) => b"-Infinity",
    };
    to.extend_from_slice(word);
}

/// Appends a number in the layout of RapidJSON's `Prettify`. Let k be the position of the decimal point in the digits.
/// If -6 < k <= 21, the layout is positional and always has a fraction. Otherwise it is scientific, without a plus
/// sign. In the usual case of a plain number with a point, ryu's own layout is the same.
fn layout(to: &mut Vec<u8>, shortest: &[u8]) {
    let Some(e) = shortest.iter().position(|&byte| byte == b'e') else {
        // The text is positional already, with k between -4 and 16.
        to.extend_from_slice(shortest);
        return;
    };
    let (mantissa, exponent) = (&shortest[..e], &shortest[e + 1..]);
    let exponent: i32 = std::str::from_utf8(exponent).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (sign, mantissa) = mantissa.split_at(usize::from(mantissa[0] == b'-'));
    let digits = || mantissa.iter().copied().filter(|&byte| byte != b'.');
    let count = i32::try_from(digits().count()).unwrap_or(i32::MAX);
    // The mantissa has one digit before the point.
    let k = exponent + 1;
    to.extend_from_slice(sign);
    if (-5..=0).contains(&k) {
        to.extend_from_slice(b"0.");
        to.extend((k..0).map(|_| b'0'));
        to.extend(digits());
    } else if count <= k && k <= 21 {
        to.extend(digits());
        to.extend((count..k).map(|_| b'0'));
        to.extend_from_slice(b".0");
    } else if (1..=21).contains(&k) {
        let whole = usize::try_from(k).unwrap_or(0);
        to.extend(digits().take(whole));
        to.push(b'.');
        to.extend(digits().skip(whole));
    } else {
        to.extend_from_slice(mantissa);
        to.push(b'e');
        write_int(to, exponent.into());
    }
}

/// The number of bytes of `text` that need no escape: up to the first quotation mark, backslash or control character.
/// The function reads eight bytes at a time, because names are short but tensors of strings are long.
#[inline]
pub fn plain_len(text: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    // Both set the top bit of the first matching byte, and of no byte before it.
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word & TOPS;
    let equal = |word: u64, byte: u64| below(word ^ (ONES * byte), 1);
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let special = below(word, 0x20) | equal(word, 0x22) | equal(word, 0x5c);
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let tail = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\');
    text.len() - rest.len() + tail.unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double(value: f64) -> String {
        let mut to = Vec::new();
        write_double(&mut to, value);
        String::from_utf8(to).unwrap()
    }

    fn single(value: f32) -> String {
        let mut to = Vec::new();
        write_single(&mut to, value);
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn doubles_are_laid_out_as_in_the_reference() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e308, "1e308"),
            (123_456_789_012_345_678.0, "123456789012345680.0"),
            (1e10, "10000000000.0"),
            (1e20, "100000000000000000000.0"),
            (1e21, "1e21"),
            (1.5e21, "1.5e21"),
            (1.234_567_890_123_456_7e20, "123456789012345670000.0"),
            (1e-6, "0.000001"),
            (1.5e-6, "0.0000015"),
            (1e-7, "1e-7"),
            (-2.5e-10, "-2.5e-10"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(value), text);
        }
    }

    #[test]
    fn singles_are_as_short_as_singles_can_be() {
        assert_eq!(single(0.1), "0.1");
        assert_eq!(single(16_777_216.0), "16777216.0");
        assert_eq!(single(1e20), "100000000000000000000.0");
        assert_eq!(single(f32::MIN_POSITIVE), "1.1754944e-38");
        assert_eq!(single(-f32::INFINITY), "-Infinity");
    }

    #[test]
    fn only_what_must_be_is_escaped() {
        let mut to = Vec::new();
        write_string(&mut to, b"a\"\\/\x08\x0c\n\r\t\0\x1f\x7f\xff\xc3\xa9");
        assert_eq!(to, b"\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001F\x7f\xff\xc3\xa9\"");
    }

    proptest::proptest! {
        #[test]
        fn printed_numbers_read_back_to_the_same_bits(value: f64, small: f32) {
            if value.is_finite() {
                proptest::prop_assert_eq!(double(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
            }
            if small.is_finite() {
                proptest::prop_assert_eq!(single(small).parse::<f32>().unwrap().to_bits(), small.to_bits());
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn the_first_special_byte_is_found(text in proptest::collection::vec(0x1e..0x60_u8, 0..40), high: bool) {
            let text: Vec<u8> = text.iter().map(|byte| if high && byte % 5 > 1 { byte | 0x80 } else { *byte }).collect();
            let expected = text.iter().position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\');
            proptest::prop_assert_eq!(plain_len(&text), expected.unwrap_or(text.len()));
        }
    }
}
