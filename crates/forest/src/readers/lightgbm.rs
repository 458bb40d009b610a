//! LightGBM's text, versions 3 and 4.
//!
//! The first lines are fields of the forest, `name=value`. Then each tree begins with `Tree=`, and `end of trees`
//! follows the last. What comes then says how the model was trained.

mod fields;
mod model;
mod objective;
mod tree;

pub(super) use model::read;
