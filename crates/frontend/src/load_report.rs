//! The load report that a client asks for, so that it can weigh servers by their load: the one of ORCA (Open Request Cost
//! Aggregation), which Envoy and clients of gRPC read.
//!
//! Over HTTP the report is a header of the answer, over gRPC metadata after it.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use engine::{Engine, ServerWorkload};
use http::{HeaderMap, HeaderName, HeaderValue};
use inference::lock::Mutex;

/// The header with which a client asks for the report. Over HTTP it says in which form: `json` or `text`.
const FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");

/// The header with the report over HTTP.
const REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// The metadata with the report over gRPC: the message `xds.data.orca.v3.OrcaLoadReport`.
const BINARY_REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// A report is used for so long. The rates are those of the time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// A report in all its forms: they are made once, for all clients that ask while it is used.
#[derive(Debug)]
pub(crate) struct LoadReport {
    json: HeaderValue,
    text: HeaderValue,
    binary: HeaderValue,
}

/// What a server tells of its load.
#[derive(Debug, Clone, Copy, Default)]
struct ServerLoad {
    /// The highest share of time in which the instances of a model ran batches, from 0 to 1.
    utilization: f64,
    requests_per_second: f64,
    errors_per_second: f64,
    /// The longest time that the instances of a model need for what waits there, in seconds.
    queued_work: f64,
}

/// Makes reports, at most one in a period, so that they cost the same however many clients ask.
#[derive(Debug)]
pub(crate) struct LoadReports {
    last: Mutex<LastReport>,
}

#[derive(Debug)]
struct LastReport {
    at: Instant,
    /// Requests that had ended then, and those of them that had failed.
    ended: u64,
    failed: u64,
    report: Arc<LoadReport>,
}

impl Default for LoadReports {
    fn default() -> Self {
        let report = Arc::new(LoadReport::of(ServerLoad::default()));
        Self { last: Mutex::new(LastReport { at: Instant::now(), ended: 0, failed: 0, report }) }
    }
}

impl LoadReports {
    /// The report of now.
    pub(crate) fn now(&self, engine: &Engine) -> Arc<LoadReport> {
        self.at(Instant::now(), || engine.workload(|_| false))
    }

    /// The report at this time, made of `workload` if the last one is too old.
    fn at(&self, now: Instant, workload: impl FnOnce() -> ServerWorkload) -> Arc<LoadReport> {
        let (passed, ended, failed) = {
            let last = self.last.lock();
            let passed = now.saturating_duration_since(last.at);
            if passed < PERIOD {
                return last.report.clone();
            }
            (passed, last.ended, last.failed)
        };
        let workload = workload();
        // The counters of a model that is unloaded are gone.
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / passed.as_secs_f64();
        let report = Arc::new(LoadReport::of(ServerLoad {
            utilization: workload.busy_share,
            requests_per_second: per_second(workload.requests_ended, ended),
            errors_per_second: per_second(workload.requests_failed, failed),
            queued_work: workload.queued_work.as_secs_f64(),
        }));
        let (ended, failed) = (workload.requests_ended, workload.requests_failed);
        *self.last.lock() = LastReport { at: now, ended, failed, report: report.clone() };
        report
    }
}

/// Whether a client asks for a report.
pub(crate) fn is_asked_for(request: &HeaderMap) -> bool {
    request.contains_key(FORMAT)
}

/// Adds a report to the headers of an answer over HTTP if the request asks for one. `cache` gives what a backend reports of
/// its cache of keys and values: then the report is about this cache only, as Triton's is.
pub(crate) fn tell(
    answer: &mut HeaderMap,
    request: &HeaderMap,
    cache: impl FnOnce() -> Option<CacheReport>,
    report: impl FnOnce() -> Arc<LoadReport>,
) {
    let Some(format) = request.get(FORMAT) else { return };
    let form = match format.as_bytes() {
        b"json" => ReportForm::Json,
        b"text" => ReportForm::Text,
        _ => {
            log::error!("there is no load report: its format must be 'json' or 'text'");
            return;
        }
    };
    let value = cache().map_or_else(|| report().told(form), |cache| printable(cache.text(form)));
    answer.insert(REPORT, value);
}

/// The forms of a report over HTTP.
#[derive(Clone, Copy)]
enum ReportForm {
    Json,
    Text,
}

/// The header with a text of this module.
fn printable(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("the texts of reports are printable ASCII")
}

impl LoadReport {
    fn of(load: ServerLoad) -> Self {
        let [json, text] = [ReportForm::Json, ReportForm::Text].map(|form| printable(load.text(form)));
        Self { json, text, binary: printable(load.message()) }
    }

    fn told(&self, form: ReportForm) -> HeaderValue {
        match form {
            ReportForm::Json => self.json.clone(),
            ReportForm::Text => self.text.clone(),
        }
    }

    /// The report as metadata of gRPC.
    pub(crate) fn metadata(&self) -> (HeaderName, HeaderValue) {
        (BINARY_REPORT, self.binary.clone())
    }
}

impl ServerLoad {
    fn text(&self, form: ReportForm) -> String {
        let Self { utilization, requests_per_second, errors_per_second, queued_work } = self;
        match form {
            ReportForm::Json => format!(
                r#"JSON {{"application_utilization":{utilization},"rps_fractional":{requests_per_second},"eps":{errors_per_second},"named_metrics":{{"queued_work":{queued_work}}}}}"#
            ),
            ReportForm::Text => format!(
                "TEXT application_utilization={utilization:.6}, rps_fractional={requests_per_second:.6}, \
                 eps={errors_per_second:.6}, named_metrics.queued_work={queued_work:.6}"
            ),
        }
    }

    /// The message of gRPC in base64.
    fn message(&self) -> String {
        /// The key of a field of 64 bits.
        const fn double(field: u8) -> u8 {
            field << 3 | 1
        }
        /// The key of a field with a length.
        const fn with_length(field: u8) -> u8 {
            field << 3 | 2
        }
        const NAME: &[u8] = b"queued_work";
        let mut message = Vec::with_capacity(64);
        for (key, value) in [
            (double(6), self.requests_per_second),
            (double(7), self.errors_per_second),
            (double(9), self.utilization),
        ] {
            message.push(key);
            message.extend_from_slice(&value.to_le_bytes());
        }
        // An entry of the map `named_metrics`: the key, and the value.
        message.extend_from_slice(&[with_length(8), NAME.len() as u8 + 11, with_length(1), NAME.len() as u8]);
        message.extend_from_slice(NAME);
        message.push(double(2));
        message.extend_from_slice(&self.queued_work.to_le_bytes());
        STANDARD_NO_PAD.encode(message)
    }
}

/// How full the cache of keys and values of a backend for language models is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheReport {
    utilization: f64,
    /// Tokens.
    capacity: u64,
}

/// The metric family that such a backend reports, and the label that tells its metrics apart.
const FAMILY: &str = "nv_trt_llm_kv_cache_block_metrics";
const LABEL: &str = "kv_cache_block_type";

impl CacheReport {
    /// `metric` gives the value of a metric in a family, by one of its labels. `None` unless a backend reports all of them.
    pub(crate) fn of(metric: impl Fn(&str, (&str, &str)) -> Option<f64>) -> Option<Self> {
        let blocks = |kind: &str| metric(FAMILY, (LABEL, kind));
        let (tokens_per_block, used, most) = (blocks("tokens_per")?, blocks("used")?, blocks("max")?);
        let utilization = if most > 0.0 { used / most } else { 0.0 };
        // A number that is none, or below 0, counts as 0.
        Some(Self { utilization, capacity: (most * tokens_per_block) as u64 })
    }

    fn text(&self, form: ReportForm) -> String {
        let Self { utilization, capacity } = self;
        match form {
            ReportForm::Json => format!(
                r#"JSON {{"named_metrics":{{"kv_cache_utilization":{utilization},"max_token_capacity":{capacity}}}}}"#
            ),
            ReportForm::Text => format!(
                "TEXT named_metrics.kv_cache_utilization={utilization:.6}, named_metrics.max_token_capacity={capacity}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD_OF_TESTS: ServerLoad =
        ServerLoad { utilization: 0.5, requests_per_second: 20.0, errors_per_second: 0.25, queued_work: 1.5 };

    fn told(format: &'static str, cache: &[(&str, f64)]) -> Option<String> {
        let request = HeaderMap::from_iter([(FORMAT, HeaderValue::from_static(format))]);
        assert!(is_asked_for(&request));
        let cache = CacheReport::of(|family, (label, kind)| {
            assert_eq!((family, label), (FAMILY, LABEL));
            cache.iter().find(|(name, _)| *name == kind).map(|(_, value)| *value)
        });
        let mut answer = HeaderMap::new();
        tell(&mut answer, &request, || cache, || Arc::new(LoadReport::of(LOAD_OF_TESTS)));
        answer.get(REPORT).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn both_forms_tell_the_load() {
        let json = r#"JSON {"application_utilization":0.5,"rps_fractional":20,"eps":0.25,"named_metrics":{"queued_work":1.5}}"#;
        assert_eq!(told("json", &[]).as_deref(), Some(json));
        let text = "TEXT application_utilization=0.500000, rps_fractional=20.000000, eps=0.250000, \
                    named_metrics.queued_work=1.500000";
        assert_eq!(told("text", &[]).as_deref(), Some(text));
    }

    #[test]
    fn a_cache_of_keys_and_values_is_told_as_triton_tells_it() {
        let cache = [("tokens_per", 64.0), ("used", 25.0), ("max", 100.0)];
        let json = r#"JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":6400}}"#;
        let text = "TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=6400";
        assert_eq!(told("json", &cache).as_deref(), Some(json));
        assert_eq!(told("text", &cache).as_deref(), Some(text));
        let text = "TEXT named_metrics.kv_cache_utilization=0.000000, named_metrics.max_token_capacity=0";
        assert_eq!(told("text", &[cache[0], cache[1], ("max", 0.0)]).as_deref(), Some(text));
        assert!(told("text", &cache[..2]).unwrap().starts_with("TEXT application_utilization"));
    }

    #[test]
    fn there_is_no_report_in_another_form_or_for_clients_that_do_not_ask() {
        assert_eq!(told("xml", &[]), None);
        let mut answer = HeaderMap::new();
        tell(&mut answer, &HeaderMap::new(), || panic!("nobody has asked"), || panic!("nobody has asked"));
        assert!(answer.is_empty() && !is_asked_for(&HeaderMap::new()));
    }

    #[test]
    fn metadata_have_the_fields_of_the_message() {
        let (name, value) = LoadReport::of(LOAD_OF_TESTS).metadata();
        assert_eq!(name, "endpoint-load-metrics-bin");
        let message = STANDARD_NO_PAD.decode(value).unwrap();
        let double = |value: f64| value.to_le_bytes();
        let expected = [
            &[0x31][..],
            &double(20.0),
            &[0x39],
            &double(0.25),
            &[0x49],
            &double(0.5),
            b"\x42\x16\x0a\x0bqueued_work\x11",
            &double(1.5),
        ];
        assert_eq!(message, expected.concat());
    }

    #[test]
    fn a_report_is_used_for_a_while_and_then_tells_the_rates_since() {
        let reports = LoadReports::default();
        let begun = reports.last.lock().at;
        let workload = |requests_ended, requests_failed| ServerWorkload {
            requests_ended,
            requests_failed,
            busy_share: 0.5,
            queued_work: Duration::from_millis(1500),
            ..ServerWorkload::default()
        };
        let early = reports.at(begun + PERIOD / 2, || panic!("there is no report to renew yet"));
        assert_eq!(early.text, LoadReport::of(ServerLoad::default()).text);
        let expected = LoadReport::of(LOAD_OF_TESTS).text;
        assert_eq!(reports.at(begun + 4 * PERIOD, || workload(80, 1)).text, expected);
        assert_eq!(reports.at(begun + 4 * PERIOD, || panic!("it is new")).text, expected);
        let later = reports.at(begun + 6 * PERIOD, || workload(70, 2));
        assert!(later.text.to_str().unwrap().contains("rps_fractional=0.000000, eps=0.500000"), "{later:?}");
    }
}
