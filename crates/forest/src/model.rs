//! A forest as readers make it.

use crate::layout::Layout;
use crate::link::Link;

/// All that a file says.
#[derive(Debug)]
pub(crate) struct ForestModel {
    pub(crate) description: Description,
    pub(crate) margins: Margins,
    pub(crate) layout: Layout,
}

/// What a forest is.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) features: usize,
    pub(crate) targets: usize,
    /// Of each target. 1 for regressions and for binary classifiers with one probability.
    pub(crate) classes: usize,
    pub(crate) is_classifier: bool,
    pub(crate) has_vector_leaves: bool,
    /// As the file names it.
    pub(crate) objective: String,
    pub(crate) link: Link,
}

/// How sums of leaves become margins.
#[derive(Debug, Clone)]
pub(crate) struct Margins {
    /// What each output begins with.
    pub(crate) base: Vec<f64>,
    /// What each sum of leaves is divided by, before the base is added. None, if nothing is averaged.
    pub(crate) divisors: Option<Vec<f64>>,
}
