//! The readers of model files.

mod document;
mod lightgbm;
mod treelite;
mod xgboost;

use crate::fault::{ForestError, malformed, unsupported};
use crate::forest::{Description, Forest};
use crate::format::{ForestFormat, ReadOptions};
use crate::layout::LayoutBuilder;
use crate::limits::{MAX_FEATURES, MAX_OUTPUTS};
use crate::readers::document::Value;

/// Reads `file`.
pub(crate) fn read(format: ForestFormat, file: &[u8], options: ReadOptions) -> Result<Forest, ForestError> {
    match format {
        ForestFormat::XgboostJson | ForestFormat::XgboostUbjson | ForestFormat::XgboostBinary
            if !file.trim_ascii_start().starts_with(b"{") =>
        {
            Err(unsupported(
                "the file is not a document of JSON or UBJSON, but perhaps of XGBoost's old binary format",
                "a release of XGBoost before 3.1 converts it: `booster.load_model('xgboost.model')`, then \
                 `booster.save_model('xgboost.ubj')`",
            ))
        }
        ForestFormat::XgboostBinary => Err(unsupported(
            "the file is a document, not of XGBoost's old binary format",
            "its type is `xgboost_json` or `xgboost_ubj`",
        )),
        ForestFormat::XgboostJson => xgboost::read(&Value::from_json(file)?, file.len(), options),
        ForestFormat::XgboostUbjson => xgboost::read(&Value::from_ubjson(file)?, file.len(), options),
        ForestFormat::Lightgbm => lightgbm::read(file, options),
        ForestFormat::TreeliteCheckpoint => treelite::read(file, options),
    }
}

/// A builder of the trees that `description` describes, once its numbers are within bounds.
fn layout_builder(
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
