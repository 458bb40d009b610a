//! Answers a request: finds its route, checks restriction and method, and calls the area of the route.
use std::sync::Arc;

use engine::Engine;
use http::{HeaderValue, Method, Response, StatusCode, header::ACCEPT};
use trace::RequestTrace;
use vocabulary::ByteBudget;

use super::{
    body::ResponseBody,
    call::HttpCall,
    connection::HttpEndpoint,
    context::HttpContext,
    docs::{openapi, status},
    generate, infer, models,
    options::HttpOptions,
    regions,
    reply::{self, HttpFailure, HttpOutcome, HttpReply},
    route_rules::RouteRules,
    router::Route,
    server,
};
use crate::{
    access::{AccessLog, ApiKeys},
    error, server_name,
    tracing::TracedSend,
};

/// The HTTP endpoint without its sockets.
pub struct HttpService {
    pub(super) context: HttpContext,
}

impl HttpService {
    /// The endpoint of `engine`.
    pub fn new(engine: Engine, options: HttpOptions) -> Self {
        Self { context: HttpContext::new(engine, options) }
    }

    /// The route of a path, unless it is switched off.
    fn route<'p>(&self, path: &'p str) -> Option<Route<'p>> {
        let options = &self.context.options;
        Route::of(path).filter(|route| match route {
            Route::OpenApi(_) => options.describes_itself,
            Route::Status(_) => options.shows_status,
            Route::Server(_)
            | Route::Models(_)
            | Route::Infer(_)
            | Route::Generate(_)
            | Route::Regions(_) => true,
        })
    }

    /// Whether a browser asks for the root, which Triton does not have: programs are told so.
    fn leads_to_status(&self, call: &HttpCall<'_>) -> bool {
        let is_page = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains("text/html"));
        self.context.options.shows_status
            && call.uri.path() == "/"
            && *call.method == Method::GET
            && call.headers.get(ACCEPT).is_some_and(is_page)
    }

    /// Answers a request as one for `route`, whatever its path.
    pub(super) async fn answer_route(&self, route: Route<'_>, call: &mut HttpCall<'_>) -> HttpOutcome {
        let (context, rules) = (&self.context, route.rules());
        if let Some(refused) = self.refusal(&rules, call) {
            return Ok(refused);
        }
        if !rules.methods.allow(call.method) {
            return Ok(reply::not_allowed(rules.methods.names()));
        }
        match &route {
            Route::Server(route) => server::answer(context, call, route).await,
            Route::Models(route) => models::answer(context, call, route).await,
            Route::Infer(path) => infer::answer(context, call, path).await,
            Route::Generate(route) => generate::answer(context, call, route).await,
            Route::Regions(route) => regions::answer(context, call, route).await,
            Route::OpenApi(route) => openapi::answer(context, call, route).await,
            Route::Status(route) => status::answer(context, call, route),
        }
    }

    /// The refusal of a request that may not use a route with these rules: it lacks a header, or its API key does not permit
    /// it.
    pub(super) fn refusal(&self, rules: &RouteRules<'_>, call: &HttpCall<'_>) -> Option<HttpReply> {
        if rules.is_public {
            return None;
        }
        for category in [rules.category].iter().chain(rules.repeats) {
            if let Err(denied) = self.context.meets_restriction(*category, call) {
                let text = format!("This API is restricted, expecting header '{}'", denied.header);
                return Some(reply::json(StatusCode::FORBIDDEN, error::body(&text)));
            }
        }
        call.access.check(rules.category, rules.model).err().map(|denied| reply::denied(&denied))
    }

    /// The reply to a request with this outcome.
    pub(super) fn finish(&self, outcome: HttpOutcome, call: &mut HttpCall<'_>) -> HttpReply {
        let mut reply = outcome.and_then(|reply| self.count(reply)).unwrap_or_else(|failure| {
            match &failure {
                HttpFailure::Error(problem) | HttpFailure::Coding(problem) => {
                    error::note(call.uri.path(), problem, call.facts.as_deref());
                }
                HttpFailure::Broken(..) => {}
            }
            failure.reply()
        });
        server_name::tell(self.context.options.server_name.as_ref(), reply.headers_mut());
        traced(reply, call.trace.take())
    }

    /// Counts the body of a reply in the budget of requests until it has been sent.
    fn count(&self, reply: HttpReply) -> HttpOutcome {
        if reply.body().is_brief() {
            return Ok(reply);
        }
        let (head, body) = reply.into_parts();
        let body = body.count_in(self.context.engine.inflight_bytes())?;
        Ok(Response::from_parts(head, body))
    }
}

impl HttpEndpoint for HttpService {
    async fn answer(&self, call: &mut HttpCall<'_>) -> Response<ResponseBody> {
        log::debug!("HTTP request: {} {}", call.method, call.uri.path());
        let outcome = match self.route(call.uri.path()) {
            Some(route) => self.answer_route(route, call).await,
            None if self.leads_to_status(call) => Ok(reply::see("status")),
            None => Ok(reply::not_found()),
        };
        self.finish(outcome, call)
    }

    fn name_budget(&self) -> Option<&Arc<ByteBudget>> {
        self.context.options.forward.as_ref().map(|_| self.context.engine.inflight_bytes())
    }

    fn access_log(&self) -> Option<&Arc<dyn AccessLog>> {
        self.context.options.access_log.as_ref()
    }

    fn api_keys(&self) -> Option<&Arc<ApiKeys>> {
        self.context.options.api_keys.as_ref()
    }
}

/// Tells the trace of the request, if it has one, when the reply is sent.
fn traced(reply: HttpReply, trace: Option<RequestTrace>) -> HttpReply {
    match trace {
        None => reply,
        Some(trace) => reply.map(|body| body.traced(TracedSend::http(trace))),
    }
}
