//! Which interpreter runs a model, and in which environment.
use std::{env, process::Command};

use inference::{Error, backend::ModelSource};

use crate::settings::{PYTHON_EXECUTABLE, PythonSettings};

/// The variable with the interpreter of models for which nothing else is said.
const VARIABLE: &str = "NEREID_PYTHON";

/// How the interpreter of a model is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Environment {
    interpreter: String,
}

impl Environment {
    /// The interpreter that the model names, or the settings, or the variable `NEREID_PYTHON`, or `python3`.
    ///
    /// # Errors
    /// What the model names cannot be used.
    pub(crate) fn of(source: &ModelSource, settings: &PythonSettings) -> Result<Self, Error> {
        let named = source.declared.parameters.get(PYTHON_EXECUTABLE).map(|value| value.string_value.clone());
        let of_variable = || env::var(VARIABLE).ok().filter(|path| !path.is_empty());
        let interpreter = named.or_else(|| settings.python_executable.clone()).or_else(of_variable);
        Ok(Self { interpreter: interpreter.unwrap_or_else(|| "python3".to_owned()) })
    }

    /// The command, without arguments.
    ///
    /// # Errors
    /// The environment does not exist any more.
    pub(crate) fn command(&self) -> Result<Command, Error> {
        Ok(Command::new(&self.interpreter))
    }
}
