//! A configuration as its source says it.
use crate::{Fields, ModelConfig};

/// A configuration that was read from its text or JSON form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The values. A field that the source omits has its default.
    pub config: ModelConfig,
    /// The fields that the source sets. `config` cannot distinguish them from defaults.
    pub fields: Fields,
}
