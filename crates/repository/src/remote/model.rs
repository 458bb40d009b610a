//! A model in an object store: its objects, its versions and its local copies.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use config::{FileEntry, VersionDirectory, version_directory};
use inference::repository::{LocalModelFiles, ObjectKind, StoredObject};
use vocabulary::{Error, Name};

use super::source::RemoteSource;

/// A model in an object store, with the objects that its load uses.
#[derive(Clone)]
pub struct RemoteModel {
    pub(crate) source: Arc<RemoteSource>,
    /// The model's directory in the repository.
    pub(crate) directory: String,
    pub(crate) objects: Arc<[StoredObject]>,
}

impl RemoteModel {
    /// The model in a directory of a repository, as it is now.
    ///
    /// # Errors
    /// NOT_FOUND if there is no such directory. Otherwise as
    /// [`ObjectRepository::objects`](inference::repository::ObjectRepository::objects).
    pub async fn find(source: Arc<RemoteSource>, directory: String) -> Result<Self, Error> {
        let objects: Arc<[_]> = source.objects(&directory).await?.into();
        let model = Self { source, directory, objects };
        if model.objects.is_empty() {
            let url = model.url();
            return Err(Error::not_found(format!("directory or file does not exist at {}", url.display())));
        }
        Ok(model)
    }

    /// The URL of the model's directory.
    pub fn url(&self) -> PathBuf {
        model_url(self.source.name(), &self.directory)
    }

    /// The objects that these versions use: their own, and those of the model.
    fn used_by(&self, versions: &BTreeSet<i64>) -> Vec<StoredObject> {
        let is_used =
            |object: &&StoredObject| version_of(object).is_none_or(|version| versions.contains(&version));
        self.objects.iter().filter(is_used).cloned().collect()
    }

    /// A local directory with these versions, and with the files that belong to no version.
    ///
    /// # Errors
    /// As [`ObjectRepository::fetch`](inference::repository::ObjectRepository::fetch).
    pub async fn fetch(&self, versions: &BTreeSet<i64>) -> Result<Arc<dyn LocalModelFiles>, Error> {
        self.source.fetch(&self.directory, &self.used_by(versions)).await
    }

    /// A local directory with all objects.
    ///
    /// # Errors
    /// As [`ObjectRepository::fetch`](inference::repository::ObjectRepository::fetch).
    pub async fn fetch_all(&self) -> Result<Arc<dyn LocalModelFiles>, Error> {
        self.source.fetch(&self.directory, &self.objects).await
    }

    /// The versions and what is in the directory of each. Logs names that are almost versions.
    pub fn versions(&self) -> BTreeMap<i64, Vec<FileEntry>> {
        let mut versions: BTreeMap<i64, BTreeMap<&str, bool>> = BTreeMap::new();
        let mut ignored = BTreeSet::new();
        for object in &*self.objects {
            let (top, below) = match object.path.split_once('/') {
                Some((top, below)) => (top, Some(below)),
                None if object.kind == ObjectKind::Directory => (object.path.as_str(), None),
                None => continue,
            };
            match version_directory(top) {
                VersionDirectory::Version(version) => {
                    let entries = versions.entry(version).or_default();
                    if let Some(below) = below {
                        let (name, rest) =
                            below.split_once('/').map_or((below, None), |(name, rest)| (name, Some(rest)));
                        let is_directory = rest.is_some() || object.kind == ObjectKind::Directory;
                        *entries.entry(name).or_default() |= is_directory;
                    }
                }
                VersionDirectory::Ignored(warning) => ignored.extend(warning),
            }
        }
        ignored.iter().for_each(|warning| log::warn!("{warning}"));
        let entries = |entries: BTreeMap<&str, bool>| {
            let entry =
                |(name, is_directory): (&str, bool)| FileEntry { name: name.to_owned(), is_directory };
            entries.into_iter().map(entry).collect()
        };
        versions.into_iter().map(|(version, found)| (version, entries(found))).collect()
    }
}

/// The URL of a model's directory in a repository.
pub(crate) fn model_url(repository: &Name, directory: &str) -> PathBuf {
    PathBuf::from(format!("{repository}/{directory}"))
}

/// Where the files of a load are.
pub enum PlanSource {
    /// In the repository, or where an agent has put them.
    Directory(PathBuf),
    /// In an object store. Each version is fetched when it is loaded.
    Remote(RemoteModel),
}

impl PlanSource {
    /// Whether both are the same directory, or the same model of a store.
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory(one), Self::Directory(other)) => one == other,
            (Self::Remote(one), Self::Remote(other)) => one.url() == other.url(),
            (Self::Directory(_), Self::Remote(_)) | (Self::Remote(_), Self::Directory(_)) => false,
        }
    }
}

/// The version that an object belongs to; `None` for what all versions use.
pub fn version_of(object: &StoredObject) -> Option<i64> {
    let top = match object.path.split_once('/') {
        Some((top, _)) => top,
        None if object.kind == ObjectKind::Directory => &object.path,
        None => return None,
    };
    match version_directory(top) {
        VersionDirectory::Version(version) => Some(version),
        VersionDirectory::Ignored(_) => None,
    }
}
