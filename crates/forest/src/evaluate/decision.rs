//! Whether a test holds.

use crate::layout::{NodeForm, WideNode};

/// LightGBM takes values up to this for zero. As LightGBM: meta.h, kZeroThreshold.
const ALMOST_ZERO: f32 = 1e-35;

/// How tests are decided, for the values and the nodes that there are.
pub(crate) trait TestDecision<N> {
    /// Whether the test of `node` holds for `value`.
    fn holds(node: N, value: f32, category_words: &[u32]) -> bool;
}

/// No value is missing, and all tests compare numbers.
pub(crate) struct Present;

/// All tests compare numbers.
pub(crate) struct Missing;

/// There may be any tests and values.
pub(crate) struct Mixed;

impl<N: NodeForm> TestDecision<N> for Present {
    #[inline(always)]
    fn holds(node: N, value: f32, _: &[u32]) -> bool {
        value <= node.threshold()
    }
}

impl<N: NodeForm> TestDecision<N> for Missing {
    #[inline(always)]
    fn holds(node: N, value: f32, _: &[u32]) -> bool {
        (value <= node.threshold()) | (value.is_nan() & node.missing_is_true())
    }
}

impl TestDecision<WideNode> for Mixed {
    #[inline(always)]
    fn holds(node: WideNode, value: f32, category_words: &[u32]) -> bool {
        let is_zero = node.zero_is_missing() && value.abs() <= ALMOST_ZERO;
        if value.is_nan() || is_zero {
            return node.missing_is_true();
        }
        if !node.is_categorical() {
            return value <= node.threshold();
        }
        is_in_set(node.threshold().to_bits() as usize, value, category_words)
    }
}

/// Whether the set has the category that `value` is without its fraction.
fn is_in_set(set: usize, value: f32, category_words: &[u32]) -> bool {
    let (heading, words) = (category_words[set], category_words[set + 1]);
    let truncates_negative = heading >> 31 != 0;
    if value < 0.0 && !(truncates_negative && value > -1.0) {
        return false;
    }
    // Casts from floats end at the bounds of the type. Sets end before them.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is more than -1")]
    let category = value as u32;
    let Some(word) = (category / 32).checked_sub(heading & !(1 << 31)) else { return false };
    word < words && category_words[set + 2 + word as usize] >> (category % 32) & 1 != 0
}
