//! The load report of `generate` and `generate_stream`: how full the cache of keys and values of a backend is.
//!
//! A client that balances load asks for it (`endpoint-load-metrics-format`). Its values are those of the metric family
//! `nv_trt_llm_kv_cache_block_metrics`, which a backend for language models reports. Without them there is no report.
use http::{HeaderMap, HeaderName, HeaderValue};

/// The header with which a client asks for the report, and says in which form it wants it.
const FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");

/// The header with the report.
const REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// The metric family of the backend, and the label that tells its metrics apart.
const FAMILY: &str = "nv_trt_llm_kv_cache_block_metrics";
const LABEL: &str = "kv_cache_block_type";

/// What the report tells.
struct LoadReport {
    utilization: f64,
    /// Tokens.
    capacity: u64,
}

/// Adds the report to the headers of a reply if the request asks for it. `metric` gives the value of a metric in a
/// family, by one of its labels.
pub(super) fn tell(
    reply: &mut HeaderMap,
    request_headers: &HeaderMap,
    metric: impl Fn(&str, (&str, &str)) -> Option<f64>,
) {
    let Some(format) = request_headers.get(FORMAT) else { return };
    let blocks = |kind: &str| metric(FAMILY, (LABEL, kind));
    let report = blocks("tokens_per").zip(blocks("used")).zip(blocks("max"));
    let Some(report) = report.map(|((tokens, used), max)| LoadReport::of(tokens, used, max)) else {
        log::error!("there is no load report: no backend has reported the metrics '{FAMILY}'");
        return;
    };
    let LoadReport { utilization, capacity } = report;
    let text = match format.as_bytes() {
        b"json" => format!(
            r#"JSON {{"named_metrics":{{"kv_cache_utilization":{utilization},"max_token_capacity":{capacity}}}}}"#
        ),
        b"text" => format!(
            "TEXT named_metrics.kv_cache_utilization={utilization:.6}, named_metrics.max_token_capacity={capacity}"
        ),
        _ => {
            log::error!("there is no load report: its format must be 'json' or 'text'");
            return;
        }
    };
    if let Ok(value) = HeaderValue::try_from(text) {
        reply.insert(REPORT, value);
    }
}

impl LoadReport {
    fn of(tokens_per_block: f64, used_blocks: f64, most_blocks: f64) -> Self {
        let utilization = if most_blocks > 0.0 { used_blocks / most_blocks } else { 0.0 };
        // A number that is none, or below 0, counts as 0.
        Self { utilization, capacity: (most_blocks * tokens_per_block) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(format: &'static str, metrics: &[(&str, f64)]) -> Option<String> {
        let request_headers = HeaderMap::from_iter([(FORMAT, HeaderValue::from_static(format))]);
        let mut reply = HeaderMap::new();
        tell(&mut reply, &request_headers, |family, (label, kind)| {
            assert_eq!((family, label), (FAMILY, LABEL));
            metrics.iter().find(|(name, _)| *name == kind).map(|(_, value)| *value)
        });
        reply.get(REPORT).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn both_forms_tell_utilization_and_capacity() {
        let metrics = [("tokens_per", 64.0), ("used", 25.0), ("max", 100.0)];
        let json = r#"JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":6400}}"#;
        let text = "TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=6400";
        assert_eq!(report("json", &metrics).as_deref(), Some(json));
        assert_eq!(report("text", &metrics).as_deref(), Some(text));
    }

    #[test]
    fn a_cache_without_blocks_is_not_used() {
        let text = report("text", &[("tokens_per", 64.0), ("used", 25.0), ("max", 0.0)]);
        let expected = "TEXT named_metrics.kv_cache_utilization=0.000000, named_metrics.max_token_capacity=0";
        assert_eq!(text.as_deref(), Some(expected));
    }

    #[test]
    fn there_is_no_report_without_all_metrics_or_in_another_form_or_for_clients_that_do_not_ask() {
        let metrics = [("tokens_per", 64.0), ("used", 25.0), ("max", 100.0)];
        assert_eq!(report("text", &metrics[..2]), None);
        assert_eq!(report("xml", &metrics), None);
        let mut reply = HeaderMap::new();
        tell(&mut reply, &HeaderMap::new(), |_, _| panic!("nobody has asked"));
        assert!(reply.is_empty());
    }
}
