//! Writes lines, counts what a file has of them, and tells what is lost: for the log, the access log, traces and recordings.
//!
//! [`LineWriter`] writes to a [`LineOutput`]. What has become of lines is in a [`LineAccount`], which outlives its writers: a
//! file may be opened again. The account says when a loss must be told, and its owner tells it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod account;
mod output;
mod writer;

pub use account::{LineAccount, LineCounts};
pub use output::LineOutput;
pub use writer::LineWriter;
