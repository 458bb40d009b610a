//! Arrays of numbers that stay as they are in the file.

/// The bytes of an array of numbers.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(in crate::readers) enum NumberArray<'f> {
    /// What is between the brackets in JSON.
    Json(&'f [u8]),
    /// The elements of a typed array of UBJSON, most significant byte first.
    Typed(NumberType, &'f [u8]),
}

/// The types of numbers that UBJSON has.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(in crate::readers) enum NumberType {
    Int8,
    Uint8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
}

impl NumberType {
    /// The type of a marker.
    pub(super) fn of_marker(marker: u8) -> Option<Self> {
        match marker {
            b'i' => Some(Self::Int8),
            b'U' => Some(Self::Uint8),
            b'I' => Some(Self::Int16),
            b'l' => Some(Self::Int32),
            b'L' => Some(Self::Int64),
            b'd' => Some(Self::Float32),
            b'D' => Some(Self::Float64),
            _ => None,
        }
    }

    /// Bytes of a number.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 => 2,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 => 8,
        }
    }

    /// The number that `bytes` are, which must be as many as its size.
    pub(super) fn number(self, bytes: &[u8]) -> f64 {
        debug_assert_eq!(bytes.len(), self.size());
        match self {
            Self::Float32 => f64::from(f32::from_be_bytes(array(bytes))),
            Self::Float64 => f64::from_be_bytes(array(bytes)),
            #[expect(clippy::cast_precision_loss, reason = "no field of a model has an integer beyond 2^53")]
            _ => self.integer(bytes).unwrap_or(0) as f64,
        }
    }

    /// The whole number that `bytes` are. None if they are a fraction.
    pub(super) fn integer(self, bytes: &[u8]) -> Option<i64> {
        match self {
            Self::Int8 => Some(i64::from(i8::from_be_bytes(array(bytes)))),
            Self::Uint8 => Some(i64::from(u8::from_be_bytes(array(bytes)))),
            Self::Int16 => Some(i64::from(i16::from_be_bytes(array(bytes)))),
            Self::Int32 => Some(i64::from(i32::from_be_bytes(array(bytes)))),
            Self::Int64 => Some(i64::from_be_bytes(array(bytes))),
            Self::Float32 | Self::Float64 => whole(self.number(bytes)),
        }
    }
}

impl NumberArray<'_> {
    pub(in crate::readers) fn is_empty(self) -> bool {
        match self {
            Self::Json(text) => text.trim_ascii().is_empty(),
            Self::Typed(_, bytes) => bytes.is_empty(),
        }
    }

    /// The numbers in 32 bits. None if something is not a number.
    pub(super) fn reals(self) -> Option<Vec<f32>> {
        match self {
            Self::Json(text) => elements(text).map(|word| fast_float2::parse(word).ok()).collect(),
            #[expect(clippy::cast_possible_truncation, reason = "XGBoost computes in 32 bits")]
            Self::Typed(kind, bytes) => {
                Some(bytes.chunks_exact(kind.size()).map(|bytes| kind.number(bytes) as f32).collect())
            }
        }
    }

    /// The numbers, if all are whole. Booleans are 0 and 1.
    pub(super) fn integers(self) -> Option<Vec<i64>> {
        match self {
            Self::Json(text) => elements(text).map(json_integer).collect(),
            Self::Typed(kind, bytes) => {
                bytes.chunks_exact(kind.size()).map(|bytes| kind.integer(bytes)).collect()
            }
        }
    }
}

/// A whole number that a float is.
pub(super) fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "it is compared")]
    let integer = number as i64;
    #[expect(clippy::cast_precision_loss, reason = "it is compared")]
    let is_same = integer as f64 == number;
    is_same.then_some(integer)
}

/// What stands between commas.
fn elements(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = if text.trim_ascii().is_empty() { None } else { Some(text.split(|&byte| byte == b',')) };
    words.into_iter().flatten().map(<[u8]>::trim_ascii)
}

fn json_integer(word: &[u8]) -> Option<i64> {
    match word {
        b"true" => Some(1),
        b"false" => Some(0),
        _ => match std::str::from_utf8(word).ok()?.parse() {
            Ok(integer) => Some(integer),
            Err(_) => whole(fast_float2::parse(word).ok()?),
        },
    }
}

/// The bytes as an array. The caller has counted them.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
