//! Recorded traffic: `nereid record` and `nereid replay`.
//!
//! [`record`] stands between clients and a server. It passes their calls on, over HTTP and gRPC, and writes them to a file
//! with their times and answers. [`replay`] sends the calls of such a file again, at the same times or faster, and compares
//! the answers with those of the file.
//!
//! Both know only the wire: the server can be any server of the KServe v2 protocol.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod event;
mod forwarded_headers;
mod message_content;
pub mod record;
mod replay;
mod upstream;

pub use replay::{command_line as replay_command_line, run as replay};
