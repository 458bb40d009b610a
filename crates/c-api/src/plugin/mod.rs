//! Shared libraries that somebody else has compiled: finding their dependencies, opening them, asking for their entries.
mod elf;
mod library;
mod placeholder;

pub use library::Library;
