//! What the files of a model in Python say, before a worker runs them.
use std::{fs, path::Path};

use config::{ConfigErrors, ModelConfig, rule};
use inference::backend::{ModelInspection, ModelSource, PythonSource};
use vocabulary::Error;

use crate::{
    environment::{check_environment, plain_interpreters},
    model_code::model_file,
    settings::{EXECUTION_ENV_PATH, PythonParameters, PythonSettings},
};

/// The function of a model that completes its configuration.
const COMPLETING_FUNCTION: &str = "auto_complete_config";

/// A model whose code was not run.
pub(crate) struct PythonInspection {
    source: PythonSource,
    /// Whether only the model's code can complete its configuration.
    completes_itself: bool,
    /// Whether the environment that the model names can be used.
    environment: Result<(), Error>,
}

impl PythonInspection {
    /// Finds the file of a model. A backend in Python may be in `backend_directory`.
    ///
    /// # Errors
    /// The file is missing, or a setting or parameter is not allowed.
    pub(crate) fn of(source: &ModelSource, backend_directory: Option<&Path>) -> Result<Self, Error> {
        let settings = PythonSettings::of(&source.settings)?;
        PythonParameters::of(&source.declared)?;
        let file = model_file(source, backend_directory)?;
        // The source declares its encoding. Names are ASCII in all that Python reads.
        let text = fs::read(&file)
            .map_err(|error| Error::internal(format!("unable to read '{}': {error}", file.display())))?;
        let completes_itself =
            text.windows(COMPLETING_FUNCTION.len()).any(|part| part == COMPLETING_FUNCTION.as_bytes());
        let (interpreter, own_interpreter) = match plain_interpreters(source, &settings) {
            None => (None, None),
            Some(programs) => (Some(programs.of_operator), programs.of_model),
        };
        let server_makes_environment = settings.environments.are_made;
        let source_code = PythonSource { file, interpreter, own_interpreter, server_makes_environment };
        let environment = check_environment(source, backend_directory);
        Ok(Self { source: source_code, completes_itself, environment })
    }
}

impl ModelInspection for PythonInspection {
    fn completes_all(&self) -> bool {
        !self.completes_itself
    }

    fn check(&self, _: &ModelConfig, errors: &mut ConfigErrors) {
        if let Err(error) = &self.environment {
            errors.begin(rule::FILE_PATH);
            errors.push_error(&format!("parameters.{EXECUTION_ENV_PATH}"), error);
        }
    }

    fn python_source(&self) -> Option<PythonSource> {
        Some(self.source.clone())
    }
}
