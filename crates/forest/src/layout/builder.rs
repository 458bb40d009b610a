//! Places trees, and proves them while it does.

use crate::fault::{ForestError, malformed, unsupported};
use crate::layout::node::{CATEGORICAL, MISSING_IS_TRUE, WideNode, ZERO_IS_MISSING};
use crate::layout::placed::{Layout, LeafValues, Leaves, Nodes, PlacedTree};
use crate::layout::walk::{BrokenTree, TreeWalk};
use crate::limits::{MAX_NODES, MAX_SHAP_DEPTH};
use crate::tree::{CategorySet, NodeKind, OutputRange, Split, SplitTest, Tree};

/// Takes one tree after the other.
pub(crate) struct LayoutBuilder {
    features: usize,
    outputs: usize,
    is_double: bool,
    nodes: Vec<WideNode>,
    trees: Vec<PlacedTree>,
    /// The value of the leaf at each place, or the index of its first value in `vectors`.
    values: Vec<f64>,
    vectors: Vec<f64>,
    /// Whether any leaf has its values in `vectors`.
    has_vectors: bool,
    category_words: Vec<u32>,
    covers: Option<Vec<f32>>,
}

impl LayoutBuilder {
    /// A builder of a forest with rows of `features` values, and `outputs` predictions for each. `is_double` says
    /// whether leaves are added in 64 bits, `keep_covers` whether the covers are kept.
    pub(crate) fn new(features: usize, outputs: usize, is_double: bool, keep_covers: bool) -> Self {
        Self {
            features,
            outputs,
            is_double,
            nodes: Vec::new(),
            trees: Vec::new(),
            values: Vec::new(),
            vectors: Vec::new(),
            has_vectors: false,
            category_words: Vec::new(),
            covers: keep_covers.then(Vec::new),
        }
    }

    /// Places `tree`, with its leaves multiplied by `weight`.
    ///
    /// # Errors
    /// Names the node that breaks a rule.
    pub(crate) fn push(&mut self, tree: &Tree, weight: Option<f32>) -> Result<(), ForestError> {
        let at = self.trees.len();
        let outputs = tree.outputs;
        let last = outputs
            .count
            .checked_sub(1)
            .and_then(|n| n.checked_mul(outputs.stride)?.checked_add(outputs.first));
        if last.is_none_or(|last| last >= self.outputs) {
            return Err(malformed(
                format!("tree {at}"),
                format!("it must add to outputs below {}", self.outputs),
            ));
        }
        let depth = self.place(tree, weight).map_err(|rule| match rule {
            BrokenTree::Node(node, rule) => malformed(format!("tree {at}, node {node}"), rule),
            BrokenTree::Tree(rule) => malformed(format!("tree {at}"), rule),
        })?;
        if self.covers.is_some() && depth as usize > MAX_SHAP_DEPTH {
            let what = format!("tree {at} has a depth of {depth}");
            return Err(unsupported(
                what,
                format!("Shapley values need a depth of at most {MAX_SHAP_DEPTH}"),
            ));
        }
        Ok(())
    }

    /// Walks `tree` breadth first. Returns its depth.
    fn place(&mut self, tree: &Tree, weight: Option<f32>) -> Result<u32, BrokenTree> {
        if tree.nodes.is_empty() {
            return Err(BrokenTree::Tree("it must have a node".to_owned()));
        }
        let root = self.nodes.len();
        if root + tree.nodes.len() > MAX_NODES {
            return Err(BrokenTree::Tree(format!("the trees must have at most {MAX_NODES} nodes")));
        }
        let most_vectors = self.vectors.len() + tree.leaf_vectors.len();
        let mut walk = TreeWalk::new(tree.nodes.len());
        while let Some(met) = walk.next() {
            let node = met.node;
            let known = &tree.nodes[node as usize];
            match &known.kind {
                NodeKind::Split(split) => {
                    let distance = walk.meet_children(met, split)?;
                    let placed = self.split(split, distance, tree);
                    self.nodes.push(placed.map_err(|rule| BrokenTree::Node(node, rule))?);
                    self.values.push(0.0);
                }
                NodeKind::Leaf(value) => {
                    if tree.outputs.count != 1 {
                        return Err(BrokenTree::Node(
                            node,
                            format!("it must have {} values", tree.outputs.count),
                        ));
                    }
                    self.nodes.push(WideNode::LEAF);
                    self.values.push(self.weighted(*value, weight));
                }
                NodeKind::LeafVector(first) => {
                    self.leaf_vector(*first, tree, weight).map_err(|rule| BrokenTree::Node(node, rule))?;
                    // Otherwise a small file could ask for any amount of memory.
                    if self.vectors.len() > most_vectors {
                        return Err(BrokenTree::Node(node, "it must have values of its own".to_owned()));
                    }
                }
            }
            if let Some(covers) = &mut self.covers {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "covers are compared with each other only"
                )]
                covers.push(known.cover as f32);
            }
        }
        let depth = walk.depth();
        let root = u32::try_from(root).expect("MAX_NODES is less than 2^32");
        self.trees.push(PlacedTree { root, depth, outputs: tree.outputs });
        Ok(depth)
    }

    /// The product in the type of the leaves.
    fn weighted(&self, value: f64, weight: Option<f32>) -> f64 {
        match weight {
            None => value,
            Some(weight) if self.is_double => value * f64::from(weight),
            #[expect(clippy::cast_possible_truncation, reason = "the value came from 32 bits")]
            Some(weight) => f64::from(value as f32 * weight),
        }
    }

    fn split(&mut self, split: &Split, distance: u32, tree: &Tree) -> Result<WideNode, String> {
        if split.feature as usize >= self.features {
            return Err(format!("its feature {} must be less than {}", split.feature, self.features));
        }
        let mut feature = split.feature;
        if split.missing_is_true {
            feature |= MISSING_IS_TRUE;
        }
        if split.zero_is_missing {
            feature |= ZERO_IS_MISSING;
        }
        let threshold = match &split.test {
            SplitTest::AtMost(threshold) if threshold.is_nan() => {
                return Err("its threshold must be a number".to_owned());
            }
            SplitTest::AtMost(threshold) => *threshold,
            SplitTest::InSet(set) => {
                feature |= CATEGORICAL;
                f32::from_bits(self.set(set, tree)?)
            }
        };
        Ok(WideNode { threshold, feature, distance })
    }

    /// Copies a set, and returns its index.
    fn set(&mut self, set: &CategorySet, tree: &Tree) -> Result<u32, String> {
        let end = set.first_word.checked_add(set.words);
        let words = end.and_then(|end| tree.category_words.get(set.first_word..end));
        let words = words.ok_or_else(|| "its categories must be in the tree".to_owned())?;
        let too_many = "the sets of categories must have at most 2^31 words";
        let index = u32::try_from(self.category_words.len()).map_err(|_| too_many.to_owned())?;
        let count = u32::try_from(words.len()).map_err(|_| too_many.to_owned())?;
        let flag = u32::from(set.truncates_negative) << 31;
        self.category_words.extend([set.origin | flag, count]);
        self.category_words.extend_from_slice(words);
        Ok(index)
    }

    fn leaf_vector(&mut self, first: usize, tree: &Tree, weight: Option<f32>) -> Result<(), String> {
        let end = first.checked_add(tree.outputs.count);
        let vector = end.and_then(|end| tree.leaf_vectors.get(first..end));
        let vector = vector.ok_or_else(|| format!("it must have {} values", tree.outputs.count))?;
        self.has_vectors |= vector.len() != 1;
        self.nodes.push(WideNode::LEAF);
        if let [value] = vector {
            self.values.push(self.weighted(*value, weight));
            return Ok(());
        }
        #[expect(clippy::cast_precision_loss, reason = "an index of values in memory is less than 2^53")]
        self.values.push(self.vectors.len() as f64);
        for &value in vector {
            self.vectors.push(self.weighted(value, weight));
        }
        Ok(())
    }

    /// Whether a tree has leaves with several values.
    pub(crate) fn has_vectors(&self) -> bool {
        self.has_vectors
    }

    /// The forest's trees.
    ///
    /// # Errors
    /// If there are more leaf values than an index can tell.
    pub(crate) fn finish(self) -> Result<Layout, ForestError> {
        let leaves = if self.has_vectors {
            let (first_values, values) = join(&self.values, &self.nodes, &self.trees, self.vectors)?;
            Leaves { first_values, values: typed(values, self.is_double) }
        } else {
            Leaves { first_values: Vec::new(), values: typed(self.values, self.is_double) }
        };
        let narrow: Option<Vec<_>> = self.nodes.iter().map(|node| node.narrow()).collect();
        let nodes = match narrow {
            Some(nodes) => Nodes::Narrow(nodes),
            None if self.nodes.iter().any(|node| node.feature & (CATEGORICAL | ZERO_IS_MISSING) != 0) => {
                Nodes::Mixed(self.nodes)
            }
            None => Nodes::Wide(self.nodes),
        };
        Ok(Layout {
            nodes,
            trees: self.trees,
            leaves,
            category_words: self.category_words,
            covers: self.covers,
        })
    }
}

/// Brings single values and vectors into one array. Returns the index of each leaf's first value, and the values.
fn join(
    values: &[f64],
    nodes: &[WideNode],
    trees: &[PlacedTree],
    mut vectors: Vec<f64>,
) -> Result<(Vec<u32>, Vec<f64>), ForestError> {
    let too_many = || malformed("leaves", "there must be fewer than 2^32 values");
    let mut first_values = Vec::with_capacity(values.len());
    let ends = trees.iter().skip(1).map(|tree| tree.root as usize).chain([nodes.len()]);
    let mut at = 0;
    for (tree, end) in trees.iter().zip(ends) {
        let OutputRange { count, .. } = tree.outputs;
        for (node, &value) in nodes[at..end].iter().zip(&values[at..end]) {
            let first = match (node.is_leaf(), count) {
                (false, _) => 0,
                (true, 1) => {
                    vectors.push(value);
                    vectors.len() - 1
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it was an index"
                )]
                (true, _) => value as usize,
            };
            first_values.push(u32::try_from(first).map_err(|_| too_many())?);
        }
        at = end;
    }
    Ok((first_values, vectors))
}

fn typed(values: Vec<f64>, is_double: bool) -> LeafValues {
    if is_double {
        return LeafValues::Double(values);
    }
    #[expect(clippy::cast_possible_truncation, reason = "they came from 32 bits")]
    LeafValues::Single(values.into_iter().map(|value| value as f32).collect())
}
