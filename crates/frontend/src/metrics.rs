//! The metrics endpoint: all metrics as text on a separate port.
use std::sync::Arc;

use engine::Engine;
use http::{HeaderMap, Method, Response, StatusCode, header::ACCEPT};
use inference::metrics::MetricsForm;
use mediatype::{MediaType, MediaTypeList, Name, ReadParams};
use tokio::sync::Semaphore;
use vocabulary::Error;

use crate::http::{HttpCall, HttpEndpoint, ResponseBody, reply};

/// How many texts are written at the same time. The text of many models has megabytes.
const WRITERS: usize = 1;

/// The metrics endpoint without its socket. [`crate::http::serve`] serves it.
pub struct MetricsService {
    engine: Engine,
    writers: Arc<Semaphore>,
    offers_openmetrics: bool,
}

impl MetricsService {
    /// An endpoint for the metrics of `engine`. If it does not offer OpenMetrics, only clients that accept nothing else
    /// get it.
    pub fn new(engine: Engine, offers_openmetrics: bool) -> Self {
        Self { engine, writers: Arc::new(Semaphore::new(WRITERS)), offers_openmetrics }
    }

    /// The metrics in the form that the headers of the request ask for.
    pub(crate) async fn exposition(&self, headers: &HeaderMap) -> Response<ResponseBody> {
        let form = negotiated(headers, self.offers_openmetrics);
        let content_type = match form {
            MetricsForm::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            MetricsForm::Prometheus => "text/plain; charset=utf-8",
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

/// The form that the client gives the higher quality (RFC 9110, 12.5.1). If it gives both the same, or accepts none, it
/// gets that of Prometheus: only in this form Triton's counters have their type.
fn negotiated(headers: &HeaderMap, offers_openmetrics: bool) -> MetricsForm {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<_> = values.flat_map(MediaTypeList::new).filter_map(Result::ok).collect();
    let [prometheus, openmetrics] =
        [MetricsForm::Prometheus, MetricsForm::OpenMetrics].map(|form| quality_of(form, &ranges));
    let is_preferred = openmetrics > prometheus && (offers_openmetrics || prometheus == 0.0);
    if is_preferred { MetricsForm::OpenMetrics } else { MetricsForm::Prometheus }
}

/// The quality that the most specific range gives a form; 0 if no range has it.
fn quality_of(form: MetricsForm, ranges: &[MediaType<'_>]) -> f32 {
    let mut best = (0, 0.0);
    for range in ranges {
        if let (Some(specificity), Some(quality)) = (specificity(range, form), quality(range))
            && (specificity, quality) > best
        {
            best = (specificity, quality);
        }
    }
    best.1
}

/// How exactly a range names a form, from 1 on. `None` if it does not.
fn specificity(range: &MediaType<'_>, form: MetricsForm) -> Option<u8> {
    let (kind, subtype, versions) = match form {
        MetricsForm::Prometheus => ("text", "plain", ["0.0.4", "1.0.0"]),
        MetricsForm::OpenMetrics => ("application", "openmetrics-text", ["0.0.1", "1.0.0"]),
    };
    if range.ty == "*" && range.subty == "*" {
        return Some(1);
    }
    if range.ty != kind {
        return None;
    }
    if range.subty == "*" {
        return Some(2);
    }
    if range.subty != subtype {
        return None;
    }
    match range.get_param(Name::new_unchecked("version")) {
        None => Some(3),
        Some(version) => versions.contains(&&*version.unquoted_str()).then_some(4),
    }
}

/// The quality of a range. `None` if it cannot be read: then the range counts for nothing.
fn quality(range: &MediaType<'_>) -> Option<f32> {
    match range.get_param(Name::new_unchecked("q")) {
        None => Some(1.0),
        Some(quality) => quality.as_str().parse().ok().filter(|quality| (0.0..=1.0).contains(quality)),
    }
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

    fn form_for(accept: &[&str], offers_openmetrics: bool) -> MetricsForm {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        negotiated(&headers, offers_openmetrics)
    }

    /// What Prometheus 2.53 and 3 send as they are.
    const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0;q=0.5,\
        application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
        application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
        text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[test]
    fn a_client_gets_the_form_that_it_prefers_and_otherwise_that_of_prometheus() {
        let openmetrics: &[&[&str]] = &[
            &[PROMETHEUS_2],
            &[PROMETHEUS_3],
            &["application/openmetrics-text"],
            &["Application/OpenMetrics-Text; Version=\"1.0.0\", text/plain;q=0.9"],
            &["text/plain;q=0", "*/*"],
            &["application/*;q=0.5, text/*;q=0.4"],
        ];
        for accept in openmetrics {
            assert_eq!(form_for(accept, true), MetricsForm::OpenMetrics, "{accept:?}");
        }
        let prometheus: &[&[&str]] = &[
            &[],
            &[""],
            &["*/*"],
            &["text/plain;version=0.0.4"],
            &["text/plain, application/openmetrics-text"],
            // As Prometheus with `scrape_protocols: [PrometheusText0.0.4, OpenMetricsText1.0.0]`.
            &["text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.4"],
            &["text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6", "application/openmetrics-text;q=0.5"],
            // The more specific range counts, whatever its quality.
            &["application/*, application/openmetrics-text;q=0.1, text/plain;q=0.2"],
            &["application/openmetrics-text;q=0"],
            &["application/openmetrics-text;q=x"],
            &["application/openmetrics-text;version=2.0.0"],
            &["application/json"],
        ];
        for accept in prometheus {
            assert_eq!(form_for(accept, true), MetricsForm::Prometheus, "{accept:?}");
        }
    }

    #[test]
    fn openmetrics_that_is_not_offered_is_for_clients_that_read_nothing_else() {
        for accept in [PROMETHEUS_2, PROMETHEUS_3] {
            assert_eq!(form_for(&[accept], false), MetricsForm::Prometheus);
        }
        assert_eq!(form_for(&["application/openmetrics-text"], false), MetricsForm::OpenMetrics);
    }
}
