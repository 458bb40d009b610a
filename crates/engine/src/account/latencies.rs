//! How the durations of a model's requests are distributed: histograms, and the summaries if the operator wants them.
use std::{sync::Arc, time::Duration};

use config::ModelConfig;
use inference::{ReportedTimes, Timeline, Timestamp, lock::Mutex};

use super::{
    quantile_summary::{QuantileSummary, SummaryReading},
    sharded_histogram::{HistogramReading, ShardedHistogram},
};
use crate::options::MetricsOptions;

/// Triton's buckets of first responses, in milliseconds.
const FIRST_RESPONSE_BOUNDS_MS: [f64; 4] = [100.0, 500.0, 2000.0, 5000.0];

/// The family whose buckets a model may choose.
const FIRST_RESPONSE_FAMILY: &str = "nv_inference_first_response_histogram_ms";

/// See the module documentation. Everything is absent by default, as for a server without metrics.
#[derive(Default)]
pub(crate) struct Latencies {
    histograms: Option<Box<Histograms>>,
    first_response: Option<ShardedHistogram>,
    summaries: Option<Box<Summaries>>,
}

struct Histograms {
    request: ShardedHistogram,
    queue: ShardedHistogram,
    compute: ShardedHistogram,
}

struct Summaries {
    options: Arc<MetricsOptions>,
    /// As Triton: a model with a response cache has no summary of requests.
    request: Option<Mutex<QuantileSummary>>,
    /// The summaries that each executed request enters, behind one lock.
    phases: Mutex<PhaseSummaries>,
    /// Hits and misses of a model with a response cache.
    cache: Option<(Mutex<QuantileSummary>, Mutex<QuantileSummary>)>,
}

struct PhaseSummaries {
    queue: QuantileSummary,
    compute_input: QuantileSummary,
    compute_infer: QuantileSummary,
    compute_output: QuantileSummary,
}

/// What the histograms show.
pub(crate) struct HistogramReadings {
    pub(crate) request: HistogramReading,
    pub(crate) queue: HistogramReading,
    pub(crate) compute: HistogramReading,
}

impl Latencies {
    /// What the options ask for, of a model with this configuration.
    pub(crate) fn new(options: &Arc<MetricsOptions>, config: &ModelConfig, now: Timestamp) -> Self {
        let histograms = || {
            let (request, queue, compute) = (
                ShardedHistogram::of_durations(),
                ShardedHistogram::of_durations(),
                ShardedHistogram::of_durations(),
            );
            Box::new(Histograms { request, queue, compute })
        };
        let first_response = || {
            let bounds = config.histogram_buckets.get(FIRST_RESPONSE_FAMILY);
            let bounds = bounds.map_or(&FIRST_RESPONSE_BOUNDS_MS[..], Vec::as_slice);
            ShardedHistogram::new(bounds.iter().map(|millis| (millis * 1e6) as u64).collect())
        };
        let summaries = || {
            let summary = || Mutex::new(QuantileSummary::new(now));
            let cached = config.response_cache.is_some();
            let phases = PhaseSummaries {
                queue: QuantileSummary::new(now),
                compute_input: QuantileSummary::new(now),
                compute_infer: QuantileSummary::new(now),
                compute_output: QuantileSummary::new(now),
            };
            Box::new(Summaries {
                options: options.clone(),
                request: (!cached).then(summary),
                phases: Mutex::new(phases),
                cache: cached.then(|| (summary(), summary())),
            })
        };
        Self {
            histograms: options.model_histograms.then(histograms),
            first_response: options.histogram_latencies.then(first_response),
            summaries: options.summary_latencies.then(summaries),
        }
    }

    /// A request has succeeded.
    pub(super) fn succeeded(&self, timeline: &Timeline, now: Timestamp) {
        let took = now - timeline.request_start;
        if let Some(histograms) = &self.histograms {
            match timeline.trace().and_then(|trace| trace.trace_id()) {
                Some(trace_id) => histograms.request.observe_traced(took, trace_id),
                None => histograms.request.observe(took),
            }
        }
        if let Some(summaries) = &self.summaries
            && let Some(request) = &summaries.request
        {
            request.lock().observe(took, now);
        }
    }

    /// A request that was executed has succeeded. It was in the queue for `queued`.
    pub(super) fn executed(&self, queued: Duration, times: ReportedTimes) {
        if let Some(histograms) = &self.histograms {
            histograms.queue.observe(queued);
            histograms.compute.observe(times.exec_end - times.exec_start);
        }
        if let Some(summaries) = &self.summaries {
            let now = times.exec_end;
            let mut phases = summaries.phases.lock();
            phases.queue.observe(queued, now);
            phases.compute_input.observe(times.input(), now);
            phases.compute_infer.observe(times.infer(), now);
            phases.compute_output.observe(times.output(), now);
        }
    }

    /// The backend reports other times than those that were counted. Summaries keep what they have seen.
    pub(super) fn revise(
        &self,
        (queued, times): (Duration, ReportedTimes),
        (queued_now, times_now): (Duration, ReportedTimes),
    ) {
        if let Some(histograms) = &self.histograms {
            let took = |times: ReportedTimes| times.exec_end - times.exec_start;
            histograms.queue.revise(queued, queued_now);
            histograms.compute.revise(took(times), took(times_now));
        }
    }

    /// A request was answered from the cache.
    pub(super) fn cache_hit(&self, queued: Duration, looked_up: Duration, now: Timestamp) {
        if let Some(histograms) = &self.histograms {
            histograms.queue.observe(queued);
        }
        if let Some(summaries) = &self.summaries {
            summaries.phases.lock().queue.observe(queued, now);
            if let Some((hits, _)) = &summaries.cache {
                hits.lock().observe(looked_up, now);
            }
        }
    }

    /// A cache miss is over: the look-up and the insertion, if there was one, took so long.
    pub(super) fn cache_miss(&self, took: Duration, now: Timestamp) {
        if let Some(summaries) = &self.summaries
            && let Some((_, misses)) = &summaries.cache
        {
            misses.lock().observe(took, now);
        }
    }

    /// Whether the first response of each request must be told.
    pub(super) fn wants_first_responses(&self) -> bool {
        self.first_response.is_some()
    }

    /// The first response of a request has come.
    pub(super) fn first_response(&self, after: Duration) {
        if let Some(first_response) = &self.first_response {
            first_response.observe(after);
        }
    }

    pub(crate) fn read_first_responses(&self) -> Option<HistogramReading> {
        self.first_response.as_ref().map(ShardedHistogram::read)
    }

    /// `None` if there are no histograms, or if they are empty.
    pub(crate) fn read_histograms(&self) -> Option<HistogramReadings> {
        let histograms = self.histograms.as_ref()?;
        let request = histograms.request.read();
        let (queue, compute) = (histograms.queue.read(), histograms.compute.read());
        (request.total() > 0).then_some(HistogramReadings { request, queue, compute })
    }

    /// The summaries that the model has, by the name and the help of their families.
    pub(crate) fn read_summaries(&self, now: Timestamp) -> Vec<(&'static str, &'static str, SummaryReading)> {
        let Some(summaries) = &self.summaries else { return Vec::new() };
        let Summaries { options, request, phases, cache } = &**summaries;
        let read = |summary: &mut QuantileSummary| summary.read(now, &options.quantiles);
        let read_own =
            |summary: Option<&Mutex<QuantileSummary>>| summary.map(|summary| read(&mut summary.lock()));
        let request = read_own(request.as_ref());
        let [queue, compute_input, compute_infer, compute_output] = {
            let mut phases = phases.lock();
            let PhaseSummaries { queue, compute_input, compute_infer, compute_output } = &mut *phases;
            [queue, compute_input, compute_infer, compute_output].map(|summary| Some(read(summary)))
        };
        let all = [
            request,
            queue,
            compute_input,
            compute_infer,
            compute_output,
            read_own(cache.as_ref().map(|(hits, _)| hits)),
            read_own(cache.as_ref().map(|(_, misses)| misses)),
        ];
        let named = SUMMARY_FAMILIES.into_iter().zip(all);
        named.filter_map(|((name, help), reading)| Some((name, help, reading?))).collect()
    }
}

/// Names and texts of Triton, in the order of [`Latencies::read_summaries`].
pub(crate) const SUMMARY_FAMILIES: [(&str, &str); 7] = [
    (
        "nv_inference_request_summary_us",
        "Summary of inference request duration in microseconds (includes cached requests)",
    ),
    (
        "nv_inference_queue_summary_us",
        "Summary of inference queuing duration in microseconds (includes cached requests)",
    ),
    (
        "nv_inference_compute_input_summary_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
    ),
    (
        "nv_inference_compute_infer_summary_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
    ),
    (
        "nv_inference_compute_output_summary_us",
        "Cumulative inference compute output duration in microseconds (does not include cached requests)",
    ),
    ("nv_cache_hit_summary_per_model", "Summary of cache hit counts/durations per model, in microseconds."),
    ("nv_cache_miss_summary_per_model", "Summary of cache miss counts/durations per model, in microseconds."),
];
