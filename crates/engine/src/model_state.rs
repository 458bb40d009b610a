//! Plain types of which models there are, and in which state.
use lifecycle::UNLOADED;
use vocabulary::Name;

/// Whether a model version can be used (protocol extension "model repository").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelState {
    /// The version is being built.
    Loading,
    /// The version can be used.
    Ready,
    /// The version finishes its accepted requests.
    Unloading,
    /// The version cannot be used. The reason explains why.
    Unavailable,
}

impl ModelState {
    /// The state's name in the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "LOADING",
            Self::Ready => "READY",
            Self::Unloading => "UNLOADING",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

/// One line of the repository's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Model name.
    pub name: Name,
    /// The repository, if the server uses namespaces.
    pub namespace: Option<Name>,
    /// Version number; absent for a model without versions.
    pub version: Option<i64>,
    /// State; absent for a model that was never loaded.
    pub state: Option<ModelState>,
    /// Why the version is not ready; may be empty.
    pub reason: String,
}

impl IndexEntry {
    /// Whether the version was ended on purpose.
    pub fn is_unloaded(&self) -> bool {
        self.state == Some(ModelState::Unavailable) && self.reason == UNLOADED
    }
}

/// A model or a version that keeps the server from being ready.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotReady {
    /// Model name.
    pub name: Name,
    /// Version number; absent for a model without versions.
    pub version: Option<i64>,
    /// State; absent for a model that the server does not have. A version whose backend reports that it is not ready is
    /// unavailable.
    pub state: Option<ModelState>,
}
