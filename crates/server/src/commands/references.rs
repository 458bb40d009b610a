//! `nereid completions` and `nereid man`: what the tables of options and configurations say.
use std::ffi::OsString;

use engine::Plugins;

use super::Streams;
use crate::options::{self, Invocation, ProcessEnvironment, ResolvedOptions};

/// Runs the command. `words` is the whole command. `plugins` makes the plug-ins of a server with these options. Returns
/// the exit code.
pub(super) fn run(
    words: impl Iterator<Item = OsString>,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    (out, err): Streams<'_>,
) -> u8 {
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let text = match words[..] {
        ["man"] => Some(options::manual()),
        ["man", "options"] => Some(options::reference()),
        ["man", "configuration"] => configuration_reference(plugins),
        ["completions", shell] => options::completions(shell),
        _ => None,
    };
    // If the reader has closed a stream, the error does not matter.
    if let Some(text) = text {
        let _ = out.write_all(text.as_bytes());
        return 0;
    }
    let shells = options::SHELLS.join("|");
    let _ = writeln!(err, "Usage: nereid completions {shells} | nereid man [options|configuration]");
    1
}

/// The reference of configurations with the backends that are built in.
fn configuration_reference(plugins: impl FnOnce(&ResolvedOptions) -> Plugins) -> Option<String> {
    let options = ["--model-repository=/models".into()];
    match options::parse(options, &ProcessEnvironment::default()) {
        Ok(Invocation::Serve(options)) => Some(check::configuration_reference(&plugins(&options).backends)),
        Ok(Invocation::Print(_)) | Err(_) => None,
    }
}
