//! The value of an entry in the store: a header of 32 bytes, then the packed answer.
//!
//! | bytes | |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`FORMAT_VERSION`], little-endian |
//! | 4 | 1 if the checksum has a key, otherwise 0, little-endian |
//! | 16 | checksum of the version, the key of the entry and the packed answer |
//!
//! Without a key, the checksum detects damage, not forgery: whoever may write to the store is trusted. With a key, an
//! entry that a server without the key has written is not read.
use bytes::Bytes;
use inference::cache::{CachedAnswer, packed};
use vocabulary::Error;

use super::checksum::{CHECKSUM_BYTES, EntryChecksum};

/// How each value begins.
const MAGIC: [u8; 8] = *b"NereidRC";
/// The version of the format. Each change of the header or of [`packed`] needs another number.
const FORMAT_VERSION: u32 = 1;
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
pub(super) fn encode(key: &str, answer: &CachedAnswer, checksum: &EntryChecksum) -> Result<Vec<u8>, Error> {
    let mut value = vec![0; size(answer)?];
    let (header, body) = value.split_at_mut(HEADER_BYTES);
    packed::write(answer, body)?;
    let (start, sum) = header.split_at_mut(HEADER_BYTES - CHECKSUM_BYTES);
    start.copy_from_slice(&header_start(checksum));
    sum.copy_from_slice(&checksum.of(&covered(&key_length(key), key, body)));
    Ok(value)
}

/// Reads a value. The answer shares its memory. `None`: the value is damaged, has another version, belongs to another
/// key, was written with another key of checksums, or has a tensor whose bytes do not fit its shape.
pub(super) fn decode(key: &str, value: &Bytes, checksum: &EntryChecksum) -> Option<CachedAnswer> {
    let (header, body) = value.split_at_checked(HEADER_BYTES)?;
    let (start, sum) = header.split_at(HEADER_BYTES - CHECKSUM_BYTES);
    if start != header_start(checksum) || !checksum.matches(sum, &covered(&key_length(key), key, body)) {
        return None;
    }
    packed::read_shared(&value.slice_ref(body)).ok()
}

/// The header without its checksum.
fn header_start(checksum: &EntryChecksum) -> [u8; HEADER_BYTES - CHECKSUM_BYTES] {
    let mut start = [0; HEADER_BYTES - CHECKSUM_BYTES];
    start[..8].copy_from_slice(&MAGIC);
    start[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    start[12..].copy_from_slice(&u32::from(checksum.is_keyed()).to_le_bytes());
    start
}

fn key_length(key: &str) -> [u8; 8] {
    (key.len() as u64).to_le_bytes()
}

/// What the checksum covers.
fn covered<'a>(key_length: &'a [u8; 8], key: &'a str, body: &'a [u8]) -> [&'a [u8]; 4] {
    const VERSION: [u8; 4] = FORMAT_VERSION.to_le_bytes();
    [&VERSION, key_length, key.as_bytes(), body]
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, fs, time::Duration};

    use blake3::Hasher;
    use inference::Response;
    use vocabulary::{DataType, Parameter, Tensor};

    use super::*;

    fn encode(key: &str, answer: &CachedAnswer) -> Result<Vec<u8>, Error> {
        super::encode(key, answer, &EntryChecksum::default())
    }

    fn decode(key: &str, value: &Bytes) -> Option<CachedAnswer> {
        super::decode(key, value, &EntryChecksum::default())
    }

    /// Checksums with a key of this byte.
    fn keyed(byte: u8) -> EntryChecksum {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, [byte; 32]).unwrap();
        EntryChecksum::load(Some(&path)).unwrap()
    }

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
    fn with_a_key_only_values_of_servers_with_that_key_are_read() {
        let value =
            |checksum: &EntryChecksum| Bytes::from(super::encode("key", &answer(), checksum).unwrap());
        let is_read =
            |value: &Bytes, checksum: &EntryChecksum| super::decode("key", value, checksum).is_some();
        let none = EntryChecksum::default();
        assert!(is_read(&value(&keyed(1)), &keyed(1)));
        for (writer, reader) in [(&keyed(1), &keyed(2)), (&none, &keyed(1)), (&keyed(1), &none)] {
            assert!(!is_read(&value(writer), reader), "{writer:?} {reader:?}");
        }
        // A forged value: the checksum without a key, and the mark of a keyed one.
        let mut forged = value(&none).to_vec();
        forged[12] = 1;
        assert!(!is_read(&forged.into(), &keyed(1)));
        let mut forged = value(&keyed(1)).to_vec();
        let last = forged.len() - 1;
        forged[last] ^= 1;
        assert!(!is_read(&forged.into(), &keyed(1)));
    }

    #[test]
    fn a_tensor_whose_bytes_do_not_fit_its_shape_is_none_although_the_value_is_whole() {
        let value = encode("key", &answer()).unwrap();
        let with_shape = |rows: u8| {
            let mut body = value[HEADER_BYTES..].to_vec();
            // See `the_bytes_of_this_version_are_fixed`.
            let place = 56;
            assert_eq!(body[place..place + 8], 3_u64.to_le_bytes());
            body[place] = rows;
            let checksum = EntryChecksum::default();
            let sum = checksum.of(&covered(&key_length("key"), "key", &body));
            decode("key", &[&header_start(&checksum)[..], &sum, &body].concat().into())
        };
        assert!(with_shape(3).is_some());
        for rows in [0, 2, 4, 255] {
            assert!(with_shape(rows).is_none(), "{rows}");
        }
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
