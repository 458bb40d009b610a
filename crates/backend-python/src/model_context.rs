//! What all workers of a model version have in common.
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use inference::{Inferer, backend::ModelSource, metric_registry::MetricRegistry};
use vocabulary::{Error, Name};

use crate::{
    archives::UnpackedArchives,
    environment::Environment,
    output_rules::OutputRules,
    process_memory::ProcessMemory,
    restart_counter::RestartCounter,
    sandbox::{ReportedProtections, Sandbox},
    settings::{PythonParameters, PythonSettings},
    spawner::Spawner,
};

/// See the module documentation.
pub(crate) struct ModelContext {
    pub(crate) name: Name,
    pub(crate) version: i64,
    pub(crate) model_directory: PathBuf,
    pub(crate) version_directory: PathBuf,
    /// The directory of a backend that is written in Python.
    pub(crate) backend_directory: Option<PathBuf>,
    /// The file with the model's class.
    pub(crate) file: PathBuf,
    pub(crate) settings: PythonSettings,
    pub(crate) parameters: PythonParameters,
    pub(crate) output_rules: OutputRules,
    pub(crate) environment: Environment,
    /// `None` if the workers run without one.
    pub(crate) sandbox: Option<Arc<Sandbox>>,
    pub(crate) restart_counter: RestartCounter,
    pub(crate) process_memory: Arc<ProcessMemory>,
    pub(crate) parts: BackendParts,
    pub(crate) inferer: Option<Arc<dyn Inferer>>,
}

/// What all models of the backend share.
#[derive(Debug, Clone)]
pub(crate) struct BackendParts {
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) metrics: Arc<MetricRegistry>,
    pub(crate) archives: Arc<UnpackedArchives>,
    pub(crate) told_protections: Arc<ReportedProtections>,
}

/// The file of a model, and of a backend in Python.
pub(crate) const DEFAULT_FILE: &str = "model.py";

impl ModelContext {
    /// Finds the files of a model. `backend_directory` has the file of a backend that is written in Python.
    ///
    /// # Errors
    /// A file is missing, or a setting or parameter is not allowed.
    pub(crate) fn of(
        source: &ModelSource,
        backend_directory: Option<PathBuf>,
        parts: BackendParts,
    ) -> Result<Self, Error> {
        let parameters = PythonParameters::of(&source.declared)?;
        let mut settings = PythonSettings::of(&source.settings)?;
        settings.sandbox = settings.sandbox.with_mode(parameters.sandbox);
        let file = model_file(source, backend_directory.as_deref())?;
        let sandbox = Sandbox::of(&source.name, &settings.sandbox, &parts.told_protections)?;
        let environment = Environment::of(source, backend_directory.as_deref(), &settings, &parts.archives)?;
        Ok(Self {
            name: source.name.clone(),
            version: source.version,
            model_directory: source.model_directory.clone(),
            version_directory: source.version_directory.clone(),
            backend_directory,
            file,
            output_rules: OutputRules::new(parameters.strict_outputs),
            environment,
            sandbox,
            restart_counter: RestartCounter::new(&parts.metrics, &source.name, source.version)?,
            settings,
            parameters,
            process_memory: Arc::default(),
            parts,
            inferer: source.inferer.clone(),
        })
    }

    /// The command that starts a worker.
    pub(crate) fn command(&self, instance: &str, program: &str) -> Command {
        let mut command = self.environment.command();
        // The further arguments are for people who look at the list of processes.
        command.args(["-c", program, "nereid-worker", instance]);
        command
    }
}

pub(crate) fn model_file(source: &ModelSource, backend_directory: Option<&Path>) -> Result<PathBuf, Error> {
    let declared = &source.declared.default_model_filename;
    let name = if declared.is_empty() { DEFAULT_FILE } else { declared };
    if !name.ends_with(".py") {
        let text = format!("Model name must end with '.py'. Model name is \"{name}\".");
        return Err(Error::internal(text));
    }
    let file = source.version_directory.join(name);
    if file.is_file() {
        return Ok(file);
    }
    if let Some(file) = backend_directory.map(|directory| directory.join(DEFAULT_FILE))
        && file.is_file()
    {
        return Ok(file);
    }
    Err(Error::internal(format!("Python model file not found in '{}'", file.display())))
}
