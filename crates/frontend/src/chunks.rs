//! Several ranges of bytes that are used from front to back without being joined: a message to send, or a message to
//! inflate.
use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, Bytes};
use vocabulary::{BudgetExceeded, ByteReservation, TensorData};

use crate::counted_bytes::{UNCOUNTED, hold, resized};

/// The content of one DATA frame of a reply.
///
/// Invariant: no range of `Many` is empty, and `length` is the sum of theirs.
#[derive(Debug)]
pub(crate) enum Chunks {
    /// One range. The usual small reply has one.
    One(Bytes),
    /// A reply with tensors that are too large to copy cheaply.
    Many { ranges: VecDeque<Bytes>, length: usize },
}

impl Chunks {
    /// No bytes.
    pub(crate) const fn new() -> Self {
        Self::One(Bytes::new())
    }

    /// Appends a range.
    pub(crate) fn push(&mut self, range: Bytes) {
        if range.is_empty() {
            return;
        }
        match self {
            Self::One(only) if only.is_empty() => *only = range,
            Self::One(only) => {
                let length = only.len() + range.len();
                *self = Self::Many { ranges: VecDeque::from([std::mem::take(only), range]), length };
            }
            Self::Many { ranges, length } => {
                *length += range.len();
                ranges.push_back(range);
            }
        }
    }

    /// Appends all ranges of `other`.
    pub(crate) fn append(&mut self, other: Self) {
        other.into_ranges().for_each(|range| self.push(range));
    }

    /// Removes and returns up to `most` bytes from the front.
    pub(crate) fn take_front(&mut self, most: usize) -> Self {
        if self.remaining() <= most {
            return std::mem::take(self);
        }
        match self {
            Self::One(only) => Self::One(only.split_to(most)),
            Self::Many { ranges, length } => {
                let mut front = Self::new();
                let mut missing = most;
                while missing > 0
                    && let Some(first) = ranges.front_mut()
                {
                    let range = first.split_to(missing.min(first.len()));
                    if first.is_empty() {
                        ranges.pop_front();
                    }
                    missing -= range.len();
                    front.push(range);
                }
                *length -= most;
                front
            }
        }
    }

    /// Counts the bytes in the reservation that `room` gives until the last of them has been dropped, unless they are few.
    ///
    /// # Errors
    /// The budget has no room for them.
    pub(crate) fn count_in(&mut self, room: impl FnOnce() -> ByteReservation) -> Result<(), BudgetExceeded> {
        if self.remaining() > UNCOUNTED {
            self.hold(resized(room(), self.remaining())?);
        }
        Ok(())
    }

    /// Keeps a reservation until the last range is dropped.
    pub(crate) fn hold(&mut self, reservation: ByteReservation) {
        let last = match self {
            Self::One(only) => Some(only),
            Self::Many { ranges, .. } => ranges.back_mut(),
        };
        if let Some(last) = last {
            *last = hold(std::mem::take(last), reservation);
        }
    }

    /// The ranges in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Bytes> {
        let (only, many) = match self {
            Self::One(only) => (Some(only), None),
            Self::Many { ranges, .. } => (None, Some(ranges)),
        };
        only.into_iter().chain(many.into_iter().flatten())
    }

    /// The ranges in order, which the caller owns then.
    pub(crate) fn into_ranges(self) -> impl DoubleEndedIterator<Item = Bytes> {
        let (only, many) = match self {
            Self::One(only) => (Some(only), VecDeque::new()),
            Self::Many { ranges, .. } => (None, ranges),
        };
        only.into_iter().chain(many)
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Bytes> for Chunks {
    fn from(bytes: Bytes) -> Self {
        Self::One(bytes)
    }
}

impl From<Vec<u8>> for Chunks {
    fn from(bytes: Vec<u8>) -> Self {
        Self::One(bytes.into())
    }
}

impl From<TensorData> for Chunks {
    fn from(data: TensorData) -> Self {
        data.pieces().iter().cloned().collect()
    }
}

impl FromIterator<Bytes> for Chunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(ranges: I) -> Self {
        let mut chunks = Self::new();
        ranges.into_iter().for_each(|range| chunks.push(range));
        chunks
    }
}

impl Buf for Chunks {
    fn remaining(&self) -> usize {
        match self {
            Self::One(only) => only.len(),
            Self::Many { length, .. } => *length,
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::One(only) => only,
            Self::Many { ranges, .. } => ranges.front().map_or(&[], |first| first),
        }
    }

    fn advance(&mut self, mut count: usize) {
        match self {
            Self::One(only) => only.advance(count),
            Self::Many { ranges, length } => {
                assert!(count <= *length, "cannot advance past the end");
                *length -= count;
                while count > 0
                    && let Some(first) = ranges.front_mut()
                {
                    let here = count.min(first.len());
                    first.advance(here);
                    count -= here;
                    if first.is_empty() {
                        ranges.pop_front();
                    }
                }
            }
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, range) in slices.iter_mut().zip(self.ranges().filter(|range| !range.is_empty())) {
            *slice = IoSlice::new(range);
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::ByteBudget;

    use super::*;

    fn three() -> Chunks {
        let mut chunks = Chunks::new();
        for range in ["ab", "", "cdef", "g"] {
            chunks.push(Bytes::from(range));
        }
        chunks
    }

    #[test]
    fn many_bytes_count_until_the_last_has_left() {
        let budget = ByteBudget::new(3 * UNCOUNTED);
        let mut chunks = three();
        chunks.count_in(|| budget.reservation()).unwrap();
        assert_eq!(budget.used(), 0);
        chunks.push(Bytes::from(vec![1; 2 * UNCOUNTED]));
        let length = chunks.remaining();
        chunks.count_in(|| budget.reservation()).unwrap();
        let front = chunks.take_front(length - 1);
        drop(front);
        assert_eq!(budget.used(), length);
        let mut more: Chunks = Bytes::from(vec![1; 2 * UNCOUNTED]).into();
        assert!(more.count_in(|| budget.reservation()).is_err());
        chunks.advance(1);
        drop(chunks);
        assert_eq!(budget.used(), 0);
        more.count_in(|| budget.reservation()).unwrap();
        assert_eq!(budget.used(), 2 * UNCOUNTED);
    }

    #[test]
    fn ranges_leave_in_order_whatever_is_taken_at_a_time() {
        for step in 1..=7 {
            let mut chunks = three();
            let mut seen = Vec::new();
            while chunks.has_remaining() {
                let count = step.min(chunks.chunk().len());
                seen.extend_from_slice(&chunks.chunk()[..count]);
                chunks.advance(count);
            }
            assert_eq!(seen, b"abcdefg");
        }
    }

    #[test]
    fn an_advance_may_end_inside_a_later_range() {
        let mut chunks = three();
        chunks.advance(4);
        assert_eq!((chunks.remaining(), chunks.chunk()), (3, &b"ef"[..]));
    }

    #[test]
    fn the_front_is_taken_off_in_pieces_of_any_size() {
        for most in 1..=8 {
            let mut chunks = three();
            let mut seen = Vec::new();
            while chunks.has_remaining() {
                let front = chunks.take_front(most);
                assert!(front.remaining() == most || !chunks.has_remaining(), "{most}");
                front.ranges().for_each(|range| seen.extend_from_slice(range));
            }
            assert_eq!(seen, b"abcdefg");
        }
    }

    #[test]
    fn one_write_takes_all_ranges() {
        let chunks = three();
        let mut slices = [IoSlice::new(&[]); 8];
        let count = chunks.chunks_vectored(&mut slices);
        let lengths: Vec<_> = slices[..count].iter().map(|slice| slice.len()).collect();
        assert_eq!(lengths, [2, 4, 1]);
        assert_eq!(Chunks::new().chunks_vectored(&mut slices), 0);
    }
}
