//! The command line: one table of options, from which the parser, the help and the refusals come.
//!
//! The way of a command line: `words` cuts it into options and values as `getopt_long` does, the `table` says
//! what each option accepts and where it goes, `TypedOptions` holds what was typed, `resolve` checks what only
//! several options together can show and turns it into [`ResolvedOptions`], which is all the rest of the program
//! sees.
//!
//! The parser is our own: clients compare the error texts, numbers follow C's "leading digits" rule, the
//! first error of the line wins, and values may begin with a dash. A parsing library would have to be told
//! otherwise at each of these points, and the table would be needed all the same.
//!
//! The environment is read here and nowhere else.

mod clash;
mod environment;
mod help;
mod meaning;
mod refusal;
mod resolve;
mod table;
#[cfg(test)]
mod tests;
mod tokenizer;
mod trace;
mod typed;
mod values;

use std::ffi::OsString;

pub use environment::ProcessEnvironment;
pub use help::usage;
pub use in_process::TRITON_VERSION;
pub use meaning::{
    BackendSetting, BackendsSettings, CacheSettings, Connections, GrpcSettings, HttpSettings, ListenSettings,
    MemorySettings, MetricsSettings, RepositorySettings, RequiredHeader, ResolvedOptions,
    RestrictionSettings, ServerSettings, TestHooks,
};
pub use refusal::BadOption;

use typed::TypedOptions;

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Invocation {
    /// Serve with these options.
    Serve(Box<ResolvedOptions>),
    /// Print this text (it ends with a newline) on stdout and exit with 0: `--help` and `--version`.
    Print(String),
}

/// Reads a command line, `arguments` being everything after the program's name.
///
/// # Errors
/// [`BadOption`], whose display is what belongs on stderr before the process exits with 1: an unknown or
/// incomplete option, a value that breaks its option's rule, options that contradict each other, a positional
/// argument, or an option that would switch on what this version does not have.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &ProcessEnvironment,
) -> Result<Invocation, BadOption> {
    let mut typed = TypedOptions::with_defaults();
    environment.prepare(&mut typed)?;
    let mut words = tokenizer::ArgumentTokens::new(arguments)?;
    while let Some(given) = words.next_option()? {
        // As Triton, the first of the line to fail, or to ask for help, decides.
        match given.option.name {
            "help" => return Ok(Invocation::Print(usage())),
            "version" => return Ok(Invocation::Print(version())),
            name => {
                let refused = |text| BadOption::framed(name, text).advising(given.option.advice());
                given.option.apply(&mut typed, &given.value).map_err(refused)?;
                typed.note(given.option, &given.value);
            }
        }
    }
    if let Some(argument) = words.first_positional() {
        return Err(BadOption::plain(format!("Unexpected argument: {argument}")));
    }
    resolve::resolve(typed, environment).map(|options| Invocation::Serve(Box::new(options)))
}

fn version() -> String {
    format!(
        "nereid {}\nfollows the behaviour of Triton Inference Server {TRITON_VERSION}\n",
        env!("CARGO_PKG_VERSION")
    )
}
