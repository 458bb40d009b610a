//! What every server is made of, the binary and the servers inside programs: backends, plug-ins, response caches, the
//! functions that return memory, and the log.
//!
//! This crate knows no request of an application and no port.
#![deny(missing_docs)]

mod caches;
pub mod colors;
pub mod logging;
mod memory;
mod plugins;

pub use caches::AssembledCaches;
pub use memory::{return_memory_of_thread, thread_returns_memory};
pub use plugins::{LibraryBackends, plugins};
