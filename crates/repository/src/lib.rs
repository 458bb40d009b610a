//! Model repositories: which models there are, and their files.
//!
//! This crate knows nothing of how models run. `nereid check` uses it as the server does.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
pub mod agents;
pub mod config_file;
pub mod files;
pub mod given;
pub mod layout;
pub mod private_directory;
mod regular_file;
pub mod remote;
pub mod repositories;
pub mod scan;
pub mod stamps;
pub mod strategy;
pub mod watch;

pub use given::LoadParameters;
pub use private_directory::{NoPrivateDirectories, PrivateDirectory, remove_private_directories};
