//! The names of models, loads, copies and commands.
use std::{fmt, path::PathBuf};

use vocabulary::Name;

/// A model: its name and, if the server uses namespaces, the repository that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey {
    // The first field: the models of a name follow each other.
    /// The model's name.
    pub name: Name,
    /// The name of the repository; `None` if the server uses no namespaces.
    pub namespace: Option<Name>,
}

impl ModelKey {
    /// A model of a server without namespaces.
    pub fn new(name: &str) -> Self {
        Self { namespace: None, name: Name::new(name) }
    }
}

impl fmt::Display for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            // As Triton prints it in logs and in load errors.
            Some(namespace) => write!(f, "{namespace}::{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// Where a model is. The policy passes it through, and tells repositories apart by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelLocation {
    /// The name of the repository: its path or its URL.
    pub repository: Name,
    /// The path or the URL of the model's directory in the repository.
    pub directory: PathBuf,
}

/// A command that waits for its answer. The caller chooses the number; it is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// One load of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// One version of one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadedVersionId {
    /// The load.
    pub generation: Generation,
    /// The version's number.
    pub version: i64,
}
