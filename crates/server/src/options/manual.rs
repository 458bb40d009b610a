//! The manual page, made from the tables of the server and of the commands.
use std::fmt::Write;

use super::{
    commands::{CommandDescription, CommandOptionDescription, descriptions},
    exit_codes::EXIT_CODES,
    table,
};

/// The manual page, for `man`.
pub fn manual() -> String {
    let mut text = format!(
        ".TH NEREID 1 \"\" \"nereid {}\" \"User Commands\"\n.SH NAME\nnereid \\- inference server for machine learning models\n\
         .SH SYNOPSIS\n.B nereid\n[\\fIoption\\fR]... \\fIrepository\\fR|\\fImodel.onnx\\fR...\n.br\n",
        env!("CARGO_PKG_VERSION")
    );
    let commands = descriptions();
    let called: Vec<_> = commands.iter().filter(|command| !command.words.is_empty()).collect();
    for command in called.iter().filter(|command| !has_forms(command, &commands)) {
        let _ = writeln!(
            text,
            ".B nereid {}\n{}\n.br",
            escaped(&command.words.join(" ")),
            line(&command.arguments)
        );
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
            let variable = option.variable().map_or_else(String::new, |name| format!(" ({name})"));
            let _ = writeln!(text, "{}{variable}", line(&option.description()));
        }
    }
    text.push_str(".SH COMMANDS\n");
    for command in called {
        push_command(&mut text, command);
    }
    text.push_str(".SH EXIT STATUS\n");
    for (code, meaning) in EXIT_CODES {
        let _ = writeln!(text, ".TP\n{code}\n{}", line(meaning));
    }
    text.push_str(
        ".SH SIGNALS\nSIGTERM and SIGINT stop the server in \
         order. SIGHUP reopens log files, and reads the file of options, certificates and API keys again.\n",
    );
    text
}

/// Whether a command has forms that are described, too: `config`, but not `config fmt`.
fn has_forms(command: &CommandDescription, all: &[CommandDescription]) -> bool {
    all.iter().any(|other| other.words.len() > command.words.len() && other.words.starts_with(&command.words))
}

/// A section about a command: what it does, its options, and what its help says below them.
fn push_command(text: &mut String, command: &CommandDescription) {
    let heading = format!("nereid {} {}", command.words.join(" "), command.arguments);
    let _ = writeln!(text, ".SS {}", escaped(heading.trim_end()));
    push_paragraphs(text, &command.about);
    for CommandOptionDescription { names, value, help } in &command.options {
        let names: Vec<_> = names.iter().map(|name| format!("\\fB{}\\fR", escaped(name))).collect();
        let value =
            value.as_ref().map_or_else(String::new, |(value, _)| format!(" \\fI{}\\fR", escaped(value)));
        let _ = writeln!(text, ".TP\n{}{value}\n{}", names.join(", "), line(help));
    }
    if !command.after.is_empty() {
        text.push_str(".PP\n");
        push_paragraphs(text, &command.after);
    }
}

fn push_paragraphs(text: &mut String, paragraphs: &str) {
    for words in paragraphs.lines() {
        let _ = match words {
            "" => writeln!(text, ".PP"),
            words => writeln!(text, "{}", line(words)),
        };
    }
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
    fn each_option_of_the_server_and_of_each_command_is_described() {
        let manual = manual();
        for option in table::all() {
            assert!(manual.contains(&format!("\\fB\\-\\-{}\\fR", escaped(option.name))), "{}", option.name);
        }
        for command in descriptions().iter().filter(|command| !command.words.is_empty()) {
            let heading = format!(".SS nereid {}", escaped(&command.words.join(" ")));
            let (_, section) = manual.split_once(&heading).unwrap_or_else(|| panic!("no {heading}"));
            let section = section.split("\n.S").next().unwrap();
            for name in command.options.iter().flat_map(|option| &option.names) {
                assert!(section.contains(&format!("\\fB{}\\fR", escaped(name))), "{heading}: {name}");
            }
        }
        assert!(manual.contains("\\-\\-concurrency\\-range") && manual.contains("Exit status: 0 recorded"));
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
