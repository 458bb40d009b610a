//! KServe v2 over HTTP/1.1.
//!
//! [`serve`] runs an [`HttpService`] on a bound listener. The codecs ([`request`], [`response`] and those of
//! `generate`) depend neither on the engine nor on sockets.
mod activity;
mod base64_text;
mod body;
mod call;
mod compression;
mod connection;
mod context;
#[cfg(test)]
mod decode_cost_tests;
mod docs;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod generate;
mod header_case;
mod infer;
pub(crate) mod json;
mod json_work;
mod managed;
mod models;
mod options;
mod origin_rules;
mod port_options;
mod regions;
pub(crate) mod reply;
pub mod request;
#[cfg(test)]
mod request_tests;
pub mod response;
mod route_rules;
mod router;
mod server;
mod service;

pub use body::ResponseBody;
pub use call::{HttpCall, IncomingBody};
pub use connection::{HttpEndpoint, serve};
pub use managed::{InferenceType, SageMakerOptions, SageMakerService, VertexAiOptions, VertexAiService};
pub use options::{DrainStatus, HttpOptions};
pub use origin_rules::OriginRules;
pub use port_options::PortOptions;
pub use service::HttpService;
