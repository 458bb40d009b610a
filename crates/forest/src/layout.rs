//! The trees of a forest as they are evaluated: breadth first in one array, with everything proved that the evaluator
//! relies on.
//!
//! The two children of a test stand side by side, so that a node has one distance to them. A leaf is a test that always
//! holds, with the distance zero: it leads to itself. So all rows and trees can take the same number of steps.
//!
//! # What is proved
//!
//! For each node at place `i`: its feature is less than the number of features; `i + distance` is a place of the array, and
//! so is `i + distance + 1` unless the node is a leaf, whose test holds for every value; a categorical test's set lies
//! inside of `category_words`; a leaf's values exist for each output that its tree adds to. So no index of the evaluator
//! is out of bounds.

mod builder;
mod node;

pub(crate) use builder::LayoutBuilder;
pub(crate) use node::{CATEGORICAL, FEATURE_MASK, MISSING_IS_TRUE, NarrowNode, WideNode, ZERO_IS_MISSING};

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
