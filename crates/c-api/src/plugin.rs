//! Shared libraries that other people have compiled: finding their dependencies, opening them, looking up their
//! functions, and ending while they run.
mod elf;
mod exit;
mod library;
mod placeholder;

pub use exit::exit_at_once;
pub use library::Library;
