//! The model repositories of a server, and the names that their models get.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use inference::{Error, ErrorCode, Name};
use lifecycle::ModelKey;

use super::scan;

/// The repositories, by their paths.
#[derive(Debug, Clone, Default)]
pub(super) struct Repositories {
    /// For each repository, the names of the models whose directories have other names, by the name of the directory.
    pub(super) paths: BTreeMap<PathBuf, BTreeMap<String, Name>>,
    /// Models of different repositories may have the same name (`--model-namespacing`).
    namespacing: bool,
}

impl Repositories {
    pub(super) fn new(paths: Vec<PathBuf>, namespacing: bool) -> Self {
        let paths = paths.into_iter().map(|path| (path, BTreeMap::new())).collect();
        Self { paths, namespacing }
    }

    /// The key of a model in a repository.
    pub(super) fn key(&self, repository: &Path, name: &str) -> ModelKey {
        let namespace = self.namespacing.then(|| scan::repository_name(repository));
        ModelKey { namespace, name: Name::new(name) }
    }

    /// Adds a repository. `names` has the names of models by the names of their directories.
    ///
    /// # Errors
    /// ALREADY_EXISTS for a repository that is known, INVALID_ARG for one that is no directory.
    pub(super) fn register(&mut self, path: &Path, names: BTreeMap<String, Name>) -> Result<(), Error> {
        let shown = path.display();
        if self.paths.contains_key(path) {
            let text = format!("model repository '{shown}' has already been registered");
            return Err(Error::new(ErrorCode::AlreadyExists, text));
        }
        if !path.is_dir() {
            return Err(Error::invalid(format!("failed to register '{shown}', repository not found")));
        }
        self.paths.insert(path.to_owned(), names);
        Ok(())
    }

    /// Removes a repository. Its models stay as they are.
    ///
    /// # Errors
    /// INVALID_ARG for a repository that is not known.
    pub(super) fn unregister(&mut self, path: &Path) -> Result<(), Error> {
        match self.paths.remove(path) {
            Some(_) => Ok(()),
            None => Err(Error::invalid(format!(
                "failed to unregister '{}', repository not found",
                path.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_registered_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        let mut repositories = Repositories::default();
        assert_eq!(repositories.register(path, BTreeMap::new()), Ok(()));
        let again = repositories.register(path, BTreeMap::new()).unwrap_err();
        assert_eq!(again.code, ErrorCode::AlreadyExists);
        assert!(again.message.ends_with("has already been registered"));
        assert_eq!(repositories.unregister(path), Ok(()));
        let gone = repositories.unregister(path).unwrap_err();
        assert_eq!(gone.message, format!("failed to unregister '{}', repository not found", path.display()));
        let missing = repositories.register(&path.join("x"), BTreeMap::new()).unwrap_err();
        assert!(missing.message.ends_with("/x', repository not found"), "{missing}");
    }
}
