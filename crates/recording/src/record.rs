//! `nereid record`: passes the calls of clients on to a server, and writes them to a file.

mod command;
mod hidden_tensors;
mod observed_call;
mod options;
mod proxy;
mod recorder;

pub use self::command::{RecordingEnd, run};
pub use self::options::{RecordOptions, command_line};
