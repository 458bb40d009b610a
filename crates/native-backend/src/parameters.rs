//! Reads settings of `--backend-config` and parameters of a configuration: numbers, booleans and counts of threads.
use std::collections::BTreeMap;

use config::ConfigErrors;
use vocabulary::Error;

/// Reads parameters of a configuration, and notes those that are refused.
pub struct ParameterReader<'a> {
    /// The parameters, by their names.
    pub values: &'a BTreeMap<String, String>,
    /// What has been refused, with its field.
    pub errors: &'a mut ConfigErrors,
}

impl ParameterReader<'_> {
    /// The value of a parameter, if it is there and accepted.
    pub fn read<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, Error>) -> Option<T> {
        let value = read(self.values.get(name)?);
        self.accepted(&format!("parameters.{name}"), value)
    }

    /// A number of threads. With zero or less the choice stays open.
    pub fn threads(&mut self, name: &str) -> Option<usize> {
        self.read(name, threads).flatten()
    }

    /// The value of a field, if it is accepted.
    pub fn accepted<T>(&mut self, field: &str, value: Result<T, Error>) -> Option<T> {
        value.map_err(|error| self.errors.push_error(field, &error)).ok()
    }
}

/// A number of threads. With zero or less the choice stays open.
///
/// # Errors
/// INVALID_ARGUMENT for a text that is no number.
pub fn threads(text: &str) -> Result<Option<usize>, Error> {
    Ok(usize::try_from(integer(text)?).ok().filter(|&count| count > 0))
}

/// A number.
///
/// # Errors
/// INVALID_ARGUMENT for any other text.
pub fn integer(text: &str) -> Result<i64, Error> {
    text.trim().parse().map_err(|_| Error::invalid(format!("failed to convert '{text}' to integral number")))
}

/// A boolean value.
///
/// # Errors
/// INVALID_ARGUMENT for any other text.
pub fn boolean(text: &str) -> Result<bool, Error> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(Error::invalid(format!("failed to convert '{text}' to boolean"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_spelt_in_three_ways() {
        for text in ["true", "ON", "1"] {
            assert_eq!(boolean(text), Ok(true));
        }
        for text in ["False", "off", "0"] {
            assert_eq!(boolean(text), Ok(false));
        }
        assert_eq!(boolean("yes").unwrap_err().message, "failed to convert 'yes' to boolean");
    }

    #[test]
    fn a_refused_parameter_is_noted_with_its_field() {
        let values = [("count", "3"), ("open", "0"), ("wrong", "x")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (values, mut errors) = (values.into(), ConfigErrors::default());
        let mut reader = ParameterReader { values: &values, errors: &mut errors };
        assert_eq!(
            [reader.threads("count"), reader.threads("open"), reader.threads("missing")],
            [Some(3), None, None]
        );
        assert!(reader.errors.is_empty());
        assert_eq!(reader.threads("wrong"), None);
        let problem = errors.to_string();
        assert!(problem.contains("failed to convert 'x' to integral number"), "{problem}");
    }
}
