//! Walking through the pieces of a body from front to back.
use std::io::{self, Read};

use bytes::Bytes;
use inference::TensorData;

/// Takes tensors one after another from the front of a body, sharing its pieces.
pub(super) struct Cursor<'b> {
    pieces: &'b [Bytes],
    /// Taken of the first piece.
    taken: usize,
    left: usize,
}

impl<'b> Cursor<'b> {
    /// At the first byte of `data`.
    pub(super) fn new(data: &'b TensorData) -> Self {
        Self { pieces: data.pieces(), taken: 0, left: data.len() }
    }

    /// Whether everything was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The next `size` bytes, or how many are missing.
    pub(super) fn cut(&mut self, size: u64) -> Result<TensorData, u64> {
        let mut wanted = match usize::try_from(size) {
            Ok(size) if size <= self.left => size,
            _ => return Err(size - self.left as u64),
        };
        self.left -= wanted;
        let mut data = TensorData::default();
        while wanted > 0 {
            let [first, rest @ ..] = self.pieces else { unreachable!("as many bytes as counted") };
            let len = wanted.min(first.len() - self.taken);
            data.push(first.slice(self.taken..self.taken + len));
            wanted -= len;
            self.taken += len;
            if self.taken == first.len() {
                self.pieces = rest;
                self.taken = 0;
            }
        }
        Ok(data)
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let [first, rest @ ..] = self.pieces else { return Ok(0) };
        let len = target.len().min(first.len() - self.taken);
        target[..len].copy_from_slice(&first[self.taken..self.taken + len]);
        self.left -= len;
        self.taken += len;
        if self.taken == first.len() {
            (self.pieces, self.taken) = (rest, 0);
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_shares_the_pieces_and_what_is_read_goes_on_behind_it() {
        let data = TensorData::from_pieces(["abc".into(), "def".into(), "g".into()]);
        let mut cursor = Cursor::new(&data);
        let taken = cursor.cut(4).unwrap();
        assert_eq!(taken.contiguous(), "abcd");
        assert_eq!(taken.pieces()[1].as_ptr(), data.pieces()[1].as_ptr());
        assert_eq!(cursor.cut(9).unwrap_err(), 6);
        assert!(!cursor.is_empty());
        let mut rest = String::new();
        cursor.read_to_string(&mut rest).unwrap();
        assert_eq!((&*rest, cursor.is_empty()), ("efg", true));
        assert!(cursor.cut(0).unwrap().is_empty());
    }
}
