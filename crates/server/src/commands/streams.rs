//! What all commands say and ask alike.
use std::{ffi::OsStr, fmt::Display, io::Write};

use crate::{error_line, options};

/// Where a command writes: its results, and its errors.
pub(super) type Streams<'a> = (&'a mut dyn Write, &'a mut dyn Write);

/// The exit code of a command line that cannot be understood.
const WRONG_USAGE: u8 = 2;

/// Says why a command line cannot be understood, and how `command` is called.
pub(super) fn refuse(error: &str, command: &str, err: &mut dyn Write) -> u8 {
    let calls = options::command_calls(command);
    // If the reader has closed stderr, the error does not matter.
    let _ = write!(
        err,
        "{}\n\n{calls}\nFor more information, try 'nereid {command} --help'.\n",
        error_line(error)
    );
    WRONG_USAGE
}

/// The exit code of a command that could not do its work.
const FAILED: u8 = 1;

/// Says why a command has failed.
pub(super) fn fail(error: impl Display, err: &mut dyn Write) -> u8 {
    // If the reader has closed stderr, the error does not matter.
    let _ = writeln!(err, "{}", error_line(&error.to_string()));
    FAILED
}

/// Whether a word asks for the help of a command.
pub(super) fn asks_for_help(word: &OsStr) -> bool {
    word == "--help" || word == "-h"
}
