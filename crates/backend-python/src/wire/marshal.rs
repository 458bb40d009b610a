//! The values of messages, in the format of Python's `marshal` module.
//!
//! Python reads and writes this format in C, so that a message costs a worker about a microsecond. Nereid writes the
//! codes of version 2, which every Python 3 reads, and asks workers to write that version. A worker is not trusted: a
//! damaged message is an error. The values of a message take at most 32 MiB, twice the bytes of the message, and three
//! times the bytes of its texts.
use std::fmt;

/// Writes one value after the other.
#[derive(Debug, Default)]
pub(crate) struct MarshalWriter {
    bytes: Vec<u8>,
}

impl MarshalWriter {
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn none(&mut self) {
        self.bytes.push(b'N');
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.bytes.push(if value { b'T' } else { b'F' });
    }

    pub(crate) fn int(&mut self, value: impl Into<i128>) {
        let value = value.into();
        if let Ok(short) = i32::try_from(value) {
            self.bytes.push(b'i');
            self.bytes.extend(short.to_le_bytes());
            return;
        }
        let mut digits = [0_u16; 9];
        let mut count = 0_i32;
        let mut rest = value.unsigned_abs();
        for digit in &mut digits {
            if rest == 0 {
                break;
            }
            // A digit has 15 bits.
            *digit = (rest & 0x7fff) as u16;
            rest >>= 15;
            count += 1;
        }
        self.bytes.push(b'l');
        self.bytes.extend((if value < 0 { -count } else { count }).to_le_bytes());
        digits
            .iter()
            .take(count.unsigned_abs() as usize)
            .for_each(|digit| self.bytes.extend(digit.to_le_bytes()));
    }

    pub(crate) fn size(&mut self, value: usize) {
        self.int(i128::try_from(value).unwrap_or(i128::MAX));
    }

    pub(crate) fn float(&mut self, value: f64) {
        self.bytes.push(b'g');
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn str(&mut self, text: &str) {
        self.sized(b'u', text.as_bytes());
    }

    /// Text, or None.
    pub(crate) fn optional_str(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.str(text),
            None => self.none(),
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.sized(b's', bytes);
    }

    /// The values that follow, so many, are a tuple.
    pub(crate) fn tuple(&mut self, count: usize) {
        self.bytes.push(b'(');
        self.bytes.extend(length(count).to_le_bytes());
    }

    fn sized(&mut self, code: u8, bytes: &[u8]) {
        self.bytes.push(code);
        self.bytes.extend(length(bytes.len()).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }
}

/// The format has 31 bits for lengths. Large data are in shared memory, not in messages.
fn length(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A value that a worker has written. Bytes are those of the message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MarshalValue<'a> {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Bytes(&'a [u8]),
    List(Vec<MarshalValue<'a>>),
    Dict(Vec<(MarshalValue<'a>, MarshalValue<'a>)>),
}

/// What is wrong with a message of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DamagedMessage(pub(crate) &'static str);

impl fmt::Display for DamagedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message is damaged: {}", self.0)
    }
}

impl<'a> MarshalValue<'a> {
    /// Reads one value, which must be all of the bytes.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, DamagedMessage> {
        let mut reader =
            MarshalReader { rest: bytes, values_left: MOST_VALUES + bytes.len() / BYTES_PER_VALUE };
        let value = reader.value(MOST_NESTED)?;
        if reader.rest.is_empty() { Ok(value) } else { Err(DamagedMessage("bytes follow the value")) }
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn as_str(&self) -> Result<&str, DamagedMessage> {
        match self {
            Self::Str(text) => Ok(text),
            _ => Err(DamagedMessage("text is expected")),
        }
    }

    pub(crate) fn as_optional_str(&self) -> Result<Option<&str>, DamagedMessage> {
        if self.is_none() { Ok(None) } else { self.as_str().map(Some) }
    }

    pub(crate) fn as_bool(&self) -> Result<bool, DamagedMessage> {
        match self {
            Self::Bool(value) => Ok(*value),
            _ => Err(DamagedMessage("a truth value is expected")),
        }
    }

    pub(crate) fn as_int<I: TryFrom<i128>>(&self) -> Result<I, DamagedMessage> {
        match self {
            Self::Int(value) => I::try_from(*value).map_err(|_| DamagedMessage("a number is out of range")),
            _ => Err(DamagedMessage("a number is expected")),
        }
    }

    pub(crate) fn as_float(&self) -> Result<f64, DamagedMessage> {
        match self {
            Self::Float(value) => Ok(*value),
            #[expect(clippy::cast_precision_loss, reason = "Python's whole numbers serve as floats")]
            Self::Int(value) => Ok(*value as f64),
            _ => Err(DamagedMessage("a number is expected")),
        }
    }

    pub(crate) fn as_list(&self) -> Result<&[Self], DamagedMessage> {
        match self {
            Self::List(values) => Ok(values),
            _ => Err(DamagedMessage("a list is expected")),
        }
    }

    #[cfg(test)]
    pub(crate) fn as_dict(&self) -> Result<&[(Self, Self)], DamagedMessage> {
        match self {
            Self::Dict(pairs) => Ok(pairs),
            _ => Err(DamagedMessage("a dictionary is expected")),
        }
    }

    /// The elements of a list of exactly that length.
    pub(crate) fn as_array<const N: usize>(&self) -> Result<&[Self; N], DamagedMessage> {
        self.as_list()?.try_into().map_err(|_| DamagedMessage("a list has another length"))
    }
}

/// Values within values; a message of a worker has five levels.
const MOST_NESTED: u32 = 16;

/// Values in lists and dictionaries: so many in each message, and one more for each [`BYTES_PER_VALUE`] of its bytes. A
/// tensor has ten values.
const MOST_VALUES: usize = 1 << 20;

/// A value has half of its size for each of its bytes.
const BYTES_PER_VALUE: usize = 16;

const _: () = assert!(size_of::<MarshalValue<'static>>() == 2 * BYTES_PER_VALUE);

struct MarshalReader<'a> {
    rest: &'a [u8],
    /// The values that lists and dictionaries may still have. What is taken is allocated.
    values_left: usize,
}

impl<'a> MarshalReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], DamagedMessage> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DamagedMessage("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DamagedMessage> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DamagedMessage("it ends too early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes the room for so many values.
    fn reserve(&mut self, count: usize) -> Result<(), DamagedMessage> {
        self.values_left =
            self.values_left.checked_sub(count).ok_or(DamagedMessage("it has too many values"))?;
        Ok(())
    }

    fn length(&mut self) -> Result<usize, DamagedMessage> {
        usize::try_from(i32::from_le_bytes(self.array()?)).map_err(|_| DamagedMessage("a length is negative"))
    }

    fn value(&mut self, nesting: u32) -> Result<MarshalValue<'a>, DamagedMessage> {
        let [code] = self.array()?;
        Ok(match code {
            b'N' => MarshalValue::None,
            b'F' => MarshalValue::Bool(false),
            b'T' => MarshalValue::Bool(true),
            b'i' => MarshalValue::Int(i32::from_le_bytes(self.array()?).into()),
            b'l' => MarshalValue::Int(self.long()?),
            b'g' => MarshalValue::Float(f64::from_le_bytes(self.array()?)),
            b's' => {
                let length = self.length()?;
                MarshalValue::Bytes(self.take(length)?)
            }
            b'u' => {
                let length = self.length()?;
                MarshalValue::Str(String::from_utf8_lossy(self.take(length)?).into_owned())
            }
            b'(' | b'[' => MarshalValue::List(self.list(nesting)?),
            b'{' => MarshalValue::Dict(self.dict(nesting)?),
            _ => return Err(DamagedMessage("it has a value of an unknown kind")),
        })
    }

    fn list(&mut self, nesting: u32) -> Result<Vec<MarshalValue<'a>>, DamagedMessage> {
        let deeper = nesting.checked_sub(1).ok_or(DamagedMessage("it is nested too deeply"))?;
        let count = self.length()?;
        // Each value has a byte at least.
        if count > self.rest.len() {
            return Err(DamagedMessage("it ends too early"));
        }
        self.reserve(count)?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(self.value(deeper)?);
        }
        Ok(values)
    }

    fn dict(&mut self, nesting: u32) -> Result<Vec<(MarshalValue<'a>, MarshalValue<'a>)>, DamagedMessage> {
        let deeper = nesting.checked_sub(1).ok_or(DamagedMessage("it is nested too deeply"))?;
        let mut pairs = Vec::new();
        while self.rest.first() != Some(&b'0') {
            // A vector that grows has room for twice as many.
            self.reserve(4)?;
            pairs.push((self.value(deeper)?, self.value(deeper)?));
        }
        self.take(1)?;
        Ok(pairs)
    }

    fn long(&mut self) -> Result<i128, DamagedMessage> {
        let count = i32::from_le_bytes(self.array()?);
        // Eight digits have 120 bits.
        if count.unsigned_abs() > 8 {
            return Err(DamagedMessage("a number is too large"));
        }
        let mut value = 0_i128;
        for place in 0..count.unsigned_abs() {
            value |= i128::from(u16::from_le_bytes(self.array()?) & 0x7fff) << (15 * place);
        }
        Ok(if count < 0 { -value } else { value })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut MarshalWriter)) -> Vec<u8> {
        let mut writer = MarshalWriter::default();
        write(&mut writer);
        writer.finish()
    }

    #[test]
    fn the_codes_are_those_of_python() {
        // marshal.dumps((None, True, 7, -(1 << 40), "ü", b"ab", 0.5), 2)
        let of_python =
            b"(\x07\0\0\0NTi\x07\0\0\0l\xfd\xff\xff\xff\0\0\0\0\0\x04u\x02\0\0\0\xc3\xbcs\x02\0\0\0ab\
                          g\0\0\0\0\0\0\xe0?";
        let ours = written(|writer| {
            writer.tuple(7);
            writer.none();
            writer.bool(true);
            writer.int(7);
            writer.int(-(1_i64 << 40));
            writer.str("ü");
            writer.bytes(b"ab");
            writer.float(0.5);
        });
        assert_eq!(ours, of_python);
        let read = MarshalValue::read(&ours).unwrap();
        let [none, truth, seven, long, text, bytes, half] = read.as_array().unwrap();
        assert!(none.is_none() && truth.as_bool().unwrap());
        assert_eq!((seven.as_int(), long.as_int()), (Ok(7), Ok(-(1_i64 << 40))));
        assert_eq!((text.as_str(), half.as_float()), (Ok("ü"), Ok(0.5)));
        assert_eq!(bytes, &MarshalValue::Bytes(b"ab"));
    }

    #[test]
    fn dictionaries_and_large_numbers_are_read() {
        let mut bytes = b"{u\x01\0\0\0a".to_vec();
        bytes.extend(written(|writer| writer.int(u64::MAX)));
        bytes.push(b'0');
        let read = MarshalValue::read(&bytes).unwrap();
        assert_eq!(read.as_dict().unwrap()[0].1.as_int(), Ok(u64::MAX));
        assert!(read.as_list().is_err() && read.as_str().is_err());
    }

    #[test]
    fn damaged_messages_are_errors() {
        for bytes in
            [&b""[..], b"i\0", b"(\xff\xff\xff\x7fN", b"u\xff\xff\xff\xff", b"?", b"NN", b"l\x09\0\0\0"]
        {
            assert!(MarshalValue::read(bytes).is_err(), "{bytes:?}");
        }
        let nested = b"(\x01\0\0\0".repeat(40);
        assert_eq!(MarshalValue::read(&nested), Err(DamagedMessage("it is nested too deeply")));
    }

    #[test]
    fn a_message_has_no_more_values_than_its_bytes_pay_for() {
        let nothing = |count: usize| {
            let mut bytes = written(|writer| writer.tuple(count));
            bytes.resize(bytes.len() + count, b'N');
            bytes
        };
        assert_eq!(MarshalValue::read(&nothing(MOST_VALUES)).unwrap().as_list().unwrap().len(), MOST_VALUES);
        let too_many = Err(DamagedMessage("it has too many values"));
        assert_eq!(MarshalValue::read(&nothing(2 * MOST_VALUES)), too_many);
        // Lists in lists share the values.
        let mut nested = written(|writer| writer.tuple(3));
        (0..3).for_each(|_| nested.extend(nothing(MOST_VALUES / 2)));
        assert_eq!(MarshalValue::read(&nested), too_many);
        let mut pairs = b"{".to_vec();
        pairs.resize(2 * MOST_VALUES, b'N');
        assert_eq!(MarshalValue::read(&pairs), too_many);
        // Bytes pay for values.
        let mut paid = written(|writer| writer.tuple(2));
        paid.extend(nothing(MOST_VALUES));
        paid.extend(written(|writer| writer.bytes(&vec![0; MOST_VALUES * 16])));
        assert!(MarshalValue::read(&paid).is_ok());
    }

    proptest! {
        #[test]
        fn numbers_come_back(value in any::<i64>(), large in any::<u64>()) {
            let bytes = written(|writer| writer.int(value));
            prop_assert_eq!(MarshalValue::read(&bytes).unwrap().as_int(), Ok(value));
            let bytes = written(|writer| writer.int(large));
            prop_assert_eq!(MarshalValue::read(&bytes).unwrap().as_int(), Ok(large));
        }

        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = MarshalValue::read(&bytes);
        }
    }
}
