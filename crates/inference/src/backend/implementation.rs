//! Who runs the models of a backend that is built into the server, if Triton's library of the same name is there, too.
use std::collections::BTreeMap;

use vocabulary::Error;

/// The value of the setting `implementation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// The backend that is built into the server.
    BuiltIn,
    /// Triton's library of the backend's name in the backend directory.
    Triton,
}

impl Implementation {
    /// The name of the setting in `--backend-config`.
    pub const SETTING: &str = "implementation";

    /// What the settings of a backend choose. `None`: nothing.
    ///
    /// # Errors
    /// INVALID_ARG for another word.
    pub fn of(backend: &str, settings: &BTreeMap<String, String>) -> Result<Option<Self>, Error> {
        match settings.get(Self::SETTING).map(String::as_str) {
            None => Ok(None),
            Some("built-in") => Ok(Some(Self::BuiltIn)),
            Some("triton") => Ok(Some(Self::Triton)),
            Some(other) => Err(Error::invalid(format!(
                "the setting '{}' of backend '{backend}' is '{other}', which is neither 'built-in' nor 'triton'",
                Self::SETTING
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_chooses_the_implementation_and_other_words_are_refused() {
        let chosen = |word: &str| {
            Implementation::of("x", &BTreeMap::from([("implementation".to_owned(), word.to_owned())]))
        };
        assert_eq!(Implementation::of("x", &BTreeMap::new()), Ok(None));
        assert_eq!(chosen("built-in"), Ok(Some(Implementation::BuiltIn)));
        assert_eq!(chosen("triton"), Ok(Some(Implementation::Triton)));
        assert!(chosen("mine").unwrap_err().message.contains("is 'mine', which is neither"));
    }
}
