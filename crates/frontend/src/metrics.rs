//! The metrics endpoint: Prometheus text on a separate port.
use std::sync::Arc;

use engine::Engine;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::http::{Respond, ResponseBody, reply};

/// The metrics endpoint without its socket. [`crate::http::serve`] serves it.
pub struct MetricsService {
    engine: Engine,
}

impl MetricsService {
    /// An endpoint for the metrics of `engine`.
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }

    fn answer(&self, method: &Method, path: &str) -> Response<ResponseBody> {
        // The reference answers other paths with an empty response of status 200 (P-W15).
        if !matches!(path, "/metrics" | "/metrics/") {
            return reply::not_found();
        }
        if method != Method::GET && method != Method::HEAD {
            return reply::not_allowed();
        }
        reply::typed(StatusCode::OK, "text/plain; charset=utf-8", self.engine.metrics())
    }
}

impl Respond for MetricsService {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<ResponseBody> {
        self.answer(request.method(), request.uri().path())
    }

    fn port_name(&self) -> &'static str {
        "metrics"
    }
}
