//! Forests: ensembles of decision trees. This crate reads them, predicts with them, and explains predictions.
//!
//! [`Forest::read`] takes the bytes of a model that XGBoost, LightGBM or treelite has written. scikit-learn's forests
//! come as checkpoints of treelite. [`Forest::predict`] gives what the library itself predicts: the links of all
//! objectives, missing values, categorical splits, vector leaves and averages included. [`Forest::shap`] gives Shapley
//! values.
//!
//! # From bytes to a prediction
//!
//! `readers` turn a file into one `tree::Tree` after the other. All formats come to one form of test: `value <= threshold`
//! in 32 bits, or membership in a set of categories. `layout` places each tree breadth first in one array, and this
//! walk is the proof that the tree is one: it meets each node once, and checks each feature, threshold, leaf and set.
//! So the evaluator (`evaluate`) needs no check: from each place of the array any row leads to a place of the array.
//! It follows eight trees or eight rows in step, without a branch. `link` turns sums of leaves into predictions.
//!
//! # What a file may cost
//!
//! A file is data from outside. No reader recurses deeper than a constant, allocates for a count before the file has
//! proved to have the bytes of that many elements, or follows an index that it has not compared. The bounds are
//! constants of [`limits`]. A forest needs a small multiple of its file's length, and 16 MiB for sets of categories.
//!
//! The crate knows nothing of servers: it has no I/O, no threads and no clock.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod evaluate;
mod fault;
mod forest;
mod format;
mod layout;
pub mod limits;
mod link;
mod model;
mod readers;
mod real;
mod shap;
mod tree;

pub use evaluate::PredictionScratch;
pub use fault::ForestError;
pub use forest::Forest;
pub use format::{ForestFormat, ReadOptions};
pub use link::Link;
