//! `tritonbackend.h`: backends in shared libraries, and the functions they call.
//!
//! Three nested lifetimes as in [`inference::backend`]: a [`Backend`] has opened a library, a [`Model`] is one version
//! of a model, a [`ModelInstance`] is one executable copy of it. Requests and responses pass from Rust to the library
//! and back as boxes. The functions that take or give them say who owns them.
pub mod attributes;
pub mod backend_handle;
mod entry_point;
mod execute;
pub mod factory;
pub mod finder;
mod in_use;
pub mod input;
pub mod instance;
mod instance_registry;
pub mod memory;
pub mod model;
mod opened_model;
pub mod output;
pub mod request;
pub mod response;
mod shared_backend;
pub mod state;
pub mod statistics;
mod usage;

pub use backend_handle::{Backend, ServerHandle};
pub use finder::BackendLibraries;
pub use instance::ModelInstance;
pub use model::Model;
pub use request::Request;
pub use response::Response;
