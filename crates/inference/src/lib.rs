//! The vocabulary: what a tensor, a request, a response, an error, a model configuration and a backend are.
//!
//! Every other crate speaks in these words. Here is no I/O, no thread, no clock and no protocol: a `Timestamp` is
//! always handed in, and the one clock a backend may ask ([`ExecutionTimes`]) is a function the runtime put there.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod agent;
pub mod backend;
pub mod batching;
mod byte_budget;
pub mod cache;
pub mod config;
mod error;
mod inferer;
pub mod log_target;
pub mod metrics;
mod name;
mod report;
mod request;
mod response;
mod response_channel;
pub mod sync;
mod tensor;
mod timeline;
mod trace;

pub use byte_budget::{ByteBudget, ByteReservation, NoRoom};
pub use error::{Error, ErrorCode, FailureReason, panic_message};
pub use inferer::Inferer;
pub use metrics::MetricSource;
pub use name::Name;
pub use proto::nearest;
pub use report::ResponseReport;
pub use request::{
    OutputPlacement, OutputSelection, Parameter, Parameters, Request, RequestInputs, id_prefix,
};
pub use response::{Response, ResponseItem};
pub use response_channel::{
    BatchReporter, Canceller, ClientId, Flow, InFlightResponse, OrderPlace, Outcome, QueueNumber, Responder,
    ResponsePath, ResponseStream, UnreadBudget, response_channel,
};
pub use scheduling::{EntryId, SequenceId, SequenceStep, Timestamp};
pub use tensor::{DataType, Shape, ShapeError, Tensor, TensorData, bytes_elements, element_count};
pub use timeline::{ExecutionTimes, ReportedTimes, Timeline};
pub use trace::{TraceActivity, TraceContext, TraceSink};
