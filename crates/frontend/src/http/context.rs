//! What all areas of the endpoint need to answer a request: the engine, the settings, and bodies that are JSON.
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, Model};
use kserve::{metadata, show};
use vocabulary::Error;

use super::{
    body::{self, BodyLimits, ReceivedBody},
    call::{HttpCall, IncomingBody},
    json_work,
    options::HttpOptions,
    reply::HttpFailure,
    route_rules::ModelPath,
};
use crate::{
    access::{Category, Denied},
    load_report::LoadReports,
    meant_model,
};

/// The longest JSON of a request that neither runs nor loads a model, in bytes.
const MAX_ADMINISTRATIVE: usize = 4 << 20;

/// Which limit the length of a JSON body has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonLimit {
    /// It has inputs, or the configuration and files of a model: `HttpOptions::max_input_size`.
    Input,
    /// It has neither: the same, and at most [`MAX_ADMINISTRATIVE`].
    Administrative,
}

/// The engine and the settings. They do not change while the server runs.
pub(super) struct HttpContext {
    pub(super) engine: Engine,
    pub(super) options: HttpOptions,
    /// The body of `GET /v2`. It never changes.
    pub(super) server_metadata: Bytes,
    /// The load of the server, for clients that ask for it.
    pub(super) load_reports: LoadReports,
}

impl HttpContext {
    pub(super) fn new(engine: Engine, options: HttpOptions) -> Self {
        let server_metadata = show::server(&metadata::server(engine.server())).into();
        Self { engine, options, server_metadata, load_reports: LoadReports::default() }
    }

    /// Checks that a request has the header that a part of the protocol needs, if it needs one.
    ///
    /// # Errors
    /// The header that it lacks.
    pub(super) fn meets_restriction(
        &self,
        category: Category,
        call: &HttpCall<'_>,
    ) -> Result<(), Denied<'_>> {
        let header = |name: &str| call.headers.get(name).map(http::HeaderValue::as_bytes);
        self.options.restrictions.check(category, header)
    }

    /// The model of a path, after its load if it is loaded on demand. The error about an unknown name has the name that is
    /// probably meant.
    pub(super) async fn model(
        &self,
        call: &mut HttpCall<'_>,
        path: &ModelPath<'_>,
    ) -> Result<Arc<Model>, Error> {
        let model = self.engine.demands().model(&path.model, path.version()?).await;
        model.map_err(|error| self.about_model(error, &path.model, call))
    }

    /// The error of the engine about a model that the request names: an unknown name gets the one that is probably meant, and a
    /// model that has failed the reason.
    pub(super) fn about_model(&self, error: Error, name: &str, call: &HttpCall<'_>) -> Error {
        meant_model::explain(error, &self.engine, name, || {
            let category = Category::ModelRepository;
            let may_list =
                self.meets_restriction(category, call).is_ok() && call.access.check(category, None).is_ok();
            may_list.then_some(&call.access)
        })
    }

    /// Reads a body that is JSON as a whole.
    pub(super) async fn read_json(
        &self,
        body: &mut IncomingBody,
        limit: JsonLimit,
    ) -> Result<ReceivedBody, HttpFailure> {
        let most = self.options.max_input_size;
        let received = match limit {
            JsonLimit::Administrative if most > MAX_ADMINISTRATIVE => {
                let limits = self.body_limits(MAX_ADMINISTRATIVE as u64);
                body::collect(body, limits, administrative_too_large).await
            }
            JsonLimit::Administrative | JsonLimit::Input => {
                body::collect(body, self.body_limits(most as u64), |len| json_too_large(len, most)).await
            }
        };
        Ok(received?)
    }

    /// The limits of a body of at most `len` bytes.
    pub(super) fn body_limits(&self, len: u64) -> BodyLimits<'_> {
        let HttpOptions { limits, drain, .. } = &self.options;
        BodyLimits { len, pace: limits.body_pace, drain, budget: self.engine.inflight_bytes() }
    }

    /// Reads the JSON body of an administrative request and passes it to `read`.
    pub(super) async fn read_members<T: Send + Unpin + 'static>(
        &self,
        body: &mut IncomingBody,
        read: impl FnOnce(&[u8]) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, HttpFailure> {
        let received = self.read_json(body, JsonLimit::Administrative).await?;
        let read = json_work::read(received, move |json| read(json.bytes()));
        Ok(read.await??.0)
    }
}

pub(super) fn json_too_large(len: u64, limit: usize) -> Error {
    Error::invalid(format!(
        "request JSON size of {len} bytes exceeds the maximum allowed input size of {limit} bytes. Use \
         --http-max-input-size to increase the limit."
    ))
}

fn administrative_too_large(len: u64) -> Error {
    Error::invalid(format!(
        "request JSON size of {len} bytes exceeds the maximum of {MAX_ADMINISTRATIVE} bytes for a request that neither \
         runs nor loads a model."
    ))
}
