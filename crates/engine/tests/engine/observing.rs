//! Tests of index, statistics and metrics: what they report about models, and that the numbers agree.
use std::{collections::BTreeMap, sync::Arc, thread};

use engine::{Engine, MetricsOptions, ModelStatistics};
use inference::{
    Response,
    backend::{Execution, MemoryUsage},
    metrics::MetricsForm,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use vocabulary::{Error, ErrorCode, FailureReason, MemoryKind};

use crate::support::{ECHO, Native, Repository, answer, ask, echo, index, request, start, value};

/// Fails requests with odd values.
fn failing_odd_values() -> Native {
    echo().execute(|_, batch| {
        for execution in batch.executions {
            if value(&execution.request) % 2 == 1 {
                execution.responder.fail(Error::internal("odd").because(FailureReason::Backend));
            } else {
                answer(execution);
            }
        }
    })
}

const ALL: &str = "version_policy { all {} }";

#[tokio::test]
async fn the_index_is_sorted_and_can_be_limited_to_ready_models() {
    let all = format!("{ECHO} {ALL}");
    let repository = Repository::new().model("b", &all, &["2", "10", "1"]).model("a", ECHO, &["1"]).model(
        "c",
        "oops",
        &["1"],
    );
    let backend = echo().open(|source| if source.version == 2 { Err(Error::internal("no")) } else { Ok(()) });
    let mut options = repository.options();
    options.load_policy.partial_models = true;
    let engine = start(options, backend).await;
    let lines = index(&engine);
    assert_eq!(lines[..4], ["a 1 READY", "b 1 READY", "b 2 UNAVAILABLE Internal: no", "b 10 READY"]);
    assert!(lines.len() == 5 && lines[4].starts_with("c - UNAVAILABLE "), "{lines:?}");
    let ready = engine.known_models(true).into_iter().map(|entry| (entry.name.to_string(), entry.version));
    assert_eq!(
        ready.collect::<Vec<_>>(),
        [("a".to_owned(), Some(1)), ("b".to_owned(), Some(1)), ("b".to_owned(), Some(10))]
    );
}

#[tokio::test]
async fn statistics_are_of_ready_versions_by_name_and_version() {
    let all = format!("{ECHO} {ALL}");
    let repository =
        Repository::new().model("b", &all, &["2", "10"]).model("a", ECHO, &["1"]).model("c", "oops", &["1"]);
    let engine = repository.serve(failing_odd_values()).await;
    for (value, version) in [(2, 2), (4, 10), (6, 10), (7, 10)] {
        let model = engine.model("b", Some(version)).unwrap();
        let answered = model.infer(request(value)).unwrap().only().await;
        assert_eq!(answered.is_ok(), value % 2 == 0);
    }
    let shown = |name, version| {
        let line = |model: &ModelStatistics| {
            (model.name.to_string(), model.version, model.totals.success.count, model.totals.fail.count)
        };
        engine.statistics(name, version).unwrap().iter().map(line).collect::<Vec<_>>()
    };
    let [a, b2, b10] = [("a", 1, 0, 0), ("b", 2, 1, 0), ("b", 10, 2, 1)]
        .map(|(name, version, success, fail)| (name.to_owned(), version, success, fail));
    assert_eq!(shown(None, None), [a, b2.clone(), b10.clone()]);
    assert_eq!(shown(Some("b"), None), [b2, b10.clone()]);
    assert_eq!(shown(Some("b"), Some(10)), [b10]);

    let counted = engine.statistics(Some("b"), Some(10)).unwrap().remove(0);
    assert_eq!(
        (counted.totals.inference_count, counted.totals.execution_count, counted.totals.queue.count),
        (2, 3, 2)
    );
    assert!(
        counted.totals.last_inference_ms > 0 && counted.totals.success.ns > 0 && counted.totals.fail.ns > 0
    );
    assert_eq!((counted.totals.batches.len(), counted.totals.batches[0].compute_infer.count), (1, 3));

    for (name, version, text) in [
        ("x", None, "requested model 'x' is not available"),
        ("c", None, "requested model 'c' is not available"),
        ("b", Some(3), "requested model version is not available for model 'b'"),
    ] {
        let error = engine.statistics(Some(name), version).unwrap_err();
        assert_eq!((error.code, &error.message[..]), (ErrorCode::InvalidArgument, text));
    }
}

/// Names, kinds and texts of all families, in order.
const FAMILIES: [(&str, &str, &str); 20] = [
    ("nv_inference_request_success", "counter", "Number of successful inference requests, all batch sizes"),
    ("nv_inference_request_failure", "counter", "Number of failed inference requests, all batch sizes"),
    ("nv_inference_count", "counter", "Number of inferences performed (does not include cached requests)"),
    (
        "nv_inference_exec_count",
        "counter",
        "Number of model executions performed (does not include cached requests)",
    ),
    (
        "nv_inference_request_duration_us",
        "counter",
        "Cumulative inference request duration in microseconds (includes cached requests)",
    ),
    (
        "nv_inference_queue_duration_us",
        "counter",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
    ),
    (
        "nv_inference_compute_input_duration_us",
        "counter",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "counter",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
    ),
    (
        "nv_inference_compute_output_duration_us",
        "counter",
        "Cumulative inference compute output duration in microseconds (does not include cached requests)",
    ),
    (
        "nv_inference_pending_request_count",
        "gauge",
        "Instantaneous number of pending requests awaiting execution per-model.",
    ),
    (
        "nereid_requests_in_flight",
        "gauge",
        "Number of requests of a model that have been accepted and have not ended",
    ),
    (
        "nereid_queued_work_seconds",
        "gauge",
        "Estimated time that the instances of a model need for the requests that wait, in seconds",
    ),
    (
        "nereid_instance_busy_ratio",
        "gauge",
        "Share of the last 5 to 10 seconds in which the instances of a model ran batches, from 0 to 1",
    ),
    ("nv_model_load_duration_secs", "gauge", "Model load time in seconds"),
    ("nv_pinned_memory_pool_total_bytes", "gauge", "Pinned memory pool total memory size, in bytes"),
    ("nv_pinned_memory_pool_used_bytes", "gauge", "Pinned memory pool used memory size, in bytes"),
    ("nereid_build_info", "gauge", "The version of Nereid, as a label; always 1"),
    ("nv_cpu_utilization", "gauge", "CPU utilization rate [0.0 - 1.0]"),
    ("nv_cpu_memory_total_bytes", "gauge", "CPU total memory (RAM), in bytes"),
    ("nv_cpu_memory_used_bytes", "gauge", "CPU used memory (RAM), in bytes"),
];

fn comments(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with('#')).collect()
}

/// Samples by series, without the comments.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(key, value)| (key, value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn families_come_in_order_and_can_be_left_out() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    for (counter_latencies, host) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut options = repository.options();
        options.metrics =
            MetricsOptions { counter_latencies, host, model_histograms: false, ..MetricsOptions::default() };
        let engine = start(options, echo()).await;
        ask(&engine, "m", 0).only().await.unwrap();
        let text = engine.metrics(MetricsForm::Prometheus);
        let shown = |name: &str| {
            (counter_latencies || !name.ends_with("_duration_us")) && (host || !name.starts_with("nv_cpu_"))
        };
        let expected: Vec<_> = FAMILIES
            .iter()
            .filter(|(name, ..)| shown(name))
            .flat_map(|(name, kind, help)| [format!("# HELP {name} {help}"), format!("# TYPE {name} {kind}")])
            .collect();
        assert_eq!(comments(&text), expected);
        let samples = samples(&text);
        assert_eq!(
            samples[r#"nv_inference_request_success{model="m",version="1"}"#], 1.0,
            "counts are never off"
        );
        assert_eq!(
            samples[concat!(r#"nereid_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""}"#)],
            1.0
        );
        if host {
            assert!((0.0..=1.0).contains(&samples["nv_cpu_utilization"]));
            assert!(samples["nv_cpu_memory_total_bytes"] > samples["nv_cpu_memory_used_bytes"]);
        }
    }
}

#[tokio::test]
async fn metrics_contain_the_memory_that_backends_report() {
    let memory = vec![
        MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size: 5 },
        MemoryUsage { kind: MemoryKind::Gpu, id: 1, byte_size: 7_000_000_000 },
    ];
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let text = repository.serve(echo().memory(memory)).await.metrics(MetricsForm::Prometheus);
    let shown: Vec<_> = text.lines().filter(|line| line.starts_with("nereid_model_memory_bytes")).collect();
    assert_eq!(
        shown,
        [
            r#"nereid_model_memory_bytes{memory="CPU",memory_id="0",model="m",version="1"} 5"#,
            r#"nereid_model_memory_bytes{memory="GPU",memory_id="1",model="m",version="1"} 7000000000"#,
        ]
    );
}

#[tokio::test]
async fn series_carry_the_tags_of_their_model_and_are_sorted() {
    let tagged = format!("{ECHO} {ALL} metric_tags {{ key: 'team' value: 'a\"b' }}");
    let names = ["e", "d", "c", "b", "a"];
    let repository = names.iter().fold(Repository::new(), |repository, name| {
        repository.model(name, if *name == "c" { &tagged } else { ECHO }, &["1", "2"])
    });
    let engine = repository.serve(failing_odd_values()).await;
    for value in [1, 2, 3] {
        let _ = ask(&engine, "c", value).only().await;
    }
    let text = engine.metrics(MetricsForm::Prometheus);
    let of = |family: &str| {
        let prefix = format!("{family}{{");
        text.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect::<Vec<_>>()
    };
    let labels = [
        r#"model="a",version="2"} 0"#,
        r#"model="b",version="2"} 0"#,
        r#"_team="a\"b",model="c",version="1"} 0"#,
        r#"_team="a\"b",model="c",version="2"} 1"#,
        r#"model="d",version="2"} 0"#,
        r#"model="e",version="2"} 0"#,
    ];
    assert_eq!(
        of("nv_inference_request_success"),
        labels.map(|labels| format!("nv_inference_request_success{{{labels}"))
    );
    let failures = of("nv_inference_request_failure");
    let of_c = [("BACKEND", 2), ("CANCELED", 0), ("OTHER", 0), ("REJECTED", 0)].map(|(reason, count)| {
        format!(
            r#"nv_inference_request_failure{{_team="a\"b",model="c",reason="{reason}",version="2"}} {count}"#
        )
    });
    assert_eq!((failures.len(), &failures[12..16]), (24, &of_c[..]));
    let samples = samples(&text);
    let load = samples[r#"nv_model_load_duration_secs{model="a",version="2"}"#];
    assert!(load > 0.0 && load < 60.0, "{load}");
    assert!(samples[r#"nv_inference_request_duration_us{_team="a\"b",model="c",version="2"}"#] > 0.0);
}

#[tokio::test]
async fn what_waits_is_pending_until_it_runs() {
    let repository = Repository::new().model("m", &format!("{ECHO} dynamic_batching {{}}"), &["1"]);
    let mut options = repository.options();
    options.hold_until_queued = 3;
    let engine = start(options, echo()).await;
    let pending = || samples(&engine.metrics(MetricsForm::Prometheus))[r#"nv_inference_pending_request_count{model="m",version="1"}"#];
    let held = [ask(&engine, "m", 0), ask(&engine, "m", 0)];
    assert_eq!(pending(), 2.0);
    ask(&engine, "m", 0).only().await.unwrap();
    assert_eq!(pending(), 0.0);
    drop(held);
}

const THREADS: u64 = 8;
const REQUESTS: usize = 500;

/// What the callers have received.
#[derive(Default, Debug, Clone, Copy)]
struct Seen {
    accepted: u64,
    refused: u64,
    successes: u64,
    failures: u64,
}

/// Sends requests and cancels some of them at random times. Each stream that is read must end exactly once.
async fn caller(engine: &Engine, seed: u64) -> Seen {
    let mut random = StdRng::seed_from_u64(seed);
    let mut seen = Seen::default();
    let model = engine.model("m", None).unwrap();
    let mut kept = Vec::new();
    for _ in 0..REQUESTS {
        let Ok(stream) = model.infer(request(random.random())) else {
            seen.refused += 1;
            continue;
        };
        seen.accepted += 1;
        match random.random_range(0..8) {
            0 => drop(stream),
            1 => {
                stream.cancel();
                kept.push(stream);
            }
            _ => kept.push(stream),
        }
        while kept.len() > random.random_range(0..12) {
            let place = random.random_range(0..kept.len());
            let mut stream = kept.swap_remove(place);
            let item = stream.next().await.expect("one answer");
            assert!(item.last && stream.next().await.is_none(), "and no other");
            *(if item.result.is_ok() { &mut seen.successes } else { &mut seen.failures }) += 1;
        }
    }
    seen
}

fn failing_sometimes() -> Native {
    echo().execute(|_, batch| {
        for execution in batch.executions {
            match value(&execution.request) {
                0..40 => execution.responder.fail(Error::internal("no").because(FailureReason::Backend)),
                40..60 => drop(execution),
                // Answers on another thread, after the instance has continued with other work.
                60..70 => drop(thread::spawn(move || answer(execution))),
                70..80 => {
                    let Execution { responder, .. } = execution;
                    responder.clone().complete(Response::default());
                    responder.fail(Error::internal("too late"));
                }
                _ => answer(execution),
            }
        }
    })
}

async fn load(config: &str, backend: Native) {
    let engine = Repository::new().model("m", &format!("{ECHO} {config}"), &["1"]).serve(backend).await;
    let engine = Arc::new(engine);
    let callers: Vec<_> = (0..THREADS)
        .map(|seed| {
            let (engine, runtime) = (engine.clone(), tokio::runtime::Handle::current());
            thread::spawn(move || runtime.block_on(caller(&engine, seed)))
        })
        .collect();
    let mut all = Seen::default();
    for caller in callers {
        let seen = tokio::task::spawn_blocking(|| caller.join().unwrap()).await.unwrap();
        all.accepted += seen.accepted;
        all.refused += seen.refused;
        all.successes += seen.successes;
        all.failures += seen.failures;
    }
    while engine.in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    let counted = engine.statistics(Some("m"), None).unwrap().remove(0);
    let text = engine.metrics(MetricsForm::Prometheus);
    let metrics = samples(&text);
    let failed = |reason: &str| {
        let series = format!(r#"nv_inference_request_failure{{model="m",reason="{reason}",version="1"}}"#);
        metrics[&series[..]] as u64
    };
    let [backend, cancelled, other, rejected] = ["BACKEND", "CANCELED", "OTHER", "REJECTED"].map(failed);
    assert_eq!(all.accepted + all.refused, THREADS * REQUESTS as u64);
    assert_eq!(counted.totals.success.count + counted.totals.fail.count, all.accepted, "{all:?} {counted:?}");
    assert_eq!(backend + cancelled + other + rejected, counted.totals.fail.count + all.refused, "{all:?}");
    assert!(
        counted.totals.success.count >= all.successes && counted.totals.fail.count >= all.failures,
        "{all:?} {counted:?}"
    );
    assert!(backend > 0 && other == 0 && all.successes > 0);
    for duration in [
        counted.totals.queue,
        counted.totals.compute_input,
        counted.totals.compute_infer,
        counted.totals.compute_output,
    ] {
        assert_eq!(duration.count, counted.totals.success.count);
    }
    assert_eq!(counted.totals.inference_count, counted.totals.success.count, "each brings one row");
    let executed: u64 = counted.totals.batches.iter().map(|batch| batch.compute_infer.count).sum();
    assert_eq!(executed, counted.totals.execution_count);
    assert!(executed <= all.accepted - cancelled);
    engine.stop(crate::support::TIMEOUT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_agree_for_requests_that_run_alone_on_the_callers_thread() {
    load("", failing_sometimes().mobile()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_agree_for_ordered_batches_of_several_instances() {
    let queue = "default_queue_policy { max_queue_size: 20 default_timeout_microseconds: 200 }";
    let config = format!(
        "instance_group {{ count: 3 }}
         dynamic_batching {{ preserve_ordering: true max_queue_delay_microseconds: 50 {queue} }}"
    );
    load(&config, failing_sometimes()).await;
}
