//! The bounds of what a forest is.

use crate::fault::{ForestError, malformed};
use crate::format::ReadOptions;
use crate::layout::LayoutBuilder;
use crate::limits::{MAX_FEATURES, MAX_OUTPUTS};
use crate::model::Description;

/// A builder of the trees that `description` describes, once its numbers are within bounds.
pub(super) fn layout_builder(
    description: &Description,
    is_double: bool,
    options: ReadOptions,
) -> Result<LayoutBuilder, ForestError> {
    let Description { features, targets, classes, .. } = *description;
    if !(1..=MAX_FEATURES).contains(&features) {
        return Err(malformed(
            "number of features",
            format!("it must be from 1 to {MAX_FEATURES}, it is {features}"),
        ));
    }
    let outputs = targets.checked_mul(classes).filter(|outputs| (1..=MAX_OUTPUTS).contains(outputs));
    let outputs = outputs.ok_or_else(|| {
        malformed(
            "number of outputs",
            format!("it must be from 1 to {MAX_OUTPUTS}, it is {targets} times {classes}"),
        )
    })?;
    Ok(LayoutBuilder::new(features, outputs, is_double, options.keep_covers))
}
