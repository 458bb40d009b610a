//! The command line. One table of options defines the parser, the help and the refusals.
//!
//! A command line passes four stages. `tokenizer` divides it into options and values as `getopt_long` does. The `table`
//! defines which values each option accepts and where it stores them. `TypedOptions` holds the typed values. `resolve`
//! checks the rules between options and makes [`ResolvedOptions`]. The rest of the program sees only
//! [`ResolvedOptions`].
//!
//! This crate has its own parser for four reasons: clients compare the error texts, numbers follow C's "leading digits"
//! rule, the first error of the line wins, and values may begin with a dash. A parsing library would need a workaround
//! for each of these points, and it would not replace the table.
//!
//! Only this module reads the environment, and the file that `--config` names.

mod clash;
mod commands;
mod completions;
mod environment;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod help;
mod layers;
mod managed;
mod manual;
mod meaning;
mod options_file;
mod plain_keys;
mod reference;
mod refusal;
mod resolve;
mod table;
#[cfg(test)]
mod tests;
mod tokenizer;
mod trace;
mod typed;
mod unread_variables;
mod values;

use std::ffi::OsString;

pub use commands::usage as command_usage;
pub use completions::{SHELLS, completions};
pub use environment::{OpenTelemetryVariables, ProcessEnvironment};
pub use help::usage;
pub use in_process::TRITON_VERSION;
pub use manual::manual;
pub use meaning::{
    AccessLogSettings, BackendSetting, BackendsSettings, CacheSettings, Connections, CredentialSettings,
    GivenOptions, GrpcSettings, HttpProtocolSettings, HttpSettings, ListenSettings, MemorySettings,
    MetricsSettings, RepositorySettings, RequiredHeader, ResolvedOptions, RestrictionSettings,
    SageMakerSettings, ServerSettings, TestHooks, VertexAiSettings,
};
pub use reference::reference;
pub use refusal::BadOption;

/// The action that a command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Invocation {
    /// Serve with these options.
    Serve(Box<ResolvedOptions>),
    /// Print this text on stdout and exit with 0: `--help` and `--version`. The text ends with a newline.
    Print(String),
}

/// Reads a command line. `arguments` are the words after the program's name.
///
/// # Errors
/// [`BadOption`], whose display is the text for stderr before the process exits with 1. The reasons: an unknown or
/// incomplete option, a value that breaks its option's rule, options that contradict each other, a positional argument,
/// or an option for a feature that this version does not have.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &ProcessEnvironment,
) -> Result<Invocation, BadOption> {
    let (typed, positionals) = match read_line(arguments, environment)? {
        ReadLine::Print(text) => return Ok(Invocation::Print(text)),
        ReadLine::Options(typed, positionals) => (typed, positionals),
    };
    if let Some(argument) = positionals.first() {
        let near = inference::nearest(argument, commands::names());
        let advice = near.map(|command| format!("Did you mean the command '{command}'?"));
        return Err(BadOption::plain(format!("Unexpected argument: {argument}")).advising(advice));
    }
    resolve::resolve(*typed, environment).map(|options| Invocation::Serve(Box::new(options)))
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
    resolve::resolve(*typed, environment).map(|options| Invocation::Serve(Box::new(options)))
}

/// A command line before the rules between options.
enum ReadLine {
    /// `--help` or `--version`.
    Print(String),
    /// The options, and the arguments that belong to none.
    Options(Box<typed::TypedOptions>, Vec<String>),
}

fn read_line(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &ProcessEnvironment,
) -> Result<ReadLine, BadOption> {
    let mut typed = table::defaults();
    environment.prepare(&mut typed)?;
    let mut words = tokenizer::ArgumentTokens::new(arguments)?;
    if !words.asks_for_text() {
        layers::apply(words.clone(), environment, &mut typed)?;
    }
    while let Some(given) = words.next_option()? {
        // As Triton: the first option that fails, or that asks for help, decides.
        match given.option.name {
            "help" => return Ok(ReadLine::Print(usage())),
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

fn version() -> String {
    format!(
        "nereid {}\nfollows the behaviour of Triton Inference Server {TRITON_VERSION}\n",
        env!("CARGO_PKG_VERSION")
    )
}
