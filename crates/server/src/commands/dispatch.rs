//! Which command a command line begins with.
use std::{ffi::OsString, io, iter::Peekable};

use inference::Plugins;

use super::{
    api_key, check, config, explain, record, references,
    streams::{Streams, asks_for_help, refuse},
    tune,
};
use crate::{
    color::ColoredLines,
    options::{self, ProcessEnvironment, ResolvedOptions},
};

/// Runs the command that the command line begins with; blocks. `plugins` makes the plug-ins of a server with these
/// options. Returns the exit code, or `None` if the line is one of a server: then the word `serve` has been taken from
/// it.
pub fn run(
    arguments: &mut Peekable<impl Iterator<Item = OsString>>,
    environment: &ProcessEnvironment,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
) -> Option<u8> {
    let name = arguments.peek()?.to_str()?.to_owned();
    let (out, err, color) = (io::stdout(), io::stderr(), environment.color());
    let (out_has_colors, err_has_colors) = (color.colors(&out), color.colors(&err));
    let (mut out, mut err) = (ColoredLines::new(out, out_has_colors), ColoredLines::new(err, err_has_colors));
    let streams: Streams<'_> = (&mut out, &mut err);
    Some(match name.as_str() {
        "serve" => {
            arguments.next();
            return None;
        }
        "help" => help(arguments.skip(1), environment, plugins, streams),
        "check" => check::run(arguments.skip(1), environment, plugins, streams),
        "config" => config::run_config(arguments.skip(1), environment, plugins, streams),
        "init" => config::run_init(arguments.skip(1), environment, plugins, streams),
        "explain" => explain::run(arguments.skip(1), streams),
        "api-key" => api_key::run(arguments.skip(1), streams),
        // These take the name of the command as the name of their program.
        "perf" => perf::run(arguments, streams.0, streams.1),
        "record" => record::run(arguments, streams),
        "replay" => recording::replay(arguments, streams.0, streams.1),
        "tune" => tune::run(arguments, streams),
        "completions" => references::run_completions(arguments.skip(1), streams),
        "man" => references::run_man(arguments.skip(1), plugins, streams),
        _ => return None,
    })
}

/// Prints the commands, or the help of one. `arguments` are the words after `help`.
fn help(
    mut arguments: impl Iterator<Item = OsString>,
    environment: &ProcessEnvironment,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    (out, err): Streams<'_>,
) -> u8 {
    let text = match (arguments.next(), arguments.next()) {
        (None, _) => options::screen(),
        (Some(_), Some(more)) => {
            return refuse(&format!("unexpected argument: {}", more.display()), "help", err);
        }
        (Some(word), None) if word == "serve" => options::usage(),
        (Some(word), None) if word == "help" || asks_for_help(&word) => options::command_usage("help"),
        (Some(word), None) => {
            let line = [word.clone(), "--help".into()];
            if let Some(code) = run(&mut line.into_iter().peekable(), environment, plugins) {
                return code;
            }
            let near = options::nearest_command(&word.to_string_lossy());
            let advice = near.map(|command| format!("\nDid you mean '{command}'?")).unwrap_or_default();
            return refuse(&format!("'{}' is no command{advice}", word.display()), "help", err);
        }
    };
    // If the reader has closed stdout, the error does not matter.
    let _ = out.write_all(text.as_bytes());
    0
}
