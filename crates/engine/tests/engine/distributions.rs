//! Tests of histograms and summaries: what the text shows of how long requests take and why batches end.
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{Engine, MetricsOptions};
use inference::{
    Request, Timestamp, TraceActivity, TraceContext, TraceId, TraceIdentity, TraceSink,
    metrics::MetricsForm::{self, OpenMetrics, Prometheus},
};

use crate::{
    caching,
    support::{ECHO, Repository, answer, ask, echo, held, request, start, until, value},
};

/// The samples of one family, without comments.
fn samples(engine: &Engine, form: MetricsForm, prefix: &str) -> BTreeMap<String, f64> {
    let text = engine.metrics(form);
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    let pair = |line: &str| {
        let (series, value) = line.split(" # ").next().unwrap().rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    };
    lines.map(pair).collect()
}

fn kinds(engine: &Engine) -> Vec<String> {
    let text = engine.metrics(Prometheus);
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned).collect()
}

const OF_M: &str = r#"{model="m",version="1""#;

#[tokio::test]
async fn a_model_shows_histograms_after_its_first_request() {
    let repository = Repository::new().model("m", ECHO, &["1"]).model("idle", ECHO, &["1"]);
    let engine = repository.serve(echo()).await;
    let own = |kinds: &[String]| kinds.iter().filter(|kind| kind.ends_with("histogram")).count();
    assert_eq!(own(&kinds(&engine)), 0);
    for value in 0..5 {
        ask(&engine, "m", value).only().await.unwrap();
    }
    assert_eq!(own(&kinds(&engine)), 4);
    for phase in ["request", "queue", "compute"] {
        let family = format!("nereid_inference_{phase}_duration_seconds");
        let samples = samples(&engine, Prometheus, &family);
        assert!(samples.keys().all(|series| series.contains(r#"model="m""#)), "the idle model has none");
        let bucket = |bound| samples[&format!(r#"{family}_bucket{OF_M},le="{bound}"}}"#)];
        assert_eq!((bucket("+Inf"), bucket("30")), (5.0, 5.0));
        assert_eq!(samples[&format!("{family}_count{OF_M}}}")], 5.0);
        assert_eq!(samples.len(), 21);
        let bounds = ["0.00005", "0.0001", "0.0002", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02"];
        assert!(bounds.map(bucket).is_sorted());
    }
    let statistics = engine.statistics(Some("m"), None).unwrap().remove(0);
    let sum = |phase| {
        let family = format!("nereid_inference_{phase}_duration_seconds_sum");
        samples(&engine, Prometheus, &family).values().sum::<f64>()
    };
    let nanos = |seconds: f64| (seconds * 1e9).round() as u64;
    assert_eq!(nanos(sum("request")), statistics.totals.success.ns);
    assert_eq!(nanos(sum("queue")), statistics.totals.queue.ns);
    let compute = statistics.totals.compute_input.ns
        + statistics.totals.compute_infer.ns
        + statistics.totals.compute_output.ns;
    assert_eq!(nanos(sum("compute")), compute);
}

#[tokio::test]
async fn the_distributions_of_models_can_be_switched_off() {
    let mut options = Repository::new().model("m", ECHO, &["1"]);
    options = options.model("n", ECHO, &["1"]);
    let mut engine_options = options.options();
    engine_options.metrics = MetricsOptions { model_histograms: false, ..MetricsOptions::default() };
    let engine = start(engine_options, echo()).await;
    ask(&engine, "m", 0).only().await.unwrap();
    let text = engine.metrics(Prometheus);
    assert!(!text.contains("nereid_inference_"), "{text}");
}

/// The number of batches for each reason that has any.
fn ends(engine: &Engine) -> Vec<(String, f64)> {
    let samples = samples(engine, Prometheus, "nereid_inference_batches_total");
    let reason = |series: &str| series.split('"').nth(3).unwrap().to_owned();
    samples
        .iter()
        .filter(|(_, count)| **count > 0.0)
        .map(|(series, count)| (reason(series), *count))
        .collect()
}

async fn ends_after(config: &str, requests: usize) -> Vec<(String, f64)> {
    let config = format!("{ECHO} {config}");
    let repository = Repository::new().model("m", &config, &["1"]);
    let mut options = repository.options();
    options.hold_until_queued = requests;
    let engine = start(options, echo()).await;
    let asked: Vec<_> = (0..requests).map(|_| ask(&engine, "m", 0)).collect();
    for stream in asked {
        stream.only().await.unwrap();
    }
    ends(&engine)
}

#[tokio::test]
async fn batches_are_counted_by_the_reason_why_they_end() {
    let one = |reason: &str| vec![(reason.to_owned(), 1.0)];
    let eight = "dynamic_batching";
    assert_eq!(ends_after(&format!("{eight} {{}}"), 8).await, one("full"));
    assert_eq!(ends_after(&format!("{eight} {{}}"), 3).await, one("idle_instance"));
    let preferred = format!("{eight} {{ preferred_batch_size: [ 4 ] }}");
    assert_eq!(ends_after(&preferred, 4).await, one("preferred_size"));
    let delayed = format!("{eight} {{ max_queue_delay_microseconds: 1000 }}");
    assert_eq!(ends_after(&delayed, 3).await, one("delay"));
}

#[tokio::test]
async fn a_batch_that_grows_ends_for_the_reason_it_had_last() {
    let config = format!("{} dynamic_batching {{}}", ECHO.replace("size: 8", "size: 2"));
    let repository = Repository::new().model("m", &config, &["1"]);
    let (backend, begun) = held(echo(), <[_]>::len, answer);
    let engine = start(repository.options(), backend).await;
    let asked: Vec<_> = (0..3).map(|_| ask(&engine, "m", 0)).collect();
    let first = begun.recv().unwrap();
    let sizes = [first.seen, {
        first.end();
        begun.recv().unwrap().seen
    }];
    for stream in asked {
        stream.only().await.unwrap();
    }
    let counts: BTreeMap<_, _> = ends(&engine).into_iter().collect();
    let full = sizes.iter().filter(|size| **size == 2).count();
    assert_eq!(counts.get("full").copied().unwrap_or(0.0) as usize, full, "{sizes:?} {counts:?}");
    assert_eq!(counts.values().sum::<f64>() as usize, 2);
}

#[tokio::test]
async fn batch_sizes_are_those_of_the_statistics() {
    let config = format!("{ECHO} dynamic_batching {{}}");
    let repository = Repository::new().model("m", &config, &["1"]);
    let mut options = repository.options();
    options.hold_until_queued = 3;
    let engine = start(options, echo()).await;
    let asked: Vec<_> = (0..3).map(|_| ask(&engine, "m", 0)).collect();
    for stream in asked {
        stream.only().await.unwrap();
    }
    ask(&engine, "m", 0).only().await.unwrap();
    let samples = samples(&engine, Prometheus, "nereid_inference_batch_size");
    let of = |suffix: &str| samples[&format!("nereid_inference_batch_size_{suffix}")];
    let bucket = |bound: &str| of(&format!(r#"bucket{OF_M},le="{bound}"}}"#));
    assert_eq!([bucket("1"), bucket("2"), bucket("4"), bucket("+Inf")], [1.0, 1.0, 2.0, 2.0]);
    assert_eq!((of(&format!("sum{OF_M}}}")), of(&format!("count{OF_M}}}"))), (4.0, 2.0));
}

fn summarizing() -> MetricsOptions {
    let quantiles = vec![0.5];
    MetricsOptions { summary_latencies: true, host: false, quantiles, ..MetricsOptions::default() }
}

#[tokio::test]
async fn summaries_show_the_wanted_quantiles_of_each_phase() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let mut options = repository.options();
    options.metrics = summarizing();
    let engine = start(options, echo()).await;
    let before = samples(&engine, Prometheus, "nv_inference_request_summary_us");
    assert!(before[&format!(r#"nv_inference_request_summary_us{OF_M},quantile="0.5"}}"#)].is_nan());
    for value in 0..9 {
        ask(&engine, "m", value).only().await.unwrap();
    }
    let summaries: Vec<_> = kinds(&engine).into_iter().filter(|kind| kind.ends_with(" summary")).collect();
    let phases = ["request", "queue", "compute_input", "compute_infer", "compute_output"];
    assert_eq!(summaries, phases.map(|phase| format!("nv_inference_{phase}_summary_us summary")));
    let text = engine.metrics(Prometheus);
    // As Triton: metrics.cc has "Summary" for some and "Cumulative" for others.
    for (phase, help) in [
        ("queue", "Summary of inference queuing duration in microseconds (includes"),
        ("compute_input", "Cumulative compute input duration in microseconds (does not include"),
        ("compute_infer", "Cumulative compute inference duration in microseconds (does not include"),
        ("compute_output", "Cumulative inference compute output duration in microseconds (does not include"),
    ] {
        let line = format!("# HELP nv_inference_{phase}_summary_us {help} cached requests)\n");
        assert!(text.contains(&line), "{phase}");
    }
    let statistics = engine.statistics(Some("m"), None).unwrap().remove(0);
    for (phase, counted) in phases.into_iter().zip([
        statistics.totals.success,
        statistics.totals.queue,
        statistics.totals.compute_input,
        statistics.totals.compute_infer,
        statistics.totals.compute_output,
    ]) {
        let family = format!("nv_inference_{phase}_summary_us");
        let shown = samples(&engine, Prometheus, &family);
        assert_eq!(shown.len(), 3);
        assert_eq!(shown[&format!("{family}_count{OF_M}}}")], 9.0);
        let sum = shown[&format!("{family}_sum{OF_M}}}")];
        assert!((sum - counted.ns as f64 / 1000.0).abs() < 0.01, "{phase}: {sum} {counted:?}");
        let median = shown[&format!(r#"{family}{OF_M},quantile="0.5"}}"#)];
        assert!(median >= 0.0 && median <= sum, "{phase}: {median}");
    }
}

#[tokio::test]
async fn a_model_with_a_cache_has_summaries_of_hits_and_misses_instead_of_requests() {
    let repository =
        Repository::new().model("m", &format!("{ECHO} response_cache {{ enable: true }}"), &["1"]);
    let mut options = repository.options();
    options.metrics = summarizing();
    let engine = caching::serve_with(options, echo(), &Arc::default()).await;
    for value in [1, 1, 1, 2] {
        ask(&engine, "m", value).only().await.unwrap();
    }
    assert!(samples(&engine, Prometheus, "nv_inference_request_summary_us").is_empty());
    let count = |family: &str| samples(&engine, Prometheus, family)[&format!("{family}_count{OF_M}}}")];
    assert_eq!(count("nv_cache_hit_summary_per_model"), 2.0);
    assert_eq!(count("nv_cache_miss_summary_per_model"), 2.0);
    assert_eq!(count("nv_inference_queue_summary_us"), 4.0, "with the cached ones");
    assert_eq!(count("nv_inference_compute_infer_summary_us"), 2.0);
    let counts = ["request", "queue", "compute"]
        .map(|phase| count(&format!("nereid_inference_{phase}_duration_seconds")));
    assert_eq!(counts, [4.0, 4.0, 2.0], "cached requests are executed by nobody");
}

#[tokio::test]
async fn the_first_response_counts_in_the_buckets_that_the_model_chooses() {
    let buckets = "model_metrics { metric_control {
        metric_identifier { family: 'nv_inference_first_response_histogram_ms' }
        histogram_options { buckets: [ 0.000001, 60000 ] } } }";
    let repository = Repository::new()
        .model("m", &format!("{ECHO} {buckets}"), &["1"])
        .model("usual", ECHO, &["1"])
        .model("wrong", &format!("{ECHO} {}", buckets.replace("60000", "0")), &["1"]);
    let mut options = repository.options();
    options.metrics = MetricsOptions { histogram_latencies: true, ..MetricsOptions::default() };
    let backend = echo().execute(|_, batch| {
        for execution in batch.executions {
            if value(&execution.request) == 9 {
                execution.responder.fail(vocabulary::Error::internal("no"));
            } else {
                answer(execution);
            }
        }
    });
    let engine = start(options, backend).await;
    for value in [1, 2, 9] {
        let _ = ask(&engine, "m", value).only().await;
    }
    let family = "nv_inference_first_response_histogram_ms";
    let samples = samples(&engine, Prometheus, family);
    let of = |rest: &str| samples[&format!("{family}{rest}")];
    assert_eq!(of(&format!(r#"_bucket{OF_M},le="0.000001"}}"#)), 0.0);
    assert_eq!(of(&format!(r#"_bucket{OF_M},le="60000"}}"#)), 3.0);
    assert_eq!(of(&format!("_count{OF_M}}}")), 3.0, "each request once, also if it fails");
    for bound in ["100", "500", "2000", "5000", "+Inf"] {
        assert_eq!(of(&format!(r#"_bucket{{model="usual",version="1",le="{bound}"}}"#)), 0.0);
    }
    assert!(engine.model("wrong", None).is_err(), "its buckets do not ascend");
}

struct Traced;

impl TraceSink for Traced {
    fn reached(&self, _: TraceActivity, _: Timestamp) {}

    fn identity(&self) -> TraceIdentity {
        TraceIdentity::unique(0)
    }

    fn trace_id(&self) -> Option<TraceId> {
        Some(TraceId::new([0x5a; 16]))
    }
}

#[tokio::test]
async fn openmetrics_names_the_trace_of_a_request() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = repository.serve(echo()).await;
    ask(&engine, "m", 0).only().await.unwrap();
    assert!(!engine.metrics(OpenMetrics).contains("trace_id"));
    let traced = Request { trace: Some(TraceContext::new(Arc::new(Traced))), ..request(0) };
    engine.model("m", None).unwrap().infer(traced).unwrap().only().await.unwrap();
    let text = engine.metrics(OpenMetrics);
    let exemplars: Vec<_> = text.lines().filter(|line| line.contains(" # {")).collect();
    assert_eq!(exemplars.len(), 1, "{exemplars:?}");
    assert!(exemplars[0].starts_with("nereid_inference_request_duration_seconds_bucket{"), "{exemplars:?}");
    assert!(exemplars[0].contains(&format!(" # {{trace_id=\"{}\"}} 0.", "5a".repeat(16))), "{exemplars:?}");
    assert!(text.ends_with("\n# EOF\n"));
    assert!(text.contains("# TYPE nereid_inference_batches counter\n"));
    assert!(text.contains("# TYPE nv_inference_count unknown\n"));
    assert!(!engine.metrics(Prometheus).contains("trace_id"));
}

#[tokio::test]
async fn the_work_that_waits_takes_as_long_as_what_was_executed() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let (backend, begun) = held(echo(), |_| (), answer);
    let engine = start(repository.options(), backend).await;
    let work = || samples(&engine, Prometheus, "nereid_queued_work_seconds").values().next().copied();
    assert_eq!(work(), Some(0.0), "nothing waits");
    let first = ask(&engine, "m", 0);
    let running = begun.recv().unwrap();
    // It takes long enough that its time can be told from nothing.
    let started = Instant::now();
    until("20 milliseconds", || started.elapsed() >= Duration::from_millis(20)).await;
    running.end();
    first.only().await.unwrap();
    let asked: Vec<_> = (0..4).map(|_| ask(&engine, "m", 0)).collect();
    let running = begun.recv().unwrap();
    // Three wait, and each takes at least as long as the first one.
    let estimated = work().unwrap();
    assert!(estimated >= 0.06, "{estimated}");
    running.end();
    for _ in 0..3 {
        begun.recv().unwrap().end();
    }
    for stream in asked {
        stream.only().await.unwrap();
    }
    assert_eq!(work(), Some(0.0));
}
