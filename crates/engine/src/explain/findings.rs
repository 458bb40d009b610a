//! What the numbers of a model mean: facts in sentences, and what to change.
mod failures;
mod finding;
mod rules;

pub use finding::ModelFinding;
pub use rules::findings;
