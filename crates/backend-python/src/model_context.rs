//! What all workers of a model version have in common.
use std::{path::PathBuf, process::Command, sync::Arc};

use inference::{Inferer, backend::ModelSource, metric_registry::MetricRegistry};
use vocabulary::{Error, Name};

use crate::{
    archives::UnpackedArchives,
    environment::Environment,
    model_code::ModelCode,
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
    /// The code with the model's class.
    pub(crate) code: ModelCode,
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

impl ModelContext {
    /// Reads the settings and parameters of a model, whose workers run `code`, and finds its interpreter.
    ///
    /// # Errors
    /// A setting or parameter is not allowed, or the environment of the model cannot be used.
    pub(crate) fn of(source: &ModelSource, code: ModelCode, parts: BackendParts) -> Result<Self, Error> {
        let parameters = PythonParameters::of(&source.declared)?;
        let mut settings = PythonSettings::of(&source.settings)?;
        settings.sandbox = settings.sandbox.with_mode(parameters.sandbox);
        let sandbox = Sandbox::of(&source.name, &settings.sandbox, &parts.told_protections)?;
        let environment = Environment::of(source, code.backend_directory(), &settings, &parts.archives)?;
        Ok(Self {
            name: source.name.clone(),
            version: source.version,
            model_directory: source.model_directory.clone(),
            version_directory: source.version_directory.clone(),
            code,
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
