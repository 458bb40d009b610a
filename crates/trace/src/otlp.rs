//! Mode `opentelemetry`: traces as spans for a collector.
//!
//! A thread of its own makes spans, and sends them in batches. Requests hand their traces over through a queue with a
//! bound. A collector that is slow or away loses spans, and delays nothing.
mod client;
mod exporter;
mod json;
mod pairs;
mod protobuf;
mod queue;
mod spans;
mod thread;

pub(crate) use exporter::OtlpExporter;
pub use pairs::{read_attributes, read_headers};
