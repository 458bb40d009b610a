//! What a part of this benchmark has measured.

/// A table, and how many requests failed.
pub(super) struct PartResult {
    pub(super) table: String,
    pub(super) failed: f64,
}
