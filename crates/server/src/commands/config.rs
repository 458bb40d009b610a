//! `nereid config`: formats configurations, shows where their values come from, and prints their schema. `nereid init`:
//! writes one for a model without.
use std::{
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use check::{CheckOptions, CheckReport, EffectiveConfig, Severity, effective_config, initial_config, text};
use inference::Plugins;
use serde_json::{Value, json};

use super::{
    check::{FINE, HAS_ERRORS, check_options},
    streams::{Streams, asks_for_help, fail, refuse},
};
use crate::options::{self, Invocation, ProcessEnvironment, ResolvedOptions};

/// How long a model may take to tell its configuration to `nereid init`.
const LONGEST_OPENING: Duration = Duration::from_secs(60);

/// Why a command has not done its work.
enum CommandEnd {
    /// The command line cannot be understood.
    Usage(String),
    /// The text for stdout instead of the work.
    Printed(String),
    /// Why the command could not do its work.
    Failed(String),
    /// What is wrong with the files, a line for each fault.
    Faults(String),
}

impl From<io::Error> for CommandEnd {
    /// The result cannot be written.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The reader wants no more.
            io::ErrorKind::BrokenPipe => Self::Printed(String::new()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<CheckReport> for CommandEnd {
    fn from(report: CheckReport) -> Self {
        Self::Faults(text(&report).trim_end().to_owned())
    }
}

/// Runs `nereid config`. `arguments` are the words after it. Returns the exit code.
pub(super) fn run_config(
    mut arguments: impl Iterator<Item = OsString>,
    environment: &ProcessEnvironment,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    (out, err): Streams<'_>,
) -> u8 {
    let help = || CommandEnd::Printed(options::command_usage("config"));
    let command = arguments.next().unwrap_or_default();
    let ended = match command.to_str() {
        Some("fmt") => format_files(arguments, out),
        Some("show") => show(arguments, environment, plugins, (out, err)),
        Some("schema") => match arguments.next() {
            None => writeln!(out, "{:#}", proto::json_schema()).map_err(CommandEnd::from),
            Some(word) if asks_for_help(&word) => Err(help()),
            Some(word) => Err(CommandEnd::Usage(format!("unexpected argument: {}", word.display()))),
        },
        Some("--help" | "-h") => Err(help()),
        Some("") => Err(CommandEnd::Usage("name one of fmt, show, schema".to_owned())),
        _ => Err(CommandEnd::Usage(format!("'{}' is none of fmt, show, schema", command.display()))),
    };
    end(ended, "config", (out, err))
}

/// Runs `nereid init`. `arguments` are the words after it. Returns the exit code.
pub(super) fn run_init(
    arguments: impl Iterator<Item = OsString>,
    environment: &ProcessEnvironment,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    (out, err): Streams<'_>,
) -> u8 {
    let (flags, rest) = take_flags(arguments, &["--print", "--force", "--help", "-h"]);
    if flags.contains(&"--help") || flags.contains(&"-h") {
        return end(Err(CommandEnd::Printed(options::command_usage("init"))), "init", (out, err));
    }
    let ended = one_model(rest, environment, plugins, err).and_then(|(directory, options)| {
        let file = directory.join("config.pbtxt");
        let prints = flags.contains(&"--print");
        if !prints && !flags.contains(&"--force") && file.exists() {
            return Err(CommandEnd::Failed(format!("'{}' exists: --force replaces it", file.display())));
        }
        let config = initial_config(&directory, Some(LONGEST_OPENING), &options)?;
        if prints {
            return Ok(write!(out, "{config}")?);
        }
        fs::write(&file, config).map_err(|error| failed(&file, &error))?;
        Ok(writeln!(out, "wrote {}", file.display())?)
    });
    end(ended, "init", (out, err))
}

fn end(ended: Result<(), CommandEnd>, command: &str, (out, err): Streams<'_>) -> u8 {
    // If the reader has closed a stream, the error does not matter.
    match ended {
        Ok(()) => FINE,
        Err(CommandEnd::Printed(text)) => {
            let _ = out.write_all(text.as_bytes());
            FINE
        }
        Err(CommandEnd::Usage(text)) => refuse(&text, command, err),
        Err(CommandEnd::Failed(text)) => fail(text, err),
        Err(CommandEnd::Faults(text)) => {
            let _ = writeln!(err, "{text}");
            HAS_ERRORS
        }
    }
}

fn failed(file: &Path, error: &io::Error) -> CommandEnd {
    CommandEnd::Failed(format!("'{}': {error}", file.display()))
}

/// Takes these words out of a command line.
fn take_flags(
    arguments: impl Iterator<Item = OsString>,
    known: &[&'static str],
) -> (Vec<&'static str>, Vec<OsString>) {
    let (mut flags, mut rest) = (Vec::new(), Vec::new());
    for word in arguments {
        match known.iter().find(|flag| word == **flag) {
            Some(flag) => flags.push(*flag),
            None => rest.push(word),
        }
    }
    (flags, rest)
}

/// Whether files are only checked, and which. All words after `--` are files.
fn files_to_format(
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<(bool, Vec<PathBuf>), CommandEnd> {
    let (mut checks, mut files) = (false, Vec::new());
    while let Some(word) = arguments.next() {
        match word.to_str() {
            Some("--help" | "-h") => return Err(CommandEnd::Printed(options::command_usage("config"))),
            Some("--check") => checks = true,
            Some("--") => files.extend(arguments.by_ref().map(PathBuf::from)),
            Some(option) if option.starts_with('-') && option != "-" => {
                return Err(CommandEnd::Usage(format!("unrecognized option '{option}'")));
            }
            Some(_) | None => files.push(PathBuf::from(word)),
        }
    }
    if files.is_empty() {
        return Err(CommandEnd::Usage("name at least one file".to_owned()));
    }
    Ok((checks, files))
}

fn format_files(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> Result<(), CommandEnd> {
    let (checks, files) = files_to_format(arguments)?;
    let mut faults = Vec::new();
    for file in files {
        let from_stdin = file.as_os_str() == "-";
        let mut content = Vec::new();
        let read = if from_stdin {
            io::stdin().read_to_end(&mut content).map(drop)
        } else {
            fs::read(&file).map(|read| content = read)
        };
        if let Err(error) = read {
            faults.push(format!("'{}': {error}", file.display()));
            continue;
        }
        match proto::text::format(&content) {
            Err(error) => faults.push(error.in_file(&file).to_string()),
            Ok(formatted) if from_stdin && !checks => out.write_all(formatted.as_bytes())?,
            Ok(formatted) if formatted.as_bytes() == content => {}
            Ok(_) if checks => faults.push(format!("{} is not formatted", file.display())),
            Ok(formatted) => fs::write(&file, formatted).map_err(|error| failed(&file, &error))?,
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(CommandEnd::Faults(faults.join("\n"))) }
}

fn show(
    arguments: impl Iterator<Item = OsString>,
    environment: &ProcessEnvironment,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    (out, err): Streams<'_>,
) -> Result<(), CommandEnd> {
    let (mut version, mut is_json, mut rest) = (None, false, Vec::new());
    let mut words = arguments;
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if asks_for_help(&word) {
            return Err(CommandEnd::Printed(options::command_usage("config")));
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), None),
        };
        if !["--version", "--format"].contains(&name) {
            rest.push(word);
            continue;
        }
        let value = value.or_else(|| words.next().map(|word| word.to_string_lossy().into_owned()));
        match (name, value.as_deref()) {
            (_, None) => return Err(CommandEnd::Usage(format!("option '{name}' requires an argument"))),
            ("--format", Some("text")) => is_json = false,
            ("--format", Some("json")) => is_json = true,
            ("--format", Some(other)) => {
                return Err(CommandEnd::Usage(format!(
                    "'--format' is '{other}', which is none of text, json"
                )));
            }
            (_, Some(number)) => {
                let parsed = number.parse();
                let wrong = |_| CommandEnd::Usage(format!("'--version' is '{number}', which is no number"));
                version = Some(parsed.map_err(wrong)?);
            }
        }
    }
    let (directory, options) = one_model(rest, environment, plugins, err)?;
    let config = effective_config(&directory, version, &options)?;
    if is_json {
        writeln!(out, "{:#}", shown_json(&config))?;
    } else {
        writeln!(out, "# version {}", config.version)?;
        if !config.is_complete {
            writeln!(out, "# The backend may complete inputs and outputs when it loads the model.")?;
        }
        write!(out, "{}", config.text())?;
    }
    if config.report.count(Severity::Error) > 0 {
        return Err(config.report.into());
    }
    if !config.report.findings.is_empty() {
        // If the reader has closed stderr, the error does not matter.
        let _ = write!(err, "{}", text(&config.report));
    }
    Ok(())
}

fn shown_json(config: &EffectiveConfig) -> Value {
    let text = proto::json::to_json(&config.config);
    let form: Value = serde_json::from_str(&text).unwrap_or_default();
    json!({
        "version": config.version,
        "config": form,
        "origins": config.origins,
        "complete": config.is_complete,
    })
}

/// The directory of the one model of a command line, and the options of the server.
fn one_model(
    arguments: Vec<OsString>,
    environment: &ProcessEnvironment,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    err: &mut dyn Write,
) -> Result<(PathBuf, CheckOptions), CommandEnd> {
    let options = match options::parse_with_repositories(arguments, environment) {
        Ok(Invocation::Serve(options)) => options,
        Ok(Invocation::Print(text)) => return Err(CommandEnd::Printed(text)),
        Err(refused) => return Err(CommandEnd::Usage(refused.explained())),
    };
    options.write_warnings(err);
    let paths: Vec<_> = options.repository.paths.iter().collect();
    let [directory] = paths[..] else {
        return Err(CommandEnd::Usage("name the directory of one model".to_owned()));
    };
    let directory = PathBuf::from(directory);
    let plugins = plugins(&options);
    Ok((directory, check_options(&options, plugins)))
}
