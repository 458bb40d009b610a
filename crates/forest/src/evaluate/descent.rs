//! The way from roots to leaves.

use crate::evaluate::place::at;
use crate::layout::{CATEGORICAL, FEATURE_MASK, MISSING_IS_TRUE, NarrowNode, WideNode, ZERO_IS_MISSING};

/// Steps between two looks whether all lanes have come to leaves.
const STRIDE: u32 = 4;

/// LightGBM takes values up to this for zero. As LightGBM: meta.h, kZeroThreshold.
const ALMOST_ZERO: f32 = 1e-35;

/// The nodes of a forest, and the sets of its categorical tests. `MIXED` says that there may be tests that narrow nodes
/// cannot hold.
pub(crate) struct Descent<'f, N, const MIXED: bool> {
    pub(crate) nodes: &'f [N],
    pub(crate) category_words: &'f [u32],
}

/// A form of nodes.
pub(crate) trait Step: Copy {
    fn feature(self) -> usize;
    fn missing_is_true(self) -> bool;
    fn threshold(self) -> f32;
    fn distance(self) -> u32;
    fn flags(self) -> u32;
}

impl<N: Step, const MIXED: bool> Descent<'_, N, MIXED> {
    /// Makes `depth` steps from each of `places`. `value` gives the value of a feature for a lane.
    #[inline(always)]
    pub(crate) fn descend<const L: usize>(
        &self,
        mut places: [u32; L],
        depth: u32,
        value: impl Fn(usize, usize) -> f32,
    ) -> [u32; L] {
        let mut steps = depth;
        while steps > 2 * STRIDE {
            let before = places;
            for _ in 0..STRIDE {
                self.step(&mut places, &value);
            }
            // A test always leads on, so these are leaves.
            if places == before {
                return places;
            }
            steps -= STRIDE;
        }
        for _ in 0..steps {
            self.step(&mut places, &value);
        }
        places
    }

    #[inline(always)]
    fn step<const L: usize>(&self, places: &mut [u32; L], value: &impl Fn(usize, usize) -> f32) {
        for (lane, place) in places.iter_mut().enumerate() {
            let node = at(self.nodes, *place as usize);
            *place = self.next(node, *place, value(lane, node.feature()));
        }
    }

    #[inline(always)]
    fn next(&self, node: N, place: u32, value: f32) -> u32 {
        let is_true = if MIXED {
            self.mixed_test(node, value)
        } else {
            (value <= node.threshold()) | (value.is_nan() & node.missing_is_true())
        };
        place + node.distance() + u32::from(!is_true)
    }

    fn mixed_test(&self, node: N, value: f32) -> bool {
        let flags = node.flags();
        let is_zero = flags & ZERO_IS_MISSING != 0 && value.abs() <= ALMOST_ZERO;
        if value.is_nan() || is_zero {
            return node.missing_is_true();
        }
        if flags & CATEGORICAL == 0 { value <= node.threshold() } else { self.is_in_set(node, value) }
    }

    /// Whether the set has the category that `value` is without its fraction.
    fn is_in_set(&self, node: N, value: f32) -> bool {
        let set = node.threshold().to_bits() as usize;
        let (heading, words) = (at(self.category_words, set), at(self.category_words, set + 1));
        let truncates_negative = heading >> 31 != 0;
        if value < 0.0 && !(truncates_negative && value > -1.0) {
            return false;
        }
        // Casts from floats end at the bounds of the type. Sets end before them.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is more than -1")]
        let category = value as u32;
        let Some(word) = (category / 32).checked_sub(heading & !(1 << 31)) else { return false };
        word < words && at(self.category_words, set + 2 + word as usize) >> (category % 32) & 1 != 0
    }
}

/// The place to which a value of the node's feature leads from `place`.
pub(crate) fn next_place(node: WideNode, place: u32, value: f32, category_words: &[u32]) -> u32 {
    Descent::<WideNode, true> { nodes: &[], category_words }.next(node, place, value)
}

impl Step for NarrowNode {
    #[inline(always)]
    fn feature(self) -> usize {
        Self::feature(self)
    }

    #[inline(always)]
    fn missing_is_true(self) -> bool {
        Self::missing_is_true(self)
    }

    #[inline(always)]
    fn threshold(self) -> f32 {
        self.threshold
    }

    #[inline(always)]
    fn distance(self) -> u32 {
        u32::from(self.distance)
    }

    #[inline(always)]
    fn flags(self) -> u32 {
        0
    }
}

impl Step for WideNode {
    #[inline(always)]
    fn feature(self) -> usize {
        (self.feature & FEATURE_MASK) as usize
    }

    #[inline(always)]
    fn missing_is_true(self) -> bool {
        self.feature & MISSING_IS_TRUE != 0
    }

    #[inline(always)]
    fn threshold(self) -> f32 {
        self.threshold
    }

    #[inline(always)]
    fn distance(self) -> u32 {
        self.distance
    }

    #[inline(always)]
    fn flags(self) -> u32 {
        self.feature
    }
}
