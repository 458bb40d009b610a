//! `tritoncache.h`: response caches in shared libraries, and the functions they call.
//!
//! The cache owns the memory of its entries. The server owns the bytes that it stores and reads. The cache calls
//! [`TRITONCACHE_Copy`] to copy between them, while it holds the locks that protect its memory. The functions of a
//! cache may take long, so they run on threads of their own (`workers.rs`).
mod entry;
mod library;
mod workers;

pub use entry::*;
pub use library::CacheLibraries;
