//! The interface through which components inside the server send inference requests.
use crate::{Error, Request, ResponseStream};

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
}
