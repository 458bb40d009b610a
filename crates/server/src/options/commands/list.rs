//! All commands.

use super::{
    command_spec::{CommandSpec, CommandTable},
    tables,
};

const fn command(
    name: &'static str,
    usage: &'static str,
    purpose: &'static str,
    table: CommandTable,
) -> CommandSpec {
    CommandSpec { name, usage, purpose, table }
}

/// All commands.
pub(in super::super) const COMMANDS: &[CommandSpec] = &[
    command(
        "serve",
        "[option]... <repository|model.onnx>...",
        "serve models; the word may be left out",
        CommandTable::Own(&tables::SERVE),
    ),
    command(
        "check",
        "<repository>...",
        "check models without loading them",
        CommandTable::Own(&tables::CHECK),
    ),
    command(
        "config",
        "fmt|show|schema ...",
        "format, explain or describe configurations",
        CommandTable::Own(&tables::CONFIG),
    ),
    command("init", "<model directory>", "write config.pbtxt for a model", CommandTable::Own(&tables::INIT)),
    command(
        "explain",
        "[<model>]",
        "tell what a running server does, and what to change",
        CommandTable::Own(&tables::EXPLAIN),
    ),
    command("perf", "<model> [option]...", "measure a server", CommandTable::Clap(perf::command_line)),
    command(
        "record",
        "<file> [option]...",
        "write the calls of clients to a file",
        CommandTable::Clap(recording::record::command_line),
    ),
    command(
        "replay",
        "<file> [option]...",
        "send recorded calls again",
        CommandTable::Clap(recording::replay_command_line),
    ),
    command(
        "tune",
        "<model> [option]...",
        "find the best settings of a model",
        CommandTable::Clap(tune::options::command_line),
    ),
    command(
        "api-key",
        "[--hash]",
        "make a key, or a digest, for --api-key-file",
        CommandTable::Own(&tables::API_KEY),
    ),
    command(
        "completions",
        "bash|zsh|fish",
        "print completions for a shell",
        CommandTable::Own(&tables::COMPLETIONS),
    ),
    command(
        "man",
        "[options|configuration]",
        "print the manual page, or a reference",
        CommandTable::Own(&tables::MAN),
    ),
    command(
        "help",
        "[<command>]",
        "print the commands, or the help of one",
        CommandTable::Own(&tables::HELP),
    ),
];

/// The names of all commands.
pub(in super::super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

/// The command that a misspelt word probably stands for.
pub fn nearest_command(word: &str) -> Option<&'static str> {
    inference::nearest(word, names())
}

/// The names of all commands, and what they do.
pub(in super::super) fn purposes() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().map(|command| (command.name, command.purpose))
}
