//! Trees of treelite.

use crate::fault::{ForestError, malformed, unsupported};
use crate::format::ReadOptions;
use crate::readers::treelite::cursor::{ArrayField, CheckpointCursor};
use crate::tree::{CategoryBudget, NodeKind, Split, SplitTest, Tree, TreeNode, at_most, less_than};

/// The element of `node_type` for a test of categories.
const CATEGORICAL_TEST: u8 = 2;

/// Reads one tree after the other.
pub(super) struct CheckpointTreeReader {
    is_double: bool,
    options: ReadOptions,
    budget: CategoryBudget,
}

/// The arrays of a tree. Most have an element for each node.
struct CheckpointNodes<'f> {
    types: &'f [u8],
    left: Vec<i32>,
    right: Vec<i32>,
    features: Vec<i32>,
    default_left: &'f [u8],
    leaf_values: Vec<f64>,
    thresholds: Vec<f64>,
    operators: &'f [u8],
    categories_go_right: &'f [u8],
    /// Where the vectors of leaves begin and end in the vectors of the tree.
    vector_bounds: Vec<(u64, u64)>,
    categories: ArrayField<'f>,
    category_bounds: Vec<(u64, u64)>,
    covers: Vec<f64>,
}

impl CheckpointTreeReader {
    /// A reader of trees in a file of `length` bytes, whose floats have 64 bits if `is_double`.
    pub(super) fn new(is_double: bool, length: usize, options: ReadOptions) -> Self {
        Self { is_double, options, budget: CategoryBudget::new(length) }
    }

    /// Reads a tree, except for its outputs.
    pub(super) fn read(&mut self, cursor: &mut CheckpointCursor<'_>) -> Result<Tree, ForestError> {
        let mut tree = Tree::default();
        let arrays = self.arrays(cursor, &mut tree.leaf_vectors)?;
        for node in 0..arrays.left.len() {
            let kind = if arrays.left[node] == -1 {
                match arrays.vector_bounds[node] {
                    (begin, end) if begin == end => NodeKind::Leaf(arrays.leaf_values[node]),
                    (begin, _) => NodeKind::LeafVector(usize::try_from(begin).unwrap_or(usize::MAX)),
                }
            } else {
                NodeKind::Split(self.split(node, &arrays, &mut tree.category_words)?)
            };
            tree.nodes.push(TreeNode { kind, cover: arrays.covers.get(node).copied().unwrap_or(0.0) });
        }
        Ok(tree)
    }

    fn arrays<'f>(
        &self,
        cursor: &mut CheckpointCursor<'f>,
        leaf_vectors: &mut Vec<f64>,
    ) -> Result<CheckpointNodes<'f>, ForestError> {
        let float = if self.is_double { 8 } else { 4 };
        let nodes = cursor.index("num_nodes")?;
        cursor.byte("has_categorical_split")?;
        let types = cursor.array_of("node_type", 1, nodes)?.bytes();
        let left = cursor.array_of("cleft", 4, nodes)?.int32s().collect();
        let right = cursor.array_of("cright", 4, nodes)?.int32s().collect();
        let features = cursor.array_of("split_index", 4, nodes)?.int32s().collect();
        let default_left = cursor.array_of("default_left", 1, nodes)?.bytes();
        let leaf_values = cursor.array_of("leaf_value", float, nodes)?.floats(self.is_double);
        let thresholds = cursor.array_of("threshold", float, nodes)?.floats(self.is_double);
        let operators = cursor.array_of("cmp", 1, nodes)?.bytes();
        let categories_go_right = cursor.array_of("category_list_right_child", 1, nodes)?.bytes();
        *leaf_vectors = cursor.array("leaf_vector", float)?.floats(self.is_double);
        let vector_bounds = bounds(cursor, "leaf_vector_begin", "leaf_vector_end", nodes)?;
        let categories = cursor.array("category_list", 4)?;
        let category_bounds = bounds(cursor, "category_list_begin", "category_list_end", nodes)?;
        let counts = covers(cursor, "data_count", |array| array.uint64s().map(real).collect())?;
        let hessians = covers(cursor, "sum_hess", |array| array.float64s().collect())?;
        covers(cursor, "gain", |_| Vec::new())?;
        cursor.skip_optional_fields()?;
        cursor.skip_optional_fields()?;
        // As FIL: a sum of Hessians comes before a count.
        let covers = hessians.or(counts).filter(|_| self.options.keep_covers).unwrap_or_default();
        Ok(CheckpointNodes {
            types,
            left,
            right,
            features,
            default_left,
            leaf_values,
            thresholds,
            operators,
            categories_go_right,
            vector_bounds,
            categories,
            category_bounds,
            covers,
        })
    }

    fn split(
        &mut self,
        node: usize,
        arrays: &CheckpointNodes<'_>,
        words: &mut Vec<u32>,
    ) -> Result<Split, ForestError> {
        let index = |name: &str, value: i32| {
            u32::try_from(value).map_err(|_| malformed(format!("{name}[{node}]"), "it must be an index"))
        };
        let left = index("cleft", arrays.left[node])?;
        let right = index("cright", arrays.right[node])?;
        let feature = index("split_index", arrays.features[node])?;
        // Whether the children are to be exchanged.
        let (test, is_inverse) = if arrays.types[node] == CATEGORICAL_TEST {
            let categories = arrays.categories_of(node)?;
            (
                SplitTest::InSet(self.budget.push_set(words, categories)?),
                arrays.categories_go_right[node] != 0,
            )
        } else {
            numeric_test(arrays.operators[node], arrays.thresholds[node])
                .map_err(|error| error.within(|| format!("node {node}")))?
        };
        let is_default_left = arrays.default_left[node] != 0;
        let (on_true, on_false) = if is_inverse { (right, left) } else { (left, right) };
        Ok(Split {
            feature,
            test,
            missing_is_true: is_default_left != is_inverse,
            zero_is_missing: false,
            on_true,
            on_false,
        })
    }
}

/// The test, and whether it holds where the operator does not.
fn numeric_test(operator: u8, threshold: f64) -> Result<(SplitTest, bool), ForestError> {
    let less = |is_inverse: bool| match less_than(threshold) {
        Some(test) => (test, is_inverse),
        // No value is less.
        None => (SplitTest::AtMost(f32::INFINITY), !is_inverse),
    };
    match operator {
        2 => Ok(less(false)),
        3 => Ok((at_most(threshold), false)),
        4 => Ok((at_most(threshold), true)),
        5 => Ok(less(true)),
        1 => Err(unsupported("the comparison operator `==`", "operators are `<`, `<=`, `>` and `>=`")),
        _ => Err(malformed("cmp", "it must be a comparison operator")),
    }
}

impl CheckpointNodes<'_> {
    fn categories_of(&self, node: usize) -> Result<impl Iterator<Item = u32> + Clone, ForestError> {
        let (begin, end) = self.category_bounds[node];
        let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
        let categories = range.and_then(|(begin, end)| self.categories.range(begin, end));
        let rule =
            || malformed(format!("category_list_begin[{node}]"), "it must be an index of category_list");
        Ok(categories.ok_or_else(rule)?.uint32s())
    }
}

fn bounds(
    cursor: &mut CheckpointCursor<'_>,
    begin: &str,
    end: &str,
    nodes: usize,
) -> Result<Vec<(u64, u64)>, ForestError> {
    let begins = cursor.array_of(begin, 8, nodes)?;
    let ends = cursor.array_of(end, 8, nodes)?;
    Ok(begins.uint64s().zip(ends.uint64s()).collect())
}

/// Reads a statistic of the nodes, and which nodes have it. None, unless all have it.
fn covers<'f>(
    cursor: &mut CheckpointCursor<'f>,
    name: &str,
    read: impl Fn(ArrayField<'f>) -> Vec<f64>,
) -> Result<Option<Vec<f64>>, ForestError> {
    let values = cursor.array(name, 8)?;
    let is_present = cursor.array(&format!("{name}_present"), 1)?.bytes();
    let is_complete = !is_present.is_empty() && is_present.iter().all(|&present| present != 0);
    Ok(is_complete.then(|| read(values)))
}

fn real(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "covers are compared with each other only")]
    let real = count as f64;
    real
}
