//! The copy of a model: a directory that stays as long as somebody holds it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use inference::Error;

use super::{LocalCache, failed, in_background, remove};

/// The directory of a model with copies of its objects. It is removed when the last clone is dropped.
///
/// The same content, fetched again while a copy exists, is the same directory. Files are read-only; a program that writes
/// into one damages the copies of others.
#[derive(Clone)]
pub struct LocalCopy(Arc<CopyDirectory>);

impl LocalCopy {
    pub(crate) fn new(directory: Arc<CopyDirectory>) -> Self {
        Self(directory)
    }

    /// The directory, whose last segment is the name of the model.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl std::fmt::Debug for LocalCopy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("LocalCopy").field(&self.0.path).finish()
    }
}

/// The copies that exist, by the hash of their contents.
pub(crate) type SharedCopies = HashMap<String, Weak<CopyDirectory>>;

/// Owns the directory of a copy.
pub(crate) struct CopyDirectory {
    path: PathBuf,
    key: String,
    cache: Arc<LocalCache>,
    /// The directory in the session that contains `path`.
    parent: PathBuf,
}

impl CopyDirectory {
    /// Makes the empty directory of a model. Blocks.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(crate) fn make(cache: &Arc<LocalCache>, model: &str, key: String) -> Result<Arc<Self>, Error> {
        let parent = cache.unused_path();
        let path = parent.join(model);
        fs::create_dir_all(&path).map_err(|error| failed("make", &path, &error))?;
        Ok(Arc::new(Self { path, key, cache: Arc::clone(cache), parent }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The copy with this key, if somebody holds it.
    pub(crate) fn existing(cache: &LocalCache, key: &str) -> Option<Arc<Self>> {
        cache.copies.lock().get(key)?.upgrade()
    }

    /// Lets later fetches of the same content use this copy.
    pub(crate) fn share(self: &Arc<Self>) {
        self.cache.copies.lock().insert(self.key.clone(), Arc::downgrade(self));
    }
}

impl Drop for CopyDirectory {
    fn drop(&mut self) {
        {
            let mut copies = self.cache.copies.lock();
            // A newer copy may have taken the place.
            if copies.get(&self.key).is_some_and(|copy| copy.strong_count() == 0) {
                copies.remove(&self.key);
            }
        }
        let (parent, cache) = (std::mem::take(&mut self.parent), Arc::clone(&self.cache));
        in_background(move || {
            remove(&parent);
            cache.remove_unused();
        });
    }
}
