//! Repositories in object stores, as the repository task uses them.
//!
//! A store may be slow or hang. So one listing of a repository runs at a time, those who need it share it, and a look
//! waits for it no longer than it must. Stopping the server and unloading a model end what waits for a store.
mod model;
mod source;
mod store_wait;

pub(crate) use model::model_url;
pub use model::{PlanSource, RemoteModel, version_of};
pub use source::{LISTING_PATIENCE, RemoteModels, RemoteSource, models_of};
pub use store_wait::{StoreWait, StoreWaitEnd};
