//! Which interpreter runs a model, and in which environment.
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use inference::backend::ModelSource;
use vocabulary::Error;

use crate::{
    archives::{self, UnpackedArchive, UnpackedArchives},
    settings::{EXECUTION_ENV_PATH, PYTHON_EXECUTABLE, PythonSettings},
    virtual_environments::{EnvironmentOwner, interpreter_for},
};

/// The variable with the interpreter of models for which nothing else is said.
const VARIABLE: &str = "NEREID_PYTHON";

/// The beginning of a path in a configuration that means the model's directory.
const MODEL_DIRECTORY: &str = "$$TRITON_MODEL_DIRECTORY";

/// How the interpreter of a model is started.
#[derive(Debug)]
pub(crate) struct Environment {
    interpreter: String,
    /// The folder of an environment with its own interpreter.
    folder: Option<PathBuf>,
    /// Keeps the folder of an unpacked archive.
    _archive: Option<Arc<UnpackedArchive>>,
}

impl Environment {
    /// The interpreter of the model's environment, or of one made for it, or the one that the model names, or the settings, or the variable
    /// `NEREID_PYTHON`, or `python3`. Unpacks an archive, which may take long.
    ///
    /// # Errors
    /// The environment cannot be used.
    pub(crate) fn of(
        source: &ModelSource,
        backend_directory: Option<&Path>,
        settings: &PythonSettings,
        archives: &UnpackedArchives,
    ) -> Result<Self, Error> {
        let interpreter = interpreter(source, settings);
        let Some(path) = named_environment(source, backend_directory) else {
            let owner = EnvironmentOwner {
                model: &source.name,
                version_directory: &source.version_directory,
                model_directory: &source.model_directory,
                names_interpreter: parameter(source, PYTHON_EXECUTABLE).is_some(),
                sandbox: settings.sandbox.mode,
            };
            let made = if settings.environments.are_made {
                interpreter_for(owner, &interpreter, &settings.environments)?
            } else {
                None
            };
            return Ok(Self { interpreter: made.unwrap_or(interpreter), folder: None, _archive: None });
        };
        Self::at(&path, archives, settings.archive_limit)
    }

    fn at(path: &str, archives: &UnpackedArchives, most_bytes: u64) -> Result<Self, Error> {
        let canonical = canonical(path)?;
        let archive =
            if canonical.is_dir() { None } else { Some(archives.unpacked(&canonical, most_bytes)?) };
        let folder = archive.as_ref().map_or(canonical, |archive| archive.folder().to_owned());
        let interpreter = interpreter_in(&folder)?;
        Ok(Self { interpreter, folder: Some(folder), _archive: archive })
    }

    /// The command, without arguments.
    pub(crate) fn command(&self) -> Command {
        let Some(folder) = &self.folder else { return Command::new(&self.interpreter) };
        // The script sets what programs of the environment need. Its language is that of bash.
        let script = "source \"$0/bin/activate\" >/dev/null && exec \"$@\"";
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).arg(folder).arg(&self.interpreter);
        let libraries = env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let own = folder.join("lib").display().to_string();
        let separator = if libraries.is_empty() { "" } else { ":" };
        command.env("LD_LIBRARY_PATH", format!("{own}{separator}{libraries}"));
        command
    }
}

/// Checks the environment that a model names, or that its backend in Python brings, as far as its path tells. Does not
/// unpack an archive.
///
/// # Errors
/// The environment cannot be used.
pub(crate) fn check_environment(source: &ModelSource, backend_directory: Option<&Path>) -> Result<(), Error> {
    let Some(path) = named_environment(source, backend_directory) else { return Ok(()) };
    let canonical = canonical(&path)?;
    if canonical.is_dir() { interpreter_in(&canonical).map(drop) } else { archives::check(&canonical) }
}

/// The path of the environment that a model names, or that its backend in Python brings.
fn named_environment(source: &ModelSource, backend_directory: Option<&Path>) -> Option<String> {
    let of_backend = || {
        let archive = backend_directory?.join("pb_exec_env_model.py.tar.gz");
        archive.is_file().then(|| archive.display().to_string())
    };
    parameter(source, EXECUTION_ENV_PATH).map(|path| resolved(&path, source)).or_else(of_backend)
}

fn canonical(path: &str) -> Result<PathBuf, Error> {
    let failed = |_| Error::internal(format!("Failed to get the canonical path for {path}."));
    Path::new(path).canonicalize().map_err(failed)
}

/// The interpreter of the environment in a folder.
fn interpreter_in(folder: &Path) -> Result<String, Error> {
    let script = folder.join("bin/activate");
    if !script.is_file() {
        return Err(Error::internal(format!(
            "Path {} does not exist. The Python environment should contain an 'activate' script.",
            script.display()
        )));
    }
    let names = ["python3", "python"].map(|name| folder.join("bin").join(name));
    let interpreter = names.iter().find(|path| path.is_file()).ok_or_else(|| {
        Error::internal(format!("the Python environment {} has no interpreter", folder.display()))
    })?;
    Ok(interpreter.to_string_lossy().into_owned())
}

/// The programs that run a model which has no environment of its own.
pub(crate) struct PlainInterpreters {
    /// The one that the operator has chosen.
    pub(crate) of_operator: String,
    /// The one that the model names instead.
    pub(crate) of_model: Option<String>,
}

/// The programs that may run a model. `None` if it has an environment of its own.
pub(crate) fn plain_interpreters(
    source: &ModelSource,
    settings: &PythonSettings,
) -> Option<PlainInterpreters> {
    parameter(source, EXECUTION_ENV_PATH).is_none().then(|| PlainInterpreters {
        of_operator: operators_interpreter(settings),
        of_model: named_interpreter(source),
    })
}

fn interpreter(source: &ModelSource, settings: &PythonSettings) -> String {
    named_interpreter(source).unwrap_or_else(|| operators_interpreter(settings))
}

fn named_interpreter(source: &ModelSource) -> Option<String> {
    parameter(source, PYTHON_EXECUTABLE).map(|path| resolved(&path, source))
}

fn operators_interpreter(settings: &PythonSettings) -> String {
    let of_variable = || env::var(VARIABLE).ok().filter(|path| !path.is_empty());
    let named = settings.python_executable.clone().or_else(of_variable);
    named.or_else(|| own_interpreter(&env::current_exe().ok()?)).unwrap_or_else(|| "python3".to_owned())
}

/// The interpreter of the virtual environment that the program is installed in. It need not be active.
fn own_interpreter(program: &Path) -> Option<String> {
    let environment = program.parent()?.parent()?;
    let interpreter = environment.join("bin/python3");
    let is_own = environment.join("pyvenv.cfg").is_file() && interpreter.is_file();
    is_own.then(|| interpreter.to_string_lossy().into_owned())
}

/// The value of a parameter, unless it is empty.
fn parameter(source: &ModelSource, name: &str) -> Option<String> {
    let value = source.declared.parameters.get(name).map(|value| value.string_value.clone());
    value.filter(|value| !value.is_empty())
}

fn resolved(path: &str, source: &ModelSource) -> String {
    match path.strip_prefix(MODEL_DIRECTORY) {
        Some(rest) => format!("{}{rest}", source.model_directory.display()),
        None => path.to_owned(),
    }
}
