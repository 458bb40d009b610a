//! The commands of the program, for its help, its manual page and completions.
//!
//! Some read their words themselves: their options are in [`tables`], and their help is made from there. The others have
//! a table of their own crate.

mod description;
mod tables;
mod usage;

use clap::Command;

pub(super) use description::{
    CommandDescription, CommandOptionDescription, ServerOptionsPlace, ValueDescription, descriptions,
    server_options,
};
pub use usage::usage;

/// A command: its name, what follows it, and what it does.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandSpec {
    /// The first word of the command line.
    pub(super) name: &'static str,
    /// The words after it.
    pub(super) usage: &'static str,
    /// What it does, as a verb with its object.
    pub(super) purpose: &'static str,
    /// What it takes.
    table: CommandTable,
}

/// Where the options of a command are described.
#[derive(Debug, Clone, Copy)]
enum CommandTable {
    /// Here.
    Own(&'static CommandUsage),
    /// In the crate of the command.
    Clap(fn() -> Command),
}

/// A command that reads its words itself.
#[derive(Debug)]
struct CommandUsage {
    /// The ways to call it. At least one.
    forms: &'static [CommandForm],
    /// What it does, in sentences.
    about: &'static str,
    /// What stands below its options, in lines.
    after: &'static str,
}

/// One way to call a command.
#[derive(Debug)]
struct CommandForm {
    /// The word after the command, or nothing.
    word: &'static str,
    /// What this word does. Empty without a word.
    purpose: &'static str,
    options: &'static [CommandOption],
    /// Whether the options of the server follow.
    takes_server_options: bool,
    /// What follows the options: words with `|` between them, or a placeholder such as `<file>...`.
    operands: &'static str,
}

/// An option of a command.
#[derive(Debug)]
struct CommandOption {
    /// With its dashes.
    name: &'static str,
    /// Its value: words with `|` between them, or a placeholder such as `<file>`. Empty for a flag.
    value: &'static str,
    help: &'static str,
}

const fn command(
    name: &'static str,
    usage: &'static str,
    purpose: &'static str,
    table: CommandTable,
) -> CommandSpec {
    CommandSpec { name, usage, purpose, table }
}

/// All commands.
pub(super) const COMMANDS: &[CommandSpec] = &[
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
    command(
        "perf",
        "-m <model> [option]...",
        "measure a server ('nereid perf --help')",
        CommandTable::Clap(perf::command_line),
    ),
    command(
        "record",
        "<file> [option]...",
        "write the calls of clients to a file ('nereid record --help')",
        CommandTable::Clap(recording::record::command_line),
    ),
    command(
        "replay",
        "<file> [option]...",
        "send recorded calls again ('nereid replay --help')",
        CommandTable::Clap(recording::replay_command_line),
    ),
    command(
        "tune",
        "<model> [option]...",
        "find the best settings of a model ('nereid tune --help')",
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
];

/// The names of all commands.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

/// The names of all commands, and what they do.
pub(super) fn purposes() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().map(|command| (command.name, command.purpose))
}
