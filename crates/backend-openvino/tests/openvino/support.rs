//! Support for all tests: the library, a model on disk, and a loaded instance.
use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use backend_openvino::OpenVinoBackend;
use config::{
    Completion, CompletionContext, ConfigErrors, ConfigSource, DeclaredConfig, FileEntry, ModelConfig,
    ModelLayout, declare, finish,
};
use inference::{
    Request, Response,
    backend::{
        Backend, BackendInstance, BackendModel, BuiltInstance, InstanceDevice, InstanceSpec, ModelSource,
    },
};
use native_backend::LibrarySearch;
use testing::batches::run_batch;
pub(crate) use testing::batches::{bytes_of, floats, read_floats, request, shape_of, tensor};
use vocabulary::{Error, Tensor};

/// The backend with the library. A test cannot pass without it.
pub(crate) fn backend() -> OpenVinoBackend {
    let named = std::env::var_os("NEREID_OPENVINO_LIBRARY").map(PathBuf::from).expect(
        "these tests need OpenVINO: 'pip install openvino' has it in site-packages/openvino/libs, and \
         NEREID_OPENVINO_LIBRARY names that folder",
    );
    OpenVinoBackend::new(LibrarySearch { named: Some(named), ..LibrarySearch::default() })
}

/// The place of a file for tests.
pub(crate) fn committed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

/// A model named `model` with one version, in a repository of its own.
pub(crate) struct Model {
    repository: tempfile::TempDir,
    config: String,
}

impl Model {
    /// A version with copies of committed files, by their new names.
    pub(crate) fn new(files: &[(&str, &str)], config: &str) -> Self {
        Self::with_config(files, &format!("backend: 'openvino'\n{config}"))
    }

    /// As [`Model::new`], but the configuration names no backend.
    pub(crate) fn with_config(files: &[(&str, &str)], config: &str) -> Self {
        let repository = tempfile::tempdir().unwrap();
        let model = Self { repository, config: config.to_owned() };
        fs::create_dir_all(model.version_directory()).unwrap();
        for (file, name) in files {
            fs::copy(committed(file), model.version_directory().join(name)).unwrap();
        }
        model
    }

    /// y = relu(x * 2 + [0, 1, 2, 3]), for any number of rows.
    pub(crate) fn affine(config: &str) -> Self {
        Self::new(&[("affine.xml", "model.xml"), ("affine.bin", "model.bin")], config)
    }

    /// Adds the committed SavedModel, which computes the same for any number of rows, as a folder of the version.
    pub(crate) fn add_saved_model(&self, name: &str) -> PathBuf {
        let folder = self.version_directory().join(name);
        fs::create_dir_all(folder.join("variables")).unwrap();
        for file in ["saved_model.pb", "variables/variables.data-00000-of-00001", "variables/variables.index"]
        {
            fs::copy(committed("affine.saved_model").join(file), folder.join(file)).unwrap();
        }
        folder
    }

    /// Whether a backend runs the model. Each setting has its backend, its name and its value.
    pub(crate) fn runs(&self, backend: &OpenVinoBackend, settings: &[(&str, &str, &str)]) -> bool {
        let declared = self.declared().unwrap();
        let of = |name: &str| {
            let own = settings.iter().filter(|(backend, ..)| ["", name].contains(backend));
            own.map(|(_, key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        backend.runs(&self.source(&declared), &of).unwrap()
    }

    /// The sum and the difference of the INT64 tensors `a` and `b` with two columns.
    pub(crate) fn pair(config: &str) -> Self {
        Self::new(&[("pair.xml", "model.xml")], config)
    }

    pub(crate) fn version_directory(&self) -> PathBuf {
        self.repository.path().join("model/1")
    }

    fn declared(&self) -> Result<DeclaredConfig, Error> {
        let entries = fs::read_dir(self.version_directory()).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let is_directory = entry.file_type().unwrap().is_dir();
            FileEntry { name: entry.file_name().into_string().unwrap(), is_directory }
        });
        let versions = [(1, entries.collect())].into();
        let layout = ModelLayout { name: "model".to_owned(), versions };
        let path = self.repository.path().join("model/config.pbtxt");
        let source = ConfigSource::Text { path: &path, content: self.config.as_bytes() };
        Ok(declare(source, &layout, Completion::Auto)?)
    }

    fn source(&self, declared: &DeclaredConfig) -> ModelSource {
        ModelSource {
            name: "model".into(),
            version: 1,
            model_directory: self.repository.path().join("model"),
            version_directory: self.version_directory(),
            declared: Arc::new(declared.config.clone()),
            settings: Default::default(),
            inferer: None,
            host_policies: Default::default(),
        }
    }

    /// Loads the model with one instance. A look at the files alone must come to the same verdict.
    pub(crate) fn load_with(&self, backend: &OpenVinoBackend) -> Result<Loaded, Error> {
        let loaded = self.try_load(backend);
        let told = self.inspect(backend);
        match (&loaded, &told) {
            (Ok(_), Err(problem)) => panic!("the model loads, but its files tell: {problem}"),
            // Only the library knows all rules for graphs.
            (Err(error), _) if error.message.contains("openvino error") => {}
            (Err(error), _) if error.message.contains("pip install openvino") => {}
            (Err(error), told) => {
                let told = told.as_ref().err().unwrap_or_else(|| panic!("the files do not tell: {error}"));
                assert!(told.contains(&*error.message), "the files tell: {told}\nthe load: {error}");
            }
            (Ok(_), Ok(())) => {}
        }
        loaded
    }

    fn try_load(&self, backend: &OpenVinoBackend) -> Result<Loaded, Error> {
        let declared = self.declared()?;
        let model: Arc<dyn BackendModel> = backend.open(&self.source(&declared))?.into();
        let mut completed = declared.config.clone();
        let request_rows = model.complete_config(&mut completed)?;
        let environment = CompletionContext { request_rows, ..CompletionContext::default() };
        let config = Arc::new(finish(&declared, completed, &environment)?.typed);
        Ok(Loaded { instance: instance(&*model, &config)?, model, config })
    }

    /// What the files tell without the library: the problems, if there are any.
    fn inspect(&self, backend: &OpenVinoBackend) -> Result<(), String> {
        let told = |error: Error| error.message.into_owned();
        let declared = self.declared().map_err(told)?;
        let inspection = backend.inspect(&self.source(&declared)).map_err(told)?.unwrap();
        let mut completed = declared.config.clone();
        let request_rows = inspection.complete_config(&mut completed).map_err(told)?;
        if !inspection.completes_all() && completed.input.is_empty() {
            return Ok(());
        }
        let environment = CompletionContext { request_rows, ..CompletionContext::default() };
        let config = finish(&declared, completed, &environment).map_err(|errors| errors.to_string())?.typed;
        let mut errors = ConfigErrors::default();
        inspection.check(&config, &mut errors);
        if errors.is_empty() { Ok(()) } else { Err(errors.to_string()) }
    }

    pub(crate) fn load(&self) -> Loaded {
        self.load_with(&backend()).unwrap()
    }

    /// Why the model cannot be loaded, with the code.
    pub(crate) fn refusal(&self) -> String {
        self.load_with(&backend()).map(|_| ()).unwrap_err().with_code()
    }
}

fn instance(
    model: &dyn BackendModel,
    config: &Arc<ModelConfig>,
) -> Result<Box<dyn BackendInstance + Send>, Error> {
    let (name, device) = ("model_0".into(), InstanceDevice::Cpu);
    let spec = InstanceSpec { name, device, threads: NonZeroUsize::MIN, passive: false };
    let BuiltInstance::Movable(instance) = model.instance(config, &spec)? else {
        panic!("an instance may change threads")
    };
    Ok(instance)
}

pub(crate) struct Loaded {
    /// Declared before the model, because the server drops them in this order.
    instance: Box<dyn BackendInstance + Send>,
    model: Arc<dyn BackendModel>,
    pub(crate) config: Arc<ModelConfig>,
}

impl Loaded {
    /// Runs the requests as one batch.
    pub(crate) fn run(&mut self, requests: Vec<Request>) -> Vec<Result<Response, Error>> {
        run_batch(&mut *self.instance, requests.into_iter().map(|request| (request, None)).collect(), |_| {})
    }

    /// Runs one request alone.
    pub(crate) fn infer(&mut self, inputs: Vec<Tensor>) -> Result<Response, Error> {
        self.run(vec![request(inputs)]).pop().unwrap()
    }

    /// Replaces the instance by a further one of the same model, which lives beside it for a moment.
    pub(crate) fn change_instance(&mut self) {
        self.instance = instance(&*self.model, &self.config).unwrap();
    }
}
