//! The copy of a model: a directory that stays as long as somebody holds it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use inference::lock::Mutex;
use vocabulary::Error;

use crate::cache::{LocalCache, failed, in_background, remove};

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

/// The copies of this process.
pub(crate) struct LocalCopies {
    cache: Arc<LocalCache>,
    /// The copies that others may use, by the hash of their contents.
    shared: Mutex<HashMap<String, Weak<CopyDirectory>>>,
}

impl LocalCopies {
    /// No copies of the contents of this cache.
    pub(crate) fn new(cache: Arc<LocalCache>) -> Arc<Self> {
        Arc::new(Self { cache, shared: Mutex::default() })
    }

    /// Makes the empty directory of a model. Blocks.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(crate) fn make(self: &Arc<Self>, model: &str, key: String) -> Result<Arc<CopyDirectory>, Error> {
        let parent = self.cache.unused_path();
        let path = parent.join(model);
        fs::create_dir_all(&path).map_err(|error| failed("make", &path, &error))?;
        Ok(Arc::new(CopyDirectory { path, key, copies: Arc::clone(self), parent }))
    }

    /// The copy with this key, if somebody holds it.
    pub(crate) fn existing(&self, key: &str) -> Option<Arc<CopyDirectory>> {
        self.shared.lock().get(key)?.upgrade()
    }

    #[cfg(test)]
    pub(crate) fn has_no_shared(&self) -> bool {
        self.shared.lock().is_empty()
    }
}

/// Owns the directory of a copy.
pub(crate) struct CopyDirectory {
    path: PathBuf,
    key: String,
    copies: Arc<LocalCopies>,
    /// The directory in the session that contains `path`.
    parent: PathBuf,
}

impl CopyDirectory {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets later fetches of the same content use this copy.
    pub(crate) fn share(self: &Arc<Self>) {
        self.copies.shared.lock().insert(self.key.clone(), Arc::downgrade(self));
    }
}

impl Drop for CopyDirectory {
    fn drop(&mut self) {
        {
            let mut shared = self.copies.shared.lock();
            // A newer copy may have taken the place.
            if shared.get(&self.key).is_some_and(|copy| copy.strong_count() == 0) {
                shared.remove(&self.key);
            }
        }
        let (parent, copies) = (std::mem::take(&mut self.parent), Arc::clone(&self.copies));
        in_background(move || {
            remove(&parent);
            copies.cache.remove_unused();
        });
    }
}
