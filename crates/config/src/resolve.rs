//! The steps that produce a configuration: parse, override, complete, validate.
//!
//! The steps are separate functions, because other parts of the server act between them. After the configuration is
//! read, repository agents may replace the model's files. After it is declared, the backend opens the model and adds
//! what the model file defines. All functions are pure: files and machine properties are arguments.
use std::path::{Path, PathBuf};

use proto::{
    Fields, Parsed,
    model_config::SchedulingChoice,
    text::{MistakeKind, TextError},
};
use vocabulary::ErrorCode;

use super::{
    CompletionContext, ConfigErrors, ModelConfig, ModelLayout, VersionPolicy,
    backend_fields::complete_backend_fields,
    complete::{complete_instance_groups, normalise},
    model_files::PYTHON,
    typed::typed,
    validate::{
        check_instance_groups, check_paths, check_states, check_structure, check_tensors, check_warmups,
        directory_has_the_name,
    },
};

/// The parameter that marks a `max_batch_size` of 0 as intended: value `no`.
pub const KEEP_BATCH_PARAMETER: &str = "AUTOCOMPLETE_BATCH";

/// The source of a configuration.
#[derive(Debug, Clone, Copy)]
pub enum ConfigSource<'a> {
    /// The model has no file of that path.
    Missing(&'a Path),
    /// The content of the file, in the text format.
    Text {
        /// The path in errors.
        path: &'a Path,
        /// Its bytes.
        content: &'a [u8],
    },
    /// A complete configuration in JSON from a load request. The server then ignores the file.
    Override(&'a str),
}

/// Whether a configuration may omit fields that the backend can derive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// The backend completes the configuration.
    #[default]
    Auto,
    /// The configuration is complete (`--disable-auto-complete-config`).
    Strict,
}

/// A declared configuration: complete except for the fields that only the backend and the machine determine.
///
/// To detect changes, compare the `config` of two declared configurations. `fields` changes with every blank line.
#[derive(Debug, Clone)]
pub struct DeclaredConfig {
    /// Normalised, and validated as far as possible.
    pub config: proto::ModelConfig,
    /// The fields that the source itself set: `max_batch_size: 0` differs from no `max_batch_size`.
    pub fields: Fields,
    /// The file of the configuration; `None` for a missing file and for an override.
    pub file: Option<PathBuf>,
    /// Whether there was any source.
    pub is_given: bool,
}

impl DeclaredConfig {
    /// The policy that selects the served versions.
    pub fn version_policy(&self) -> VersionPolicy {
        VersionPolicy::of(&self.config)
    }

    /// The configuration that a backend gets to complete. `max_batch_size: 0` differs from no `max_batch_size`, but
    /// the configuration itself cannot show the difference. This function marks a 0 from the source as intended.
    pub fn to_be_completed(&self) -> proto::ModelConfig {
        let mut config = self.config.clone();
        if config.max_batch_size == 0 && self.fields.contains("max_batch_size") {
            let no = proto::ModelParameter { string_value: "no".to_owned() };
            config.parameters.entry(KEEP_BATCH_PARAMETER.to_owned()).or_insert(no);
        }
        config
    }

    /// Checks the instance groups, before the server searches the files of the model.
    ///
    /// # Errors
    /// INVALID_ARG for kinds, devices and profiles that contradict each other or do not exist.
    pub fn check_instance_groups(&self, environment: &CompletionContext) -> Result<(), ConfigErrors> {
        let mut errors = ConfigErrors::default();
        check_instance_groups(&self.config_for_backend(environment), environment, &mut errors);
        errors.located(self.file.as_deref(), &self.fields).into_result()
    }

    /// The configuration that a backend gets when it opens the model. It has instance groups, even if the backend
    /// will complete other fields.
    ///
    /// As Triton: backend_model.cc, Create.
    pub fn config_for_backend(&self, environment: &CompletionContext) -> proto::ModelConfig {
        let mut config = self.config.clone();
        complete_instance_groups(&mut config, environment);
        config
    }
}

/// A configuration as its source contains it, without any change.
#[derive(Debug, Clone)]
pub struct GivenConfig {
    /// Every field that the source sets; empty for a missing file.
    pub config: proto::ModelConfig,
    fields: Fields,
    file: Option<PathBuf>,
    is_given: bool,
}

/// A configuration in the form that the server uses and in the form that clients see.
#[derive(Debug, Clone)]
pub struct ResolvedConfig {
    /// Validated and typed.
    pub typed: ModelConfig,
    /// The completed protobuf form.
    pub shown: proto::ModelConfig,
    /// Warnings for the log: settings that are valid but probably not intended. Each names the model.
    pub warnings: Vec<String>,
}

/// Reads a configuration.
///
/// # Errors
/// INTERNAL for a source that cannot be read or must not be missing, INVALID_ARG for an override that cannot be read.
pub fn read(source: ConfigSource<'_>, completion: Completion) -> Result<GivenConfig, ConfigErrors> {
    let internal = |text: String| ConfigErrors::one(ErrorCode::Internal, text);
    let (Parsed { config, fields }, file) = match source {
        ConfigSource::Missing(path) if completion == Completion::Strict => {
            let path = path.display();
            return Err(internal(format!(
                "failed to open text file for read {path}: No such file or directory"
            )));
        }
        ConfigSource::Missing(_) => (Parsed::default(), None),
        ConfigSource::Text { path, content } => match proto::text::parse(content) {
            Ok(parsed) => (parsed, Some(path.to_owned())),
            Err(error) => {
                return Err(internal(format!("failed to read text proto from {}", error.in_file(path))));
            }
        },
        ConfigSource::Override(json) => match proto::json::parse(json) {
            Ok(parsed) => (parsed, None),
            Err(error) => {
                let text = format!("Invalid config override: {error}");
                return Err(ConfigErrors::one(ErrorCode::InvalidArgument, text));
            }
        },
    };
    Ok(GivenConfig { config, fields, file, is_given: !matches!(source, ConfigSource::Missing(_)) })
}

/// Calls [`read`] and then [`GivenConfig::declare`].
///
/// # Errors
/// Those of both functions.
pub fn declare(
    source: ConfigSource<'_>,
    layout: &ModelLayout,
    completion: Completion,
) -> Result<DeclaredConfig, ConfigErrors> {
    read(source, completion)?.declare(layout, completion)
}

/// A configuration file with all its mistakes.
#[derive(Debug, Clone)]
pub struct CheckedText {
    /// What the file contains. A misspelt name counts as the name that was probably meant.
    pub given: GivenConfig,
    /// The mistakes, if there are any. [`read`] refuses such a file.
    pub errors: ConfigErrors,
    /// Whether the rules for configurations can be applied to `given`: nothing is missing in it because of a mistake.
    pub is_judgeable: bool,
}

/// As [`read`] for a file, but goes on after mistakes, to find all of them.
pub fn examine(path: &Path, content: &[u8]) -> CheckedText {
    let (Parsed { config, fields }, error) = proto::text::parse_what_can_be(content);
    let is_certain = |mistake: &TextError| match mistake.kind {
        MistakeKind::UnknownField | MistakeKind::UnknownValue => mistake.suggestion.is_some(),
        MistakeKind::Syntax | MistakeKind::WrongValue | MistakeKind::Repeated => false,
    };
    let is_judgeable = error.iter().flat_map(TextError::each).all(is_certain);
    let errors = error.map(|error| ConfigErrors::of_text(path, &error)).unwrap_or_default();
    let given = GivenConfig { config, fields, file: Some(path.to_owned()), is_given: true };
    CheckedText { given, errors, is_judgeable }
}

impl GivenConfig {
    /// The fields that the source sets.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The file of the configuration; `None` for a missing file and for an override.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Fills in the fields that the model's files and the defaults determine. Checks every rule that does not depend
    /// on the backend.
    ///
    /// # Errors
    /// INVALID_ARG for broken rules.
    pub fn declare(
        self,
        layout: &ModelLayout,
        completion: Completion,
    ) -> Result<DeclaredConfig, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let declared = self.declare_all(layout, completion, &mut errors);
        errors.into_result()?;
        declared
            .ok_or_else(|| ConfigErrors::one(ErrorCode::Internal, "the configuration cannot be completed"))
    }

    /// As [`declare`](Self::declare), but adds the problems to `errors`, and goes on after them. `None` if the backend is
    /// not known: then no other rule can be applied.
    pub fn declare_all(
        self,
        layout: &ModelLayout,
        completion: Completion,
        errors: &mut ConfigErrors,
    ) -> Option<DeclaredConfig> {
        let Self { mut config, fields, file, is_given } = self;
        if let Err(unknown) = complete_backend_fields(&mut config, layout) {
            errors.absorb(unknown.located(file.as_deref(), &fields));
            return None;
        }
        normalise(&mut config);
        check_structure(&config, errors);
        if completion == Completion::Strict {
            check_tensors(&config, errors);
        }
        directory_has_the_name(&config, &layout.name, errors);
        *errors = std::mem::take(errors).located(file.as_deref(), &fields);
        Some(DeclaredConfig { config, fields, file, is_given })
    }
}

/// Takes over the fields that the backend added to a declared configuration, fills in the fields that the machine
/// determines, and checks all rules.
///
/// `completed` is the declared configuration after the backend's hook, unchanged if the hook was not called. Only
/// `max_batch_size`, `input`, `output`, the scheduling choice if there was none, and the transaction policy count.
///
/// # Errors
/// INVALID_ARG for broken rules, NOT_FOUND for a model without configuration that the backend does not know either,
/// INTERNAL for a backend that changed the scheduling choice.
pub fn finish(
    declared: &DeclaredConfig,
    completed: proto::ModelConfig,
    environment: &CompletionContext,
) -> Result<ResolvedConfig, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let resolved = finish_all(declared, completed, environment, &mut errors);
    errors.into_result()?;
    resolved.ok_or_else(|| ConfigErrors::one(ErrorCode::Internal, "the configuration cannot be completed"))
}

/// As [`finish`], but adds the problems to `errors`, where those of [`GivenConfig::declare_all`] may already be. `None` if
/// there are any.
pub fn finish_all(
    declared: &DeclaredConfig,
    completed: proto::ModelConfig,
    environment: &CompletionContext,
    errors: &mut ConfigErrors,
) -> Option<ResolvedConfig> {
    let config = match complete(&declared.config, completed) {
        Ok(config) => config,
        Err(problem) => {
            errors.absorb(problem);
            return None;
        }
    };
    // As Triton: a model in Python need not have inputs and outputs.
    let is_given = declared.is_given || config.backend == PYTHON;
    if !is_given && config.input.is_empty() && config.output.is_empty() {
        let text = format!("model configuration is not provided for model '{}'", config.name);
        errors.absorb(ConfigErrors::one(ErrorCode::NotFound, text));
        return None;
    }
    let mut resolved = resolve(config, environment, errors);
    if let Some(resolved) = &mut resolved {
        let max_batch_size = resolved.typed.max_batch_size;
        resolved.typed.max_request_rows =
            environment.request_rows.filter(|rows| max_batch_size < Some(*rows));
    }
    *errors = std::mem::take(errors).located(declared.file.as_deref(), &declared.fields);
    resolved
}

/// Takes over the fields that a backend may complete: `max_batch_size`, `input`, `output`, the scheduling choice if
/// there was none, and the transaction policy.
///
/// # Errors
/// INTERNAL for another scheduling choice.
pub fn complete(
    config: &proto::ModelConfig,
    completed: proto::ModelConfig,
) -> Result<proto::ModelConfig, ConfigErrors> {
    let mut config = config.clone();
    config.max_batch_size = completed.max_batch_size;
    config.input = completed.input;
    config.output = completed.output;
    let choices = (
        choice_number(config.scheduling_choice.as_ref()),
        choice_number(completed.scheduling_choice.as_ref()),
    );
    if config.scheduling_choice.is_none() {
        config.scheduling_choice = completed.scheduling_choice;
    } else if choices.0 != choices.1 {
        let (from, to) = choices;
        let text = format!("Cannot update scheduling choice from {from} to {to} when auto-completing.");
        return Err(ConfigErrors::one(ErrorCode::Internal, text));
    }
    if let Some(policy) = completed.model_transaction_policy {
        config.model_transaction_policy.get_or_insert_default().decoupled = policy.decoupled;
    }
    Ok(config)
}

/// The field number of a scheduling choice; 0 for none.
fn choice_number(choice: Option<&SchedulingChoice>) -> u32 {
    match choice {
        None => 0,
        Some(SchedulingChoice::DynamicBatching(_)) => 11,
        Some(SchedulingChoice::SequenceBatching(_)) => 13,
        Some(SchedulingChoice::EnsembleScheduling(_)) => 15,
    }
}

fn resolve(
    mut config: proto::ModelConfig,
    environment: &CompletionContext,
    errors: &mut ConfigErrors,
) -> Option<ResolvedConfig> {
    normalise(&mut config);
    complete_instance_groups(&mut config, environment);
    check_instance_groups(&config, environment, errors);
    check_structure(&config, errors);
    check_tensors(&config, errors);
    check_warmups(&config, errors);
    check_states(&config, errors);
    check_paths(&config, errors);
    if !errors.is_empty() {
        return None;
    }
    match typed(&config) {
        Ok((typed, warnings)) => Some(ResolvedConfig { typed, shown: config, warnings }),
        Err(problems) => {
            errors.absorb(problems);
            None
        }
    }
}

#[cfg(test)]
mod tests;
