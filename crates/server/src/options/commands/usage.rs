//! Makes the help of the commands that read their words themselves.

use std::fmt::Write;

use super::{
    command_spec::{CommandForm, CommandOption, CommandTable, CommandUsage},
    list::COMMANDS,
};

/// The line of a command shows its options if there are no more of them.
const MOST_SHOWN: usize = 3;

/// How such a command is called, in a line for each form.
///
/// # Panics
/// If the command has no table here, which a test of each command excludes.
pub fn calls(command: &str) -> String {
    let mut text = String::new();
    for (index, form) in table(command).forms.iter().enumerate() {
        let begin = if index == 0 { "Usage:" } else { "      " };
        let _ = writeln!(text, "{begin} nereid {command}{}", form.arguments());
    }
    text
}

fn table(command: &str) -> &'static CommandUsage {
    match COMMANDS.iter().find(|spec| spec.name == command).map(|spec| spec.table) {
        Some(CommandTable::Own(usage)) => usage,
        Some(CommandTable::Clap(_)) | None => panic!("the command '{command}' has no table"),
    }
}

/// The help of such a command. Ends with a newline.
///
/// # Panics
/// As [`calls`].
pub fn usage(command: &str) -> String {
    let usage = table(command);
    let mut text = calls(command);
    text.push('\n');
    if !usage.about.is_empty() {
        let _ = writeln!(text, "{}\n", usage.about);
    }
    for form in usage.forms {
        let indent = if form.word.is_empty() { "  " } else { "             " };
        if !form.word.is_empty() {
            let _ = writeln!(text, "  {:10} {}", form.word, form.purpose);
        }
        let width = form.options.iter().map(|option| option.heading().len()).max().unwrap_or(0);
        for option in form.options {
            let _ = writeln!(text, "{indent}{:width$}  {}", option.heading(), option.help);
        }
    }
    if usage.forms.iter().any(|form| !form.word.is_empty() || !form.options.is_empty()) {
        text.push('\n');
    }
    text.push_str(usage.after);
    text
}

impl CommandForm {
    /// What follows the name of the command, with a blank before each part.
    pub(super) fn arguments(&self) -> String {
        let mut parts = vec![self.word.to_owned()];
        if self.options.len() > MOST_SHOWN {
            parts.push("[option]...".to_owned());
        } else {
            parts.extend(self.options.iter().map(|option| match option.value {
                "" => format!("[{}]", option.name),
                value => format!("[{}={value}]", option.name),
            }));
        }
        if self.takes_server_options {
            parts.push("[server option]...".to_owned());
        }
        parts.push(self.operands.to_owned());
        parts.iter().filter(|part| !part.is_empty()).map(|part| format!(" {part}")).collect()
    }
}

impl CommandOption {
    fn heading(&self) -> String {
        let letter = if self.letter.is_empty() { String::new() } else { format!("{}, ", self.letter) };
        format!("{letter}{} {}", self.name, self.value).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_each_form_and_each_option() {
        let config = usage("config");
        assert!(config.starts_with(
            "Usage: nereid config fmt [--check] <file>...\n       nereid config show [--version=<number>] \
             [--format=text|json] [server option]... <model directory>\n       nereid config schema\n\n  fmt        \
             formats configurations; "
        ));
        assert!(config.contains("\n             --version <number>  the version"), "{config}");
        assert!(usage("api-key").starts_with("Usage: nereid api-key [--hash]\n\nMakes a key"));
        assert!(usage("man").contains("man -l -\n\nExit codes: 0 done, 2 wrong usage.\n"));
        for command in ["check", "config", "init", "explain", "api-key", "completions", "man", "help"] {
            let usage = usage(command);
            assert!(usage.lines().all(|line| line.len() <= 125), "{usage}");
            assert!(usage.contains("2 wrong usage") && usage.ends_with(".\n"), "{usage}");
        }
    }
}
