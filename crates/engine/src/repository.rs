//! Model repositories: which models there are, and their files. Knows nothing of how models run.
pub(crate) mod agents;
pub(crate) mod config_file;
pub(crate) mod files;
pub(crate) mod given;
pub mod layout;
pub(crate) mod private_directory;
pub(crate) mod remote;
pub(crate) mod repositories;
pub(crate) mod scan;
pub(crate) mod stamps;
pub(crate) mod strategy;
pub(crate) mod watch;

pub use given::LoadParameters;
pub use private_directory::{NoPrivateDirectories, remove_private_directories};
