//! Model configuration: the typed form, which cannot represent invalid states, and the conversion into it.
//!
//! Files contain the protobuf form ([`proto::ModelConfig`]), and clients see it. The server converts it into
//! [`ModelConfig`] once, in four steps: parse, override, complete and validate. The rest of the server reads only the
//! typed form.
//!
//! This crate knows no request and no backend, and contains no I/O, no clock and no thread.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backend_fields;
mod complete;
mod ensemble;
mod errors;
mod instances;
mod members;
mod misspelt;
mod model_config;
mod model_files;
mod refusal;
mod resolve;
pub mod rule;
mod sequence;
mod typed;
mod unknown_datatype;
mod validate;
mod versions;
mod warmup;

pub use complete::CompletionContext;
pub use ensemble::{EnsembleScheduling, EnsembleStep, MappedTensor};
pub use errors::{ConfigErrors, ConfigProblem};
pub use instances::{InstanceGroup, InstanceKind, RateLimits, ResourceNeed, SecondaryDevice};
pub use members::{FittedEnsemble, check_members, fit_members};
pub use misspelt::{
    KnownConfigNames, SETTINGS_OF_ALL_BACKENDS, UnknownConfigName, misspelt_names, server_parameters,
    unknown_setting, unused_cache,
};
pub use model_config::{
    Accelerator, BatchInput, BatchInputKind, BatchOutput, InputSpec, MemoryRank, ModelConfig, OutputSpec,
    ResponseCaching, Scheduling,
};
pub use model_files::{FOREST_FILES, FileEntry, MODEL_FORMATS, ModelFormat, ModelLayout};
pub use refusal::SettingRefusal;
pub use resolve::{
    CheckedText, Completion, ConfigSource, DeclaredConfig, GivenConfig, KEEP_BATCH_PARAMETER, ResolvedConfig,
    complete, declare, examine, finish, finish_all, read,
};
pub use rule::ConfigRule;
pub use sequence::{ControlInput, FlagValues, InitialState, SequenceControl, SequenceScheduling, StateSpec};
pub use unknown_datatype::unknown_datatype;
pub use versions::{
    VersionDirectory, VersionPolicy, absent_versions, no_version_available, select_versions,
    version_directory,
};
pub use warmup::{Warmup, WarmupData, WarmupInput};
