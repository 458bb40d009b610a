//! A tree as a reader hands it on, before anything about it is proved.
//!
//! The readers bring all formats to one form of test. It leads to `on_true` or to `on_false`, and a missing value
//! leads to one of them by `missing_is_true`. Formats whose test is another one exchange the two children.

use crate::fault::{ForestError, malformed};
use crate::limits::{MAX_CATEGORIES, MAX_CATEGORY_BYTES};

/// A tree. Node 0 is the root.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<TreeNode>,
    /// The bit sets of categories that tests name.
    pub(crate) category_words: Vec<u32>,
    /// The values of vector leaves.
    pub(crate) leaf_vectors: Vec<f64>,
    pub(crate) outputs: OutputRange,
}

/// The outputs that a tree adds to: `count` from `first`, each `stride` after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputRange {
    pub(crate) first: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

impl OutputRange {
    /// One output.
    pub(crate) fn one(first: usize) -> Self {
        Self { first, stride: 1, count: 1 }
    }

    /// The first `count` outputs.
    pub(crate) fn all(count: usize) -> Self {
        Self { first: 0, stride: 1, count }
    }
}

impl Default for OutputRange {
    fn default() -> Self {
        Self::one(0)
    }
}

/// A node with its cover: the weight or the number of the training rows that came to it. Zero if it is not known.
#[derive(Debug)]
pub(crate) struct TreeNode {
    pub(crate) kind: NodeKind,
    pub(crate) cover: f64,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum NodeKind {
    /// A leaf with one value, for the only output of the tree.
    Leaf(f64),
    /// A leaf with a value for each output of the tree, at this index of `leaf_vectors`.
    LeafVector(usize),
    Split(Split),
}

/// A test of one feature.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) feature: u32,
    pub(crate) test: SplitTest,
    /// Whether a missing value counts as one for which the test holds.
    pub(crate) missing_is_true: bool,
    /// Whether zero is a missing value, as for LightGBM's `zero_as_missing`.
    pub(crate) zero_is_missing: bool,
    pub(crate) on_true: u32,
    pub(crate) on_false: u32,
}

/// What is tested.
#[derive(Debug)]
pub(crate) enum SplitTest {
    /// The value is at most this.
    AtMost(f32),
    /// The value, without its fraction, is in the set.
    InSet(CategorySet),
}

/// A set of categories: bits of `category_words`.
#[derive(Debug)]
pub(crate) struct CategorySet {
    /// The index of the first word in `category_words`.
    pub(crate) first_word: usize,
    pub(crate) words: usize,
    /// The category of the first bit, divided by 32.
    pub(crate) origin: u32,
    /// Whether values between -1 and 0 are category 0, as in LightGBM.
    pub(crate) truncates_negative: bool,
}

/// The largest 32-bit float `t` for which `x <= t` says the same as `x <= threshold`, for all 32-bit floats `x`.
pub(crate) fn at_most(threshold: f64) -> SplitTest {
    SplitTest::AtMost(round_down(threshold))
}

/// A test that says the same as `x < threshold` for all 32-bit floats `x`. None, if no value is less.
pub(crate) fn less_than(threshold: f64) -> Option<SplitTest> {
    if threshold == f64::NEG_INFINITY {
        return None;
    }
    let down = round_down(threshold);
    let below = if f64::from(down) == threshold { down.next_down() } else { down };
    Some(SplitTest::AtMost(below))
}

fn round_down(threshold: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what this function corrects")]
    let near = threshold as f32;
    if f64::from(near) > threshold { near.next_down() } else { near }
}

/// How many words the sets of a forest may still take, and how many categories may still be listed.
#[derive(Debug)]
pub(crate) struct CategoryBudget(usize);

impl CategoryBudget {
    /// The budget of a file of `length` bytes.
    pub(crate) fn new(length: usize) -> Self {
        Self((MAX_CATEGORY_BYTES + length.saturating_mul(8)) / 4)
    }

    /// Takes the words of a set.
    pub(crate) fn take(&mut self, words: usize) -> Result<(), ForestError> {
        self.0 = self.0.checked_sub(words).ok_or_else(|| {
            malformed(
                "categories",
                format!("the sets must fit {MAX_CATEGORY_BYTES} bytes and eight times the file"),
            )
        })?;
        Ok(())
    }

    /// Puts a set with `categories` at the end of `words`. Categories from [`MAX_CATEGORIES`] on are left out: no
    /// 32-bit float is one of them alone.
    pub(crate) fn push_set(
        &mut self,
        words: &mut Vec<u32>,
        categories: impl Iterator<Item = u32> + Clone,
    ) -> Result<CategorySet, ForestError> {
        let listed = categories.clone().count();
        let known = categories.filter(|&category| category < MAX_CATEGORIES);
        let origin = known.clone().min().unwrap_or(0) / 32;
        let end = known.clone().max().map_or(origin, |last| last / 32 + 1);
        let count = (end - origin) as usize;
        // A list that many nodes share costs its length each time.
        self.take(count.saturating_add(listed))?;
        let first_word = words.len();
        words.resize(first_word + count, 0);
        for category in known {
            words[first_word + (category / 32 - origin) as usize] |= 1 << (category % 32);
        }
        Ok(CategorySet { first_word, words: count, origin, truncates_negative: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(test: &SplitTest) -> f32 {
        match test {
            SplitTest::AtMost(threshold) => *threshold,
            SplitTest::InSet(_) => panic!("a number was asked for"),
        }
    }

    #[test]
    fn thresholds_are_rounded_so_that_no_float_changes_its_side() {
        for exact in [0.1, -0.1, 0.5, 0.0, -0.0, 1e-40, -1e-46, 1e300, -1e300, 3.5e38, f64::INFINITY] {
            let (most, less) = (threshold(&at_most(exact)), threshold(&less_than(exact).expect("finite")));
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the nearest float and its neighbours are tried"
            )]
            let near = exact as f32;
            for x in [near.next_down(), near, near.next_up(), f32::MAX, f32::MIN, f32::INFINITY, 0.0, -0.0] {
                assert_eq!(x <= most, f64::from(x) <= exact, "{x} <= {exact}");
                assert_eq!(x <= less, f64::from(x) < exact, "{x} < {exact}");
            }
        }
        assert!(less_than(f64::NEG_INFINITY).is_none());
    }

    #[test]
    fn a_set_begins_at_the_word_of_its_least_category() {
        let mut words = vec![7];
        let mut budget = CategoryBudget(3 + 4 + 1);
        let set = budget.push_set(&mut words, [70, 64, 130, 1 << 24].into_iter()).expect("three words");
        assert_eq!((set.first_word, set.words, set.origin), (1, 3, 2));
        assert_eq!(words, [7, 0b100_0001, 0, 0b100]);
        let error = budget.push_set(&mut words, [0, 40].into_iter()).expect_err("one is left");
        assert!(error.to_string().starts_with("categories: the sets must fit"));
    }
}
