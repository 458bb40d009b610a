//! The model repositories of a server, and the names that their models get.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::repository::RepositoryOpener;
use lifecycle::ModelKey;
use tokio::task::spawn_blocking;
use vocabulary::{Error, ErrorCode, Name};

use super::remote::RemoteSource;

/// The repositories, by their names.
#[derive(Clone, Default)]
pub struct Repositories {
    /// Each with its name.
    pub known: BTreeMap<Name, KnownRepository>,
    /// Models of different repositories may have the same name (`--model-namespacing`).
    namespacing: bool,
    opener: Option<Arc<dyn RepositoryOpener>>,
}

/// A repository.
#[derive(Debug, Clone)]
pub struct KnownRepository {
    pub(crate) source: RepositorySource,
    /// The names of the directories of mapped models, by the names of the models.
    pub(crate) mapped: BTreeMap<Name, String>,
}

/// Where the models of a repository are.
#[derive(Debug, Clone)]
pub enum RepositorySource {
    /// A directory of this machine.
    Directory(PathBuf),
    /// In an object store.
    Remote(Arc<RemoteSource>),
}

impl Repositories {
    /// # Errors
    /// INVALID_ARG for a URL that breaks a rule.
    pub fn new(
        paths: Vec<PathBuf>,
        namespacing: bool,
        opener: Option<Arc<dyn RepositoryOpener>>,
    ) -> Result<Self, Error> {
        let mut repositories = Self { known: BTreeMap::new(), namespacing, opener };
        for path in paths {
            let (name, source) = repositories.source(&path)?;
            repositories.known.insert(name, KnownRepository { source, mapped: BTreeMap::new() });
        }
        Ok(repositories)
    }

    /// The name of the repository at a path, and where it is. Looks at no file.
    ///
    /// # Errors
    /// INVALID_ARG for a URL that breaks a rule.
    pub fn source(&self, path: &Path) -> Result<(Name, RepositorySource), Error> {
        let directory = || (directory_name(path), RepositorySource::Directory(path.to_owned()));
        let (Some(opener), Some(text)) = (&self.opener, path.to_str()) else { return Ok(directory()) };
        match opener.name(text) {
            None => Ok(directory()),
            Some(name) => {
                let name = name?;
                let source = RemoteSource::new(name.clone(), opener.clone());
                Ok((name, RepositorySource::Remote(Arc::new(source))))
            }
        }
    }

    /// The repositories in directories.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.known.values().filter_map(|repository| match &repository.source {
            RepositorySource::Directory(path) => Some(path.as_path()),
            RepositorySource::Remote(_) => None,
        })
    }

    /// The repositories in object stores.
    pub fn remote(&self) -> Vec<Arc<RemoteSource>> {
        let remote = self.known.values().filter_map(|repository| match &repository.source {
            RepositorySource::Directory(_) => None,
            RepositorySource::Remote(source) => Some(source.clone()),
        });
        remote.collect()
    }

    /// The repository of that name, if it is in an object store.
    pub fn remote_of(&self, name: &Name) -> Option<&Arc<RemoteSource>> {
        match &self.known.get(name)?.source {
            RepositorySource::Directory(_) => None,
            RepositorySource::Remote(source) => Some(source),
        }
    }

    /// The key of a model in a repository.
    pub(crate) fn key(&self, repository: &Name, name: &str) -> ModelKey {
        ModelKey { namespace: self.namespacing.then(|| repository.clone()), name: Name::new(name) }
    }

    /// # Errors
    /// ALREADY_EXISTS for a repository that is known.
    pub fn check_new(&self, name: &Name) -> Result<(), Error> {
        if self.known.contains_key(name) {
            let text = format!("model repository '{name}' has already been registered");
            return Err(Error::new(ErrorCode::AlreadyExists, text));
        }
        Ok(())
    }

    /// The models that a directory of a repository may have: those that are mapped to it, or else the one of its name.
    pub(crate) fn models_in(&self, repository: &Name, directory: &str) -> Vec<ModelKey> {
        let mapped = self.known.get(repository).into_iter().flat_map(|known| &known.mapped);
        let names = mapped.filter(|(_, mapped)| **mapped == *directory).map(|(model, _)| model.as_str());
        let mut models: Vec<_> = names.map(|name| self.key(repository, name)).collect();
        if models.is_empty() && self.directory_of(repository, directory).is_some() {
            models.push(self.key(repository, directory));
        }
        models
    }

    /// The directory of a repository that may have the model of a name. A directory with mapped models is not reachable
    /// by its own name. A name that is mapped in one repository is looked for in no other, unless they have namespaces.
    pub fn directory_of<'a>(&'a self, repository: &Name, model: &'a str) -> Option<&'a str> {
        let known = self.known.get(repository)?;
        let is_mapped_elsewhere =
            || !self.namespacing && self.known.values().any(|other| other.mapped.contains_key(model));
        match known.mapped.get(model) {
            Some(directory) => Some(directory),
            None if known.mapped.values().any(|mapped| mapped == model) || is_mapped_elsewhere() => None,
            None => Some(model),
        }
    }

    /// Adds a repository that exists. `mapped` has the names of directories by the names of their models.
    ///
    /// # Errors
    /// ALREADY_EXISTS for a repository that is known.
    pub fn register(
        &mut self,
        name: Name,
        source: RepositorySource,
        mapped: BTreeMap<Name, String>,
    ) -> Result<(), Error> {
        self.check_new(&name)?;
        self.known.insert(name, KnownRepository { source, mapped });
        Ok(())
    }

    /// Removes a repository. Its models stay as they are.
    ///
    /// # Errors
    /// INVALID_ARG for a repository that is not known, or for a URL that breaks a rule.
    pub fn unregister(&mut self, path: &Path) -> Result<(), Error> {
        let (name, _) = self.source(path)?;
        match self.known.remove(&name) {
            Some(_) => Ok(()),
            None => Err(Error::invalid(format!("failed to unregister '{name}', repository not found"))),
        }
    }
}

impl RepositorySource {
    /// Whether the repository exists.
    ///
    /// # Errors
    /// INVALID_ARG for a path that is no directory; the error of the store.
    pub async fn check(&self) -> Result<(), Error> {
        let path = match self {
            Self::Remote(source) => return source.check().await,
            Self::Directory(path) => path.clone(),
        };
        let shown = path.display().to_string();
        let is_there = spawn_blocking(move || path.is_dir()).await.unwrap_or(false);
        let missing = || Error::invalid(format!("failed to register '{shown}', repository not found"));
        is_there.then_some(()).ok_or_else(missing)
    }
}

/// The name of a repository in a directory: its path.
pub(crate) fn directory_name(repository: &Path) -> Name {
    Name::new(&repository.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_name_is_looked_for_where_it_is_mapped() {
        let [one, two] = ["/one", "/two"].map(Name::new);
        for namespacing in [false, true] {
            let paths = vec![PathBuf::from("/one"), PathBuf::from("/two")];
            let mut repositories = Repositories::new(paths, namespacing, None).unwrap();
            let names = ["x", "y"].map(|model| (Name::new(model), "directory".to_owned()));
            repositories.known.get_mut(&two).unwrap().mapped = BTreeMap::from(names);
            let directory_of = |repository, model: &'static str| repositories.directory_of(repository, model);
            assert_eq!(directory_of(&two, "x"), Some("directory"));
            assert_eq!(directory_of(&two, "y"), Some("directory"));
            assert_eq!(directory_of(&two, "directory"), None);
            assert_eq!(directory_of(&one, "directory"), Some("directory"));
            assert_eq!(directory_of(&one, "x"), namespacing.then_some("x"));
            assert_eq!(directory_of(&one, "plain"), Some("plain"));
            let key = |repository: &Name, name| repositories.key(repository, name);
            assert_eq!(repositories.models_in(&two, "directory"), [key(&two, "x"), key(&two, "y")]);
            assert_eq!(
                repositories.models_in(&one, "x"),
                Vec::from_iter(namespacing.then(|| key(&one, "x")))
            );
        }
    }

    #[tokio::test]
    async fn a_repository_is_registered_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        let mut repositories = Repositories::default();
        let mut register = async |path: &Path| {
            let (name, source) = repositories.source(path)?;
            source.check().await?;
            repositories.register(name, source, BTreeMap::new())
        };
        assert_eq!(register(path).await, Ok(()));
        let again = register(path).await.unwrap_err();
        assert_eq!(again.code, ErrorCode::AlreadyExists);
        assert!(again.message.ends_with("has already been registered"));
        let missing = register(&path.join("x")).await.unwrap_err();
        assert!(missing.message.ends_with("/x', repository not found"), "{missing}");
        assert_eq!(repositories.unregister(path), Ok(()));
        let gone = repositories.unregister(path).unwrap_err();
        assert_eq!(gone.message, format!("failed to unregister '{}', repository not found", path.display()));
    }
}
