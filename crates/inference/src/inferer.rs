//! The interface through which components inside the server send inference requests, and load models.
use std::sync::Arc;

use bytes::Bytes;
use vocabulary::Error;

use crate::{Request, ResponseStream};

/// Sends requests to models by name. Ensembles use it, and backends that call other models. They do not depend on the
/// engine.
///
/// The server validates, caches, counts, limits and traces such a request like a client's request. The statistics and
/// limits of the called model therefore apply. Dropping the stream cancels the request.
pub trait Inferer: std::fmt::Debug + Send + Sync {
    /// Sends a request to the given version, or to the largest ready version. Does not block. A short execution may
    /// happen before this call returns.
    ///
    /// # Errors
    /// NOT_FOUND or UNAVAILABLE for a model that cannot be used; otherwise the reason why the request is not
    /// accepted. The request has then ended.
    fn infer(&self, model: &str, version: Option<i64>, request: Request) -> Result<ResponseStream, Error>;

    /// Whether a request to the given version, or to the largest ready version, may have any number of responses.
    ///
    /// # Errors
    /// NOT_FOUND or UNAVAILABLE for a model that cannot be used.
    fn is_decoupled(&self, model: &str, version: Option<i64>) -> Result<bool, Error>;

    /// Whether the given version, or any version, is ready. The backend of the model may be asked, so this may block.
    fn is_ready(&self, model: &str, version: Option<i64>) -> bool;

    /// Loads and unloads models; `None` where models cannot be loaded.
    fn model_loader(&self) -> Option<Arc<dyn ModelCommands>>;
}

/// Receives the result of a change of models.
pub type ModelChangeDone = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Loads and unloads models for components inside the server. The calls do not block. `done` is called once, on any
/// thread, and must not block; it is dropped without a call if the server ends before.
pub trait ModelCommands: Send + Sync {
    /// Loads or reloads a model, with its files in a repository or with what the caller gives: a configuration in JSON,
    /// and files by their paths in the model's directory.
    fn load(&self, model: &str, config: Option<String>, files: Vec<(String, Bytes)>, done: ModelChangeDone);

    /// Unloads a model; with `dependents`, the members of an ensemble too.
    fn unload(&self, model: &str, dependents: bool, done: ModelChangeDone);
}
