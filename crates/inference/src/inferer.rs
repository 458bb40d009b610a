//! How something inside the server sends inferences into the server.
use crate::{Error, Request, ResponseStream};

/// Sends requests to models by name: what ensembles and backends that call other models use. They never see the engine.
///
/// Such a request is validated, cached, counted, limited and traced as one of a client, so the statistics and limits of the
/// called model hold. Dropping the stream cancels the request.
pub trait Inferer: std::fmt::Debug + Send + Sync {
    /// Sends a request to the version asked for, or to the largest that is ready. Does not block; a brief execution may
    /// happen before this returns.
    ///
    /// # Errors
    /// NOT_FOUND or UNAVAILABLE for a model that cannot be used; otherwise why the request is not accepted. It is then
    /// over.
    fn infer(&self, model: &str, version: Option<i64>, request: Request) -> Result<ResponseStream, Error>;
}
