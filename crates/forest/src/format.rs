//! The formats of model files, and how a file is read.

/// A format of model files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForestFormat {
    /// XGBoost's JSON, of releases 1.0 to 3.x.
    XgboostJson,
    /// XGBoost's UBJSON, of releases 1.6 to 3.x.
    XgboostUbjson,
    /// XGBoost's binary format, which release 3.1 no longer reads. It is refused with the command that converts it.
    XgboostBinary,
    /// LightGBM's text, versions 2 to 4.
    Lightgbm,
    /// A checkpoint of treelite 4 or 5.
    TreeliteCheckpoint,
}

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// Whether fields of XGBoost's documents that this crate does not know are ignored. Otherwise they are an error,
    /// because they could change what the model means.
    pub allow_unknown_fields: bool,
    /// Whether the forest keeps the covers of its nodes, which [`Forest::shap`](crate::Forest::shap) needs.
    pub keep_covers: bool,
}
