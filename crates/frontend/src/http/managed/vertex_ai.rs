//! The endpoint of Vertex AI: a health route, a predict route, and redirects to other routes by a header.
use std::sync::Arc;

use http::{Method, StatusCode};
use vocabulary::ByteBudget;

use super::binary_marker::read_binary_marker;
use crate::{
    access::{AccessLog, ApiKeys, Category},
    http::{
        call::HttpCall,
        connection::HttpEndpoint,
        models::ModelsRoute,
        regions::{RegionAction, RegionsRoute},
        reply::{self, HttpOutcome, HttpReply},
        route_rules::{Methods, ModelPath, RouteRules},
        router::Route,
        server::ServerRoute,
        service::HttpService,
    },
    metrics::MetricsService,
};

const BINARY: &str = "application/vnd.vertex-ai-triton.binary+json;json-header-size=";

/// The header with another route, without its leading slash.
const REDIRECT: &str = "x-vertex-ai-triton-redirect";

/// The settings of the endpoint.
#[derive(Debug, Clone)]
pub struct VertexAiOptions {
    /// The path of predictions (`AIP_PREDICT_ROUTE`). It matches literally (P-W19).
    pub predict_route: String,
    /// The path of the readiness check (`AIP_HEALTH_ROUTE`).
    pub health_route: String,
    /// The model of predictions (`--vertex-ai-default-model`).
    pub default_model: String,
}

/// The endpoint without its socket. [`crate::http::serve`] serves it.
pub struct VertexAiService {
    service: HttpService,
    /// `None` if the server has no metrics.
    metrics: Option<Arc<MetricsService>>,
    options: VertexAiOptions,
}

/// Where a redirect leads.
enum Redirect<'p> {
    Metrics,
    Route(Route<'p>),
    /// To a route that changes the server. As Triton: it is not permitted on this port.
    Forbidden,
    Nowhere,
}

impl VertexAiService {
    /// The endpoint answers by `service`.
    pub fn new(service: HttpService, metrics: Option<Arc<MetricsService>>, options: VertexAiOptions) -> Self {
        Self { service, metrics, options }
    }

    async fn predict(&self, call: &mut HttpCall<'_>) -> HttpOutcome {
        let marked = read_binary_marker(call.headers, BINARY);
        let Some(redirect) = call.headers.remove(REDIRECT) else {
            marked?;
            let route = Route::Infer(ModelPath::latest(&self.options.default_model));
            return self.service.answer_route(route, call).await;
        };
        if *call.method != Method::POST {
            return Ok(reply::bare_not_allowed("POST"));
        }
        let path = format!("/{}", String::from_utf8_lossy(redirect.as_bytes()));
        match Redirect::to(&path) {
            Redirect::Metrics => self.show_metrics(call).await,
            Redirect::Route(route) => {
                marked?;
                // The client sends each redirect as a POST.
                if !route.rules().methods.allow(&Method::POST) {
                    *call.method = Method::GET;
                }
                self.service.answer_route(route, call).await
            }
            Redirect::Forbidden => Ok(reply::bare(StatusCode::FORBIDDEN)),
            Redirect::Nowhere => Ok(reply::bare(StatusCode::BAD_REQUEST)),
        }
    }

    /// The metrics tell the names and the statistics of all models.
    async fn show_metrics(&self, call: &mut HttpCall<'_>) -> HttpOutcome {
        let rules = RouteRules::new(Category::Statistics, Methods::Get);
        if let Some(refused) = self.service.refusal(&rules, call) {
            return Ok(refused);
        }
        Ok(match &self.metrics {
            Some(_) if !call.access.shows_all() => reply::bare(StatusCode::FORBIDDEN),
            Some(metrics) => metrics.exposition(call.headers).await,
            None => reply::bare(StatusCode::BAD_REQUEST),
        })
    }
}

impl<'p> Redirect<'p> {
    fn to(path: &'p str) -> Self {
        if path == "/metrics" {
            return Self::Metrics;
        }
        let Some(route) = Route::of(path) else { return Self::Nowhere };
        match &route {
            Route::Infer(_)
            | Route::Regions(RegionsRoute { action: RegionAction::Status, .. })
            | Route::Server(ServerRoute::Live | ServerRoute::Ready | ServerRoute::Metadata) => {
                Self::Route(route)
            }
            Route::Models(models) => match models {
                ModelsRoute::Index
                | ModelsRoute::AllStatistics
                | ModelsRoute::Metadata(_)
                | ModelsRoute::Ready(_)
                | ModelsRoute::Config(_)
                | ModelsRoute::Statistics(_) => Self::Route(route),
                ModelsRoute::Control { .. } | ModelsRoute::EmptyCache(_) => Self::Forbidden,
                ModelsRoute::List => Self::Nowhere,
            },
            Route::Regions(RegionsRoute {
                action: RegionAction::Register | RegionAction::Unregister,
                ..
            }) => Self::Forbidden,
            Route::Server(ServerRoute::TraceSetting { .. } | ServerRoute::Logging | ServerRoute::Load)
            | Route::Generate(_)
            | Route::OpenApi(_)
            | Route::Status(_) => Self::Nowhere,
        }
    }
}

impl HttpEndpoint for VertexAiService {
    async fn answer(&self, call: &mut HttpCall<'_>) -> HttpReply {
        let path = call.uri.path();
        let outcome = if path == self.options.health_route {
            self.service.answer_route(Route::Server(ServerRoute::Ready), call).await
        } else if path == self.options.predict_route {
            self.predict(call).await
        } else {
            Ok(reply::bare(StatusCode::BAD_REQUEST))
        };
        self.service.finish(outcome, call)
    }

    fn name_budget(&self) -> Option<&Arc<ByteBudget>> {
        self.service.name_budget()
    }

    fn access_log(&self) -> Option<&Arc<dyn AccessLog>> {
        self.service.access_log()
    }

    fn api_keys(&self) -> Option<&Arc<ApiKeys>> {
        self.service.api_keys()
    }

    fn port_name(&self) -> &'static str {
        "Vertex AI"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_never_leads_to_a_route_that_changes_the_server() {
        for path in [
            "/v2/repository/models/m/load",
            "/v2/repository/models/m/unload",
            "/v2/repository/r/models/m/load",
            "/v2/systemsharedmemory/region/r/register",
            "/v2/systemsharedmemory/unregister",
            "/v2/cudasharedmemory/region/r/unregister",
            "/v2/models/m/empty_cache",
        ] {
            assert!(matches!(Redirect::to(path), Redirect::Forbidden), "{path}");
        }
        for path in
            ["/nope", "//v2", "/v2/logging", "/v2/trace/setting", "/v2/models/m/generate", "/v2/models"]
        {
            assert!(matches!(Redirect::to(path), Redirect::Nowhere), "{path}");
        }
        for path in [
            "/v2",
            "/v2/health/live",
            "/v2/models/m",
            "/v2/models/m/versions/1/config",
            "/v2/models/m/ready",
            "/v2/models/m/infer",
            "/v2/models/stats",
            "/v2/repository/index",
            "/v2/systemsharedmemory/status",
        ] {
            assert!(matches!(Redirect::to(path), Redirect::Route(_)), "{path}");
        }
        assert!(matches!(Redirect::to("/metrics"), Redirect::Metrics));
    }
}
