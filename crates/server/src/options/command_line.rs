//! Reads a command line, through all its stages.

use std::ffi::OsString;
use std::path::Path;

use super::environment::ProcessEnvironment;
use super::help::{screen, usage};
use super::meaning::ResolvedOptions;
use super::refusal::BadOption;
use super::resolve::resolve;
use super::tokenizer::ArgumentTokens;
use super::typed::TypedOptions;
use super::{TRITON_VERSION, commands, layers, table, values};

/// The action that a command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Invocation {
    /// Serve with these options.
    Serve(Box<ResolvedOptions>),
    /// Print this text on stdout and exit with 0: `--help` and `--version`. The text ends with a newline.
    Print(String),
}

/// Reads a command line. `arguments` are the words after the program's name. Those that belong to no option name
/// repositories, or ONNX files: the parser looks which.
///
/// # Errors
/// [`BadOption`], whose display is the text for stderr before the process exits with 1. The reasons: an unknown or
/// incomplete option, a value that breaks its option's rule, options that contradict each other, an argument that is
/// neither a repository nor a model, or an option for a feature that this version does not have.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &ProcessEnvironment,
) -> Result<Invocation, BadOption> {
    let (mut typed, positionals) = match read_line(arguments, environment)? {
        ReadLine::Print(text) => return Ok(Invocation::Print(text)),
        ReadLine::Options(typed, positionals) => (typed, positionals),
    };
    for argument in positionals {
        take_argument(&mut typed, argument)?;
    }
    resolve(*typed, environment).map(|options| Invocation::Serve(Box::new(options)))
}

/// Takes an argument for what it is: the URL or the directory of a repository, or the file of a model.
fn take_argument(typed: &mut TypedOptions, argument: String) -> Result<(), BadOption> {
    let path = Path::new(&argument);
    if values::is_url(&argument) || path.is_dir() {
        typed.repository.paths.insert(argument);
        return Ok(());
    }
    let is_model = path.extension().is_some_and(|extension| extension == "onnx");
    if is_model && path.is_file() {
        typed.repository.model_files.insert(argument.into());
        return Ok(());
    }
    let advice = match commands::nearest_command(&argument) {
        Some(command) if command == argument => {
            format!("The command '{command}' is the first word of its line, before all options")
        }
        _ if path.exists() => "Name the directory of a model repository, or an ONNX file (.onnx)".to_owned(),
        Some(command) => format!("Did you mean the command '{command}'?"),
        None => format!("There is no such file or directory, and no such command: {argument}"),
    };
    Err(BadOption::plain(format!("Unexpected argument: {argument}")).advising(Some(advice)))
}

/// Reads the options of a server from a command line whose positional arguments are further model repositories.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_repositories(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &ProcessEnvironment,
) -> Result<Invocation, BadOption> {
    let (mut typed, positionals) = match read_line(arguments, environment)? {
        ReadLine::Print(text) => return Ok(Invocation::Print(text)),
        ReadLine::Options(typed, positionals) => (typed, positionals),
    };
    typed.repository.paths.extend(positionals);
    resolve(*typed, environment).map(|options| Invocation::Serve(Box::new(options)))
}

/// A command line before the rules between options.
enum ReadLine {
    /// `--help` or `--version`.
    Print(String),
    /// The options, and the arguments that belong to none.
    Options(Box<TypedOptions>, Vec<String>),
}

fn read_line(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &ProcessEnvironment,
) -> Result<ReadLine, BadOption> {
    let mut typed = table::defaults();
    prepare(&mut typed, environment)?;
    let mut words = ArgumentTokens::new(arguments)?;
    if !words.asks_for_text() {
        layers::apply(words.clone(), environment, &mut typed)?;
    }
    while let Some(given) = words.next_option()? {
        // As Triton: the first option that fails, or that asks for help, decides.
        match given.option.name {
            "help" => return Ok(ReadLine::Print(if given.is_letter { screen() } else { usage() })),
            "version" => return Ok(ReadLine::Print(version())),
            name => {
                let refused = |text| BadOption::framed(name, text).advising(given.option.advice());
                given.option.apply(&mut typed, &given.value).map_err(refused)?;
                table::note(&mut typed, given.option, &given.value);
            }
        }
    }
    Ok(ReadLine::Options(Box::new(typed), words.positionals()))
}

/// Changes the defaults of the command line.
fn prepare(typed: &mut TypedOptions, environment: &ProcessEnvironment) -> Result<(), BadOption> {
    if environment.aip_mode.as_deref() == Some("PREDICTION") {
        typed.outside.allow_vertex_ai = true;
        typed.http.allow = false;
        typed.grpc.allow = false;
    }
    if let Some(port) = &environment.aip_http_port {
        let port = values::integer(port, 0, i64::from(u16::MAX))
            .map_err(|text| BadOption::in_variable("AIP_HTTP_PORT", &text))?;
        typed.outside.vertex_ai_port = port;
    }
    Ok(())
}

fn version() -> String {
    format!(
        "nereid {}\nfollows the behaviour of Triton Inference Server {TRITON_VERSION}\n",
        env!("CARGO_PKG_VERSION")
    )
}
