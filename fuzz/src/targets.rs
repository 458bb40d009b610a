//! The targets.
//!
//! The bounds are those of the parsers as they are, with little room: a change that makes a parser need more must say
//! so in its target.
mod configuration;
mod forests;
mod grpc;
mod http;
mod input;
mod operators;
mod python;
mod pytorch;
mod table;

pub use table::{TARGETS, find_target};
