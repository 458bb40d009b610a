//! The files of a run: the configuration, and the report that says why.

mod alternatives;
mod charts;
mod files;
mod page;
mod sentences;

pub use files::{check_writable, write, write_file};
pub use sentences::summary;
