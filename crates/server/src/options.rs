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
mod command_line;
mod commands;
mod completions;
mod environment;
mod exit_codes;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod help;
mod layers;
mod managed;
mod manual;
mod meaning;
mod opentelemetry;
mod options_file;
mod plain_keys;
mod process_variables;
mod reference;
mod refusal;
mod resolve;
mod sagemaker_line;
mod table;
#[cfg(test)]
mod tests;
mod tokenizer;
mod trace;
mod typed;
mod unread_variables;
mod values;

pub use command_line::{Invocation, parse, parse_with_repositories};
pub use commands::{calls as command_calls, nearest_command, usage as command_usage};
pub use completions::{SHELLS, completions};
pub use environment::ProcessEnvironment;
pub use help::{screen, usage};
pub use in_process::TRITON_VERSION;
pub use manual::manual;
pub use meaning::{
    AccessLogSettings, BackendSetting, BackendsSettings, CacheSettings, Connections, CredentialSettings,
    GivenOptions, GrpcSettings, HttpProtocolSettings, HttpSettings, ListenSettings, MemorySettings,
    MetricsSettings, RepositorySettings, RequiredHeader, ResolvedOptions, RestrictionSettings,
    SageMakerSettings, ServerSettings, TestHooks, VertexAiSettings,
};
pub use opentelemetry::OpenTelemetryVariables;
pub use reference::reference;
pub use refusal::BadOption;
pub use sagemaker_line::sagemaker_line;
