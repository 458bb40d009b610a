//! The cache in the memory of the process (`--cache-config=local,size=<bytes>`, with `reserve=true` from its start).
//!
//! An answer is stored in one piece of memory. An insertion copies it there, because its tensors may be parts of those of a
//! whole batch. A hit shares that memory: nothing is copied before it is sent.
mod local_cache;
mod partition;
mod reserved;
mod shard;

pub use local_cache::{CacheStatistics, LocalResponseCache, NAME};
