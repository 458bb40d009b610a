//! Completions of the command line for shells, made from the tables of the server and of the commands.

mod bash;
mod fish;
#[cfg(test)]
mod tests;
mod zsh;

use super::commands::{CommandDescription, CommandOptionDescription, ServerOptionsPlace};

/// The shells that there are completions for.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The script that completes commands, options and values in a shell of [`SHELLS`]. `None` for another one.
pub fn completions(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash::script()),
        "zsh" => Some(zsh::script()),
        "fish" => Some(fish::script()),
        _ => None,
    }
}

/// How the scripts call a command: `config fmt`. Nothing for the server.
fn key(command: &CommandDescription) -> String {
    command.words.join(" ")
}

/// The commands that the options of the server may follow without dashes, the server included.
fn is_server_like(command: &CommandDescription) -> bool {
    command.server_options == ServerOptionsPlace::Anywhere
}

/// The commands that take the options of the server behind `--`.
fn takes_server_after_dashes(command: &CommandDescription) -> bool {
    command.server_options == ServerOptionsPlace::AfterDashes
}

/// The names of these options.
fn names<'o>(options: impl IntoIterator<Item = &'o CommandOptionDescription>) -> Vec<&'o str> {
    options.into_iter().flat_map(|option| &option.names).map(String::as_str).collect()
}

/// The first sentence of a help.
fn summary(help: &str) -> &str {
    help.split_once(". ").map_or(help, |(first, _)| first).trim_end_matches('.')
}
