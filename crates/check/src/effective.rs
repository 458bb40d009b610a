//! The configuration that a server would use, with the origin of each value.
use std::{collections::BTreeMap, path::Path};

use config::GivenConfig;
use proto::text::{leaves, write};
use repository::layout;
use vocabulary::Error;

use crate::{
    CheckOptions, CheckReport, Finding,
    model::{CheckedModel, ConfigStages, check_model},
    python::check_sources,
};

/// The configuration of a version of a model, as a server would use it.
#[derive(Debug, Clone)]
pub struct EffectiveConfig {
    /// The version.
    pub version: i64,
    /// The configuration.
    pub config: proto::ModelConfig,
    /// Where each value comes from, by its path (see [`leaves`](proto::text::leaves)).
    pub origins: BTreeMap<String, String>,
    /// What stands against the model.
    pub report: CheckReport,
    /// Whether the backend may still add inputs and outputs when it loads the version.
    pub is_complete: bool,
}

impl EffectiveConfig {
    /// The text form, with the origin of each value as a comment.
    pub fn text(&self) -> String {
        write(&self.config, |path| self.origins.get(path).cloned())
    }
}

/// Reads the configuration of a model in a directory. Without a version, that of the highest one that would be served.
///
/// # Errors
/// The findings that stand against the model, if it has no configuration because of them.
pub fn effective_config(
    directory: &Path,
    version: Option<i64>,
    options: &CheckOptions,
) -> Result<EffectiveConfig, CheckReport> {
    let mut model = check_one(directory, options)?;
    let sources: Vec<_> = model.python.iter().map(|source| (model.name.clone(), source.clone())).collect();
    if !options.skips_interpreters {
        model.findings.extend(check_sources(&sources, options.source_checks()));
    }
    let found = match version {
        None => model.stages.last_key_value(),
        Some(version) => model.stages.get_key_value(&version),
    };
    match found {
        Some((&version, stages)) => {
            let config = effective(&model, version, stages, options);
            Ok(EffectiveConfig { report: report(model), ..config })
        }
        None if model.has_errors() => Err(report(model)),
        None => Err(refused(&model.directory, &no_such(&model, version))),
    }
}

fn no_such(model: &CheckedModel, version: Option<i64>) -> Error {
    let name = &model.name;
    match version {
        Some(version) => Error::invalid(format!("version {version} of model '{name}' would not be served")),
        None => Error::invalid(format!(
            "the files of model '{name}' do not tell its configuration: its backend completes it when it loads the model"
        )),
    }
}

/// Looks at the model in a directory.
pub(crate) fn check_one(directory: &Path, options: &CheckOptions) -> Result<CheckedModel, CheckReport> {
    // The name of a model is that of its directory, also for `.`.
    let directory = directory
        .canonicalize()
        .map_err(|error| Error::invalid(format!("'{}' cannot be read: {error}", directory.display())))
        .and_then(|path| layout::entries(&path).map(|_| path))
        .map_err(|error| refused(directory, &error))?;
    Ok(check_model(&directory, options))
}

pub(crate) fn report(model: CheckedModel) -> CheckReport {
    let mut report = CheckReport { models: 1, findings: model.findings };
    report.sort();
    report
}

fn refused(directory: &Path, error: &Error) -> CheckReport {
    let finding = Finding::of_error(crate::rules::REPOSITORY, directory, error);
    CheckReport { models: 0, findings: vec![finding] }
}

fn effective(
    model: &CheckedModel,
    version: i64,
    stages: &ConfigStages,
    options: &CheckOptions,
) -> EffectiveConfig {
    let values = |config: &proto::ModelConfig| -> BTreeMap<String, String> {
        leaves(config).into_iter().map(|leaf| (leaf.path, leaf.value)).collect()
    };
    let given = model.given.as_ref().map(|given| values(&given.config)).unwrap_or_default();
    let (declared, completed) = (values(&stages.declared), values(&stages.completed));
    let origin = |path: &str, value: &String| -> String {
        if given.get(path) == Some(value) {
            return model.given.as_ref().map_or_else(String::new, |given| in_file(given, path));
        }
        if declared.get(path) == Some(value) {
            return match path {
                "name" => "the directory's name",
                "backend" | "platform" | "default_model_filename" => "the model's files",
                _ => "default",
            }
            .to_owned();
        }
        if completed.get(path) == Some(value) {
            return if path == "max_batch_size" {
                batch_size_origin(options)
            } else {
                "the model's file".to_owned()
            };
        }
        "default".to_owned()
    };
    let shown = leaves(&stages.shown).into_iter();
    let origins = shown.map(|leaf| (leaf.path.clone(), origin(&leaf.path, &leaf.value))).collect();
    let is_complete = stages.is_complete;
    EffectiveConfig {
        version,
        config: stages.shown.clone(),
        origins,
        report: CheckReport::default(),
        is_complete,
    }
}

/// The place of a value in the file, or of the nearest field around it.
fn in_file(given: &GivenConfig, path: &str) -> String {
    let file = given.file().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let mut path = path;
    loop {
        if let Some(position) = given.fields().position(path) {
            return format!("{file}:{}", position.line);
        }
        match path.rfind(['.', '[']) {
            Some(end) => path = &path[..end],
            None => return file.into_owned(),
        }
    }
}

/// Who has said how large the batches of a model are whose graph can batch.
fn batch_size_origin(options: &CheckOptions) -> String {
    let is_given = options.backend_settings.iter().filter(|setting| setting.key == "default-max-batch-size");
    // The server's own default is the first.
    if is_given.count() > 1 {
        "--backend-config=default-max-batch-size".to_owned()
    } else {
        "default for a graph that can batch".to_owned()
    }
}
