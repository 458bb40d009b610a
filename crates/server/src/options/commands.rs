//! The commands of the program, for its help, its manual page and completions.

/// A command: its name, what follows it, and what it does.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandSpec {
    /// The first word of the command line.
    pub(super) name: &'static str,
    /// The words after it.
    pub(super) usage: &'static str,
    /// What it does, as a verb with its object.
    pub(super) purpose: &'static str,
}

const fn command(name: &'static str, usage: &'static str, purpose: &'static str) -> CommandSpec {
    CommandSpec { name, usage, purpose }
}

/// All commands.
pub(super) const COMMANDS: &[CommandSpec] = &[
    command("check", "<repository>...", "check models without loading them"),
    command("config", "fmt|show|schema ...", "format, explain or describe configurations"),
    command("init", "<model directory>", "write config.pbtxt for a model"),
    command("explain", "[<model>]", "tell what a running server does, and what to change"),
    command("perf", "-m <model> [option]...", "measure a server ('nereid perf --help')"),
    command("record", "<file> [option]...", "write the calls of clients to a file ('nereid record --help')"),
    command("replay", "<file> [option]...", "send recorded calls again ('nereid replay --help')"),
    command("tune", "<model> [option]...", "find the best settings of a model ('nereid tune --help')"),
    command("api-key", "[--hash]", "make a key, or a digest, for --api-key-file"),
    command("completions", "bash|zsh|fish", "print completions for a shell"),
    command("man", "[options|configuration]", "print the manual page, or a reference"),
];

/// The names of all commands, with blanks between them.
pub(super) fn names() -> String {
    COMMANDS.iter().map(|command| command.name).collect::<Vec<_>>().join(" ")
}
