//! The vocabulary: what a tensor, a request, a response, an error, a model configuration and a backend are.
//!
//! Every other crate speaks in these words. Here is no I/O, no thread, no clock and no protocol: a `Timestamp` is
//! always handed in, and the one clock a backend may ask ([`ExecutionTimes`]) is a function the runtime put there.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod agent;
pub mod backend;
pub mod batching;
pub mod cache;
pub mod config;
mod error;
mod metrics;
mod name;
mod observe;
mod report;
mod request;
mod response;
pub mod sync;
mod tensor;
mod timeline;

pub use error::{Error, ErrorCode, FailureReason, panic_message};
pub use metrics::MetricSource;
pub use name::Name;
pub use observe::{BatchReporter, Observe, Outcome};
pub use report::ResponseReport;
pub use request::{
    CorrelationId, OutputPlacement, Parameter, Parameters, Request, RequestInputs, SequenceStep,
};
pub use response::{
    Canceller, InFlightResponse, Responder, Response, ResponseInterceptor, ResponseItem, ResponseStream,
    response_channel,
};
pub use scheduling::Timestamp;
pub use tensor::{DataType, Shape, ShapeError, Tensor, TensorData, bytes_elements, element_count};
pub use timeline::{ExecutionTimes, ReportedTimes, Timeline};
