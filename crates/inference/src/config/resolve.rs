//! The way of a configuration: parse, override, complete, validate.
//!
//! In steps, because of what happens between them: once it is read, repository agents may replace the model's files; once
//! it is declared, the backend opens the model and adds what its file tells. All are pure: what is on disk, and what the
//! machine has, are arguments.
use std::path::{Path, PathBuf};

use proto::{Fields, Parsed, model_config::SchedulingChoice};

use super::{
    CompletionContext, ConfigErrors, ModelLayout, ResolvedConfig, VersionPolicy,
    backend_fields::complete_backend_fields,
    complete::{complete_instance_groups, normalise},
    typed::typed,
    unsupported::refuse_unsupported,
    validate::{
        check_instance_groups, check_paths, check_states, check_structure, check_tensors, check_warmups,
        directory_has_the_name,
    },
};
use crate::ErrorCode;

/// The parameter by which a configuration says that its `max_batch_size` of 0 is meant: `no`.
pub const KEEP_BATCH_PARAMETER: &str = "AUTOCOMPLETE_BATCH";

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy)]
pub enum ConfigSource<'a> {
    /// The model has no file of that path.
    Missing(&'a Path),
    /// What the file holds, in the text format.
    Text {
        /// Named in errors.
        path: &'a Path,
        /// Its bytes.
        content: &'a [u8],
    },
    /// A whole configuration in JSON that a load request brings; the file counts for nothing then.
    Override(&'a str),
}

/// Whether configurations may leave open what can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// The backend completes them.
    #[default]
    Auto,
    /// They are complete (`--disable-auto-complete-config`).
    Strict,
}

/// A configuration as its source means it: complete but for what only the backend and the machine know.
///
/// Two configurations of a model are compared for change by their `config`; `fields` differs with every blank line.
#[derive(Debug, Clone)]
pub struct Declared {
    /// Normalised and, as far as possible, validated.
    pub config: proto::ModelConfig,
    /// What the source itself set: `max_batch_size: 0` differs from no `max_batch_size`.
    pub fields: Fields,
    /// The file it was read from; none for a missing file and for an override.
    pub file: Option<PathBuf>,
    /// Whether there was a source at all.
    pub is_given: bool,
}

impl Declared {
    /// Which versions are served.
    pub fn version_policy(&self) -> VersionPolicy {
        VersionPolicy::of(&self.config)
    }

    /// What a backend gets to complete. `max_batch_size: 0` differs from no `max_batch_size`, which the configuration
    /// itself cannot tell: a 0 that was written down is marked as meant.
    pub fn to_be_completed(&self) -> proto::ModelConfig {
        let mut config = self.config.clone();
        if config.max_batch_size == 0 && self.fields.contains("max_batch_size") {
            let no = proto::ModelParameter { string_value: "no".to_owned() };
            config.parameters.entry(KEEP_BATCH_PARAMETER.to_owned()).or_insert(no);
        }
        config
    }

    /// Checks the instance groups, before anybody looks for the files of the model.
    ///
    /// # Errors
    /// INVALID_ARG for kinds, devices and profiles that do not fit together or are not there.
    pub fn check_instance_groups(&self, environment: &CompletionContext) -> Result<(), ConfigErrors> {
        let mut errors = ConfigErrors::default();
        check_instance_groups(&self.config_for_backend(environment), environment, &mut errors);
        errors.located(self.file.as_deref(), &self.fields).into_result()
    }

    /// What a backend is told when it opens the model: its instance groups are there, whatever it will complete.
    ///
    /// As Triton: backend_model.cc, Create.
    pub fn config_for_backend(&self, environment: &CompletionContext) -> proto::ModelConfig {
        let mut config = self.config.clone();
        complete_instance_groups(&mut config, environment);
        config
    }
}

/// A configuration as its source holds it: read, and nothing else.
#[derive(Debug, Clone)]
pub struct GivenConfig {
    /// Every field that the source sets; empty for a missing file.
    pub config: proto::ModelConfig,
    fields: Fields,
    file: Option<PathBuf>,
    is_given: bool,
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

/// [`read`] and [`GivenConfig::declare`] in one.
///
/// # Errors
/// Of either.
pub fn declare(
    source: ConfigSource<'_>,
    layout: &ModelLayout,
    completion: Completion,
) -> Result<Declared, ConfigErrors> {
    read(source, completion)?.declare(layout, completion)
}

impl GivenConfig {
    /// Fills in what the model's files and the defaults tell, and checks every rule that needs no backend.
    ///
    /// # Errors
    /// INVALID_ARG for broken rules, UNSUPPORTED for features that are not there.
    pub fn declare(self, layout: &ModelLayout, completion: Completion) -> Result<Declared, ConfigErrors> {
        let Self { mut config, fields, file, is_given } = self;
        let mut errors = ConfigErrors::default();
        complete_backend_fields(&mut config, layout)
            .map_err(|errors| errors.located(file.as_deref(), &fields))?;
        normalise(&mut config);
        check_structure(&config, &mut errors);
        if completion == Completion::Strict {
            check_tensors(&config, &mut errors);
        }
        directory_has_the_name(&config, &layout.name, &mut errors);
        if errors.is_empty() {
            refuse_unsupported(&config, &mut errors);
        }
        errors.located(file.as_deref(), &fields).into_result()?;
        Ok(Declared { config, fields, file, is_given })
    }
}

/// Takes over what the backend added to a declared configuration, fills in what the machine tells, and checks all
/// rules.
///
/// `completed` is the declared configuration as the backend's hook left it, unchanged where the hook was not called.
/// Of it count `max_batch_size`, `input`, `output`, the scheduling choice if there was none, and the transaction policy.
///
/// # Errors
/// INVALID_ARG for broken rules, NOT_FOUND for a model without configuration that the backend knows nothing about,
/// INTERNAL for a backend that changed the scheduling choice, UNSUPPORTED for features that are not there.
pub fn finish(
    declared: &Declared,
    completed: proto::ModelConfig,
    environment: &CompletionContext,
) -> Result<ResolvedConfig, ConfigErrors> {
    let config = complete(&declared.config, completed)?;
    if !declared.is_given && config.input.is_empty() && config.output.is_empty() {
        let text = format!("model configuration is not provided for model '{}'", config.name);
        return Err(ConfigErrors::one(ErrorCode::NotFound, text));
    }
    resolve(config, environment).map_err(|errors| errors.located(declared.file.as_deref(), &declared.fields))
}

/// A configuration with what a backend may complete taken over: `max_batch_size`, `input`, `output`, the scheduling choice if
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

/// The field number of a scheduling choice, 0 for none.
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
) -> Result<ResolvedConfig, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    normalise(&mut config);
    complete_instance_groups(&mut config, environment);
    check_instance_groups(&config, environment, &mut errors);
    check_structure(&config, &mut errors);
    check_tensors(&config, &mut errors);
    check_warmups(&config, &mut errors);
    check_states(&config, &mut errors);
    if errors.is_empty() {
        check_paths(&config, &mut errors);
        refuse_unsupported(&config, &mut errors);
    }
    errors.into_result()?;
    let (typed, warnings) = typed(&config)?;
    Ok(ResolvedConfig { typed, shown: config, warnings })
}

#[cfg(test)]
mod tests;
