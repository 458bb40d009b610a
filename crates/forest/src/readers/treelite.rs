//! Checkpoints of treelite 4 and 5: the fields of a model and then of each tree, as they are in memory, little endian.
//!
//! The order of the fields is that of treelite's document "Treelite Serialization Format v4".

mod cursor;
mod model;
mod postprocessor;
mod tree;

pub(super) use model::read;
