//! Answers a request: finds its route, checks restriction and method, and calls the handler.
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, Readiness};
use http::{Response, StatusCode, header::EXPECT};
use http_body::Body;
use inference::{ByteBudget, Error};
use shared_memory::ClientRegions;
use trace::{RequestTrace, Tracer};

use super::{
    body::{self, Bounds, ReceivedBody, ResponseBody, Unread},
    call::{HttpCall, IncomingBody},
    connection::HttpEndpoint,
    docs::{openapi, page_file::PageFile, status},
    reply::{self, HttpFailure, HttpReply},
    router::{About, Route},
    show,
};
use crate::{
    access::{Access, AccessLog, ApiKeys, Category, Denied, Restrictions},
    error,
    forward::HeaderForward,
    kserve::{self, version},
    log_control::LogControl,
    port::{ClientLimits, Drain},
    tracing::TracedSend,
};

/// The settings of the endpoint. They do not change while the server runs.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// `--http-max-input-size`: the most bytes of JSON, of a raw request, and of a request after decompression.
    pub max_input_size: usize,
    /// The limits that clients must keep (P-W2, P-W41).
    pub limits: ClientLimits,
    /// The drain of the port: from its begin on, the server waits briefly for bodies.
    pub drain: Drain,
    /// Which parts of the protocol need a header.
    pub restrictions: Restrictions,
    /// The keys that clients need. `None`: they need none.
    pub api_keys: Option<Arc<ApiKeys>>,
    /// Which headers become request parameters.
    pub forward: Option<HeaderForward>,
    /// `--http-openapi`: whether the endpoint describes itself (`/openapi.json`), and has a page that shows it (`/docs`).
    pub describes_itself: bool,
    /// `--allow-status-page`: whether the endpoint tells people what the server does (`/v2/explain`, and the page `/status`).
    pub shows_status: bool,
    /// The regions of shared memory that clients have registered, with any protocol.
    pub regions: ClientRegions,
    /// Samples requests, and has the settings of tracing.
    pub tracer: Arc<Tracer>,
    /// The log that clients may see and change.
    pub log: Option<Arc<dyn LogControl>>,
    /// Where requests are logged, if they are.
    pub access_log: Option<Arc<dyn AccessLog>>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            max_input_size: 64 << 20,
            limits: ClientLimits::default(),
            drain: Drain::new(),
            restrictions: Restrictions::default(),
            api_keys: None,
            forward: None,
            describes_itself: true,
            shows_status: true,
            regions: ClientRegions::default(),
            tracer: Arc::new(Tracer::off()),
            log: None,
            access_log: None,
        }
    }
}

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

    /// The reply to a request with this outcome. Reads what is left of its body.
    pub(super) async fn finish(
        &self,
        outcome: Result<HttpReply, HttpFailure>,
        call: &mut HttpCall<'_>,
    ) -> HttpReply {
        let failure = match outcome.and_then(|reply| self.count(reply)) {
            Ok(reply) => {
                self.pass_over(call).await;
                return traced(reply, call.trace.take());
            }
            Err(failure) => failure,
        };
        match &failure {
            HttpFailure::Error(problem) | HttpFailure::Coding(problem) => {
                error::note(call.uri.path(), problem, call.facts.as_deref());
                self.pass_over(call).await;
            }
            HttpFailure::Broken(..) => {}
        }
        traced(failure.reply(), call.trace.take())
    }

    /// Counts the body of a reply in the budget of requests until it has been sent.
    fn count(&self, reply: HttpReply) -> Result<HttpReply, HttpFailure> {
        if reply.body().is_brief() {
            return Ok(reply);
        }
        let (head, body) = reply.into_parts();
        let body = body.count_in(self.engine.inflight_bytes())?;
        Ok(Response::from_parts(head, body))
    }

    /// Reads the rest of the body that the handler did not read, so that the next request follows. A client that waits
    /// for `100 Continue` has not sent the body.
    async fn pass_over(&self, call: &mut HttpCall<'_>) {
        if !call.body.is_end_stream() && !call.headers.contains_key(EXPECT) {
            body::pass_over(call.body, self.options.limits.body_pace, &self.options.drain).await;
        }
    }

    /// Answers a request as one for `route`, whatever its path.
    pub(super) async fn answer_route(
        &self,
        route: Route<'_>,
        call: &mut HttpCall<'_>,
    ) -> Result<HttpReply, HttpFailure> {
        if let Some(refused) = self.refusal(&route, call) {
            return Ok(refused);
        }
        if !route.methods().allow(call.method) {
            return Ok(reply::not_allowed(route.methods().names()));
        }
        match route {
            Route::Live => Ok(health(self.engine.live()?)),
            Route::Ready => Ok(match self.engine.readiness().await? {
                Readiness::Ready => health(true),
                Readiness::StopAnnounced => {
                    reply::json(StatusCode::BAD_REQUEST, error::body("Server not ready: it will stop"))
                }
                Readiness::NotReady(mut missing) => {
                    missing.retain(|model| call.access.shows(&model.name));
                    reply::json(StatusCode::BAD_REQUEST, show::not_ready(&missing))
                }
            }),
            Route::Server => Ok(reply::json(StatusCode::OK, self.server_metadata.clone())),
            Route::Models => Ok(self.models(&call.access).await),
            Route::OpenApi => {
                let document = openapi::of_server(&self.engine, |model| call.access.shows(model));
                Ok(reply::json(StatusCode::OK, document))
            }
            // The page names its files relative to its folder.
            Route::Docs(PageFile::Page) if call.uri.path().ends_with('/') => Ok(reply::moved("../docs")),
            Route::Docs(file) => Ok(openapi::PAGE.reply_with(file)),
            Route::StatusPage(PageFile::Page) if call.uri.path().ends_with('/') => {
                Ok(reply::moved("../status"))
            }
            Route::StatusPage(file) => Ok(status::PAGE.reply_with(file)),
            Route::Explain => self.explain(None, call),
            Route::AllStatistics => self.statistics(None, None, &call.access),
            Route::Model { model, version, about } => {
                let version = version::parse(&version)?;
                match about {
                    About::Infer => self.infer(call, (&model, version)).await,
                    About::Metadata => self.model_metadata(&model, version),
                    About::Ready => Ok(self.model_ready(&model, version).await),
                    About::Config => self.model_config(&model, version),
                    About::Statistics => self.statistics(Some(&model), version, &call.access),
                    About::Generate => self.generate(call, (&model, version)).await,
                    About::GenerateStream => self.generate_stream(call, (&model, version)).await,
                    About::OpenApi => {
                        let described = self.engine.model(&model, version)?;
                        let document = openapi::of_model(&self.engine, &described, version);
                        Ok(reply::json(StatusCode::OK, document))
                    }
                    About::Cache => self.empty_cache(&model, version).await,
                    About::Explain => self.explain(Some((&model, version)), call),
                }
            }
            Route::Index => self.index(call).await,
            Route::Control { named_repository: true, .. } => {
                Err(Error::unsupported("'repository_name' specification is not supported").into())
            }
            Route::Control { model, load: true, .. } => self.load(&model, call).await,
            Route::Control { model, load: false, .. } => self.unload(&model, call).await,
            Route::TraceSetting { model } => self.trace_setting(call, model.as_deref()).await,
            Route::Logging => self.logging(call).await,
            Route::Regions { kind, region } => self.region_status(kind, region.as_deref()),
            Route::RegisterRegion { kind, region } => {
                self.register_region(kind, region.as_deref(), call).await
            }
            Route::UnregisterRegions { kind, region } => self.unregister_regions(kind, region.as_deref()),
        }
    }

    /// The route of a path, unless it is switched off.
    fn route<'p>(&self, path: &'p str) -> Option<Route<'p>> {
        Route::of(path)
            .filter(|route| self.options.describes_itself || !route.is_description())
            .filter(|route| self.options.shows_status || !route.is_status())
    }

    /// The refusal of a request that may not use `route`: it lacks a header, or its API key does not permit it.
    pub(super) fn refusal(&self, route: &Route<'_>, call: &HttpCall<'_>) -> Option<HttpReply> {
        if route.is_public() {
            return None;
        }
        for category in [route.category()].iter().chain(route.repeats()) {
            if let Err(denied) = self.meets_restriction(*category, call) {
                let text = format!("This API is restricted, expecting header '{}'", denied.header);
                return Some(reply::json(StatusCode::FORBIDDEN, error::body(&text)));
            }
        }
        call.access.check(route.category(), route.model()).err().map(|denied| reply::denied(&denied))
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

    /// Reads a body that is JSON as a whole.
    pub(super) async fn read_json(
        &self,
        body: &mut IncomingBody,
        limit: JsonLimit,
    ) -> Result<ReceivedBody, HttpFailure> {
        let most = self.options.max_input_size;
        let budget = self.engine.inflight_bytes();
        let (pace, drain) = (self.options.limits.body_pace, &self.options.drain);
        let bounds = |len: usize| Bounds { len: len as u64, pace, drain, budget };
        let received = match limit {
            JsonLimit::Administrative if most > MAX_ADMINISTRATIVE => {
                body::collect(body, bounds(MAX_ADMINISTRATIVE), administrative_too_large).await
            }
            JsonLimit::Administrative | JsonLimit::Input => {
                body::collect(body, bounds(most), |len| json_too_large(len, most)).await
            }
        };
        Ok(received?)
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

    fn statistics(
        &self,
        name: Option<&str>,
        version: Option<i64>,
        access: &Access,
    ) -> Result<HttpReply, HttpFailure> {
        let mut statistics = self.engine.statistics(name, version)?;
        statistics.retain(|model| access.shows(&model.name));
        let statistics = kserve::statistics::response(&statistics);
        Ok(reply::json(StatusCode::OK, show::statistics(&statistics)))
    }
}

impl HttpEndpoint for HttpService {
    async fn answer(&self, call: &mut HttpCall<'_>) -> Response<ResponseBody> {
        log::debug!("HTTP request: {} {}", call.method, call.uri.path());
        let outcome = match self.route(call.uri.path()) {
            Some(route) => self.answer_route(route, call).await,
            None => Ok(reply::not_found()),
        };
        self.finish(outcome, call).await
    }

    fn name_budget(&self) -> Option<&Arc<ByteBudget>> {
        self.options.forward.as_ref().map(|_| self.engine.inflight_bytes())
    }

    fn access_log(&self) -> Option<&Arc<dyn AccessLog>> {
        self.options.access_log.as_ref()
    }

    fn api_keys(&self) -> Option<&Arc<ApiKeys>> {
        self.options.api_keys.as_ref()
    }
}

/// Tells the trace of the request, if it has one, when the reply is sent.
fn traced(reply: HttpReply, trace: Option<RequestTrace>) -> HttpReply {
    match trace {
        None => reply,
        Some(trace) => reply.map(|body| body.traced(TracedSend::http(trace))),
    }
}

fn health(fine: bool) -> HttpReply {
    reply::bare(if fine { StatusCode::OK } else { StatusCode::BAD_REQUEST })
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

impl From<Unread> for HttpFailure {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Refused(error) => Self::Error(error),
            Unread::Broken(status, text) => Self::Broken(status, text),
        }
    }
}
