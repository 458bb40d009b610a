//! Trees, nodes and leaves at their places.

use crate::layout::node::{NarrowNode, WideNode};
use crate::tree::OutputRange;

/// How many trees or rows are followed in step.
pub(crate) const LANES: usize = 8;

/// All trees of a forest.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) nodes: Nodes,
    pub(crate) trees: Vec<PlacedTree>,
    pub(crate) leaves: Leaves,
    /// The sets of categories: for each the origin with a flag, the number of words, and the words.
    pub(crate) category_words: Vec<u32>,
    /// The cover of each node, if the reader was told to keep it.
    pub(crate) covers: Option<Vec<f32>>,
}

impl Layout {
    /// The bytes of its arrays.
    pub(crate) fn byte_size(&self) -> usize {
        let nodes = match &self.nodes {
            Nodes::Narrow(nodes) => size_of_val(&nodes[..]),
            Nodes::Wide(nodes) | Nodes::Mixed(nodes) => size_of_val(&nodes[..]),
        };
        let values = match &self.leaves.values {
            LeafValues::Single(values) => size_of_val(&values[..]),
            LeafValues::Double(values) => size_of_val(&values[..]),
        };
        let covers = self.covers.as_deref().map_or(0, size_of_val);
        let leaves = size_of_val(&self.leaves.first_values[..]) + values;
        nodes + leaves + covers + size_of_val(&self.trees[..]) + size_of_val(&self.category_words[..])
    }
}

/// The nodes, in the smallest form that can hold all of them.
#[derive(Debug)]
pub(crate) enum Nodes {
    /// No categorical tests, fewer than 2^15 features, and children at most 2^16 - 1 places away.
    Narrow(Vec<NarrowNode>),
    /// No categorical tests, and zero is never a missing value.
    Wide(Vec<WideNode>),
    /// Any nodes.
    Mixed(Vec<WideNode>),
}

/// Where a tree is, and what it adds to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedTree {
    pub(crate) root: u32,
    /// Steps from the root to the deepest leaf.
    pub(crate) depth: u32,
    pub(crate) outputs: OutputRange,
}

/// The values of leaves.
#[derive(Debug)]
pub(crate) struct Leaves {
    /// If any tree has vector leaves: the index of the first value of the leaf at each place. Otherwise empty: then
    /// `values` has one value for each place.
    pub(crate) first_values: Vec<u32>,
    pub(crate) values: LeafValues,
}

/// The numbers of leaves. Their type is the one in which the library of the model adds them.
#[derive(Debug)]
pub(crate) enum LeafValues {
    Single(Vec<f32>),
    Double(Vec<f64>),
}
