//! The parts of the `nereid` binary, so that tests can assemble a server in their own process.
//!
//! This crate knows how all other crates fit together, and does not depend on how they work.
#![forbid(unsafe_code)]

mod access_log;
mod assemble;
mod backend_settings;
pub mod color;
pub mod commands;
pub mod descriptors;
mod error_line;
mod extensions;
pub mod options;
pub mod options_reload;
pub mod service_manager;
pub mod signals;
mod startup_tables;
pub mod table;

pub use access_log::AccessLogWriter;
pub use assemble::{Server, StartError, StartingServer, Stopped};
pub use assembly::logging;
pub use error_line::error_line;
pub use extensions::Extensions;
