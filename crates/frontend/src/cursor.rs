//! Reads bytes that lie in several pieces, from front to back.
//!
//! Both protocols use it to read requests. It returns texts by reference if they lie in one piece. It always returns
//! tensors as shared pieces.
use std::borrow::Cow;

use bytes::Bytes;
use vocabulary::TensorData;

static NO_PIECE: Bytes = Bytes::new();

/// A position in some pieces, and the end of the reading.
///
/// Invariant: `chunk` is empty only if no piece has bytes left, and `left` is at most the number of bytes left in all
/// pieces.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'b> {
    /// The rest of `piece`.
    chunk: &'b [u8],
    piece: &'b Bytes,
    later: &'b [Bytes],
    /// The number of bytes before the end.
    left: usize,
}

impl<'b> Cursor<'b> {
    /// A cursor at the first byte of `pieces`.
    pub(crate) fn new(pieces: &'b [Bytes]) -> Self {
        let left = pieces.iter().map(Bytes::len).sum();
        let mut cursor = Self { chunk: &[], piece: &NO_PIECE, later: pieces, left };
        cursor.refill();
        cursor
    }

    /// The number of bytes before the end.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Moves the end to `count` bytes after the position. Returns the number of bytes after the new end; `None` if
    /// fewer bytes are left.
    #[inline]
    pub(crate) fn end_after(&mut self, count: usize) -> Option<usize> {
        let behind = self.left.checked_sub(count)?;
        self.left = count;
        Some(behind)
    }

    /// Moves the end back. `behind` is the result of [`Cursor::end_after`].
    #[inline]
    pub(crate) fn go_on(&mut self, behind: usize) {
        debug_assert!(self.left == 0, "read up to the end");
        self.left = behind;
    }

    /// The next byte, if it is before the end.
    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.byte_if(|_| true)
    }

    /// The next byte, if it is before the end and `suits` accepts it.
    #[inline]
    pub(crate) fn byte_if(&mut self, suits: impl FnOnce(u8) -> bool) -> Option<u8> {
        let byte = *self.chunk.first()?;
        (self.left > 0 && suits(byte)).then(|| {
            self.advance(1);
            byte
        })
    }

    /// The next bytes as an array.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.left < N {
            return None;
        }
        if let Some(bytes) = self.chunk.first_chunk::<N>() {
            self.advance(N);
            return Some(*bytes);
        }
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Some(bytes)
    }

    /// The next `count` bytes. They are copied only if they lie in several pieces. `None` if fewer are left.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<Cow<'b, [u8]>> {
        if count > self.left {
            return None;
        }
        if let Some((bytes, _)) = self.chunk.split_at_checked(count) {
            self.advance(count);
            return Some(Cow::Borrowed(bytes));
        }
        let mut joined = Vec::with_capacity(count);
        self.pass(count, |_, bytes| joined.extend_from_slice(bytes));
        Some(Cow::Owned(joined))
    }

    /// The next `count` bytes as shared pieces, never copied. `None` if fewer are left.
    pub(crate) fn data(&mut self, count: usize) -> Option<TensorData> {
        if count > self.left {
            return None;
        }
        if count <= self.chunk.len() {
            let piece = self.piece.slice_ref(&self.chunk[..count]);
            self.advance(count);
            return Some(piece.into());
        }
        let mut data = TensorData::default();
        self.pass(count, |piece, bytes| data.push(piece.slice_ref(bytes)));
        Some(data)
    }

    /// Passes the next `count` bytes to `each` where they lie, piece by piece. `None` if fewer are left.
    pub(crate) fn pieces(&mut self, count: usize, mut each: impl FnMut(&'b [u8])) -> Option<()> {
        (count <= self.left).then(|| self.pass(count, |_, bytes| each(bytes)))
    }

    /// Skips `count` bytes. `None` if fewer are left.
    pub(crate) fn skip(&mut self, count: usize) -> Option<()> {
        (count <= self.left).then(|| self.pass(count, |_, _| {}))
    }

    /// Moves past `count` bytes, which must be present, and calls `each` for every piece of them.
    fn pass(&mut self, mut count: usize, mut each: impl FnMut(&'b Bytes, &'b [u8])) {
        while count > 0 {
            let here = count.min(self.chunk.len());
            each(self.piece, &self.chunk[..here]);
            self.advance(here);
            count -= here;
        }
    }

    /// Moves past `count` bytes of the chunk. The caller has checked that they are before the end.
    #[inline]
    fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.left, "checked by the caller");
        self.left -= count;
        self.chunk = &self.chunk[count..];
        if self.chunk.is_empty() {
            self.refill();
        }
    }

    fn refill(&mut self) {
        while self.chunk.is_empty()
            && let Some((next, later)) = self.later.split_first()
        {
            self.piece = next;
            self.chunk = next;
            self.later = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> [Bytes; 4] {
        ["abc", "", "def", "g"].map(Bytes::from)
    }

    #[test]
    fn taken_bytes_share_the_pieces_and_reading_continues_behind_them() {
        let pieces = pieces();
        let mut cursor = Cursor::new(&pieces);
        let taken = cursor.data(4).unwrap();
        assert_eq!(taken.contiguous(), "abcd");
        assert_eq!(taken.pieces()[1].as_ptr(), pieces[2].as_ptr());
        assert!(cursor.data(4).is_none());
        assert_eq!(cursor.left(), 3);
        assert_eq!(cursor.byte_if(|byte| byte == b'x'), None);
        assert_eq!(cursor.byte(), Some(b'e'));
        assert_eq!(cursor.array(), Some(*b"fg"));
        assert_eq!((cursor.byte(), cursor.array::<1>(), cursor.left()), (None, None, 0));
        assert!(cursor.data(0).unwrap().is_empty());
    }

    #[test]
    fn bytes_are_copied_only_where_pieces_meet() {
        let pieces = pieces();
        let mut cursor = Cursor::new(&pieces);
        assert!(matches!(cursor.bytes(2), Some(Cow::Borrowed(b"ab"))));
        assert!(matches!(cursor.bytes(3), Some(Cow::Owned(joined)) if joined == b"cde"));
        assert_eq!(cursor.skip(3), None);
        assert_eq!(cursor.skip(2), Some(()));
        assert_eq!(cursor.bytes(1), None);
    }

    #[test]
    fn nothing_is_read_beyond_an_inner_end() {
        let pieces = pieces();
        let mut cursor = Cursor::new(&pieces);
        assert_eq!(cursor.end_after(8), None);
        let behind = cursor.end_after(4).unwrap();
        assert!(cursor.bytes(5).is_none() && cursor.array::<5>().is_none() && cursor.skip(5).is_none());
        assert_eq!(&*cursor.bytes(4).unwrap(), b"abcd");
        assert_eq!(cursor.byte(), None);
        cursor.go_on(behind);
        assert_eq!(&*cursor.bytes(3).unwrap(), b"efg");
    }
}
