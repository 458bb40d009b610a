//! The Prometheus text of all counters, with the families, labels, order and units of Triton.
//!
//! Dashboards depend on the names: counters have no suffix `_total`, and durations are whole microseconds. The counters
//! are in nanoseconds, and this module divides them, so that the fractions of fast models add up (P-W31).
use std::{collections::BTreeMap, sync::Arc};

use host::now;
use inference::{
    MetricSource,
    cache::ResponseCache,
    metrics::{MetricKind, MetricLabels, MetricsForm, MetricsText, label_text},
};
use vocabulary::{LabelName, Name};

use super::{
    distributions,
    host_gauges::HostGauges,
    series::{Series, family},
};
use crate::{
    account::ModelStatistics,
    models::loaded_version::LoadedVersion,
    options::MetricsOptions,
    snapshot::{DemandCounts, ModelMemoryTotals},
};

/// Writes the text on demand.
pub(crate) struct Exposition {
    options: Arc<MetricsOptions>,
    host: Option<HostGauges>,
    more: Option<Arc<dyn MetricSource>>,
    cache: Option<Arc<dyn ResponseCache>>,
}

/// Selects the counter that a family shows.
type Pick = fn(&ModelStatistics) -> u64;

const MICROSECONDS: u64 = 1_000;

const MEMORY_HELP: &str = "Memory that a model and its instances hold as far as their backend knows, in bytes. ONNX Runtime: \
     what its sessions allocate, and other weights by the size of the files. Plug-ins: what they report; absent if nothing";

const BUSY_RATIO_HELP: &str =
    "Share of the last 5 to 10 seconds in which the instances of a model ran batches, from 0 to 1";

const QUEUED_WORK_HELP: &str =
    "Estimated time that the instances of a model need for the requests that wait, in seconds";

impl Exposition {
    pub(crate) fn new(
        options: Arc<MetricsOptions>,
        more: Option<Arc<dyn MetricSource>>,
        cache: Option<Arc<dyn ResponseCache>>,
    ) -> Self {
        Self { host: options.host.then(|| HostGauges::new(options.interval / 2)), options, more, cache }
    }

    /// The server's response cache, if it has one.
    pub(crate) fn cache(&self) -> Option<&Arc<dyn ResponseCache>> {
        self.cache.as_ref()
    }

    /// The value of a metric of a plug-in, by the name of its family and one of its labels.
    pub(crate) fn plugin_metric(&self, family: &str, label: (&str, &str)) -> Option<f64> {
        self.more.as_ref()?.value(family, label)
    }

    /// The whole text for these model versions, and for repositories that can be read or not.
    pub(crate) fn text<'a>(
        &self,
        form: MetricsForm,
        models: impl Iterator<Item = &'a Arc<LoadedVersion>>,
        repositories: &BTreeMap<Name, bool>,
        model_memory: Option<ModelMemoryTotals>,
    ) -> String {
        let series: Vec<_> = models.map(|loaded| Series::read(loaded)).collect();
        let mut text = MetricsText::new(form);
        request_counters(&mut text, &series);
        if self.options.counter_latencies {
            duration_counters(&mut text, &series);
        }
        cache_counters(&mut text, &series, self.options.counter_latencies);
        if self.options.model_histograms {
            distributions::batch_counters(&mut text, &series);
        }
        model_gauges(&mut text, &series);
        repository_gauges(&mut text, repositories);
        if let Some(model_memory) = model_memory {
            model_memory_gauges(&mut text, model_memory);
        }
        pinned_memory_gauges(&mut text);
        family(
            &mut text,
            "nereid_build_info",
            MetricKind::Gauge,
            "The version of Nereid, as a label; always 1",
            std::iter::once((concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0)),
        );
        if let Some(host) = &self.host {
            host_gauges(&mut text, host);
        }
        distributions::histograms(&mut text, &series, &self.options);
        if self.options.summary_latencies {
            distributions::summaries(&mut text, &series, now());
        }
        let cache = self.cache.as_ref().and_then(|cache| cache.metrics());
        for more in cache.into_iter().chain(self.more.as_deref()) {
            more.append_to(&mut text);
        }
        text.finish()
    }
}

fn model_gauges(text: &mut MetricsText, series: &[Series<'_>]) {
    let loads: Vec<_> = series.iter().map(|one| (one.own(), one.loaded.work().workload())).collect();
    family(
        text,
        "nv_inference_pending_request_count",
        MetricKind::Gauge,
        "Instantaneous number of pending requests awaiting execution per-model.",
        loads.iter().map(|(labels, load)| (*labels, load.requests as f64)),
    );
    family(
        text,
        "nereid_requests_in_flight",
        MetricKind::Gauge,
        "Number of requests of a model that have been accepted and have not ended",
        series.iter().map(|one| (one.own(), one.loaded.in_flight() as f64)),
    );
    let estimated = loads.iter().filter_map(|(labels, load)| Some((*labels, load.time?.as_secs_f64())));
    family(text, "nereid_queued_work_seconds", MetricKind::Gauge, QUEUED_WORK_HELP, estimated);
    let busy = loads.iter().filter_map(|(labels, load)| Some((*labels, load.busy_share?)));
    family(text, "nereid_instance_busy_ratio", MetricKind::Gauge, BUSY_RATIO_HELP, busy);
    family(
        text,
        "nv_model_load_duration_secs",
        MetricKind::Gauge,
        "Model load time in seconds",
        series.iter().map(|one| (one.own(), one.loaded.load_duration().as_secs_f64())),
    );
    let memory = series.iter().flat_map(|one| &one.memory);
    family(
        text,
        "nereid_model_memory_bytes",
        MetricKind::Gauge,
        MEMORY_HELP,
        memory.map(|(labels, byte_size)| (labels.as_str(), *byte_size as f64)),
    );
}

fn repository_gauges(text: &mut MetricsText, repositories: &BTreeMap<Name, bool>) {
    let repositories = repositories.iter().map(|(repository, is_readable)| {
        let labels = MetricLabels::from([(LabelName::of("repository"), repository.to_string())]);
        (label_text(&labels), f64::from(u8::from(*is_readable)))
    });
    let repositories: Vec<_> = repositories.collect();
    family(
        text,
        "nereid_repository_readable",
        MetricKind::Gauge,
        "Whether a model repository that is polled could be read the last time: 1 or 0",
        repositories.iter().map(|(labels, readable)| (labels.as_str(), *readable)),
    );
}

/// The budget of models that are loaded on demand.
fn model_memory_gauges(text: &mut MetricsText, totals: ModelMemoryTotals) {
    let ModelMemoryTotals { limit, used, counts } = totals;
    let DemandCounts { loads, unloads, refusals } = counts;
    let families = [
        (
            "nereid_model_memory_budget_bytes",
            MetricKind::Gauge,
            "The memory that all models together may have, in bytes",
            limit,
        ),
        (
            "nereid_model_memory_budget_used_bytes",
            MetricKind::Gauge,
            "The memory that models have or were promised, in bytes",
            used,
        ),
        (
            "nereid_demand_loads_total",
            MetricKind::Counter,
            "Models that were loaded because requests or operators asked for them",
            loads,
        ),
        (
            "nereid_demand_unloads_total",
            MetricKind::Counter,
            "Models that were unloaded because others needed their memory",
            unloads,
        ),
        (
            "nereid_demand_refusals_total",
            MetricKind::Counter,
            "Demands for models that did not fit or could not be loaded",
            refusals,
        ),
    ];
    for (name, kind, help, value) in families {
        family(text, name, kind, help, std::iter::once(("", value as f64)));
    }
}

fn request_counters(text: &mut MetricsText, series: &[Series<'_>]) {
    let count = |pick: Pick| series.iter().map(move |one| (one.own(), pick(&one.statistics) as f64));
    family(
        text,
        "nv_inference_request_success",
        MetricKind::Counter,
        "Number of successful inference requests, all batch sizes",
        count(|statistics| statistics.totals.success.count),
    );
    let failures = series.iter().flat_map(|one| {
        let failures = |reason| one.loaded.record().failures(reason) as f64;
        one.labels.failures.iter().map(move |(reason, labels)| (labels.as_str(), failures(*reason)))
    });
    family(
        text,
        "nv_inference_request_failure",
        MetricKind::Counter,
        "Number of failed inference requests, all batch sizes",
        failures,
    );
    family(
        text,
        "nv_inference_count",
        MetricKind::Counter,
        "Number of inferences performed (does not include cached requests)",
        count(|statistics| statistics.totals.inference_count),
    );
    family(
        text,
        "nv_inference_exec_count",
        MetricKind::Counter,
        "Number of model executions performed (does not include cached requests)",
        count(|statistics| statistics.totals.execution_count),
    );
}

fn duration_counters(text: &mut MetricsText, series: &[Series<'_>]) {
    let families: [(&str, &str, Pick); 5] = [
        ("request", "inference request duration in microseconds (includes cached requests)", |s| {
            s.totals.success.ns
        }),
        ("queue", "inference queuing duration in microseconds (includes cached requests)", |s| {
            s.totals.queue.ns
        }),
        ("compute_input", "compute input duration in microseconds (does not include cached requests)", |s| {
            s.totals.compute_input.ns
        }),
        (
            "compute_infer",
            "compute inference duration in microseconds (does not include cached requests)",
            |s| s.totals.compute_infer.ns,
        ),
        (
            "compute_output",
            "inference compute output duration in microseconds (does not include cached requests)",
            |s| s.totals.compute_output.ns,
        ),
    ];
    for (name, help, ns) in families {
        family(
            text,
            &format!("nv_inference_{name}_duration_us"),
            MetricKind::Counter,
            &format!("Cumulative {help}"),
            series.iter().map(|one| (one.own(), (ns(&one.statistics) / MICROSECONDS) as f64)),
        );
    }
}

fn cache_counters(text: &mut MetricsText, series: &[Series<'_>], durations: bool) {
    let of = |pick: Pick| {
        let cached = series.iter().filter(|one| one.is_cached());
        cached.map(move |one| (one.own(), pick(&one.statistics) as f64))
    };
    let families: [(bool, &str, &str, Pick); 4] = [
        (true, "num_hits", "Number of cache hits per model", |s| s.totals.cache_hit.count),
        (durations, "hit_duration", "Total cache hit duration per model, in microseconds", |s| {
            s.totals.cache_hit.ns / MICROSECONDS
        }),
        (true, "num_misses", "Number of cache misses per model", |s| s.totals.cache_miss.count),
        (
            durations,
            "miss_duration",
            "Total cache miss (insert+lookup) duration per model, in microseconds",
            |s| s.totals.cache_miss.ns / MICROSECONDS,
        ),
    ];
    for (shown, name, help, pick) in families {
        if shown {
            family(text, &format!("nv_cache_{name}_per_model"), MetricKind::Counter, help, of(pick));
        }
    }
}

/// As Triton without a GPU: there is no pool, and the gauges are 0, so that dashboards have no gap.
fn pinned_memory_gauges(text: &mut MetricsText) {
    for (what, help) in [
        ("total", "Pinned memory pool total memory size, in bytes"),
        ("used", "Pinned memory pool used memory size, in bytes"),
    ] {
        let name = format!("nv_pinned_memory_pool_{what}_bytes");
        family(text, &name, MetricKind::Gauge, help, std::iter::once(("", 0.0)));
    }
}

fn host_gauges(text: &mut MetricsText, host: &HostGauges) {
    let mut gauge =
        |name, help, value| family(text, name, MetricKind::Gauge, help, std::iter::once(("", value)));
    let (utilization, memory) = host.read();
    gauge("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", utilization);
    if let Some((total, used)) = memory {
        gauge("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", total as f64);
        gauge("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", used as f64);
    }
}
