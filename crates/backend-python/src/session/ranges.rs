//! Which ranges of an area of memory are in use. Pure: the area itself is elsewhere.
use std::collections::BTreeMap;

/// Ranges begin at multiples of this number of bytes: a line of the processor's cache, and enough for every element.
pub(crate) const ALIGNMENT: usize = 64;

/// The used and free ranges of an area that grows up to a limit.
#[derive(Debug)]
pub(crate) struct RangeTable {
    /// Length by offset. Neighbours are joined.
    free: BTreeMap<usize, usize>,
    used: BTreeMap<usize, usize>,
    byte_size: usize,
    limit: usize,
}

/// The area has no room for a range within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AreaFull;

impl RangeTable {
    /// An empty area that may have so many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { free: BTreeMap::new(), used: BTreeMap::new(), byte_size: 0, limit }
    }

    /// The bytes that the area must have.
    pub(crate) fn byte_size(&self) -> usize {
        self.byte_size
    }

    /// Takes a range of at least so many bytes, and returns its offset. The area may have grown.
    ///
    /// # Errors
    /// The area would exceed its limit.
    pub(crate) fn take(&mut self, byte_size: usize) -> Result<usize, AreaFull> {
        let length = byte_size.max(1).checked_next_multiple_of(ALIGNMENT).ok_or(AreaFull)?;
        let found =
            self.free.iter().find(|(_, free)| **free >= length).map(|(offset, free)| (*offset, *free));
        let (offset, free) = match found {
            Some(found) => found,
            None => self.grow(length)?,
        };
        self.free.remove(&offset);
        if free > length {
            self.free.insert(offset + length, free - length);
        }
        self.used.insert(offset, length);
        Ok(offset)
    }

    /// Appends free bytes, and returns the last free range, which has at least `length` bytes.
    fn grow(&mut self, length: usize) -> Result<(usize, usize), AreaFull> {
        let last = self.free.last_key_value().map(|(offset, free)| (*offset, *free));
        let (offset, present) =
            last.filter(|(offset, free)| offset + free == self.byte_size).unwrap_or((self.byte_size, 0));
        let needed = offset.checked_add(length).ok_or(AreaFull)?;
        if needed > self.limit {
            return Err(AreaFull);
        }
        // Half as much again, so that an area grows rarely.
        let size =
            needed.max((self.byte_size + self.byte_size / 2).min(self.limit)).next_multiple_of(ALIGNMENT);
        let free = present + (size - self.byte_size);
        self.free.insert(offset, free);
        self.byte_size = size;
        Ok((offset, free))
    }

    /// Gives a range back. Returns its offset and length; `None` if no range in use begins there.
    pub(crate) fn give_back(&mut self, offset: usize) -> Option<(usize, usize)> {
        let length = self.used.remove(&offset)?;
        let (mut start, mut end) = (offset, offset + length);
        if let Some(after) = self.free.remove(&end) {
            end += after;
        }
        if let Some((before, free)) =
            self.free.range(..offset).next_back().map(|(offset, free)| (*offset, *free))
            && before + free == offset
        {
            self.free.remove(&before);
            start = before;
        }
        self.free.insert(start, end - start);
        Some((offset, length))
    }

    /// Whether a range of that length lies within a range in use.
    pub(crate) fn is_used(&self, offset: usize, byte_size: usize) -> bool {
        let range = self.used.range(..=offset).next_back();
        range.is_some_and(|(start, length)| {
            offset.checked_add(byte_size).is_some_and(|end| end <= start + length)
        })
    }

    /// The bytes in use.
    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_that_was_given_back_is_taken_again() {
        let mut ranges = RangeTable::new(1 << 20);
        let one = ranges.take(100).unwrap();
        let two = ranges.take(1).unwrap();
        assert_eq!((one, two, ranges.used_bytes()), (0, 128, 192));
        assert_eq!(ranges.give_back(one), Some((0, 128)));
        assert_eq!(ranges.give_back(one), None);
        assert_eq!(ranges.take(128), Ok(0));
    }

    #[test]
    fn an_area_never_exceeds_its_limit() {
        let mut ranges = RangeTable::new(256);
        assert_eq!(ranges.take(257), Err(AreaFull));
        assert_eq!(ranges.take(200), Ok(0));
        assert_eq!(ranges.take(1), Err(AreaFull));
        assert_eq!(ranges.take(usize::MAX), Err(AreaFull));
        assert_eq!(ranges.byte_size(), 256);
    }

    #[test]
    fn ranges_in_use_contain_their_parts() {
        let mut ranges = RangeTable::new(1 << 20);
        let offset = ranges.take(100).unwrap();
        assert!(ranges.is_used(offset + 64, 64) && !ranges.is_used(offset + 64, 65));
        assert!(!ranges.is_used(offset, usize::MAX) && !ranges.is_used(4096, 1));
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_all_come_back(
            steps in proptest::collection::vec((any::<bool>(), 1_usize..5000), 1..200)
        ) {
            let mut ranges = RangeTable::new(64 << 10);
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (takes, number) in steps {
                if takes {
                    let Ok(offset) = ranges.take(number) else { continue };
                    prop_assert!(offset % ALIGNMENT == 0 && offset + number <= ranges.byte_size());
                    prop_assert!(held.iter().all(|(start, len)| offset >= start + len || offset + number <= *start));
                    held.push((offset, number));
                } else if !held.is_empty() {
                    let (offset, _) = held.swap_remove(number % held.len());
                    prop_assert!(ranges.give_back(offset).is_some());
                }
            }
            for (offset, _) in held {
                prop_assert!(ranges.give_back(offset).is_some());
            }
            prop_assert_eq!(ranges.used_bytes(), 0);
            prop_assert!(ranges.free.len() <= 1);
        }
    }
}
