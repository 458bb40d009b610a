//! Completions of the command line for shells, and the manual page, both made from the table of options.
use std::fmt::Write;

use super::{
    commands::{self, COMMANDS, CommandSpec},
    layers,
    table::{self, Spec},
};

/// The shells that there are completions for.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The script that completes options in a shell of [`SHELLS`]. `None` for another one.
pub fn completions(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash()),
        "zsh" => Some(zsh()),
        "fish" => Some(fish()),
        _ => None,
    }
}

fn names() -> String {
    commands::names().collect::<Vec<_>>().join(" ")
}

/// The values that an option can have, if they are words.
fn words(option: &Spec) -> Vec<&'static str> {
    match option.placeholder() {
        Some("boolean") => vec!["true", "false"],
        Some(placeholder) if placeholder.contains('|') && !placeholder.contains('<') => {
            placeholder.split('|').collect()
        }
        _ => Vec::new(),
    }
}

fn bash() -> String {
    let mut values = String::new();
    for option in table::all() {
        let words = words(option);
        if !words.is_empty() {
            let (name, words) = (option.name, words.join(" "));
            let _ = writeln!(
                values,
                "        --{name}) COMPREPLY=($(compgen -W '{words}' -- \"$word\")); return ;;"
            );
        }
    }
    let options: Vec<_> = table::all().map(|option| format!("--{}", option.name)).collect();
    format!(
        "# Completes the options of nereid in bash: source <(nereid completions bash)\n_nereid() {{\n    \
         local word=${{COMP_WORDS[COMP_CWORD]}} option=${{COMP_WORDS[COMP_CWORD-1]}}\n    \
         # The equals sign is a word of its own.\n    \
         if [[ $word == = ]]; then word=; elif [[ $option == = ]]; then option=${{COMP_WORDS[COMP_CWORD-2]}}; fi\n    \
         case $option in\n{values}    esac\n    if [[ $word == -* ]]; then\n        \
         COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n    elif [[ $COMP_CWORD == 1 ]]; then\n        \
         COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n    else\n        \
         COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}}\ncomplete -o filenames -F _nereid nereid\n",
        options.join(" "),
        names()
    )
}

fn zsh() -> String {
    let mut text = "#compdef nereid\n# Completes the options of nereid in zsh: nereid completions zsh > \
                    \"${fpath[1]}/_nereid\"\n_arguments \\\n"
        .to_owned();
    for option in table::all() {
        let help = summary(option).replace('\'', "").replace(['[', ']', ':'], " ");
        let value = match (option.placeholder(), words(option)) {
            (None, _) => String::new(),
            (Some(_), words) if words.is_empty() => "=:value:_files".to_owned(),
            (Some(_), words) => format!("=:value:({})", words.join(" ")),
        };
        let (mark, value) = match value.strip_prefix('=') {
            Some(value) => ("=", value),
            None => ("", ""),
        };
        let _ = writeln!(text, "  '*--{}{mark}[{help}]{value}' \\", option.name);
    }
    let _ = writeln!(text, "  '1::command:({})' '*::file:_files'", names());
    text
}

fn fish() -> String {
    let mut text =
        "# Completes the options of nereid in fish: nereid completions fish > ~/.config/fish/completions/nereid.fish\n"
            .to_owned();
    let _ = writeln!(text, "complete -c nereid -n __fish_use_subcommand -a '{}'", names());
    for option in table::all() {
        let help = summary(option).replace(['\\', '\''], "");
        let value = match (option.placeholder(), words(option)) {
            (None, _) => String::new(),
            (Some(_), words) if words.is_empty() => " -r".to_owned(),
            (Some(_), words) => format!(" -x -a '{}'", words.join(" ")),
        };
        let _ = writeln!(text, "complete -c nereid -l {}{value} -d '{help}'", option.name);
    }
    text
}

/// The first sentence of the help.
fn summary(option: &Spec) -> String {
    let help = option.description();
    help.split_once(". ").map_or(help.as_str(), |(first, _)| first).trim_end_matches('.').to_owned()
}

/// The manual page, for `man`.
pub fn manual() -> String {
    let mut text = format!(
        ".TH NEREID 1 \"\" \"nereid {}\" \"User Commands\"\n.SH NAME\nnereid \\- inference server for machine learning models\n\
         .SH SYNOPSIS\n.B nereid\n\\-\\-model\\-repository=\\fIpath\\fR [\\fIoption\\fR]...\n.br\n",
        env!("CARGO_PKG_VERSION")
    );
    for CommandSpec { name, usage, .. } in COMMANDS {
        let _ = writeln!(text, ".B nereid {}\n{}\n.br", escaped(name), line(usage));
    }
    text.push_str(
        ".SH DESCRIPTION\nServes models over HTTP and gRPC, with the protocols and configurations of Triton Inference \
         Server. An option may be shortened as long as it stays unambiguous. Its value follows as '\\-\\-name value' or \
         '\\-\\-name=value'.\n.PP\nEach option may also be an environment variable, named in parentheses below, or a key of the file \
         that \\-\\-config names. The command line takes precedence over the environment, and the environment over the \
         file.\n.SH OPTIONS\n",
    );
    for (heading, options) in table::GROUPS {
        if !heading.is_empty() {
            let _ = writeln!(text, ".SS {heading}");
        }
        for option in *options {
            let value =
                option.placeholder().map_or_else(String::new, |value| format!(" \\fI{}\\fR", escaped(value)));
            let _ = writeln!(text, ".TP\n\\fB\\-\\-{}\\fR{value}", escaped(option.name));
            let variable = layers::variable(option).map_or_else(String::new, |name| format!(" ({name})"));
            let _ = writeln!(text, "{}{variable}", line(&option.description()));
        }
    }
    text.push_str(
        ".SH EXIT STATUS\n0 after an orderly stop, 1 after an error.\n.SH SIGNALS\nSIGTERM and SIGINT stop the server in \
         order. SIGHUP reopens log files, and reads the file of options, certificates and API keys again.\n",
    );
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A line of text that roff does not take for a request.
fn line(text: &str) -> String {
    let text = escaped(text);
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_completed_in_each_shell_and_is_in_the_manual() {
        let manual = manual();
        for option in table::all() {
            for shell in SHELLS {
                assert!(completions(shell).unwrap().contains(option.name), "{shell}: {}", option.name);
            }
            assert!(manual.contains(&format!("\\fB\\-\\-{}\\fR", escaped(option.name))), "{}", option.name);
        }
        assert_eq!(completions("tcsh"), None);
    }

    #[test]
    fn values_that_are_words_are_completed() {
        let option = |name| table::named(name).unwrap();
        assert_eq!(words(option("rate-limit")), ["off", "execution_count"]);
        assert_eq!(words(option("allow-http")), ["true", "false"]);
        assert!(words(option("http-port")).is_empty() && words(option("rate-limit-resource")).is_empty());
        let bash = completions("bash").unwrap();
        assert!(bash.contains("--rate-limit) COMPREPLY=($(compgen -W 'off execution_count'"));
    }

    #[test]
    fn the_manual_names_variables_and_no_line_is_a_request_by_accident() {
        let manual = manual();
        assert!(manual.contains("(NEREID_HTTP_PORT)") && !manual.contains("NEREID_HELP"));
        let requests = [".TH", ".SH", ".SS", ".TP", ".B", ".br", ".PP"];
        for line in manual.lines().filter(|line| line.starts_with('.')) {
            assert!(requests.iter().any(|request| line.starts_with(request)), "{line}");
        }
    }
}
