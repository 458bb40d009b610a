//! The backend `pytorch`: models of PyTorch, by modules in Python that the server carries.
//!
//! Its workers are those of models in Python, and their settings are those of the backend `python`. The interpreter must
//! have the package torch.
use std::{path::Path, sync::Arc};

use config::{ConfigErrors, KnownConfigNames, ModelConfig, rule};
use inference::backend::{
    Backend, BackendModel, BackendSettings, Implementation, ModelInspection, ModelSource,
};
use vocabulary::Error;

use crate::{
    backend::PythonBackend,
    environment::check_environment,
    model::PythonModel,
    model_code::{DEFAULT_FILE, ModelCode},
    model_context::{BackendParts, ModelContext},
    python_modules::PYTORCH_MODULES,
    settings::{EXECUTION_ENV_PATH, PYTORCH_NAMES, PythonParameters, PythonSettings},
};

/// Runs models of PyTorch, unless the directory of backends has a backend of that name.
#[derive(Debug)]
pub struct PyTorchBackend {
    parts: BackendParts,
}

/// The library of Triton's backend.
const LIBRARY: &str = "libtriton_pytorch.so";

/// The files that are searched after the one that the configuration names; `nereid_pytorch_files.py` has the same ones.
const USUAL_FILES: [&str; 3] = ["model.py", "model.pt", "model.pt2"];

impl PyTorchBackend {
    /// The backend's name in configurations.
    pub const NAME: &str = "pytorch";

    /// A backend that shares with `python` what all workers share.
    pub fn beside(python: &PythonBackend) -> Self {
        Self { parts: python.parts().clone() }
    }
}

impl Backend for PyTorchBackend {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn known_names(&self) -> Option<KnownConfigNames> {
        Some(PYTORCH_NAMES)
    }

    fn settings_name(&self) -> &str {
        PythonBackend::NAME
    }

    fn runs(&self, source: &ModelSource, settings: &BackendSettings<'_>) -> Result<bool, Error> {
        let (name, runtime) = (&source.declared.backend, source.declared.runtime.as_str());
        if name != Self::NAME || !["", DEFAULT_FILE, LIBRARY].contains(&runtime) {
            return Ok(false);
        }
        if let Some(chosen) = source.implementation(settings)? {
            return Ok(chosen == Implementation::BuiltIn);
        }
        let settings = settings(Self::NAME);
        let directory =
            Path::new(settings.get("backend-directory").map_or("", String::as_str)).join(Self::NAME);
        let has_library = runtime != DEFAULT_FILE && directory.join(LIBRARY).is_file();
        let has_file = runtime != LIBRARY && directory.join(DEFAULT_FILE).is_file();
        Ok(!has_library && !has_file)
    }

    fn inspect(&self, source: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        PythonSettings::of(&source.settings)?;
        PythonParameters::of(&source.declared)?;
        let named = source.declared.default_model_filename.as_str();
        let mut names = [named].into_iter().chain(USUAL_FILES).filter(|name| !name.is_empty());
        if !names.any(|name| source.version_directory.join(name).is_file()) {
            let wanted = source.version_directory.join(if named.is_empty() { USUAL_FILES[0] } else { named });
            return Err(Error::unavailable(format!("unable to find '{}'", wanted.display())));
        }
        Ok(Some(Box::new(PyTorchInspection { environment: check_environment(source, None) })))
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        let context = ModelContext::of(source, ModelCode::Modules(PYTORCH_MODULES), self.parts.clone())?;
        Ok(Box::new(PythonModel::new(Arc::new(context))))
    }
}

/// A model whose files nobody has read.
struct PyTorchInspection {
    /// Whether the environment that the model names can be used.
    environment: Result<(), Error>,
}

impl ModelInspection for PyTorchInspection {
    fn check(&self, _: &ModelConfig, errors: &mut ConfigErrors) {
        if let Err(error) = &self.environment {
            errors.begin(rule::FILE_PATH);
            errors.push_error(&format!("parameters.{EXECUTION_ENV_PATH}"), error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    fn runs(backends: &Path, backend: &str, runtime: &str) -> bool {
        runs_with(backends, backend, runtime, None)
    }

    /// Whether the built-in backend runs a model with this backend, runtime and setting `implementation`.
    fn runs_with(backends: &Path, backend: &str, runtime: &str, implementation: Option<&str>) -> bool {
        let declared = proto::ModelConfig {
            backend: backend.to_owned(),
            runtime: runtime.to_owned(),
            ..Default::default()
        };
        let source = ModelSource {
            name: "m".into(),
            version: 1,
            version_directory: backends.join("models/m/1"),
            model_directory: backends.join("models/m"),
            declared: Arc::new(declared),
            settings: BTreeMap::new(),
            inferer: None,
            host_policies: Arc::default(),
        };
        let settings = |name: &str| {
            let own = implementation.filter(|_| name == PyTorchBackend::NAME);
            let own = own.map(|value| (Implementation::SETTING.to_owned(), value.to_owned()));
            let directory = ("backend-directory".to_owned(), backends.display().to_string());
            [directory].into_iter().chain(own).collect()
        };
        let python = PythonBackend::new(Arc::default());
        PyTorchBackend::beside(&python).runs(&source, &settings).expect("no setting is wrong")
    }

    #[test]
    fn models_of_pytorch_run_here_if_no_other_backend_has_the_name() {
        let root = tempfile::tempdir().unwrap();
        assert!(runs(root.path(), "pytorch", ""));
        assert!(runs(root.path(), "pytorch", "model.py"));
        assert!(runs(root.path(), "pytorch", LIBRARY));
        assert!(!runs(root.path(), "pytorch", "libtriton_mine.so"));
        assert!(!runs(root.path(), "onnxruntime", ""));
        let directory = root.path().join("pytorch");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(LIBRARY), "").unwrap();
        assert!(!runs(root.path(), "pytorch", ""));
        assert!(!runs(root.path(), "pytorch", LIBRARY));
        assert!(runs(root.path(), "pytorch", "model.py"));
        fs::write(directory.join(DEFAULT_FILE), "").unwrap();
        assert!(!runs(root.path(), "pytorch", "model.py"));
    }

    #[test]
    fn a_setting_chooses_before_what_the_backend_directory_has() {
        let root = tempfile::tempdir().unwrap();
        for runtime in ["", DEFAULT_FILE, LIBRARY] {
            assert!(!runs_with(root.path(), "pytorch", runtime, Some("triton")), "{runtime}");
        }
        let directory = root.path().join("pytorch");
        fs::create_dir(&directory).unwrap();
        for file in [LIBRARY, DEFAULT_FILE] {
            fs::write(directory.join(file), "").unwrap();
        }
        for runtime in ["", DEFAULT_FILE, LIBRARY] {
            assert!(runs_with(root.path(), "pytorch", runtime, Some("built-in")), "{runtime}");
        }
        assert!(!runs_with(root.path(), "pytorch", "libtriton_mine.so", Some("built-in")));
    }
}
