//! KServe v2 over HTTP/1.1.
//!
//! [`serve`] runs an [`HttpService`] on a bound listener. The codecs ([`request`], [`response`] and those of
//! `generate`) depend neither on the engine nor on sockets.
mod activity;
mod body;
mod call;
mod compression;
#[cfg(test)]
mod decode_cost_tests;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod generate;
mod header_case;
mod infer;
pub(crate) mod json;
mod json_work;
mod logging;
mod managed;
mod openapi;
mod origin_rules;
mod page_file;
mod port_options;
pub(crate) mod reply;
mod repository;
pub mod request;
#[cfg(test)]
mod request_tests;
pub mod response;
mod router;
mod server;
mod service;
mod shared_memory;
pub mod show;
mod status;
mod trace_settings;

pub use body::ResponseBody;
pub use call::{HttpCall, IncomingBody};
pub use managed::{InferenceType, SageMakerOptions, SageMakerService, VertexAiOptions, VertexAiService};
pub use origin_rules::OriginRules;
pub use port_options::PortOptions;
pub use server::{HttpEndpoint, serve};
pub use service::{HttpOptions, HttpService};
