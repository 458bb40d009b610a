//! The log: Triton's line format behind the `log` crate, with settings that may change while the server runs.
//!
//! `log::info!`, `warn!` and `error!` are the three levels of the same name; `debug!` is verbose level 1 and `trace!`
//! verbose level 2 and above. Each has a switch of its own in [`LogSettings`]. A record of a level that is switched off
//! costs one atomic load. Each line is written with one system call, so lines of several threads or processes that
//! share a file do not mix. Nobody who logs waits for a reader: what a pipe or a terminal does not take waits in a queue
//! with a bound. Lines that are lost are counted, and told on stderr.
mod callback;
mod control;
mod destination;
mod json;
mod line;
mod logger;
mod losses;
mod queue;
mod settings;
mod sink;
mod tail;
mod text;

pub use callback::{LogCallback, LoggedRecord};
pub use line::timestamp;
pub use logger::{LAST_LINES, LogConfig, install, of_process};
pub use losses::LogLosses;
pub use settings::{Levels, LogFormat, LogSettings};
pub use sink::{WaitingStdout, color_streams, flush_streams, to_stderr, to_stdout};
