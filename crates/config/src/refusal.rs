//! Why a backend refuses a configuration.
use vocabulary::Error;

/// The broken rule.
#[derive(Debug)]
pub struct SettingRefusal {
    /// The field with the problem, such as `parameters.MEAN`.
    pub field: String,
    /// What must hold, and for which model.
    pub text: String,
}

impl From<SettingRefusal> for Error {
    /// INVALID_ARG with the text.
    fn from(refusal: SettingRefusal) -> Self {
        Self::invalid(refusal.text)
    }
}
