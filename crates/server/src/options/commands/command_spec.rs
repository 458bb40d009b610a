//! What describes a command and its options.

use clap::Command;

/// A command: its name, what follows it, and what it does.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct CommandSpec {
    /// The first word of the command line.
    pub(in super::super) name: &'static str,
    /// The words after it.
    pub(in super::super) usage: &'static str,
    /// What it does, as a verb with its object.
    pub(in super::super) purpose: &'static str,
    /// What it takes.
    pub(super) table: CommandTable,
}

/// Where the options of a command are described.
#[derive(Debug, Clone, Copy)]
pub(super) enum CommandTable {
    /// Here.
    Own(&'static CommandUsage),
    /// In the crate of the command.
    Clap(fn() -> Command),
}

/// A command that reads its words itself.
#[derive(Debug)]
pub(super) struct CommandUsage {
    /// The ways to call it. At least one.
    pub(super) forms: &'static [CommandForm],
    /// What it does, in sentences.
    pub(super) about: &'static str,
    /// What stands below its options, in lines.
    pub(super) after: &'static str,
}

/// One way to call a command.
#[derive(Debug)]
pub(super) struct CommandForm {
    /// The word after the command, or nothing.
    pub(super) word: &'static str,
    /// What this word does. Empty without a word.
    pub(super) purpose: &'static str,
    pub(super) options: &'static [CommandOption],
    /// Whether the options of the server follow.
    pub(super) takes_server_options: bool,
    /// What follows the options: words with `|` between them, or a placeholder such as `<file>...`.
    pub(super) operands: &'static str,
}

/// An option of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandOption {
    /// With its dashes.
    pub(super) name: &'static str,
    /// Its short name with a dash. Empty if it has none.
    pub(super) letter: &'static str,
    /// Its value: words with `|` between them, or a placeholder such as `<file>`. Empty for a flag.
    pub(super) value: &'static str,
    pub(super) help: &'static str,
}
