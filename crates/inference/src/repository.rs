//! The extension point for model repositories in object stores.
//!
//! The engine knows no protocol of a store. It lists models, compares the objects of two listings, and asks for local
//! copies of the objects that a model needs.
use std::{collections::BTreeMap, path::Path, pin::Pin, sync::Arc, time::SystemTime};

use vocabulary::{Error, Name};

/// A result for which a store is asked. Dropping the future ends the requests.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Opens repositories by their URLs.
pub trait RepositoryOpener: Send + Sync {
    /// The name of the repository at a URL, the same for all forms of the URL and without secrets. `None` if the path is
    /// no URL of a store: then it is a directory. Asks no store.
    ///
    /// # Errors
    /// INVALID_ARG for a URL that breaks a rule.
    fn name(&self, path: &str) -> Option<Result<Name, Error>>;

    /// Opens the repository of that name. May read files, and asks no store for objects.
    ///
    /// # Errors
    /// There is no usable credential, or the local cache cannot be opened.
    fn open<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Arc<dyn ObjectRepository>>;
}

/// A repository in a store. Any number of tasks may use it at the same time.
pub trait ObjectRepository: Send + Sync {
    /// Asks whether there is an object in the repository, or, if it is a whole bucket, whether it can be listed.
    ///
    /// # Errors
    /// NOT_FOUND if there is none. Otherwise as [`models`](Self::models).
    fn check(&self) -> StoreFuture<'_, ()>;

    /// The objects of each model, by the model's directory and sorted by path. A directory is a model if there is an object
    /// in it.
    ///
    /// # Errors
    /// The store cannot be reached, refuses the credential, or has no such bucket. Each error names the URL.
    fn models(&self) -> StoreFuture<'_, BTreeMap<String, Vec<StoredObject>>>;

    /// The objects of one model, sorted by path; none if there is no such model.
    ///
    /// # Errors
    /// As [`models`](Self::models).
    fn objects<'a>(&'a self, model: &'a str) -> StoreFuture<'a, Vec<StoredObject>>;

    /// A local directory with these objects of a model, which a listing has shown. Each is downloaded at most once.
    ///
    /// # Errors
    /// As [`models`](Self::models); UNAVAILABLE if an object is not as it was listed; an error of the local disk.
    fn fetch<'a>(
        &'a self,
        model: &'a str,
        objects: &'a [StoredObject],
    ) -> StoreFuture<'a, Arc<dyn LocalModelFiles>>;
}

/// A local copy of a model. The last drop removes the directory.
pub trait LocalModelFiles: Send + Sync {
    /// The directory, whose last segment is the name of the model's directory. Its files are read-only.
    fn path(&self) -> &Path;
}

/// An object of a model, as a listing shows it. Two equal values mean the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    /// The path relative to the model, with `/` between segments. No segment is empty, `.` or `..`.
    pub path: String,
    /// A file or a directory.
    pub kind: ObjectKind,
    /// The size of the content.
    pub byte_size: u64,
    /// The tag of the content without quotes, if the store has given one.
    pub etag: Option<String>,
    /// When the object was written.
    pub modified: SystemTime,
}

/// What an object stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// The content of a file.
    File,
    /// An empty object that tools make for a directory. Listings do not show the `/` at the end of its name, so it is
    /// recognized by objects below it, or by a number as its name directly below the model.
    Directory,
}
