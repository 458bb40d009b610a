//! The rules that only this crate checks, and the list of all rules.
use config::{ConfigRule, rule};

/// A repository can be read.
pub(crate) const REPOSITORY: ConfigRule =
    ConfigRule::new("repository", "A repository is a directory of models.");
/// A directory of a repository is a model.
pub(crate) const REPOSITORY_LAYOUT: ConfigRule = ConfigRule::new(
    "repository-layout",
    "The directories of a repository are models: <repository>/<model>/<version>/<model file>.",
);
/// A model is in one repository.
pub(crate) const UNIQUE_MODEL: ConfigRule =
    ConfigRule::new("unique-model", "A model is in one repository only.");
/// Directories of a model are versions.
pub(crate) const VERSION_DIRECTORY: ConfigRule = ConfigRule::new(
    "version-directory",
    "The name of a version directory is a number without leading zeros.",
);
/// Files are read.
pub(crate) const UNREAD_FILE: ConfigRule =
    ConfigRule::new("unread-file", "The server, or the model's backend, reads each file of a model.");
/// Source code in Python can be compiled.
pub(crate) const PYTHON_SYNTAX: ConfigRule =
    ConfigRule::new("python-syntax", "The source code of a model in Python can be compiled.");
/// A model in Python has its class.
pub(crate) const PYTHON_MODEL: ConfigRule = ConfigRule::new(
    "python-model",
    "A model in Python has the class `TritonPythonModel`, and methods that the server calls.",
);
/// The interpreter of a model has what workers and the model need.
pub(crate) const PYTHON_ENVIRONMENT: ConfigRule = ConfigRule::new(
    "python-environment",
    "The interpreter of a model in Python starts, and has NumPy and what the model imports.",
);
/// The library of a backend is there.
pub(crate) const BACKEND_RUNTIME: ConfigRule =
    ConfigRule::new("backend-runtime", "The library that a backend runs its models with is on this machine.");
/// An agent exists.
pub(crate) const REPOSITORY_AGENT: ConfigRule =
    ConfigRule::new("repository-agent", "The repository agents that a configuration names exist.");

const OWN: &[ConfigRule] = &[
    REPOSITORY,
    REPOSITORY_LAYOUT,
    UNIQUE_MODEL,
    VERSION_DIRECTORY,
    UNREAD_FILE,
    PYTHON_SYNTAX,
    PYTHON_MODEL,
    PYTHON_ENVIRONMENT,
    BACKEND_RUNTIME,
    REPOSITORY_AGENT,
];

/// All rules that a finding can name.
pub fn all_rules() -> impl Iterator<Item = ConfigRule> {
    rule::ALL.iter().chain(OWN).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_words() {
        let ids: BTreeSet<_> = all_rules().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), all_rules().count());
        assert!(ids.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
    }

    #[test]
    fn the_manual_lists_every_rule() {
        let manual = include_str!("../../../docs/checking.md");
        for rule in all_rules() {
            let row = format!("| `{}` | {} |", rule.id, rule.summary);
            assert!(manual.contains(&row), "{row}");
        }
    }
}
