//! The options of the commands that read their words themselves.

use super::command_spec::{CommandForm, CommandOption, CommandUsage};

const fn flag(name: &'static str, help: &'static str) -> CommandOption {
    CommandOption { name, letter: "", value: "", help }
}

const fn option(name: &'static str, value: &'static str, help: &'static str) -> CommandOption {
    CommandOption { name, letter: "", value, help }
}

const fn short(letter: &'static str, option: CommandOption) -> CommandOption {
    CommandOption { letter, ..option }
}

/// A form without a word of its own, and without options of the server.
const fn plain(options: &'static [CommandOption], operands: &'static str) -> CommandForm {
    CommandForm { word: "", purpose: "", options, takes_server_options: false, operands }
}

pub(super) const SERVE: CommandUsage = CommandUsage {
    forms: &[CommandForm { takes_server_options: true, ..plain(&[], "<repository|model.onnx>...") }],
    about: "\
Serves the models of repositories, and single ONNX files: a file is served under its name without '.onnx'. 'nereid models/' is
the same as 'nereid serve models/' and 'nereid --model-repository=models/'.",
    after: "Exit codes: 0 stopped in order, 1 not started or not stopped in order, 130 ended by a second Ctrl-C.\n",
};

pub(super) const CHECK: CommandUsage = CommandUsage {
    forms: &[CommandForm {
        takes_server_options: true,
        ..plain(
            &[
                flag("--strict", "warnings are errors for the exit code"),
                option("--format", "text|json|sarif", "the form of the report: text is the default, sarif has version 2.1.0"),
                flag("--rules", "list the rules and end"),
                flag(
                    "--skip-interpreters",
                    "start no interpreter of models in Python: their source code and packages are not checked",
                ),
                flag(
                    "--run-own-interpreters",
                    "start the interpreters that models name in PYTHON_EXECUTABLE, too: they may be any programs",
                ),
            ],
            "<repository>...",
        )
    }],
    about: "Reads the models of repositories as the server does, loads nothing, and reports every problem of every model.",
    after: "\
The options of the server ('nereid --help') say for which server the repositories are. Those that matter are
--model-repository, --model-config-name, --disable-auto-complete-config, --backend-directory, --backend-config,
--repoagent-directory, --cache-config, --gpu-instances-on-cpu and --model-namespacing.

Exit codes: 0 no error, 1 errors, 2 wrong usage, 3 warnings with --strict.
",
};

pub(super) const CONFIG: CommandUsage = CommandUsage {
    forms: &[
        CommandForm {
            word: "fmt",
            purpose: "formats configurations; comments, order and meaning stay. '-' formats stdin to stdout",
            ..plain(
                &[flag("--check", "change nothing, and name the files that are not formatted")],
                "<file>...",
            )
        },
        CommandForm {
            word: "show",
            purpose: "prints the configuration that a server with these options would use, with the origin of each value",
            takes_server_options: true,
            ..plain(
                &[
                    option("--version", "<number>", "the version of the model, instead of the largest"),
                    option("--format", "text|json", "the form of the configuration: text is the default"),
                ],
                "<model directory>",
            )
        },
        CommandForm {
            word: "schema",
            purpose: "prints the JSON Schema of a configuration in JSON",
            ..plain(&[], "")
        },
    ],
    about: "",
    after: "\
'show' tells on stderr what stands against the model.

Exit codes: 0 done, 1 a file or the model has errors or (--check) a file is not formatted, 2 wrong usage.
",
};

pub(super) const INIT: CommandUsage = CommandUsage {
    forms: &[CommandForm {
        takes_server_options: true,
        ..plain(
            &[
                flag("--print", "print the configuration and write nothing"),
                flag("--force", "replace a configuration that is there"),
            ],
            "<model directory>",
        )
    }],
    about: "\
Writes config.pbtxt for the model in a directory, from its ONNX file, its forest, or 'auto_complete_config' of a model in
Python, which it runs for at most 60 seconds.",
    after: "Exit codes: 0 done, 1 the model cannot be read, 2 wrong usage.\n",
};

pub(super) const EXPLAIN: CommandUsage = CommandUsage {
    forms: &[plain(
        &[
            short("-m", option("--model", "<name>", "the model, as the argument")),
            short(
                "-u",
                option("--url", "<address>", "[http://|https://]host[:port] of the HTTP port (default localhost:8000)"),
            ),
            short(
                "-H",
                option(
                    "--header",
                    "'<name>: <value>'",
                    "a header that the server wants, such as an API key; may be given several times",
                ),
            ),
            option(
                "--ca-certificates",
                "<file>",
                "a PEM file with the certificates to trust (default: those of the system)",
            ),
            flag("--json", "print the answer as the server gives it"),
        ],
        "[<model> [<version>]]",
    )],
    about: "\
Asks a running server why its batches are as they are, where the time of requests goes, what waits, which sequences hold
slots and what the cache does. Says what to change. Without a model: of all models; of more than 100 versions, of those that
are not ready and of the busiest.",
    after: "Exit codes: 0 answered, 1 not reachable or refused, 2 wrong usage.\n",
};

pub(super) const API_KEY: CommandUsage = CommandUsage {
    forms: &[plain(&[flag("--hash", "read a key from stdin, and print its digest only")], "")],
    about: "Makes a key, and prints it with its digest for --api-key-file.",
    after: "Exit codes: 0 done, 1 no random numbers, or stdin cannot be read, 2 wrong usage.\n",
};

pub(super) const COMPLETIONS: CommandUsage = CommandUsage {
    forms: &[plain(&[], "bash|zsh|fish")],
    about: "\
Prints the script that completes commands, options and values in a shell. In bash:

  source <(nereid completions bash)",
    after: "Exit codes: 0 done, 2 wrong usage.\n",
};

pub(super) const MAN: CommandUsage = CommandUsage {
    forms: &[plain(&[], "[options|configuration]")],
    about: "\
Prints the manual page, or as Markdown the reference of the options or of configurations. To read the page:

  nereid man | man -l -",
    after: "Exit codes: 0 done, 2 wrong usage.\n",
};

pub(super) const HELP: CommandUsage = CommandUsage {
    forms: &[plain(&[], "[<command>]")],
    about: "Prints the commands and the options that most servers need, or the help of a command.",
    after: "Exit codes: 0 done, 2 wrong usage.\n",
};
