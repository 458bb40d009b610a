//! What can be wrong with a model file or with a call.

/// Why a forest cannot be read or asked. The text names the place and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForestError {
    /// The file breaks a rule of its format, or a bound of [`limits`](crate::limits).
    #[error("{place}: {rule}")]
    Malformed {
        /// Where in the file.
        place: String,
        /// What would have to hold there.
        rule: String,
    },
    /// The file is well-formed, as far as it was read, but has something that this crate does not evaluate.
    #[error("{what}: {advice}")]
    Unsupported {
        /// What the file has.
        what: String,
        /// What is supported instead.
        advice: String,
    },
    /// A slice of a call has the wrong length.
    #[error("{slice} must have {expected} values, it has {actual}")]
    Length {
        /// Which argument.
        slice: &'static str,
        /// The length that it must have.
        expected: usize,
        /// The length that it has.
        actual: usize,
    },
    /// Shapley values need the covers of nodes.
    #[error("Shapley values need the covers of the nodes: {0}")]
    NoCovers(&'static str),
}

/// A rule that `place` breaks.
pub(crate) fn malformed(place: impl Into<String>, rule: impl Into<String>) -> ForestError {
    ForestError::Malformed { place: place.into(), rule: rule.into() }
}

/// Something that is not evaluated.
pub(crate) fn unsupported(what: impl Into<String>, advice: impl Into<String>) -> ForestError {
    ForestError::Unsupported { what: what.into(), advice: advice.into() }
}

impl ForestError {
    /// The same error with `place` before its own place.
    pub(crate) fn within(self, place: impl FnOnce() -> String) -> Self {
        match self {
            Self::Malformed { place: inner, rule } => {
                Self::Malformed { place: format!("{}, {inner}", place()), rule }
            }
            Self::Unsupported { .. } | Self::Length { .. } | Self::NoCovers(_) => self,
        }
    }
}
