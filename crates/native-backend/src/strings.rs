//! Converts BYTES tensors from the protocols' length-prefixed form into the strings of a library.
//!
//! The conversion keeps all lengths, so a string may contain any byte, also NUL.
use bytes::Bytes;
use vocabulary::{Error, TensorData};

use crate::graph::StringTensor;

/// Writes the strings of one request's input into `target`, from position `first` on. `expected` is their number.
/// Returns the number of copied bytes.
///
/// # Errors
/// INVALID_ARGUMENT if the bytes do not contain exactly that many strings. The rest of `target` stays empty then.
pub(crate) fn fill(
    target: &mut impl StringTensor,
    first: usize,
    expected: usize,
    input: &str,
    data: &TensorData,
) -> Result<usize, Error> {
    let mut pieces = PieceReader::new(data.pieces());
    let (mut count, mut copied) = (0, 0);
    while pieces.len > 0 {
        if count == expected {
            return Err(Error::invalid(format!(
                "unexpected number of string elements {} for inference input '{input}', expecting {expected}",
                count + 1
            )));
        }
        let mut prefix = [0; 4];
        if pieces.len < prefix.len() {
            return Err(Error::invalid(format!(
                "incomplete string length indicator for inference input '{input}', expecting 4 bytes but only {} bytes \
                 available.",
                pieces.len
            )));
        }
        pieces.copy_to(&mut prefix);
        let len = u32::from_le_bytes(prefix);
        let fits = usize::try_from(len).ok().filter(|&len| len <= pieces.len);
        let Some(fitting) = fits else {
            return Err(Error::invalid(format!(
                "incomplete string data for inference input '{input}', expecting string of length {len} but only {} \
                 bytes available",
                pieces.len
            )));
        };
        pieces.copy_to(target.string(first + count, fitting)?);
        copied += fitting;
        count += 1;
    }
    if count < expected {
        return Err(Error::invalid(format!(
            "expected {expected} strings for inference input '{input}', got {count}"
        )));
    }
    Ok(copied)
}

/// Reads across the boundaries of pieces.
struct PieceReader<'a> {
    rest: std::slice::Iter<'a, Bytes>,
    current: &'a [u8],
    /// Bytes left in total.
    len: usize,
}

impl<'a> PieceReader<'a> {
    fn new(pieces: &'a [Bytes]) -> Self {
        Self { rest: pieces.iter(), current: &[], len: pieces.iter().map(Bytes::len).sum() }
    }

    /// Fills `target`. There must be enough bytes left.
    fn copy_to(&mut self, target: &mut [u8]) {
        debug_assert!(target.len() <= self.len, "the caller has compared the lengths");
        self.len -= target.len();
        let mut target = target;
        while !target.is_empty() {
            if self.current.is_empty() {
                let Some(next) = self.rest.next() else { return };
                self.current = next;
            }
            let count = target.len().min(self.current.len());
            let (head, tail) = self.current.split_at(count);
            let (place, after) = target.split_at_mut(count);
            place.copy_from_slice(head);
            self.current = tail;
            target = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_goes_on_over_the_ends_of_pieces() {
        let pieces = ["ab", "c", "defg"].map(Bytes::from);
        let mut reader = PieceReader::new(&pieces);
        let mut read = [0; 4];
        reader.copy_to(&mut read);
        assert_eq!((&read, reader.len), (b"abcd", 3));
        reader.copy_to(&mut read[..3]);
        assert_eq!((&read[..3], reader.len), (&b"efg"[..], 0));
    }
}
