//! Requests, responses, the channel between them, and what a backend implements.
//!
//! Backends, the executor, the engine and the protocols use these types. This crate contains no I/O, no clock and no protocol, and starts no threads. It
//! makes threads wait that ask for it: by its locks, and where a model waits for a client ([`UnreadPolicy`]). Callers pass every
//! `Timestamp`. Backends read one clock, that of [`ExecutionTimes`]; the runtime supplies it as a function.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod agent;
pub mod backend;
pub mod batching;
pub mod cache;
mod client_id;
mod inferer;
pub mod lock;
pub mod metric_registry;
pub mod metrics;
mod model_counters;
mod name_hints;
mod plugins;
pub mod rejection;
mod report;
pub mod repository;
mod request;
mod request_validator;
mod response;
mod response_channel;
mod runner;
pub mod sync;
mod timeline;
mod trace;
mod warmup;

pub use client_id::ClientId;
pub use inferer::{Inferer, ModelChangeDone, ModelCommands};
pub use metrics::MetricSource;
pub use model_counters::{BatchStatistic, DurationStatistic, ModelCounters, ModelTotals};
pub use plugins::{BackendSetting, MemoryFunctions, Plugins};
pub use proto::{did_you_mean, nearest};
pub use report::ResponseReport;
pub use request::{OutputPlacement, OutputSelection, Request, RequestInputs, id_prefix};
pub use request_validator::{ReadableMemory, RequestValidator};
pub use response::{Response, ResponseItem};
pub use response_channel::{
    BackendReport, BatchReporter, Canceller, EntryIdSetter, PassingResponse, Responder, ResponseObserver,
    ResponseOrder, ResponseStream, Unobserved, UnreadBudget, UnreadPolicy, response_channel,
};
pub use runner::{ModelRunner, RunThread};
pub use scheduling::{EntryId, SequenceId, SequencePosition, Timestamp};
pub use timeline::{ExecutionTimes, ReportedTimes, Timeline};
pub use trace::{TensorActivity, TraceActivity, TraceContext, TraceId, TraceIdentity, TraceSink};
pub use warmup::{WarmupFiles, WarmupSample};
