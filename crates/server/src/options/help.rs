//! Makes the texts of `-h` and `--help` from the tables.
use std::fmt::Write;

use super::{
    commands::{COMMANDS, CommandSpec},
    exit_codes::EXIT_CODES,
    refusal::CALLS,
    table,
};

const WIDTH: usize = 100;
const INDENT: &str = "        ";

/// The options that most servers need, in few words.
const MOST_NEEDED: [(&str, &str, &str); 9] = [
    ("http-port", "port", "the port for HTTP (8000)"),
    ("grpc-port", "port", "the port for gRPC (8001)"),
    ("metrics-port", "port", "the port for Prometheus (8002)"),
    ("model-control-mode", "mode", "none, poll or explicit: when models are loaded"),
    ("backend-config", "setting", "a setting of a backend"),
    ("api-key-file", "file", "who may use the server"),
    ("log-verbose", "level", "how much detail to log (0)"),
    ("config", "file", "a file with options"),
    ("color", "when", "auto, always or never"),
];

/// What fits on one screen: the commands, the options that most servers need, examples. Ends with a newline.
pub fn screen() -> String {
    let mut text =
        format!("Nereid serves machine-learning models over HTTP and gRPC.\n\n{CALLS}\nCommands:\n");
    for CommandSpec { name, purpose, .. } in COMMANDS {
        let _ = writeln!(text, "  {name:<12} {purpose}");
    }
    text.push_str("\nOptions that most servers need:\n");
    for (name, value, purpose) in MOST_NEEDED {
        let heading = format!("--{name} <{value}>");
        let _ = writeln!(text, "      {heading:<27} {purpose}");
    }
    text.push_str(
        "  -h, --help                      -h: this screen, --help: all options\n  \
         -V, --version                   the version\n\nExamples:\n  nereid models/          serve models/<model>/<version>/model.onnx\n  \
         nereid resnet50.onnx    serve one file, as the model 'resnet50'\n  \
         nereid check models/    find what is wrong before a server does\n",
    );
    text
}

/// The call syntax of the program, every option by group, and the exit codes. Ends with a newline.
pub fn usage() -> String {
    let mut text = format!("{CALLS}\nCommands:\n");
    for CommandSpec { name, usage, purpose, .. } in COMMANDS {
        let line = format!("nereid {name} {usage}");
        let _ = writeln!(text, "  {line:<50} {purpose}");
    }
    text.push_str(
        "\n'nereid help <command>' prints the help of a command. Options of the server may be shortened as long as they \
         stay\nunambiguous; values follow as '--name value' or '--name=value'.\n",
    );
    for (heading, options) in table::GROUPS {
        text.push('\n');
        if !heading.is_empty() {
            text.push_str(&format!("{heading}:\n"));
        }
        for option in *options {
            match option.placeholder() {
                None => text.push_str(&format!("  --{}\n", option.name)),
                Some(value) if value.contains('<') => {
                    text.push_str(&format!("  --{} {value}\n", option.name));
                }
                Some(value) => text.push_str(&format!("  --{} <{value}>\n", option.name)),
            }
            push_wrapped(&mut text, &option.description());
        }
    }
    text.push_str("\nExit codes:\n");
    for (code, meaning) in EXIT_CODES {
        let _ = writeln!(text, "  {code:<4} {meaning}");
    }
    text
}

fn push_wrapped(text: &mut String, paragraph: &str) {
    let mut column = WIDTH;
    for word in paragraph.split_whitespace() {
        if column + 1 + word.len() > WIDTH {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(INDENT);
            column = INDENT.len();
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text.push('\n');
}
