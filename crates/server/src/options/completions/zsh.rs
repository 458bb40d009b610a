//! The script for zsh.

use std::fmt::Write;

use super::parts::{is_server_like, key, summary, takes_server_after_dashes};
use crate::options::commands::{
    CommandDescription, CommandOptionDescription, ValueDescription, descriptions, purposes, server_options,
};

const HEAD: &str = r#"#compdef nereid
# Completes commands, options and values of nereid in zsh: nereid completions zsh > "${fpath[1]}/_nereid"

_nereid() {
  local curcontext=$curcontext command=
  local -a server commands options
"#;

/// Words behind `--` are those of a server.
const AFTER_DASHES: &str = r#"      integer dashes=${words[(ie)--]}
      if (( dashes < CURRENT )); then
        words=("$words[1]" "${(@)words[dashes+1,-1]}")
        (( CURRENT -= dashes - 1 ))
        _arguments $server
        return
      fi
"#;

pub(super) fn script() -> String {
    let commands = descriptions();
    let mut text = HEAD.to_owned();
    text.push_str("  server=(\n");
    for option in server_options() {
        push_option(&mut text, &option);
    }
    text.push_str("  )\n  commands=(\n");
    for (name, purpose) in purposes() {
        let _ = writeln!(text, "    '{name}:{}'", plain(purpose));
    }
    text.push_str("  )\n");
    push_command(&mut text, &commands);
    text.push_str("  case $command in\n");
    for command in &commands {
        push_call(&mut text, command);
    }
    text.push_str("  esac\n}\n\n_nereid \"$@\"\n");
    text
}

/// Finds the command that the line begins with, and takes its words from the line but the last of them.
fn push_command(text: &mut String, commands: &[CommandDescription]) {
    let patterns = |depth: usize, place: usize| {
        let of_depth = commands.iter().filter(move |command| command.words.len() == depth);
        of_depth.map(|command| command.words[place]).collect::<Vec<_>>().join("|")
    };
    let _ = write!(
        text,
        "  if (( CURRENT > 2 )) && [[ $words[2] == ({}) ]]; then\n    command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    \
         if (( CURRENT > 2 )) && [[ $command == config && $words[2] == ({}) ]]; then\n      command+=\" $words[2]\"\n      \
         shift words\n      (( CURRENT-- ))\n    fi\n  fi\n",
        patterns(1, 0),
        patterns(2, 1)
    );
}

/// The completion of the words after a command.
fn push_call(text: &mut String, command: &CommandDescription) {
    let _ = writeln!(text, "    '{}')", key(command));
    if command.words.is_empty() {
        text.push_str(
            "      if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n        _describe command commands\n        _files\n      else\n        \
             _arguments $server '*:repository:_files'\n      fi\n      ;;\n",
        );
        return;
    }
    if takes_server_after_dashes(command) {
        text.push_str(AFTER_DASHES);
    }
    text.push_str("      options=(\n");
    for option in &command.options {
        push_option(text, option);
    }
    let server = if is_server_like(command) { "$server " } else { "" };
    // With a text as an operand, zsh would show its name and complete no option.
    let operand = match command.operand == ValueDescription::default() {
        true => String::new(),
        false => format!("'*:argument:{}'", action(&command.operand)),
    };
    let _ = writeln!(text, "      )\n      _arguments $options {server}{operand}\n      ;;");
}

/// A line for each name of an option.
fn push_option(text: &mut String, option: &CommandOptionDescription) {
    let help = plain(summary(&option.help));
    for name in &option.names {
        // After an equals sign or as the next word; for a letter, right behind it or as the next word.
        let mark = match (&option.value, name.starts_with("--")) {
            (None, _) => "",
            (Some(_), true) => "=",
            (Some(_), false) => "+",
        };
        let value = option.value.as_ref().map_or_else(String::new, |(placeholder, value)| {
            format!(":{}:{}", plain(placeholder), action(value))
        });
        let _ = writeln!(text, "        '*{name}{mark}[{help}]{value}'");
    }
}

fn action(value: &ValueDescription) -> String {
    match (value.words.join(" "), value.is_file) {
        (words, false) if words.is_empty() => " ".to_owned(),
        (words, true) if words.is_empty() => "_files".to_owned(),
        (words, false) => format!("({words})"),
        (words, true) => format!("{{_alternative \"words:word:({words})\" \"files:file:_files\"}}"),
    }
}

/// A text without characters that mean something to `_arguments`.
fn plain(text: &str) -> String {
    text.replace(['\'', '\\', '`', '$'], "").replace(['[', ']', ':', '{', '}'], " ").trim().to_owned()
}
