//! The entry point of the container image. It runs its arguments, as that of Triton's image does.

use std::{
    ffi::OsString,
    io::{self, Write},
    iter::Peekable,
    os::unix::process::CommandExt,
    process::Command,
};

/// Runs the program that the first argument names, in place of this process. Returns the exit code that shells have if the
/// program cannot be run. Returns `None` if there is no argument or the first one is an option: then the line is one of a
/// server.
pub fn run_program(arguments: &mut Peekable<impl Iterator<Item = OsString>>) -> Option<u8> {
    let program = arguments.next_if(|word| !word.as_encoded_bytes().starts_with(b"-"))?;
    let error = Command::new(&program).args(arguments).exec();
    // If the reader has closed stderr, the error does not matter.
    let _ = writeln!(io::stderr(), "error: cannot run '{}': {error}", program.display());
    Some(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}
