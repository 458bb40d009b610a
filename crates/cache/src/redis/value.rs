//! The value of an entry in the store: a header of 32 bytes, then the packed answer.
//!
//! | bytes | |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`FORMAT_VERSION`], little-endian |
//! | 4 | zeros |
//! | 16 | checksum of the version, the key and the packed answer |
//!
//! The checksum detects damage, not forgery: whoever may write to the store is trusted.
use blake3::Hasher;
use bytes::Bytes;
use inference::{
    Error,
    cache::{CachedAnswer, packed},
};

/// How each value begins.
const MAGIC: [u8; 8] = *b"NereidRC";
/// The version of the format. Each change of the header or of [`packed`] needs another number.
const FORMAT_VERSION: u32 = 1;
const CHECKSUM_BYTES: usize = 16;
/// A multiple of [`packed::ALIGNMENT`].
const HEADER_BYTES: usize = MAGIC.len() + 8 + CHECKSUM_BYTES;

/// Bytes of the value of an answer.
///
/// # Errors
/// UNSUPPORTED if the host cannot read an output.
pub(super) fn size(answer: &CachedAnswer) -> Result<usize, Error> {
    Ok(HEADER_BYTES + packed::size(answer)?)
}

/// Makes the value of an answer.
///
/// # Errors
/// As [`size`].
pub(super) fn encode(key: &str, answer: &CachedAnswer) -> Result<Vec<u8>, Error> {
    let mut value = vec![0; size(answer)?];
    let (header, body) = value.split_at_mut(HEADER_BYTES);
    packed::write(answer, body)?;
    header.copy_from_slice(&make_header(key, body));
    Ok(value)
}

/// Reads a value. The answer shares its memory. `None`: the value is damaged, has another version, or belongs to
/// another key.
pub(super) fn decode(key: &str, value: &Bytes) -> Option<CachedAnswer> {
    let (header, body) = value.split_at_checked(HEADER_BYTES)?;
    if header != make_header(key, body) {
        return None;
    }
    packed::read_shared(&value.slice_ref(body)).ok()
}

fn make_header(key: &str, body: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let (magic, rest) = header.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    let (version, rest) = rest.split_at_mut(4);
    version.copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let mut hasher = Hasher::new();
    hasher.update(version);
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes());
    hasher.update(body);
    rest[4..].copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM_BYTES]);
    header
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, time::Duration};

    use inference::{DataType, Parameter, Response, Tensor};

    use super::*;

    fn answer() -> CachedAnswer {
        let output = Tensor::new("OUT".into(), DataType::Uint8, [3][..].into(), vec![1, 2, 3]);
        let response = Response { outputs: vec![output], parameters: vec![("p".into(), Parameter::Int(7))] };
        CachedAnswer { computed: Duration::from_secs(1), ..response.into() }
    }

    #[test]
    fn a_value_is_read_as_it_was_written_and_shares_its_memory() {
        let value = Bytes::from(encode("key", &answer()).unwrap());
        let back = decode("key", &value).unwrap();
        assert_eq!(back.computed, Duration::from_secs(1));
        let [back] = &back.responses[..] else { panic!("one response") };
        assert_eq!(back.parameters, answer().responses[0].parameters);
        let data = back.outputs[0].host().unwrap().contiguous();
        assert_eq!((&data[..], back.outputs[0].shape()), (&[1, 2, 3][..], &[3][..]));
        let offset = data.as_ptr().addr() - value.as_ptr().addr();
        assert!(offset < value.len() && offset.is_multiple_of(packed::ALIGNMENT));
    }

    #[test]
    fn a_value_that_is_damaged_anywhere_is_none() {
        let value = encode("key", &answer()).unwrap();
        for place in 0..value.len() {
            for bit in [1, 0x80] {
                let mut damaged = value.clone();
                damaged[place] ^= bit;
                assert!(decode("key", &damaged.into()).is_none(), "byte {place}");
            }
        }
        for len in 0..value.len() {
            assert!(decode("key", &Bytes::copy_from_slice(&value[..len])).is_none(), "{len} bytes");
        }
        assert!(decode("key", &[&value[..], &[0]].concat().into()).is_none());
    }

    #[test]
    fn a_value_of_another_key_is_none() {
        let value = Bytes::from(encode("key", &answer()).unwrap());
        assert!(decode("other", &value).is_none());
    }

    #[test]
    fn a_value_of_another_version_is_none_although_it_is_whole() {
        let mut value = encode("key", &answer()).unwrap();
        let version = FORMAT_VERSION + 1;
        value[8..12].copy_from_slice(&version.to_le_bytes());
        let mut hasher = Hasher::new();
        hasher.update(&version.to_le_bytes()).update(&3_u64.to_le_bytes()).update(b"key");
        hasher.update(&value[HEADER_BYTES..]);
        let checksum = hasher.finalize();
        value[16..32].copy_from_slice(&checksum.as_bytes()[..16]);
        assert!(decode("key", &value.into()).is_none());
    }

    /// Servers of different builds share values. If this text changes, so must [`FORMAT_VERSION`].
    #[test]
    fn the_bytes_of_this_version_are_fixed() {
        let mut text = String::new();
        for byte in encode("key", &answer()).unwrap() {
            let _ = write!(text, "{byte:02x}");
        }
        let expected = [
            "4e65726569645243010000000000000090ca6b4ae940eeb8a6c01ba92b461e55",
            "e803000000000000010000000000000001000000000000000300000000000000",
            "4f5554050000000000000055494e543801000000000000000300000000000000",
            "0300000000000000000000000000000001020301000000000000000100000000",
            "00000070010700000000000000",
        ];
        assert_eq!(text, expected.concat());
    }
}
