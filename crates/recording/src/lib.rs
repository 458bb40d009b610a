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

use std::ffi::OsString;
use std::io::Write;

/// The table of the options of `nereid replay`, for completions and the manual page.
pub fn replay_command_line() -> clap::Command {
    replay::command_line()
}

/// Runs `nereid replay` to its end; blocks. The first argument is the program's name.
///
/// Writes the report or the help to `out`, and errors to `errors`. Returns the exit status: 0 if all answers are as
/// recorded, 1 if the file cannot be read or the server cannot be reached, 2 if the command line is wrong, 3 if an answer
/// differs or is missing.
pub fn replay(
    arguments: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> u8 {
    replay::run(arguments, out, errors)
}
