//! What each command takes, in one form for all commands. Completions and the manual page are made from it.

use clap::{Arg, Command};

use super::{
    command_spec::{CommandForm, CommandSpec, CommandTable, CommandUsage},
    list::{COMMANDS, names},
};
use crate::options::table::{self, OptionSpec};

/// A command, or one way to call it.
#[derive(Debug)]
pub(in super::super) struct CommandDescription {
    /// The words after the name of the program: `["config", "fmt"]`. None for the server.
    pub(in super::super) words: Vec<&'static str>,
    /// What follows these words.
    pub(in super::super) arguments: String,
    pub(in super::super) about: String,
    /// What stands below the options.
    pub(in super::super) after: String,
    pub(in super::super) options: Vec<CommandOptionDescription>,
    pub(in super::super) operand: ValueDescription,
    pub(in super::super) server_options: ServerOptionsPlace,
}

/// Where the options of the server may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ServerOptionsPlace {
    Nowhere,
    /// Among the command's own.
    Anywhere,
    /// After `--`.
    AfterDashes,
}

/// An option of a command.
#[derive(Debug)]
pub(in super::super) struct CommandOptionDescription {
    /// With their dashes. At least one.
    pub(in super::super) names: Vec<String>,
    /// The placeholder of the value, and what it can be. `None` for a flag.
    pub(in super::super) value: Option<(String, ValueDescription)>,
    pub(in super::super) help: String,
}

/// What a value can be. Neither words nor a file: any text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct ValueDescription {
    pub(in super::super) words: Vec<String>,
    pub(in super::super) is_file: bool,
}

impl ValueDescription {
    /// By a placeholder: `text|json`, `zero|random|PATH`, `<file>...`.
    fn of(placeholder: &str) -> Self {
        let placeholder = placeholder.trim_matches(['[', ']']);
        if placeholder == "<command>" {
            return Self::of_words(names());
        }
        let names_file = |text: &str| {
            let text = text.to_lowercase();
            ["file", "path", "director", "repository"].iter().any(|word| text.contains(word)) || text == "dir"
        };
        if placeholder.contains('<') || !placeholder.contains('|') {
            return Self { words: Vec::new(), is_file: names_file(placeholder) };
        }
        let is_placeholder = |part: &&str| part.bytes().all(|byte| byte.is_ascii_uppercase());
        let (placeholders, words): (Vec<_>, Vec<_>) = placeholder.split('|').partition(is_placeholder);
        Self {
            words: words.into_iter().map(str::to_owned).collect(),
            is_file: placeholders.into_iter().any(names_file),
        }
    }

    fn of_words(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), is_file: false }
    }
}

/// The server, without its options, and each command.
pub(in super::super) fn descriptions() -> Vec<CommandDescription> {
    let server = CommandDescription {
        words: Vec::new(),
        arguments: String::new(),
        about: String::new(),
        after: String::new(),
        options: Vec::new(),
        operand: ValueDescription { is_file: true, ..ValueDescription::of_words(names()) },
        server_options: ServerOptionsPlace::Anywhere,
    };
    let mut all = vec![server];
    for CommandSpec { name, table, .. } in COMMANDS {
        match table {
            CommandTable::Own(usage) => all.extend(of_own(name, usage)),
            CommandTable::Clap(command) => all.push(of_clap(name, command())),
        }
    }
    all
}

/// The options of the server.
pub(in super::super) fn server_options() -> impl Iterator<Item = CommandOptionDescription> {
    table::all().map(|option| {
        let short = match option.name {
            "help" => Some("-h".to_owned()),
            "version" => Some("-V".to_owned()),
            _ => None,
        };
        CommandOptionDescription {
            names: [format!("--{}", option.name)].into_iter().chain(short).collect(),
            value: option.placeholder().map(|placeholder| (placeholder.to_owned(), server_value(option))),
            help: option.description(),
        }
    })
}

fn server_value(option: &OptionSpec) -> ValueDescription {
    match option.placeholder() {
        Some("boolean") => ValueDescription::of_words(["true", "false"]),
        // Most texts are files or directories.
        Some("string") => ValueDescription { words: Vec::new(), is_file: true },
        placeholder => ValueDescription::of(placeholder.unwrap_or_default()),
    }
}

/// The command itself, if words follow it, and each of its forms.
fn of_own(name: &'static str, usage: &CommandUsage) -> Vec<CommandDescription> {
    let mut all = Vec::new();
    if usage.forms.iter().any(|form| !form.word.is_empty()) {
        all.push(CommandDescription {
            words: vec![name],
            arguments: String::new(),
            about: usage.about.to_owned(),
            after: usage.after.to_owned(),
            options: vec![help()],
            operand: ValueDescription::of_words(usage.forms.iter().map(|form| form.word)),
            server_options: ServerOptionsPlace::Nowhere,
        });
    }
    all.extend(usage.forms.iter().map(|form| of_form(name, usage, form)));
    all
}

fn of_form(name: &'static str, usage: &CommandUsage, form: &CommandForm) -> CommandDescription {
    let is_whole = form.word.is_empty();
    let options = form.options.iter().map(|option| CommandOptionDescription {
        names: [option.name, option.letter]
            .into_iter()
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        value: (!option.value.is_empty())
            .then(|| (option.value.to_owned(), ValueDescription::of(option.value))),
        help: option.help.to_owned(),
    });
    CommandDescription {
        words: [name, form.word].into_iter().filter(|word| !word.is_empty()).collect(),
        arguments: form.arguments().trim_start().trim_start_matches(form.word).trim_start().to_owned(),
        about: if is_whole { usage.about } else { form.purpose }.to_owned(),
        after: if is_whole { usage.after } else { "" }.to_owned(),
        options: options.chain([help()]).collect(),
        operand: ValueDescription::of(form.operands),
        server_options: if form.takes_server_options {
            ServerOptionsPlace::Anywhere
        } else {
            ServerOptionsPlace::Nowhere
        },
    }
}

fn help() -> CommandOptionDescription {
    let names = vec!["--help".to_owned(), "-h".to_owned()];
    CommandOptionDescription { names, value: None, help: "print the help".to_owned() }
}

/// A command by the table of its crate. Hidden options are left out: they are refused.
fn of_clap(name: &'static str, mut command: Command) -> CommandDescription {
    command.build();
    let usage = command.render_usage().to_string();
    let (_, arguments) = usage.split_once(name).unwrap_or_default();
    let shown: Vec<_> = command.get_arguments().filter(|argument| !argument.is_hide_set()).collect();
    let operand = shown.iter().find(|argument| argument.is_positional() && !argument.is_last_set());
    let has_last = shown.iter().any(|argument| argument.is_last_set());
    let text =
        |styled: Option<&clap::builder::StyledStr>| styled.map_or_else(String::new, ToString::to_string);
    CommandDescription {
        words: vec![name],
        arguments: arguments.trim().to_owned(),
        about: text(command.get_about()),
        after: text(command.get_after_help()),
        operand: operand.map_or_else(ValueDescription::default, |argument| clap_value(argument)),
        server_options: if has_last { ServerOptionsPlace::AfterDashes } else { ServerOptionsPlace::Nowhere },
        options: shown.into_iter().filter(|argument| !argument.is_positional()).map(of_argument).collect(),
    }
}

fn of_argument(argument: &Arg) -> CommandOptionDescription {
    let takes_value = argument.get_action().takes_values();
    let long = argument.get_long().map(|name| format!("--{name}"));
    let short = argument.get_short().map(|letter| format!("-{letter}"));
    let mut help = argument.get_help().map_or_else(String::new, ToString::to_string);
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    for default in defaults.filter(|_| takes_value) {
        help.push_str(&format!(" [default: {default}]"));
    }
    CommandOptionDescription {
        names: long.into_iter().chain(short).collect(),
        value: takes_value.then(|| (placeholder(argument), clap_value(argument))),
        help,
    }
}

fn placeholder(argument: &Arg) -> String {
    argument.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect()
}

fn clap_value(argument: &Arg) -> ValueDescription {
    let possible = argument.get_possible_values();
    if possible.is_empty() {
        return ValueDescription::of(&placeholder(argument));
    }
    ValueDescription::of_words(possible.iter().map(clap::builder::PossibleValue::get_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(words: &[&str]) -> CommandDescription {
        descriptions().into_iter().find(|command| command.words == words).unwrap()
    }

    fn value(command: &CommandDescription, name: &str) -> ValueDescription {
        let option = command.options.iter().find(|option| option.names.iter().any(|known| known == name));
        option.unwrap().value.clone().unwrap().1
    }

    #[test]
    fn placeholders_are_words_files_or_texts() {
        let value = |words: &[&str], is_file| ValueDescription {
            is_file,
            ..ValueDescription::of_words(words.iter().copied())
        };
        for (placeholder, expected) in [
            ("text|json|sarif", value(&["text", "json", "sarif"], false)),
            ("default|ISO8601|json", value(&["default", "ISO8601", "json"], false)),
            ("zero|random|PATH", value(&["zero", "random"], true)),
            ("[options|configuration]", value(&["options", "configuration"], false)),
            ("<file>...", value(&[], true)),
            ("<model directory>", value(&[], true)),
            ("<repository|model.onnx>...", value(&[], true)),
            ("DIR", value(&[], true)),
            ("integer", value(&[], false)),
            ("<resource>:<count>[:<device>]", value(&[], false)),
            ("", value(&[], false)),
        ] {
            assert_eq!(ValueDescription::of(placeholder), expected, "{placeholder}");
        }
    }

    #[test]
    fn commands_with_tables_of_their_own_and_of_clap_are_described_alike() {
        assert_eq!(value(&described(&["check"]), "--format").words, ["text", "json", "sarif"]);
        assert_eq!(described(&["config"]).operand.words, ["fmt", "show", "schema"]);
        assert_eq!(described(&["config", "fmt"]).arguments, "[--check] <file>...");
        let perf = described(&["perf"]);
        assert_eq!(value(&perf, "-i").words, ["http", "grpc"]);
        assert_eq!(value(&perf, "--percentile"), ValueDescription::default());
        assert!(value(&perf, "--csv").is_file && perf.arguments == "<MODEL> [OPTIONS]");
        let hidden = |option: &CommandOptionDescription| option.names.contains(&"--enable-mpi".to_owned());
        assert!(!perf.options.iter().any(hidden));
        assert!(described(&["replay"]).operand.is_file);
        assert_eq!(described(&["tune"]).server_options, ServerOptionsPlace::AfterDashes);
        for name in names() {
            let help = |option: &CommandOptionDescription| option.names == ["--help", "-h"];
            assert!(described(&[name]).options.iter().any(help), "{name}");
        }
    }
}
