//! Checks one model: its directory, its configuration, and each version that would be served.
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use config::{
    Completion, CompletionContext, ConfigErrors, ConfigRule, ConfigSource, DeclaredConfig, FileEntry,
    GivenConfig, ModelConfig, ModelLayout, ResolvedConfig, Scheduling, absent_versions, examine, finish_all,
    misspelt_names, no_version_available, read, rule, select_versions, unused_cache,
};
use inference::{
    agent::not_found,
    backend::{Backend, ModelInspection, ModelSource, PythonSource},
    nearest,
};
use proto::model_config::SchedulingChoice;
use repository::layout;
use vocabulary::{Error, ErrorCode, Name};

use crate::{
    CheckOptions, Finding, Severity,
    backend_choice::{BackendChoice, near_backend, settings_of},
    rules::{REPOSITORY_AGENT, VERSION_DIRECTORY},
    unread_files::unread_files,
};

/// The configuration of a version after each step.
#[derive(Debug, Clone)]
pub(crate) struct ConfigStages {
    /// With what follows from the model's files and from defaults.
    pub(crate) declared: proto::ModelConfig,
    /// With what the backend has read from the model's file.
    pub(crate) completed: proto::ModelConfig,
    /// As the server would show it.
    pub(crate) shown: proto::ModelConfig,
    /// Whether the backend has told all that it would complete.
    pub(crate) is_complete: bool,
}

/// A model that was looked at.
pub(crate) struct CheckedModel {
    pub(crate) name: Name,
    pub(crate) directory: PathBuf,
    /// The file with the configuration, or the directory of a model without one.
    pub(crate) place: PathBuf,
    pub(crate) findings: Vec<Finding>,
    /// Which fields the configuration sets, and where; `None` if it cannot be read.
    pub(crate) given: Option<GivenConfig>,
    /// The configurations of the versions that would be served. `None`: the backend completes it when it loads the
    /// version, or it has problems.
    pub(crate) versions: BTreeMap<i64, Option<ModelConfig>>,
    pub(crate) python: Vec<PythonSource>,
    /// The name of the backend in the server that runs it.
    pub(crate) backend: Option<String>,
    /// The steps to the configurations of the versions, as far as the rules allow to take them.
    pub(crate) stages: BTreeMap<i64, ConfigStages>,
}

impl CheckedModel {
    /// Whether the model is, or may be, a program that reads files by itself.
    fn may_read_files(&self) -> bool {
        self.versions.is_empty() || !self.python.is_empty() || self.versions.values().any(Option::is_none)
    }

    /// Whether the server would refuse the model.
    pub(crate) fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    fn add(&mut self, finding: Finding) {
        self.findings.push(finding.about(&self.name));
    }

    fn warn(&mut self, rule: ConfigRule, text: impl Into<String>) {
        let finding = Finding::new(Severity::Warning, rule, &self.place, text);
        self.add(finding);
    }

    fn refuse(&mut self, rule: ConfigRule, error: &Error) {
        let finding = Finding::of_error(rule, &self.place, error);
        self.add(finding);
    }

    /// A finding at a field of the configuration, or at the nearest field that the file has.
    pub(crate) fn at(&self, severity: Severity, rule: ConfigRule, field: &str, text: &str) -> Finding {
        let mut errors = ConfigErrors::default();
        errors.begin(rule);
        errors.push(ErrorCode::InvalidArgument, field, text);
        let located = match &self.given {
            Some(given) => errors.located(given.file(), given.fields()),
            None => errors,
        };
        let finding = Finding::of_problems(&located, &self.place).remove(0);
        Finding { severity, ..finding }.about(&self.name)
    }
}

/// Checks the model in a directory, except for the members of an ensemble and code in Python.
pub(crate) fn check_model(directory: &Path, options: &CheckOptions) -> CheckedModel {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let place = layout::config_path(directory, options.config_name.as_deref());
    let mut model = CheckedModel {
        name: Name::new(&name),
        directory: directory.to_path_buf(),
        place: if place.exists() { place } else { directory.to_path_buf() },
        findings: Vec::new(),
        given: None,
        versions: BTreeMap::new(),
        python: Vec::new(),
        backend: None,
        stages: BTreeMap::new(),
    };
    let Some(given) = read_config(&mut model, options) else {
        check_layout(&mut model);
        return model;
    };
    model.given = Some(given.clone());
    check_agents(&mut model, &given, options);
    let Some(versions) = check_layout(&mut model) else { return model };
    check_config(&mut model, given.clone(), versions, options);
    if given.config.model_repository_agents.is_none() {
        let unread = unread_files(directory, &given.config, model.may_read_files());
        unread.into_iter().for_each(|finding| model.add(finding));
    }
    model
}

/// The configuration, if the rules can be applied to it.
fn read_config(model: &mut CheckedModel, options: &CheckOptions) -> Option<GivenConfig> {
    let path = layout::config_path(&model.directory, options.config_name.as_deref());
    let completion = completion(options);
    match layout::read_file(&path) {
        Ok(content) => {
            let examined = examine(&path, &content);
            let findings = Finding::of_problems(&examined.errors, &path);
            findings.into_iter().for_each(|finding| model.add(finding));
            examined.is_judgeable.then_some(examined.given)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Ok(target) = fs::read_link(&path) {
                let text = format!(
                    "the link leads to '{}', which does not exist: the model counts as a model without configuration",
                    target.display()
                );
                let finding = Finding::new(Severity::Warning, rule::CONFIGURATION, &path, text);
                model.add(finding);
            }
            match read(ConfigSource::Missing(&path), completion) {
                Ok(given) => Some(given),
                Err(errors) => {
                    model.refuse(rule::CONFIGURATION, &errors.into());
                    None
                }
            }
        }
        Err(error) => {
            let text = format!("failed to open {}: {error}", path.display());
            model.refuse(rule::CONFIGURATION, &Error::internal(text));
            None
        }
    }
}

fn completion(options: &CheckOptions) -> Completion {
    if options.must_be_complete { Completion::Strict } else { Completion::Auto }
}

fn check_agents(model: &mut CheckedModel, given: &GivenConfig, options: &CheckOptions) {
    let agents = given.config.model_repository_agents.iter().flat_map(|agents| &agents.agents);
    for (position, agent) in agents.enumerate() {
        // As the server words it, with agents in libraries and without.
        let searched = match &options.plugins.agents {
            Some(agents) if agents.has(&agent.name) => None,
            Some(_) => Some(options.agent_directory.join(&agent.name)),
            None => Some(options.agent_directory.clone()),
        };
        if let Some(directory) = searched {
            let error = not_found(&agent.name, &directory);
            let field = format!("model_repository_agents.agents[{position}].name");
            let finding = model.at(Severity::Error, REPOSITORY_AGENT, &field, &error.message);
            model.findings.push(finding);
        }
    }
}

/// The version directories with their files.
fn check_layout(model: &mut CheckedModel) -> Option<BTreeMap<i64, Vec<FileEntry>>> {
    match layout::versions(&model.directory) {
        Ok((versions, ignored)) => {
            for warning in ignored {
                let finding = Finding::new(Severity::Warning, VERSION_DIRECTORY, &model.directory, warning);
                model.add(finding);
            }
            if versions.is_empty() {
                let text = layout::without_versions(&model.directory);
                let finding = Finding::new(Severity::Warning, VERSION_DIRECTORY, &model.directory, text);
                model.add(finding);
            }
            Some(versions)
        }
        Err(error) => {
            model.refuse(rule::MODEL_FILE, &error);
            None
        }
    }
}

fn check_config(
    model: &mut CheckedModel,
    given: GivenConfig,
    versions: BTreeMap<i64, Vec<FileEntry>>,
    options: &CheckOptions,
) {
    let existing: Vec<_> = versions.keys().copied().collect();
    let layout = ModelLayout { name: model.name.to_string(), versions };
    let mut errors = ConfigErrors::default();
    let declared = given.declare_all(&layout, completion(options), &mut errors);
    if let Some(declared) = &declared {
        let policy = declared.version_policy();
        for text in absent_versions(&policy, &existing, &model.name) {
            let finding = model.at(Severity::Warning, rule::VERSION_POLICY, "version_policy", &text);
            model.findings.push(finding);
        }
        let selected = select_versions(&policy, &existing);
        if selected.is_empty() {
            let text = no_version_available(&model.name).message;
            let finding = model.at(Severity::Error, rule::VERSION_POLICY, "version_policy", &text);
            model.findings.push(finding);
        }
        warn_about_cache(model, declared, options);
        let mut of_versions = ConfigErrors::default();
        for version in selected {
            let mut of_version = ConfigErrors::default();
            let resolved = check_version(model, declared, version, options, &mut of_version);
            of_versions.absorb(of_version);
            model.versions.insert(version, resolved);
        }
        errors.absorb(of_versions);
        errors = errors.located(declared.file.as_deref(), &declared.fields);
    }
    let findings = Finding::of_problems(&errors, &model.place);
    findings.into_iter().for_each(|finding| model.add(finding));
}

fn warn_about_cache(model: &mut CheckedModel, declared: &DeclaredConfig, options: &CheckOptions) {
    let is_cached = declared.config.response_cache.as_ref().is_some_and(|cache| cache.enable);
    if is_cached && !options.has_cache {
        let text = unused_cache(&model.name);
        let finding = model.at(Severity::Warning, rule::RESPONSE_CACHE, "response_cache", &text);
        model.findings.push(finding);
    }
}

/// Checks one version. Returns its complete configuration, if files tell it and the version has no problem.
fn check_version(
    model: &mut CheckedModel,
    declared: &DeclaredConfig,
    version: i64,
    options: &CheckOptions,
    errors: &mut ConfigErrors,
) -> Option<ModelConfig> {
    let is_ensemble =
        matches!(declared.config.scheduling_choice, Some(SchedulingChoice::EnsembleScheduling(_)));
    let mut source = layout::model_source(&model.name, version, &model.directory, declared.config.clone());
    let backend = if is_ensemble { None } else { choose_backend(model, &mut source, options, errors) };
    let mut environment = CompletionContext {
        preferred_groups: backend.iter().flat_map(|backend| backend.preferred_groups()).collect(),
        gpu_groups_on_cpu: options.gpu_groups_on_cpu,
        ..CompletionContext::default()
    };
    source.declared = declared.config_for_backend(&environment).into();
    let inspection = backend.as_deref().and_then(|backend| inspect(backend, &source, model, errors));
    let mut completed = declared.to_be_completed();
    if let (Some(inspection), Completion::Auto) = (&inspection, completion(options)) {
        match inspection.complete_config(&mut completed) {
            Ok(request_rows) => environment.request_rows = request_rows,
            Err(error) => {
                errors.begin(rule::GRAPH);
                errors.push_error("max_batch_size", &error);
            }
        }
    }
    let is_complete = is_ensemble
        || options.must_be_complete
        || inspection.as_ref().is_some_and(|told| told.completes_all());
    if !is_complete {
        remove_incomplete(&mut completed, declared, backend.is_none());
        if !declared.is_given && completed.input.is_empty() && completed.output.is_empty() {
            return None;
        }
    }
    let resolved = finish_all(declared, completed.clone(), &environment, errors);
    let ResolvedConfig { mut typed, shown, warnings } = resolved.filter(|_| errors.is_empty())?;
    let stages = ConfigStages { declared: declared.config.clone(), completed, shown, is_complete };
    model.stages.insert(version, stages);
    warnings.into_iter().for_each(|text| model.warn(rule::VALUE, text));
    layout::check_files(&mut typed, &model.directory, errors);
    if let Some(inspection) = &inspection {
        inspection.check(&typed, errors);
        if errors.is_empty() {
            let mut doubts = ConfigErrors::default();
            inspection.doubt(&typed, &mut doubts);
            for problem in doubts.problems() {
                let text = format!("{}; the load tells whether this holds", problem.text);
                let finding = model.at(Severity::Warning, problem.rule, &problem.field, &text);
                model.findings.push(finding);
            }
        }
    }
    if let Err(error) = layout::check_batching_library(backend.as_deref(), &source, &typed) {
        errors.begin(rule::FILE_PATH);
        errors.push_error("parameters.TRITON_BATCH_STRATEGY_PATH", &error);
    }
    let is_known = is_complete && errors.is_empty();
    is_known.then_some(typed)
}

/// Removes the inputs and outputs that the backend may still complete. A library is not expected to replace a datatype
/// that the configuration names, also if that is TYPE_INVALID.
fn remove_incomplete(completed: &mut proto::ModelConfig, declared: &DeclaredConfig, is_library: bool) {
    let is_given = |kind: &str, position: usize| {
        is_library && declared.fields.contains(&format!("{kind}[{position}].data_type"))
    };
    let mut position = 0..;
    completed.input.retain(|input| {
        let is_given = position.next().is_some_and(|position| is_given("input", position));
        input.data_type != 0 && !input.dims.is_empty() || input.data_type == 0 && is_given
    });
    let mut position = 0..;
    completed.output.retain(|output| {
        let is_given = position.next().is_some_and(|position| is_given("output", position));
        output.data_type != 0 && !output.dims.is_empty() || output.data_type == 0 && is_given
    });
}

/// The built-in backend of a model, with its settings in `source`. `None` if a library runs the model, or nothing.
fn choose_backend(
    model: &mut CheckedModel,
    source: &mut ModelSource,
    options: &CheckOptions,
    errors: &mut ConfigErrors,
) -> Option<std::sync::Arc<dyn Backend>> {
    match BackendChoice::of(options, source) {
        Ok(BackendChoice::BuiltIn(backend)) => {
            source.settings = settings_of(options, backend.settings_name());
            model.backend = Some(backend.name().to_owned());
            for useless in misspelt_names(&source.declared, backend.known_names()) {
                let finding = model.at(Severity::Warning, rule::PARAMETER, &useless.field, &useless.text);
                model.findings.push(finding.meaning(useless.suggestion));
            }
            Some(backend)
        }
        Ok(BackendChoice::Library) => {
            source.settings = settings_of(options, &source.declared.backend);
            None
        }
        Err(error) => {
            errors.begin(rule::BACKEND);
            let name = &source.declared.backend;
            let near = near_backend(options, name);
            errors.push_meaning(error.code, "backend", error.message.to_string(), near);
            None
        }
    }
}

fn inspect(
    backend: &dyn Backend,
    source: &ModelSource,
    model: &mut CheckedModel,
    errors: &mut ConfigErrors,
) -> Option<Box<dyn ModelInspection>> {
    match backend.inspect(source) {
        Ok(inspection) => {
            let python = inspection.as_ref().and_then(|inspection| inspection.python_source());
            model.python.extend(python);
            inspection
        }
        Err(error) => {
            errors.begin(rule::MODEL_FILE);
            let wanted = &source.declared.default_model_filename;
            let there = layout::entries(&source.version_directory).unwrap_or_default();
            let near = nearest(wanted, there.into_iter().map(|entry| entry.name));
            let near = near.filter(|near| near != wanted);
            errors.push_meaning(error.code, "default_model_filename", error.message.to_string(), near);
            None
        }
    }
}

/// The steps of an ensemble.
pub(crate) fn ensemble_of(config: &ModelConfig) -> Option<&config::EnsembleScheduling> {
    match &config.scheduling {
        Scheduling::Ensemble(ensemble) => Some(ensemble),
        Scheduling::Unbatched | Scheduling::Dynamic(_) | Scheduling::Sequence(_) => None,
    }
}
