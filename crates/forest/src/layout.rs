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
mod placed;
mod walk;

pub(crate) use builder::LayoutBuilder;
pub(crate) use node::{NarrowNode, NodeForm, WideNode};
pub(crate) use placed::{LANES, Layout, LeafValues, Nodes, PlacedTree};
