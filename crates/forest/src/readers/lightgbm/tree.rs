//! Trees of LightGBM. Tests and leaves have numbers of their own: a child that is a leaf has the number's complement.

use crate::fault::{ForestError, malformed, unsupported};
use crate::format::ReadOptions;
use crate::readers::lightgbm::fields::TextFields;
use crate::tree::{CategoryBudget, CategorySet, NodeKind, Split, SplitTest, Tree, TreeNode, at_most};

// The bits of `decision_type`. As LightGBM: tree.h.
const CATEGORICAL: i8 = 1;
const DEFAULT_LEFT: i8 = 2;

/// What a missing value is, bits 2 and 3 of `decision_type`.
#[derive(Clone, Copy, PartialEq)]
enum MissingType {
    /// Nothing: NaN is taken for zero.
    None,
    /// Zero and NaN.
    Zero,
    Nan,
}

/// The arrays of a tree, with an element for each test.
struct TestArrays {
    features: Vec<u32>,
    thresholds: Vec<f64>,
    decision_types: Vec<i8>,
    left: Vec<i64>,
    right: Vec<i64>,
    /// Where the sets of categories begin and end in `category_words`.
    category_bounds: Vec<usize>,
    counts: Vec<f64>,
}

/// Reads a tree, except for its outputs.
pub(super) fn read(
    fields: &TextFields<'_>,
    budget: &mut CategoryBudget,
    options: ReadOptions,
) -> Result<Tree, ForestError> {
    if fields.get("is_linear").is_some_and(|is_linear| is_linear.trim() != "0") {
        return Err(unsupported("linear trees (`linear_tree=true`)", "leaves must be constants"));
    }
    let leaves = fields.number("num_leaves")?;
    let Some(tests) = leaves.checked_sub(1) else {
        return Err(malformed("num_leaves", "it must be at least 1"));
    };
    let values = fields.reals("leaf_value", leaves)?;
    let leaf_counts = counts(fields, "leaf_count", leaves, options)?;
    let mut tree = Tree::default();
    if tests > 0 {
        let (arrays, words) = TestArrays::read(fields, tests, options)?;
        tree.category_words = words;
        for test in 0..tests {
            let split = arrays.split(test, leaves, budget)?;
            tree.nodes.push(TreeNode {
                kind: NodeKind::Split(split),
                cover: arrays.counts.get(test).copied().unwrap_or(0.0),
            });
        }
    }
    for (leaf, value) in values.into_iter().enumerate() {
        tree.nodes.push(TreeNode {
            kind: NodeKind::Leaf(value),
            cover: leaf_counts.get(leaf).copied().unwrap_or(0.0),
        });
    }
    Ok(tree)
}

/// The numbers of training rows, or nothing if nobody wants them or the file does not have them.
fn counts(
    fields: &TextFields<'_>,
    name: &str,
    count: usize,
    options: ReadOptions,
) -> Result<Vec<f64>, ForestError> {
    if options.keep_covers && fields.get(name).is_some_and(|counts| !counts.is_empty()) {
        fields.reals(name, count)
    } else {
        Ok(Vec::new())
    }
}

impl TestArrays {
    /// Reads the arrays of `tests` tests, and the words of their sets of categories.
    fn read(
        fields: &TextFields<'_>,
        tests: usize,
        options: ReadOptions,
    ) -> Result<(Self, Vec<u32>), ForestError> {
        let decision_types = if fields.has("decision_type") {
            fields.integers("decision_type", tests)?
        } else {
            vec![0; tests]
        };
        let (mut category_bounds, mut words) = (Vec::new(), Vec::new());
        let sets = fields.number("num_cat")?;
        if sets > 0 {
            category_bounds = fields.integers("cat_boundaries", sets.saturating_add(1))?;
            words = fields.integers("cat_threshold", category_bounds.last().copied().unwrap_or(0))?;
        }
        let arrays = Self {
            features: fields.integers("split_feature", tests)?,
            thresholds: fields.reals("threshold", tests)?,
            left: fields.integers("left_child", tests)?,
            right: fields.integers("right_child", tests)?,
            counts: counts(fields, "internal_count", tests, options)?,
            decision_types,
            category_bounds,
        };
        Ok((arrays, words))
    }

    fn split(&self, test: usize, leaves: usize, budget: &mut CategoryBudget) -> Result<Split, ForestError> {
        let child = |name: &str, child: i64| {
            // Leaves stand after the tests.
            let node = if child < 0 {
                usize::try_from(!child).ok().and_then(|leaf| leaf.checked_add(leaves - 1))
            } else {
                usize::try_from(child).ok().filter(|&node| node < leaves - 1)
            };
            let node = node.and_then(|node| u32::try_from(node).ok());
            node.ok_or_else(|| {
                malformed(format!("{name}[{test}]"), "it must be a test or the complement of a leaf")
            })
        };
        let left = child("left_child", self.left[test])?;
        let right = child("right_child", self.right[test])?;
        let decision_type = self.decision_types[test];
        let threshold = self.thresholds[test];
        let mut split = Split {
            feature: self.features[test],
            test: at_most(threshold),
            missing_is_true: decision_type & DEFAULT_LEFT != 0,
            zero_is_missing: false,
            on_true: left,
            on_false: right,
        };
        if decision_type & CATEGORICAL != 0 {
            split.test = SplitTest::InSet(self.set(test, budget)?);
            split.missing_is_true = false;
            return Ok(split);
        }
        match missing_type(decision_type) {
            Some(MissingType::None) => split.missing_is_true = 0.0 <= threshold,
            Some(MissingType::Zero) => split.zero_is_missing = true,
            Some(MissingType::Nan) => {}
            None => {
                return Err(malformed(
                    format!("decision_type[{test}]"),
                    "it must have a known type of missing values",
                ));
            }
        }
        Ok(split)
    }

    /// The set of a categorical test, whose number is its threshold.
    fn set(&self, test: usize, budget: &mut CategoryBudget) -> Result<CategorySet, ForestError> {
        let error =
            || malformed(format!("threshold[{test}]"), "it must be the number of a set of categories");
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "as LightGBM; it is compared"
        )]
        let number = self.thresholds[test] as usize;
        let end = self.category_bounds.get(number.saturating_add(1)).ok_or_else(error)?;
        let first_word = self.category_bounds[number];
        let words = end.checked_sub(first_word).ok_or_else(error)?;
        budget.take(words)?;
        Ok(CategorySet { first_word, words, origin: 0, truncates_negative: true })
    }
}

fn missing_type(decision_type: i8) -> Option<MissingType> {
    match decision_type >> 2 & 3 {
        0 => Some(MissingType::None),
        1 => Some(MissingType::Zero),
        2 => Some(MissingType::Nan),
        _ => None,
    }
}
