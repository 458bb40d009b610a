//! A finding: a fact about a model, and what to change.

/// A fact about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFinding {
    /// What it is about, in one word: `state`, `requests`, `error`, `batches`, `time`, `queue`, `instances`, `processes`,
    /// `sequences`, `cache` or `steps`.
    pub about: &'static str,
    /// A sentence.
    pub fact: String,
    /// What the operator may change.
    pub advice: Option<String>,
}

/// A finding of its parts.
pub(super) fn finding(about: &'static str, fact: String, advice: Option<&str>) -> ModelFinding {
    ModelFinding { about, fact, advice: advice.map(str::to_owned) }
}
