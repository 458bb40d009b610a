//! What the scripts have in common.

use crate::options::commands::{CommandDescription, CommandOptionDescription, ServerOptionsPlace};

/// How the scripts call a command: `config fmt`. Nothing for the server.
pub(super) fn key(command: &CommandDescription) -> String {
    command.words.join(" ")
}

/// The commands that the options of the server may follow without dashes, the server included.
pub(super) fn is_server_like(command: &CommandDescription) -> bool {
    command.server_options == ServerOptionsPlace::Anywhere
}

/// The commands that take the options of the server behind `--`.
pub(super) fn takes_server_after_dashes(command: &CommandDescription) -> bool {
    command.server_options == ServerOptionsPlace::AfterDashes
}

/// The names of these options.
pub(super) fn names<'o>(options: impl IntoIterator<Item = &'o CommandOptionDescription>) -> Vec<&'o str> {
    options.into_iter().flat_map(|option| &option.names).map(String::as_str).collect()
}

/// The first sentence of a help.
pub(super) fn summary(help: &str) -> &str {
    help.split_once(". ").map_or(help, |(first, _)| first).trim_end_matches('.')
}
