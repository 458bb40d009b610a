//! What the files of a model in Python say, before a worker runs them.
use std::{fs, path::Path};

use inference::{
    Error,
    backend::{ModelInspection, ModelSource, PythonSource},
};

use crate::{
    environment::plain_interpreter,
    model_context::model_file,
    settings::{PythonParameters, PythonSettings},
};

/// The function of a model that completes its configuration.
const COMPLETING_FUNCTION: &str = "auto_complete_config";

/// A model whose code was not run.
pub(crate) struct PythonInspection {
    source: PythonSource,
    /// Whether only the model's code can complete its configuration.
    completes_itself: bool,
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
        let text = fs::read_to_string(&file)
            .map_err(|error| Error::internal(format!("unable to read '{}': {error}", file.display())))?;
        let completes_itself = text.contains(COMPLETING_FUNCTION);
        let interpreter = plain_interpreter(source, &settings);
        Ok(Self { source: PythonSource { file, interpreter }, completes_itself })
    }
}

impl ModelInspection for PythonInspection {
    fn completes_all(&self) -> bool {
        !self.completes_itself
    }

    fn python_source(&self) -> Option<PythonSource> {
        Some(self.source.clone())
    }
}
