//! Mode `triton`: traces as JSON in files.
//!
//! A thread of its own formats and writes. Requests hand their traces over through a queue, whose memory the budget for
//! traces bounds. The thread holds texts until a file is complete, as Triton does. If it holds too many bytes, it writes
//! a part of a file.
mod exporter;
mod format;
mod numbers;
mod queue;
mod thread;

pub(crate) use exporter::FileExporter;
