//! Which command a command line begins with.
use std::{ffi::OsString, io, iter::Peekable};

use inference::Plugins;

use super::{api_key, check, config, explain, record, references, streams::Streams, tune};
use crate::options::{ProcessEnvironment, ResolvedOptions};

/// Runs the command that the command line begins with; blocks. `plugins` makes the plug-ins of a server with these
/// options. Returns the exit code, or `None` if the line has no command: then it is one of a server.
pub fn run(
    arguments: &mut Peekable<impl Iterator<Item = OsString>>,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
) -> Option<u8> {
    let name = arguments.peek()?.to_str()?.to_owned();
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let streams: Streams<'_> = (&mut out, &mut err);
    let environment = ProcessEnvironment::of_this_process;
    Some(match name.as_str() {
        "check" => check::run(arguments.skip(1), &environment(), plugins, streams),
        "config" => config::run_config(arguments.skip(1), &environment(), plugins, streams),
        "init" => config::run_init(arguments.skip(1), &environment(), plugins, streams),
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
