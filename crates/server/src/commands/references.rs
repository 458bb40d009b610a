//! `nereid completions` and `nereid man`: what the tables of options and configurations say.
use std::ffi::OsString;

use inference::Plugins;

use super::streams::{Streams, asks_for_help, refuse};
use crate::options::{self, Invocation, ProcessEnvironment, ResolvedOptions};

/// Runs `nereid completions`. `arguments` are the words after it. Returns the exit code.
pub(super) fn run_completions(arguments: impl Iterator<Item = OsString>, streams: Streams<'_>) -> u8 {
    let shells = options::SHELLS.join(", ");
    let printed = |words: &[&str]| match words {
        [shell] => options::completions(shell).ok_or_else(|| format!("'{shell}' is none of {shells}")),
        [] => Err(format!("name a shell: one of {shells}")),
        [_, more, ..] => Err(format!("unexpected argument: {more}")),
    };
    print("completions", arguments, printed, streams)
}

/// Runs `nereid man`. `arguments` are the words after it. `plugins` makes the plug-ins of a server with these options.
/// Returns the exit code.
pub(super) fn run_man(
    arguments: impl Iterator<Item = OsString>,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    streams: Streams<'_>,
) -> u8 {
    let printed = |words: &[&str]| match words {
        [] => Ok(options::manual()),
        ["options"] => Ok(options::reference()),
        ["configuration"] => configuration_reference(plugins),
        [subject] => Err(format!("'{subject}' is none of options, configuration")),
        [_, more, ..] => Err(format!("unexpected argument: {more}")),
    };
    print("man", arguments, printed, streams)
}

/// Prints what `printed` makes of the words after `command`, or its error.
fn print(
    command: &str,
    arguments: impl Iterator<Item = OsString>,
    printed: impl FnOnce(&[&str]) -> Result<String, String>,
    (out, err): Streams<'_>,
) -> u8 {
    let words: Vec<_> = arguments.collect();
    let text = if words.iter().any(|word| asks_for_help(word)) {
        Ok(options::command_usage(command))
    } else {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        printed(&words.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    };
    match text {
        Ok(text) => {
            // If the reader has closed stdout, the error does not matter.
            let _ = out.write_all(text.as_bytes());
            0
        }
        Err(error) => refuse(&error, command, err),
    }
}

/// The reference of configurations with the backends that are built in.
fn configuration_reference(plugins: impl FnOnce(&ResolvedOptions) -> Plugins) -> Result<String, String> {
    let options = ["--model-repository=/models".into()];
    match options::parse(options, &ProcessEnvironment::default()) {
        Ok(Invocation::Serve(options)) => Ok(check::configuration_reference(&plugins(&options).backends)),
        Ok(Invocation::Print(text)) => Ok(text),
        Err(refused) => Err(refused.explained()),
    }
}
