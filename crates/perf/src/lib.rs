//! A load generator that uses only the network protocols: `nereid perf`. The benchmarks measure with it.
//!
//! It reads the inputs from the model's metadata, prepares its requests, and sends them repeatedly over HTTP or gRPC,
//! in a closed loop or by a schedule. It runs on one thread and prepares each request only once, because it often shares
//! the processor with the server that it measures. It reports its own processor time.
//!
//! It deliberately does not depend on the engine, so that it measures all servers of the protocol in the same way.

#![forbid(unsafe_code)]

mod arrivals;
mod caller;
mod chain;
mod command;
mod elements;
mod endpoint;
mod feed;
mod histogram;
mod http_request;
mod input_files;
mod inputs;
mod load;
mod model;
mod options;
mod payload;
mod preparation;
mod processor_time;
mod report;
mod search;
mod sequences;
mod shared_memory;
mod stability;
mod statistics;
mod tensors;

pub use command::run;
pub use options::command_line;
