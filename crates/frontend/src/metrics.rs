//! The metrics endpoint: all metrics as text on a separate port.
use std::sync::Arc;

use engine::Engine;
use http::{HeaderMap, Method, Response, StatusCode, header::ACCEPT};
use inference::metrics::MetricsForm;
use tokio::sync::Semaphore;
use vocabulary::Error;

use crate::http::{HttpCall, HttpEndpoint, ResponseBody, reply};

/// How many texts are written at the same time. The text of many models has megabytes.
const WRITERS: usize = 1;

const OPENMETRICS: &str = "application/openmetrics-text";

/// The metrics endpoint without its socket. [`crate::http::serve`] serves it.
pub struct MetricsService {
    engine: Engine,
    writers: Arc<Semaphore>,
}

impl MetricsService {
    /// An endpoint for the metrics of `engine`.
    pub fn new(engine: Engine) -> Self {
        Self { engine, writers: Arc::new(Semaphore::new(WRITERS)) }
    }

    /// The metrics in the form that the headers of the request ask for.
    pub(crate) async fn exposition(&self, headers: &HeaderMap) -> Response<ResponseBody> {
        let (form, content_type) = if accepts_openmetrics(headers) {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (MetricsForm::OpenMetrics, content_type)
        } else {
            (MetricsForm::Prometheus, "text/plain; charset=utf-8")
        };
        // Not on a network thread, because it may take milliseconds.
        let writer = self.writers.clone().acquire_owned().await;
        let engine = self.engine.clone();
        let written = tokio::task::spawn_blocking(move || {
            let text = engine.metrics(form);
            drop(writer);
            text
        });
        match written.await {
            Ok(text) => reply::typed(StatusCode::OK, content_type, text),
            Err(_) => reply::of_error(&Error::internal("the metrics could not be written")),
        }
    }
}

/// Whether the client names OpenMetrics, with a weight above 0. Prometheus prefers it to the older form.
fn accepts_openmetrics(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(OPENMETRICS));
        is_named
            && parts.all(|parameter| match parameter.split_once('=') {
                Some(("q", weight)) => weight.trim().parse().is_ok_and(|weight: f32| weight > 0.0),
                Some(("version", version)) => matches!(version.trim().trim_matches('"'), "1.0.0" | "0.0.1"),
                _ => true,
            })
    })
}

impl HttpEndpoint for MetricsService {
    async fn answer(&self, call: &mut HttpCall<'_>) -> Response<ResponseBody> {
        // The reference answers other paths with an empty response of status 200 (P-W15).
        if !matches!(call.uri.path(), "/metrics" | "/metrics/") {
            return reply::not_found();
        }
        if *call.method != Method::GET && *call.method != Method::HEAD {
            return reply::not_allowed("GET, HEAD");
        }
        self.exposition(call.headers).await
    }

    fn port_name(&self) -> &'static str {
        "metrics"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_names_openmetrics_gets_it() {
        let accepts =
            |value: &str| accepts_openmetrics(&HeaderMap::from_iter([(ACCEPT, value.parse().unwrap())]));
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        assert!(accepts(prometheus));
        assert!(accepts("text/plain, Application/OpenMetrics-Text"));
        assert!(!accepts("*/*"));
        assert!(!accepts("text/plain;version=0.0.4"));
        assert!(!accepts("application/openmetrics-text;q=0"));
        assert!(!accepts("application/openmetrics-text;version=2.0.0"));
        assert!(!accepts_openmetrics(&HeaderMap::new()));
    }
}
