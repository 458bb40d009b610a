//! `nereid record`: records traffic until SIGINT or SIGTERM.
use std::ffi::OsString;

use recording::record::RecordingEnd;

use super::streams::Streams;
use crate::signals::Signals;

/// Runs the command; blocks. The first argument is the program's name. Returns the exit code.
pub(super) fn run(arguments: impl Iterator<Item = OsString>, (out, err): Streams<'_>) -> u8 {
    let end = || {
        let mut signals = Signals::listen()?;
        let end: RecordingEnd = Box::pin(async move {
            signals.first().await;
        });
        Ok(end)
    };
    recording::record::run(arguments, end, out, err)
}
