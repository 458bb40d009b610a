//! The extension point for response caches. A cache stores responses under keys, for later equal requests.
//!
//! A cache knows no models. The engine defines the keys. A cache may therefore outlive the server and serve several
//! servers.
mod control;
mod interfaces;
pub mod packed;

pub use control::{CacheControl, CacheStatus};
pub use interfaces::{
    CacheFinder, CacheFuture, CacheUsage, CachedAnswer, ResponseCache, StorageRules, no_library,
};
