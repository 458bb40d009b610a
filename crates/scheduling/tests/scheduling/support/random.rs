//! Random numbers that a seed repeats, and the shrinking of failing lists.

/// As `SplitMix64`.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit`, exclusive.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, C>(&mut self, choices: &'a [C]) -> &'a C {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// The shortest failing list that this function finds by leaving out parts.
pub(crate) fn shrink<O: Clone>(mut failing: Vec<O>, fails: impl Fn(&[O]) -> bool) -> Vec<O> {
    let mut chunk = failing.len().next_power_of_two() / 2;
    while chunk > 0 {
        let mut start = 0;
        let before = failing.len();
        while start < failing.len() {
            let mut shorter = failing.clone();
            shorter.drain(start..(start + chunk).min(failing.len()));
            if fails(&shorter) {
                failing = shorter;
            } else {
                start += chunk;
            }
        }
        // A part that could not be left out before may be left out now, after others.
        if chunk > 1 || failing.len() == before {
            chunk /= 2;
        }
    }
    failing
}
