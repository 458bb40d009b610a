//! The settings of environments that are made from files beside models.
use std::{
    collections::BTreeMap,
    env,
    path::{self, PathBuf},
    time::Duration,
};

use vocabulary::Error;

/// See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvironmentSettings {
    /// Whether environments are made.
    pub(crate) are_made: bool,
    /// The folder with all environments, if the settings name one.
    directory: Option<PathBuf>,
    /// How long it may take to make one.
    pub(crate) time_limit: Duration,
    /// Where packages come from, unless the variables of `pip` and `uv` say so.
    pub(crate) index_url: Option<String>,
}

const ENVIRONMENTS: &str = "environments";
const DIRECTORY: &str = "environments-directory";
const TIMEOUT: &str = "environments-timeout-seconds";
const INDEX_URL: &str = "pip-index-url";

const DEFAULT_TIMEOUT: u64 = 600;

impl EnvironmentSettings {
    /// Reads the settings of the server.
    ///
    /// # Errors
    /// INVALID_ARG for a value that is not allowed.
    pub(crate) fn of(settings: &BTreeMap<String, String>) -> Result<Self, Error> {
        let refused = |name: &str, value: &str, rule: &str| {
            Error::invalid(format!("the setting '{name}' of backend 'python' is '{value}', {rule}"))
        };
        let are_made = match settings.get(ENVIRONMENTS).map(String::as_str) {
            None | Some("off") => false,
            Some("on") => true,
            Some(other) => return Err(refused(ENVIRONMENTS, other, "which is neither 'on' nor 'off'")),
        };
        let seconds = match settings.get(TIMEOUT) {
            None => DEFAULT_TIMEOUT,
            Some(value) => {
                let seconds = value.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
                seconds.ok_or_else(|| refused(TIMEOUT, value, "which is no number from 1 to 86400"))?
            }
        };
        let text = |name: &str| settings.get(name).filter(|text| !text.is_empty());
        Ok(Self {
            are_made,
            directory: text(DIRECTORY).map(PathBuf::from),
            time_limit: Duration::from_secs(seconds),
            index_url: text(INDEX_URL).cloned(),
        })
    }

    /// The folder with all environments, as an absolute path.
    ///
    /// # Errors
    /// Neither the settings nor the variables of the process name one.
    pub(crate) fn cache(&self) -> Result<PathBuf, String> {
        let variable = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let of_user = || {
            Some(
                variable("XDG_CACHE_HOME")
                    .or_else(|| Some(variable("HOME")?.join(".cache")))?
                    .join("nereid/python-environments"),
            )
        };
        let named = self.directory.clone().or_else(of_user).ok_or_else(|| {
            format!("no folder for environments is known: name one by the setting '{DIRECTORY}'")
        })?;
        path::absolute(&named).map_err(|error| format!("the folder {}: {error}", named.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<EnvironmentSettings, String> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        EnvironmentSettings::of(&pairs.collect()).map_err(|error| error.with_code())
    }

    #[test]
    fn settings_are_read_and_checked() {
        assert!(!settings(&[]).expect("nothing is required").are_made);
        let read = settings(&[("environments", "on"), ("environments-directory", "/cache")])
            .expect("they are allowed");
        assert_eq!((read.are_made, read.cache()), (true, Ok("/cache".into())));
        for (name, value) in [("environments", "yes"), ("environments-timeout-seconds", "0")] {
            let refusal = settings(&[(name, value)]).expect_err("it is refused");
            assert!(
                refusal.contains(&format!("the setting '{name}' of backend 'python' is '{value}'")),
                "{refusal}"
            );
        }
    }
}
