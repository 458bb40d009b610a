//! Model repositories in object stores: S3, Google Cloud Storage, Azure Blob Storage, and servers with their protocols.
//!
//! [`ObjectStores`] opens repositories by their URLs. A [`RemoteRepository`] lists its models: a difference between two
//! listings is a change. It copies the objects that a model needs into a local cache, and returns a directory
//! ([`LocalCopy`]) that stays as long as somebody holds it. The cache survives restarts; see `cache`.
//!
//! The URL forms, credentials and texts are those of Triton; `docs/object-stores.md` has the differences.

#![forbid(unsafe_code)]

mod cache;
mod connector;
mod credentials;
mod download;
mod failure;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod keyed_locks;
mod limited_body;
mod listing;
mod local_copy;
mod opener;
mod plan;
mod repository;
mod store;
mod stores;
#[cfg(test)]
mod test_server;
mod url;

pub use cache::CacheOptions;
pub use inference::repository::{ObjectKind, StoredObject};
pub use local_copy::LocalCopy;
pub use opener::{DEFAULT_UNUSED_BYTES, StoreOpener, default_cache_directory};
pub use repository::RemoteRepository;
pub use stores::ObjectStores;
pub use url::is_url;
