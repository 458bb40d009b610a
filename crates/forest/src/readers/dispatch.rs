//! Which reader reads a format.

use crate::fault::{ForestError, unsupported};
use crate::format::{ForestFormat, ReadOptions};
use crate::model::ForestModel;
use crate::readers::document::{read_json, read_ubjson};
use crate::readers::{lightgbm, treelite, xgboost};

/// Reads `file`.
pub(crate) fn read(
    format: ForestFormat,
    file: &[u8],
    options: ReadOptions,
) -> Result<ForestModel, ForestError> {
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
        ForestFormat::XgboostJson => xgboost::read(&read_json(file)?, file.len(), options),
        ForestFormat::XgboostUbjson => xgboost::read(&read_ubjson(file)?, file.len(), options),
        ForestFormat::Lightgbm => lightgbm::read(file, options),
        ForestFormat::TreeliteCheckpoint => treelite::read(file, options),
    }
}
