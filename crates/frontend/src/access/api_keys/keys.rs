//! The keys of a server, from a file that is read again when it changes.
use std::{fmt, path::PathBuf, sync::Arc};

use arc_swap::Guard;
use vocabulary::Error;

use super::{file, table::KeyTable};
use crate::port::{FileBacked, Reload};

/// The keys of a server.
pub struct ApiKeys {
    table: FileBacked<KeyTable>,
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys").finish_non_exhaustive()
    }
}

impl ApiKeys {
    /// Reads the file.
    ///
    /// # Errors
    /// INVALID_ARG: the file cannot be read, or breaks a rule. The text names the file, and contains no digest.
    pub fn new(path: PathBuf) -> Result<Arc<Self>, Error> {
        let files = vec![path.clone()];
        let read = move || {
            file::read(&path)
                .map_err(|why| Error::invalid(format!("API keys '{}' cannot be used: {why}", path.display())))
        };
        Ok(Arc::new(Self { table: FileBacked::load("the API keys".to_owned(), files, read)? }))
    }

    /// The keys as they are now.
    pub(super) fn current(&self) -> Guard<Arc<KeyTable>> {
        self.table.current()
    }
}

impl Reload for ApiKeys {
    fn reload_if_changed(&self) {
        self.table.reload_if_changed();
    }
}
