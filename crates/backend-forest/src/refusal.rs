//! Why the backend refuses a configuration.
use vocabulary::Error;

/// The broken rule.
#[derive(Debug)]
pub(crate) struct SettingRefusal {
    /// The field with the problem, such as `parameters.MEAN`.
    pub(crate) field: String,
    pub(crate) text: String,
}

impl From<SettingRefusal> for Error {
    fn from(refusal: SettingRefusal) -> Self {
        Self::invalid(refusal.text)
    }
}
