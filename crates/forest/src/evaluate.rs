//! From rows to sums of leaves.
//!
//! One row follows eight trees in step, many rows follow one tree, eight in step. Each step is a few loads and no
//! branch, so the processor works at eight of them at once. Leaves are added in the order of the trees, because
//! libraries do so, and another order would round to other sums.

mod decision;
mod descent;
mod evaluation;

pub(crate) use descent::next_place;
pub(crate) use evaluation::Evaluation;
pub use evaluation::PredictionScratch;
