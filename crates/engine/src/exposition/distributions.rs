//! Families about distributions: why batches end, how large they are, how long requests take.
use inference::{
    Timestamp,
    metrics::{MetricFamilyText, MetricKind, MetricsText},
};

use super::series::{Series, family};
use crate::{
    account::{HistogramReading, HistogramReadings, SUMMARY_FAMILIES},
    options::MetricsOptions,
};

/// Selects the histogram that a family shows.
type PickHistogram = fn(&HistogramReadings) -> &HistogramReading;

/// The upper bounds of batch sizes.
const SIZE_BOUNDS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Why the batches of each model have ended. Models that have executed nothing have no series.
pub(super) fn batch_counters(text: &mut MetricsText, series: &[Series<'_>]) {
    let samples = series.iter().filter(|one| one.statistics.totals.execution_count > 0).flat_map(|one| {
        let ended = |end| one.loaded.record().counters().batches_ended(end) as f64;
        one.labels.batch_ends.iter().map(move |(end, labels)| (labels.as_str(), ended(*end)))
    });
    family(
        text,
        "nereid_inference_batches_total",
        MetricKind::Counter,
        "Number of executed batches, by the reason why no further request joined them",
        samples,
    );
}

/// All histograms. Models without requests have no series.
pub(super) fn histograms(text: &mut MetricsText, series: &[Series<'_>], options: &MetricsOptions) {
    if options.histogram_latencies {
        let readings = series
            .iter()
            .filter_map(|one| Some((one.own(), one.loaded.record().latencies().read_first_responses()?)));
        let readings: Vec<_> = readings.collect();
        of_durations(
            text,
            "nv_inference_first_response_histogram_ms",
            "Duration from request to first response in milliseconds",
            1e6,
            readings.iter().map(|(labels, reading)| (*labels, reading)),
        );
    }
    if !options.model_histograms {
        return;
    }
    let readings: Vec<_> = series
        .iter()
        .filter_map(|one| Some((one.own(), one.loaded.record().latencies().read_histograms()?)))
        .collect();
    let families: [(&str, &str, PickHistogram); 3] = [
        ("request", "Time from the arrival of a successful request to its last response", |all| &all.request),
        ("queue", "Time that a successful request waited in its queue", |all| &all.queue),
        ("compute", "Time that a successful request was in its execution", |all| &all.compute),
    ];
    for (name, help, of) in families {
        let name = format!("nereid_inference_{name}_duration_seconds");
        let filled = readings.iter().map(|(labels, all)| (*labels, of(all)));
        of_durations(text, &name, help, 1e9, filled.filter(|(_, reading)| reading.total() > 0));
    }
    batch_sizes(text, series);
}

/// A histogram of durations in a unit of so many nanoseconds. Without series there is no family.
fn of_durations<'s>(
    text: &mut MetricsText,
    name: &str,
    help: &str,
    unit: f64,
    readings: impl Iterator<Item = (&'s str, &'s HistogramReading)>,
) {
    let mut readings = readings.peekable();
    if readings.peek().is_none() {
        return;
    }
    let mut family = MetricFamilyText::begin(text, name, MetricKind::Histogram, help);
    for (labels, reading) in readings {
        let mut up_to = 0;
        let bounds = reading.bounds.iter().map(|bound| *bound as f64 / unit).chain([f64::INFINITY]);
        for ((bound, count), exemplar) in bounds.zip(&reading.counts).zip(&reading.exemplars) {
            up_to += count;
            family.bucket(labels, bound, up_to, *exemplar);
        }
        family.suffixed("_sum", labels, reading.nanos as f64 / unit);
        family.suffixed("_count", labels, up_to as f64);
    }
}

/// The statistics count each batch size exactly, so that nothing else needs to count them.
fn batch_sizes(text: &mut MetricsText, series: &[Series<'_>]) {
    let mut batched = series.iter().filter(|one| !one.statistics.totals.batches.is_empty()).peekable();
    if batched.peek().is_none() {
        return;
    }
    let help = "Number of rows of an executed batch";
    let mut family =
        MetricFamilyText::begin(text, "nereid_inference_batch_size", MetricKind::Histogram, help);
    for one in batched {
        let batches = &one.statistics.totals.batches;
        let count = |bound: u64| {
            let up_to = batches.iter().take_while(|batch| batch.batch_size <= bound);
            up_to.map(|batch| batch.compute_infer.count).sum::<u64>()
        };
        for bound in SIZE_BOUNDS {
            family.bucket(one.own(), bound as f64, count(bound), None);
        }
        let all = count(u64::MAX);
        family.bucket(one.own(), f64::INFINITY, all, None);
        let rows: u64 = batches.iter().map(|batch| batch.batch_size * batch.compute_infer.count).sum();
        family.suffixed("_sum", one.own(), rows as f64);
        family.suffixed("_count", one.own(), all as f64);
    }
}

/// All summaries.
pub(super) fn summaries(text: &mut MetricsText, series: &[Series<'_>], now: Timestamp) {
    let read: Vec<_> =
        series.iter().map(|one| (one.own(), one.loaded.record().latencies().read_summaries(now))).collect();
    for (name, help) in SUMMARY_FAMILIES {
        let of_family = read.iter().flat_map(|(labels, summaries)| {
            let summaries = summaries.iter().filter(move |(of, _, _)| *of == name);
            summaries.map(move |(_, _, reading)| (*labels, reading))
        });
        let mut of_family = of_family.peekable();
        if of_family.peek().is_none() {
            continue;
        }
        let mut family = MetricFamilyText::begin(text, name, MetricKind::Summary, help);
        for (labels, reading) in of_family {
            // As Triton: the order of its library.
            family.suffixed("_count", labels, reading.count as f64);
            family.suffixed("_sum", labels, reading.sum);
            for (quantile, value) in &reading.quantiles {
                family.quantile(labels, *quantile, *value);
            }
        }
    }
}
