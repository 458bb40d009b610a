//! Changes inputs at random. The same seed makes the same changes on every machine.

/// Texts and bytes at which parsers have failed.
const ODD: [&[u8]; 20] = [
    b"-1",
    b"4294967296",
    b"99999999999999999999",
    b"1e999",
    b"null",
    b"NaN",
    b"\"",
    b"\\u0000",
    b"{",
    b"[",
    b"%",
    b"\r\n",
    b"\xe2\x80\xa8",
    b"\xed\xa0\x80",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
];

/// The most bytes of a changed input.
const LONGEST: usize = 16 << 10;

/// A source of changes (xorshift64*).
#[derive(Debug, Clone)]
pub struct Mutator(u64);

impl Mutator {
    /// The changes of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = usize::try_from(self.next() >> 16).unwrap_or_default();
        number.checked_rem(bound).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }

    /// A piece of some bytes: its begin, and its end.
    fn piece(&mut self, length: usize, longest: usize) -> (usize, usize) {
        let start = self.below(length);
        (start, start + self.below((length - start).min(longest) + 1))
    }

    /// Changes some bytes. Pieces of `other`, a further input of the same target, may come into `bytes`.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(5) {
            self.change(bytes, other);
        }
        bytes.truncate(LONGEST);
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let (start, end) = self.piece(bytes.len(), 64);
        match self.below(10) {
            0 if !bytes.is_empty() => bytes[start] = self.byte(),
            1 if !bytes.is_empty() => bytes[start] ^= 1 << self.below(8),
            2 if !bytes.is_empty() => bytes[start] = bytes[start].wrapping_add(1),
            3 => bytes.insert(start, self.byte()),
            4 => drop(bytes.drain(start..end)),
            // Repeated pieces show what a parser spends on each.
            5 => {
                let times = 1 << self.below(11);
                let room = LONGEST.saturating_sub(bytes.len()) / (end - start).max(1);
                let piece = bytes[start..end].repeat(times.min(room));
                bytes.splice(start..start, piece);
            }
            6 => {
                let piece = bytes[start..end].to_vec();
                let place = self.below(bytes.len());
                bytes.splice(place..place, piece);
            }
            7 => bytes.truncate(end),
            8 => {
                let (first, last) = self.piece(other.len(), 1024);
                bytes.splice(start..end, other[first..last].iter().copied());
            }
            _ => {
                let odd = ODD[self.below(ODD.len())];
                let replaced = if self.below(2) == 0 { start..start } else { start..end };
                bytes.splice(replaced, odd.iter().copied());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_changes_and_another_seed_makes_others() {
        let changed = |seed| {
            let mut mutator = Mutator::new(seed);
            let mut bytes = b"some bytes to be changed".to_vec();
            (0..50).for_each(|_| mutator.mutate(&mut bytes, b"others"));
            bytes
        };
        assert_eq!(changed(1), changed(1));
        assert_ne!(changed(1), changed(2));
    }

    #[test]
    fn nothing_becomes_longer_than_the_limit_and_nothing_can_be_changed() {
        let mut mutator = Mutator::new(3);
        for length in [0, 1, LONGEST] {
            let mut bytes = vec![b'x'; length];
            for _ in 0..500 {
                mutator.mutate(&mut bytes, b"");
                assert!(bytes.len() <= LONGEST);
            }
        }
    }
}
