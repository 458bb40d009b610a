//! Options of metrics and tracing.

use engine::MetricsOptions;

use super::option_spec::{OptionSpec, boolean, checked, count, port, text};
use crate::options::typed::TypedOptions;
use crate::options::values;

pub(super) const METRICS: &[OptionSpec] = &[
    boolean("allow-metrics", |typed, value| typed.metrics.allow = value, "Listen for Prometheus scrapes.")
        .default("true"),
    boolean(
        "allow-gpu-metrics",
        |typed, value| typed.metrics.gpu = value,
        "Report metrics of GPUs. No effect: no graphics processors are used. Needs --allow-metrics.",
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
        "The address to listen on for metrics, or unix:<path> for a unix socket.",
    )
    .default_note("the value of --http-address, which must then not be a unix socket"),
    port(
        "metrics-port",
        |typed, value| typed.metrics.port = value,
        "The port to listen on for metrics; 0 lets the system choose.",
    )
    .default("8002"),
    boolean(
        "metrics-use-ssl",
        |typed, value| typed.metrics.tls.on = value,
        "Encrypt the metrics port with TLS. Needs --metrics-server-cert and --metrics-server-key.",
    )
    .default("false"),
    // As for gRPC: if the option is given, with any value, it also switches TLS on.
    boolean(
        "metrics-use-ssl-mutual",
        |typed, value| {
            typed.metrics.tls.mutual = value;
            typed.metrics.tls.on = true;
        },
        "Encrypt the metrics port with TLS. If true, the server accepts only clients with a certificate that a certificate in \
         --metrics-root-cert has signed.",
    )
    .default_note("false"),
    text(
        "metrics-server-cert",
        |typed, value| typed.metrics.tls.server_cert = value.to_owned(),
        "A PEM file: the certificate chain of the server for the metrics port.",
    )
    .default(""),
    text(
        "metrics-server-key",
        |typed, value| typed.metrics.tls.server_key = value.to_owned(),
        "A PEM file: the private key of the server for the metrics port.",
    )
    .default(""),
    text(
        "metrics-root-cert",
        |typed, value| typed.metrics.tls.root_cert = value.to_owned(),
        "A PEM file: the certificates that may sign client certificates for the metrics port.",
    )
    .default(""),
    count(
        "metrics-interval-ms",
        |typed, value| typed.metrics.interval_ms = value,
        "The interval of measured values (processors and memory), in milliseconds. The server measures them when the \
             metrics are read, and uses a measurement for half of this time. 0: at each reading.",
    )
    .default("2000"),
    checked(
        "metrics-config",
        "<setting>=<value>",
        |typed, value| {
            let (key, value) = values::metrics_setting(value)?;
            match key {
                "counter_latencies" => typed.metrics.counter_latencies = values::boolean(value)?,
                "summary_latencies" => typed.metrics.summary_latencies = values::boolean(value)?,
                "histogram_latencies" => typed.metrics.histogram_latencies = values::boolean(value)?,
                "model_histograms" => typed.metrics.model_histograms = Some(values::boolean(value)?),
                "openmetrics" => typed.metrics.openmetrics = Some(values::boolean(value)?),
                "summary_quantiles" => quantiles(value, typed),
                _ => typed.metrics.unknown_settings.push(key.to_owned()),
            }
            Ok(())
        },
        "Which latencies to report. counter_latencies (sums, on), summary_latencies (quantiles of the last minute, off), \
             histogram_latencies (the time to the first response, off), model_histograms (distributions of time in \
             the queue, in the execution and in all, on) and openmetrics (OpenMetrics for scrapers that prefer it, on) \
             take true or false. summary_quantiles takes <quantile>:<error>[,...]. May be given several times.",
    )
    .default("counter_latencies=true"),
];

pub(super) const TRACING: &[OptionSpec] = &[checked(
    "trace-config",
    "[<mode>,]<setting>=<value>",
    |typed, value| typed.trace.add_setting(value),
    "Trace requests. For every mode: level (OFF, TIMESTAMPS, TENSORS), rate, count, mode \
             (triton, opentelemetry), max-buffered-bytes. For triton: file, log-frequency. For opentelemetry: url, \
             resource, phases (spans for queues, rows of batches), protocol (http/json, http/protobuf), bsp_max_queue_size, bsp_schedule_delay, \
             bsp_max_export_batch_size. May be given several times.",
)];

/// Quantiles with their errors: `0.5:0.05,0.99:0.001`. A wrong pair is left out with a warning.
fn quantiles(text: &str, typed: &mut TypedOptions) {
    typed.metrics.quantiles.clear();
    for pair in text.split(',') {
        match MetricsOptions::quantile(pair) {
            Some(quantile) => typed.metrics.quantiles.push(quantile),
            None => typed.warnings.push(format!(
                "Warning: '--metrics-config summary_quantiles' leaves '{pair}' out: a quantile is \
                 <quantile>:<error>, both from 0 to 1."
            )),
        }
    }
}
