//! Answers a request: finds its route, checks restriction and method, and calls the handler.
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, Readiness};
use http::{HeaderMap, Request, Response, StatusCode, header::EXPECT, request::Parts};
use http_body::Body;
use inference::Error;

use super::{
    body::{self, Bounds, ReceivedBody, ResponseBody, Unread},
    reply::{self, HttpFailure, HttpReply},
    router::{About, Route},
    server::Respond,
    show,
};
use crate::{
    connection::ClientLimits,
    error,
    forward::HeaderForward,
    kserve::{self, shared_memory, version},
    restrict::Restrictions,
};

/// The settings of the endpoint. They do not change while the server runs.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// `--http-max-input-size`: the most bytes of JSON, of a raw request, and of a request after decompression.
    pub max_input_size: usize,
    /// The limits that clients must keep (P-W2, P-W41).
    pub limits: ClientLimits,
    /// Which parts of the protocol need a header.
    pub restrictions: Restrictions,
    /// Which headers become request parameters.
    pub forward: Option<HeaderForward>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            max_input_size: 64 << 20,
            limits: ClientLimits::default(),
            restrictions: Restrictions::default(),
            forward: None,
        }
    }
}

/// The HTTP endpoint without its sockets.
pub struct HttpService {
    pub(super) engine: Engine,
    pub(super) options: HttpOptions,
    /// The body of `GET /v2`. It never changes.
    server_metadata: Bytes,
}

impl HttpService {
    /// The endpoint of `engine`.
    pub fn new(engine: Engine, options: HttpOptions) -> Self {
        let server_metadata = show::server(&kserve::metadata::server(engine.server())).into();
        Self { engine, options, server_metadata }
    }

    /// Answers one request.
    pub async fn answer<B: Body<Data = Bytes> + Unpin>(&self, request: Request<B>) -> Response<ResponseBody> {
        let (parts, mut body) = request.into_parts();
        log::debug!("HTTP request: {} {}", parts.method, parts.uri.path());
        let failure = match self.dispatch(&parts, &mut body).await {
            Ok(reply) => {
                self.pass_over(&parts.headers, &mut body).await;
                return reply;
            }
            Err(failure) => failure,
        };
        match &failure {
            HttpFailure::Error(problem) | HttpFailure::Coding(problem) => {
                error::note(parts.uri.path(), problem);
                self.pass_over(&parts.headers, &mut body).await;
            }
            HttpFailure::Broken(..) => {}
        }
        failure.reply()
    }

    /// Reads the rest of the body that the handler did not read, so that the next request follows. A client that waits
    /// for `100 Continue` has not sent the body.
    async fn pass_over<B: Body<Data = Bytes> + Unpin>(&self, headers: &HeaderMap, body: &mut B) {
        if !body.is_end_stream() && !headers.contains_key(EXPECT) {
            body::drain(body, self.options.limits.body_pace).await;
        }
    }

    async fn dispatch<B: Body<Data = Bytes> + Unpin>(
        &self,
        parts: &Parts,
        body: &mut B,
    ) -> Result<HttpReply, HttpFailure> {
        let Some(route) = Route::of(parts.uri.path()) else { return Ok(reply::not_found()) };
        let header = |name: &str| parts.headers.get(name).map(http::HeaderValue::as_bytes);
        if let Err(denied) = self.options.restrictions.check(route.category(), header) {
            let text = format!("This API is restricted, expecting header '{}'", denied.header);
            return Ok(reply::json(StatusCode::FORBIDDEN, error::body(&text)));
        }
        if !route.methods().allow(&parts.method) {
            return Ok(reply::not_allowed());
        }
        match route {
            Route::Live => Ok(health(self.engine.live()?)),
            Route::Ready => Ok(match self.engine.readiness().await? {
                Readiness::Ready => health(true),
                Readiness::StopAnnounced => {
                    reply::json(StatusCode::BAD_REQUEST, error::body("Server not ready: it will stop"))
                }
                Readiness::NotReady(missing) => {
                    reply::json(StatusCode::BAD_REQUEST, show::not_ready(&missing))
                }
            }),
            Route::Server => Ok(reply::json(StatusCode::OK, self.server_metadata.clone())),
            Route::Models => Ok(self.models().await),
            Route::AllStatistics => self.statistics(None, None),
            Route::Model { model, version, about } => {
                let version = version::parse(&version)?;
                match about {
                    About::Infer => self.infer(parts, body, &model, version).await,
                    About::Metadata => self.model_metadata(&model, version),
                    About::Ready => Ok(self.model_ready(&model, version).await),
                    About::Config => self.model_config(&model, version),
                    About::Statistics => self.statistics(Some(&model), version),
                    About::Generate => self.generate(parts, body, &model, version).await,
                    About::GenerateStream => self.generate_stream(parts, body, &model, version).await,
                    About::Cache => self.empty_cache(&model, version).await,
                }
            }
            Route::Index => self.index(body).await,
            Route::Control { named_repository: true, .. } => {
                Err(Error::unsupported("'repository_name' specification is not supported").into())
            }
            Route::Control { model, load: true, .. } => self.load(&model, body).await,
            Route::Control { model, load: false, .. } => self.unload(&model, body).await,
            Route::TraceSetting => Err(unsupported("trace settings")),
            Route::Logging => Err(unsupported("log settings")),
            Route::Regions { kind, region } => {
                shared_memory::status(kind, region.as_deref().unwrap_or_default())?;
                Ok(reply::json(StatusCode::OK, "[]"))
            }
            Route::ControlRegions => Err(shared_memory::disabled().into()),
        }
    }

    /// Reads a body that is JSON as a whole.
    pub(super) async fn read_json<B: Body<Data = Bytes> + Unpin>(
        &self,
        body: &mut B,
    ) -> Result<ReceivedBody, HttpFailure> {
        let limit = self.options.max_input_size;
        let budget = self.engine.inflight_bytes();
        let bounds = Bounds { len: limit as u64, pace: self.options.limits.body_pace, budget };
        Ok(body::collect(body, bounds, |len| json_too_large(len, limit)).await?)
    }

    fn model_metadata(&self, name: &str, version: Option<i64>) -> Result<HttpReply, HttpFailure> {
        let metadata = kserve::metadata::of_model(&self.engine, name, version)?;
        Ok(reply::json(StatusCode::OK, show::model(&metadata)))
    }

    async fn model_ready(&self, name: &str, version: Option<i64>) -> HttpReply {
        if self.engine.model_ready(name, version).await {
            reply::bare(StatusCode::OK)
        } else {
            reply::json(StatusCode::BAD_REQUEST, error::body("Model version not ready"))
        }
    }

    fn model_config(&self, name: &str, version: Option<i64>) -> Result<HttpReply, HttpFailure> {
        let model = self.engine.model(name, version)?;
        Ok(reply::json(StatusCode::OK, proto::json::to_json(model.shown())))
    }

    fn statistics(&self, name: Option<&str>, version: Option<i64>) -> Result<HttpReply, HttpFailure> {
        let statistics = self.engine.statistics(name, version)?;
        let statistics = kserve::statistics::response(&statistics);
        Ok(reply::json(StatusCode::OK, show::statistics(&statistics)))
    }
}

impl Respond for HttpService {
    async fn respond(self: Arc<Self>, request: Request<hyper::body::Incoming>) -> Response<ResponseBody> {
        self.answer(request).await
    }

    fn reads_names(&self) -> bool {
        self.options.forward.is_some()
    }
}

fn health(fine: bool) -> HttpReply {
    reply::bare(if fine { StatusCode::OK } else { StatusCode::BAD_REQUEST })
}

fn unsupported(what: &str) -> HttpFailure {
    Error::unsupported(format!("{what} is not supported by this version of nereid")).into()
}

pub(super) fn json_too_large(len: u64, limit: usize) -> Error {
    Error::invalid(format!(
        "request JSON size of {len} bytes exceeds the maximum allowed input size of {limit} bytes. Use \
         --http-max-input-size to increase the limit."
    ))
}

impl From<Unread> for HttpFailure {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Refused(error) => Self::Error(error),
            Unread::Broken(status, text) => Self::Broken(status, text),
        }
    }
}
