//! Shared libraries that other people have compiled: finding their dependencies, opening them, looking up their
//! functions.
mod elf;
mod identity;
mod library;
mod placeholder;

pub use identity::FileIdentity;
pub use library::Library;
