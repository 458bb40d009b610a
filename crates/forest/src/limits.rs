//! What a forest may have at most. Files beyond these bounds are refused.

/// Features of a row.
pub const MAX_FEATURES: usize = 1 << 24;
/// Values that a forest predicts for a row.
pub const MAX_OUTPUTS: usize = 1 << 16;
/// Nodes of all trees together.
pub const MAX_NODES: usize = 1 << 30;
/// Tests between the root of a tree and its deepest leaf.
pub const MAX_DEPTH: usize = 4096;
/// Tests between the root of a tree and its deepest leaf, where Shapley values are wanted: their cost grows with the
/// square.
pub const MAX_SHAP_DEPTH: usize = 512;
/// Categories of a feature. 32-bit floats count no further one by one.
pub const MAX_CATEGORIES: u32 = 1 << 24;
/// Bytes that sets of categories may take, beside eight times the length of the file.
pub const MAX_CATEGORY_BYTES: usize = 16 << 20;
/// Objects and arrays within each other in a document of JSON or UBJSON.
pub const MAX_NESTING: usize = 32;
