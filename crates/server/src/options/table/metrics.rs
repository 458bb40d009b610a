//! Options of metrics and tracing.

use super::super::trace;
use super::{INT_MAX, OptionValue, Spec, boolean, checked, port, text, values};

pub(super) const METRICS: &[Spec] = &[
    boolean("allow-metrics", |typed, value| typed.metrics.allow = value, "Listen for Prometheus scrapes.")
        .default("true"),
    boolean(
        "allow-gpu-metrics",
        |typed, value| typed.metrics.gpu = value,
        "Report metrics of GPUs. This version uses no GPUs. Needs --allow-metrics.",
    )
    .default("true"),
    boolean(
        "allow-cpu-metrics",
        |typed, value| typed.metrics.cpu = value,
        "Report the use of processors and memory. Needs --allow-metrics.",
    )
    .default("true"),
    text(
        "metrics-address",
        |typed, value| typed.metrics.address = value.to_owned(),
        "The address to listen on for metrics.",
    )
    .default_note("the value of --http-address"),
    port(
        "metrics-port",
        |typed, value| typed.metrics.port = value,
        "The port to listen on for metrics; 0 lets the system choose.",
    )
    .default("8002"),
    Spec::new(
        "metrics-interval-ms",
        OptionValue::Integer(1, INT_MAX, |_, _| ()),
        "The interval at which the server refreshes measured values, in milliseconds.",
    )
    .default("2000")
    .without_effect("processors and memory are measured whenever the metrics are read"),
    checked(
        "metrics-config",
        "<setting>=<value>",
        |typed, value| {
            let (key, value) = values::metrics_setting(value)?;
            match key {
                "counter_latencies" => typed.metrics.counter_latencies = values::boolean(value)?,
                "summary_latencies" => typed.metrics.summary_latencies = values::boolean(value)?,
                "histogram_latencies" => typed.metrics.histogram_latencies = values::boolean(value)?,
                // The setting lists the quantiles of summaries. This version has no summaries.
                "summary_quantiles" => {}
                _ => typed.metrics.unknown_settings.push(key.to_owned()),
            }
            Ok(())
        },
        "Which latencies to report: counter_latencies, summary_latencies and histogram_latencies \
             take true or false, summary_quantiles a list. May be given several times.",
    )
    .default("counter_latencies=true")
    .unsupported_if(
        |typed| typed.metrics.summary_latencies || typed.metrics.histogram_latencies,
        "latencies as summaries or histograms (summary_latencies, histogram_latencies)",
    ),
];

pub(super) const TRACING: &[Spec] = &[checked(
    "trace-config",
    "[<mode>,]<setting>=<value>",
    |typed, value| typed.trace.add_setting(value),
    "Trace requests. For every mode: level (OFF, TIMESTAMPS, TENSORS), rate, count, mode \
             (triton, opentelemetry). For triton: file, log-frequency. For opentelemetry: url, resource, \
             bsp_*. May be given several times.",
)
.unsupported_if(|typed| typed.trace.requested_by() == Some(trace::TraceSource::Config), trace::MISSING)];
