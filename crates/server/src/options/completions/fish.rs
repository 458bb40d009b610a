//! The script for fish.

use std::fmt::Write;

use super::parts::{is_server_like, key, summary, takes_server_after_dashes};
use crate::options::commands::{
    CommandDescription, CommandOptionDescription, ValueDescription, descriptions, purposes, server_options,
};

const HEAD: &str = "\
# Completes commands, options and values of nereid in fish:
# nereid completions fish > ~/.config/fish/completions/nereid.fish

# Whether the line has one of these commands. 'server' stands for none.
function __nereid_has
    set -l words (commandline -opc)
    set -l command server
";

pub(super) fn script() -> String {
    let commands = descriptions();
    let mut text = HEAD.to_owned();
    push_command(&mut text, &commands);
    // Only what is said below is completed with files.
    text.push_str("complete -c nereid -f\n");
    for (name, purpose) in purposes() {
        let purpose = plain(purpose);
        let _ = writeln!(
            text,
            "complete -c nereid -n '__nereid_has server; and test (count (commandline -opc)) = 1' -a {name} -d '{purpose}'"
        );
    }
    text.push_str("complete -c nereid -n '__nereid_has server' -F\n");
    for command in commands.iter().filter(|command| !command.words.is_empty()) {
        let condition = format!("__nereid_has \"{}\"", key(command));
        for option in &command.options {
            push_option(&mut text, &condition, option);
        }
        let operand = &command.operand;
        if !operand.words.is_empty() {
            let _ = writeln!(text, "complete -c nereid -n '{condition}' -a '{}'", operand.words.join(" "));
        }
        if operand.is_file {
            let _ = writeln!(text, "complete -c nereid -n '{condition}' -F");
        }
    }
    let like_server = commands.iter().filter(|command| is_server_like(command));
    let like_server: Vec<_> = like_server.map(|command| format!("\"{}\"", fish_key(command))).collect();
    let condition = format!("__nereid_has {}", like_server.join(" "));
    for option in server_options() {
        push_option(&mut text, &condition, &option);
    }
    for command in commands.iter().filter(|command| takes_server_after_dashes(command)) {
        let condition = format!("__nereid_has \"{}\"; and contains -- -- (commandline -opc)", key(command));
        server_options().for_each(|option| push_word(&mut text, &condition, &option));
    }
    text
}

/// Behind `--` fish completes no options: the names and the values are words.
fn push_word(text: &mut String, condition: &str, option: &CommandOptionDescription) {
    for name in option.names.iter().filter(|name| name.starts_with("--")) {
        let help = plain(summary(&option.help));
        let _ = writeln!(text, "complete -c nereid -n '{condition}' -a '{name}' -d '{help}'");
        let Some((_, ValueDescription { words, is_file })) = &option.value else { continue };
        let here = format!("{condition}; and test (commandline -opc)[-1] = {name}");
        if !words.is_empty() {
            let _ = writeln!(text, "complete -c nereid -n '{here}' -a '{}'", words.join(" "));
        }
        if *is_file {
            let _ = writeln!(text, "complete -c nereid -n '{here}' -F");
        }
    }
}

fn fish_key(command: &CommandDescription) -> String {
    if command.words.is_empty() { "server".to_owned() } else { key(command) }
}

/// Finds the command that the line begins with.
fn push_command(text: &mut String, commands: &[CommandDescription]) {
    let words = |depth: usize| {
        let of_depth = commands.iter().filter(move |command| command.words.len() == depth);
        of_depth.map(|command| format!("'{}'", key(command))).collect::<Vec<_>>().join(" ")
    };
    let _ = write!(
        text,
        "    contains -- \"$words[2]\" {}; and set command $words[2]\n    contains -- \"$words[2] $words[3]\" {}; and set command \
         \"$words[2] $words[3]\"\n    contains -- $command $argv\nend\n\n",
        words(1),
        words(2)
    );
}

fn push_option(text: &mut String, condition: &str, option: &CommandOptionDescription) {
    let mut line = format!("complete -c nereid -n '{condition}'");
    for name in &option.names {
        let _ = match name.strip_prefix("--") {
            Some(long) => write!(line, " -l {long}"),
            None => write!(line, " -s {}", name.trim_start_matches('-')),
        };
    }
    if let Some((_, ValueDescription { words, is_file })) = &option.value {
        line.push_str(if *is_file { " -r -F" } else { " -x" });
        if !words.is_empty() {
            let _ = write!(line, " -a '{}'", words.join(" "));
        }
    }
    let _ = writeln!(text, "{line} -d '{}'", plain(summary(&option.help)));
}

/// A text that quotes can stand around.
fn plain(text: &str) -> String {
    text.replace(['\\', '\''], "")
}
