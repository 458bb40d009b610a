//! The backend, and which models it runs.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use config::KnownConfigNames;
use inference::{
    backend::{Backend, BackendModel, BackendSettings, Implementation, ModelInspection, ModelSource},
    lock::Mutex,
    metric_registry::MetricRegistry,
};
use vocabulary::Error;

use crate::{
    archives::UnpackedArchives,
    inspection::PythonInspection,
    model::PythonModel,
    model_code::{DEFAULT_FILE, ModelCode},
    model_context::{BackendParts, ModelContext},
    settings::{KNOWN_NAMES, SANDBOX},
    spawner::Spawner,
};

/// Runs models that are written in Python, and models of backends that are written in Python.
#[derive(Debug)]
pub struct PythonBackend {
    parts: BackendParts,
    /// Whether the log says that this backend runs the models.
    logged: Mutex<Option<bool>>,
}

/// The library of Triton's Python backend.
const LIBRARY: &str = "libtriton_python.so";

impl PythonBackend {
    /// The backend's name in configurations.
    pub const NAME: &str = "python";

    /// A backend that has started nothing. Models register their metrics in `metrics`.
    pub fn new(metrics: Arc<MetricRegistry>) -> Self {
        let archives = Arc::new(UnpackedArchives::default());
        let spawner = Arc::new(Spawner::new());
        let parts = BackendParts { spawner, metrics, archives, told_protections: Arc::default() };
        Self { parts, logged: Mutex::new(None) }
    }

    /// What all workers share.
    pub(crate) fn parts(&self) -> &BackendParts {
        &self.parts
    }

    fn log_choice(&self, is_ours: bool, backends: &Path) {
        if self.logged.lock().replace(is_ours) == Some(is_ours) {
            return;
        }
        let library = backends.join(Self::NAME).join(LIBRARY);
        if is_ours {
            log::info!("the built-in Python backend runs models in Python");
        } else {
            log::info!("Triton's Python backend runs models in Python: {}", library.display());
        }
    }
}

impl Backend for PythonBackend {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn known_names(&self) -> Option<KnownConfigNames> {
        Some(KNOWN_NAMES)
    }

    fn runs(&self, source: &ModelSource, settings: &BackendSettings<'_>) -> Result<bool, Error> {
        // A model of a backend in Python has the name of that backend, and is run by this one all the same.
        let settings = settings(Self::NAME);
        let backends = Path::new(settings.get("backend-directory").map_or("", String::as_str));
        if !is_of_python(source) && python_directory(source, backends).is_none() {
            return Ok(false);
        }
        let is_ours = match Implementation::of(Self::NAME, &settings)? {
            None => !backends.join(Self::NAME).join(LIBRARY).is_file(),
            Some(chosen) => chosen == Implementation::BuiltIn,
        };
        if !is_ours {
            refuse_sandbox(source, &settings)?;
        }
        self.log_choice(is_ours, backends);
        Ok(is_ours)
    }

    fn inspect(&self, source: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        let backends = Path::new(source.settings.get("backend-directory").map_or("", String::as_str));
        let directory = if is_of_python(source) { None } else { python_directory(source, backends) };
        Ok(Some(Box::new(PythonInspection::of(source, directory.as_deref())?)))
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        let backends = Path::new(source.settings.get("backend-directory").map_or("", String::as_str));
        let directory = if is_of_python(source) { None } else { python_directory(source, backends) };
        let code = ModelCode::in_files(source, directory)?;
        let context = ModelContext::of(source, code, self.parts.clone())?;
        Ok(Box::new(PythonModel::new(Arc::new(context))))
    }
}

/// A sandbox that was asked for must not be missing silently.
fn refuse_sandbox(source: &ModelSource, settings: &BTreeMap<String, String>) -> Result<(), Error> {
    let of_server = settings.get("sandbox").map(String::as_str);
    let of_model = source.declared.parameters.get(SANDBOX).map(|value| value.string_value.as_str());
    if [of_server, of_model].into_iter().flatten().any(|mode| mode != "off") {
        return Err(Error::unsupported(format!(
            "model '{}' must run in a sandbox, which Triton's Python backend does not have: set 'implementation' of backend \
             'python' to 'built-in'",
            source.name
        )));
    }
    Ok(())
}

fn is_of_python(source: &ModelSource) -> bool {
    let runtime = &source.declared.runtime;
    source.declared.backend == PythonBackend::NAME && (runtime.is_empty() || runtime == LIBRARY)
}

/// The directory of the model's backend, if that backend is written in Python.
fn python_directory(source: &ModelSource, backends: &Path) -> Option<PathBuf> {
    let (name, runtime) = (&source.declared.backend, &source.declared.runtime);
    if !(runtime.is_empty() || runtime == DEFAULT_FILE) || Path::new(name).components().count() != 1 {
        return None;
    }
    let directory = backends.join(name);
    let has_library = runtime.is_empty() && directory.join(format!("libtriton_{name}.so")).is_file();
    (!has_library && directory.join(DEFAULT_FILE).is_file()).then_some(directory)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn runs(root: &Path, backend: &str, runtime: &str, implementation: Option<&str>) -> Result<bool, Error> {
        let source = ModelSource {
            name: "m".into(),
            version: 1,
            version_directory: root.join("models/m/1"),
            model_directory: root.join("models/m"),
            declared: Arc::new(proto::ModelConfig {
                backend: backend.to_owned(),
                runtime: runtime.to_owned(),
                ..Default::default()
            }),
            settings: BTreeMap::new(),
            inferer: None,
            host_policies: Arc::default(),
        };
        let mut settings = BTreeMap::from([("backend-directory".to_owned(), root.display().to_string())]);
        settings.extend(implementation.map(|value| ("implementation".to_owned(), value.to_owned())));
        PythonBackend::new(Arc::default()).runs(&source, &|_| settings.clone())
    }

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn models_run_here_unless_tritons_backend_is_there_or_wanted() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(runs(root.path(), "python", "", None), Ok(true));
        assert_eq!(runs(root.path(), "python", "", Some("triton")), Ok(false));
        assert_eq!(runs(root.path(), "python", "libother.so", None), Ok(false));
        assert_eq!(runs(root.path(), "onnxruntime", "", Some("built-in")), Ok(false));
        touch(&root.path().join("python").join(LIBRARY));
        assert_eq!(runs(root.path(), "python", "", None), Ok(false));
        assert_eq!(runs(root.path(), "python", "", Some("built-in")), Ok(true));
        let error = runs(root.path(), "python", "", Some("mine")).unwrap_err();
        assert!(error.message.contains("is 'mine', which is neither 'built-in' nor 'triton'"), "{error}");
    }

    #[test]
    fn models_of_backends_in_python_run_here() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(runs(root.path(), "vllm", "", None), Ok(false));
        touch(&root.path().join("vllm/model.py"));
        assert_eq!(runs(root.path(), "vllm", "", None), Ok(true));
        assert_eq!(runs(root.path(), "vllm", "model.py", None), Ok(true));
        assert_eq!(runs(root.path(), "vllm", "libtriton_vllm.so", None), Ok(false));
        assert_eq!(runs(root.path(), "../vllm", "", None), Ok(false));
        touch(&root.path().join("vllm/libtriton_vllm.so"));
        assert_eq!(runs(root.path(), "vllm", "", None), Ok(false));
    }
}
