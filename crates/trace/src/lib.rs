//! Tracing: which requests are traced, and where their traces go.
//!
//! [`settings`] decides what the settings mean. It is pure. [`Tracer`] samples requests by them: a frontend asks it for
//! each request, and gets a [`RequestTrace`] for a sampled one. The trace collects the times and tensors of the request
//! and of the requests that follow from it. When the last of them has ended, the trace goes to a thread of this crate,
//! which writes files (`file`) or sends spans to a collector (`otlp`). Neither a disk nor a collector ever delays a
//! request: what does not fit into the memory for traces is dropped and counted.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod active;
mod config;
mod exporter;
mod file;
mod metrics;
mod otlp;
mod propagation;
mod record;
mod request_trace;
pub mod settings;
mod tracer;

pub use config::{OtlpConfig, OtlpProtocol, TraceConfig, TraceDestination, TraceFileConfig};
pub use otlp::{read_attributes, read_headers};
pub use propagation::RemoteContext;
pub use request_trace::{FrontendActivity, RequestTrace};
pub use tracer::{ShownSetting, Tracer};
