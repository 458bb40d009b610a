//! Support for all tests: the library, a model on disk, a loaded instance, requests and their answers.
use std::{
    cell::RefCell,
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use backend_onnx::OnnxBackend;
use config::{
    Completion, CompletionContext, ConfigErrors, ConfigSource, DeclaredConfig, FileEntry, ModelConfig,
    ModelLayout, declare, finish,
};
use inference::{
    Request, Response, ResponseStream,
    backend::{
        Backend, BackendInstance, BackendModel, BuiltInstance, Execution, InstanceDevice, InstanceSpec,
        ModelSource, SequenceState,
    },
};
use native_backend::LibrarySearch;
use testing::batches::run_batch;
pub(crate) use testing::batches::{
    bytes_of, execution, float_bytes, floats, read_floats, request, shape_of, strings, tensor,
};
use vocabulary::{Error, Tensor};

use crate::graph::Graph;

/// The library's place. A test cannot pass without the library.
pub(crate) fn search() -> LibrarySearch {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/onnxruntime");
    let named = std::env::var_os("NEREID_ONNXRUNTIME_LIBRARY").map_or(fetched, PathBuf::from);
    assert!(
        named.exists(),
        "these tests need ONNX Runtime: 'cargo xtask test' fetches it to {}, NEREID_ONNXRUNTIME_LIBRARY names another",
        named.display()
    );
    LibrarySearch { named: Some(named), ..LibrarySearch::default() }
}

pub(crate) fn backend() -> OnnxBackend {
    OnnxBackend::new(search())
}

/// A model named `model` with one version, in a repository of its own.
pub(crate) struct Model {
    pub(crate) repository: tempfile::TempDir,
    config: String,
    settings: Vec<(String, String)>,
    /// What the files of a model do not tell for sure.
    doubts: RefCell<String>,
}

impl Model {
    pub(crate) fn new(graph: Graph, config: &str) -> Self {
        let model = Self {
            repository: tempfile::tempdir().unwrap(),
            config: config.to_owned(),
            settings: Vec::new(),
            doubts: RefCell::default(),
        };
        fs::create_dir_all(model.version_directory()).unwrap();
        fs::write(model.version_directory().join("model.onnx"), graph.encode()).unwrap();
        model
    }

    pub(crate) fn setting(mut self, key: &str, value: &str) -> Self {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.repository.path().join("model")
    }

    pub(crate) fn version_directory(&self) -> PathBuf {
        self.directory().join("1")
    }

    fn declared(&self) -> Result<DeclaredConfig, Error> {
        let entries = fs::read_dir(self.version_directory()).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let is_directory = entry.file_type().unwrap().is_dir();
            FileEntry { name: entry.file_name().into_string().unwrap(), is_directory }
        });
        let versions = [(1, entries.collect())].into();
        let layout = ModelLayout { name: "model".to_owned(), versions };
        let path = self.directory().join("config.pbtxt");
        let source = ConfigSource::Text { path: &path, content: self.config.as_bytes() };
        Ok(declare(source, &layout, Completion::Auto)?)
    }

    fn source(&self, declared: &DeclaredConfig) -> ModelSource {
        ModelSource {
            name: "model".into(),
            version: 1,
            model_directory: self.directory(),
            version_directory: self.version_directory(),
            declared: Arc::new(declared.config.clone()),
            settings: self.settings.iter().cloned().collect(),
            inferer: None,
            host_policies: Default::default(),
        }
    }

    pub(crate) fn open(&self, backend: &OnnxBackend) -> Result<Opened, Error> {
        let declared = self.declared()?;
        let model: Arc<dyn BackendModel> = backend.open(&self.source(&declared))?.into();
        let mut completed = declared.config.clone();
        let request_rows = model.complete_config(&mut completed)?;
        let environment = CompletionContext { request_rows, ..CompletionContext::default() };
        let config = finish(&declared, completed, &environment)?.typed;
        Ok(Opened { model, config: Arc::new(config) })
    }

    /// Opens the model and builds one instance. A look at the files alone must come to the same verdict.
    pub(crate) fn load(&self, backend: &OnnxBackend) -> Result<Loaded, Error> {
        let loaded = self.open(backend).and_then(Opened::instance);
        self.compare_with_inspection(backend, loaded.as_ref().err());
        loaded
    }

    /// Requires that what the files tell is what the load has told.
    fn compare_with_inspection(&self, backend: &OnnxBackend, refusal: Option<&Error>) {
        let inspected = self.inspect(backend);
        match (refusal, &inspected) {
            (None, Err(problem)) => panic!("the model loads, but its files tell: {problem}"),
            // Only the runtime knows all rules for graphs, and which shapes follow from others.
            (Some(error), _) if error.message.contains("onnx runtime error") => {}
            (Some(error), Ok(())) if error.message.contains("ONNX Runtime") => {}
            (Some(error), Ok(())) => {
                assert!(self.doubts.borrow().contains(&*error.message), "the files do not tell: {error}");
            }
            (Some(error), Err(told)) => {
                assert!(told.contains(&*error.message), "the files tell: {told}\nthe load: {error}");
            }
            (None, Ok(())) => {}
        }
    }

    /// What the files tell, without the runtime: the problems, if there are any.
    fn inspect(&self, backend: &OnnxBackend) -> Result<(), String> {
        let errors = self.problems(backend)?;
        if errors.is_empty() { Ok(()) } else { Err(errors.to_string()) }
    }

    /// The problems that the files tell, without the runtime. An error if the configuration cannot be completed.
    pub(crate) fn problems(&self, backend: &OnnxBackend) -> Result<ConfigErrors, String> {
        let told = |error: Error| error.message.into_owned();
        let declared = self.declared().map_err(told)?;
        let inspection = backend.inspect(&self.source(&declared)).map_err(told)?.unwrap();
        let mut completed = declared.config.clone();
        let request_rows = inspection.complete_config(&mut completed).map_err(told)?;
        let environment = CompletionContext { request_rows, ..CompletionContext::default() };
        let config = finish(&declared, completed, &environment).map_err(|errors| errors.to_string())?.typed;
        let mut errors = ConfigErrors::default();
        inspection.check(&config, &mut errors);
        if errors.is_empty() {
            let mut doubts = ConfigErrors::default();
            inspection.doubt(&config, &mut doubts);
            *self.doubts.borrow_mut() = doubts.to_string();
        }
        Ok(errors)
    }

    /// Why the model cannot be loaded, with the code.
    pub(crate) fn refusal(&self) -> String {
        self.load(&backend()).map(|_| ()).unwrap_err().with_code()
    }
}

#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) model: Arc<dyn BackendModel>,
    pub(crate) config: Arc<ModelConfig>,
}

impl Opened {
    pub(crate) fn instance(self) -> Result<Loaded, Error> {
        self.instance_with(NonZeroUsize::MIN)
    }

    pub(crate) fn instance_with(self, threads: NonZeroUsize) -> Result<Loaded, Error> {
        let spec =
            InstanceSpec { name: "model_0".into(), device: InstanceDevice::Cpu, threads, passive: false };
        let BuiltInstance::Movable(instance) = self.model.instance(&self.config, &spec)? else {
            panic!("an instance may change threads")
        };
        Ok(Loaded { instance, opened: self })
    }
}

pub(crate) struct Loaded {
    /// Declared before the model, because the server drops them in this order.
    instance: Box<dyn BackendInstance + Send>,
    pub(crate) opened: Opened,
}

impl Loaded {
    /// Runs the requests as one batch.
    pub(crate) fn run(&mut self, requests: Vec<Request>) -> Vec<Result<Response, Error>> {
        self.run_after(requests, |_| {})
    }

    /// Runs the requests as one batch, after a change to their streams.
    pub(crate) fn run_after(
        &mut self,
        requests: Vec<Request>,
        happening: impl FnOnce(&[ResponseStream]),
    ) -> Vec<Result<Response, Error>> {
        let rows = requests.into_iter().map(|request| (request, None)).collect();
        self.step_after(rows, happening)
    }

    /// Runs requests as one batch, each with the state of its sequence.
    pub(crate) fn step(
        &mut self,
        rows: Vec<(Request, Option<SequenceState>)>,
    ) -> Vec<Result<Response, Error>> {
        self.step_after(rows, |_| {})
    }

    /// Runs requests as one batch, each with the state of its sequence, after a change to their streams.
    pub(crate) fn step_after(
        &mut self,
        rows: Vec<(Request, Option<SequenceState>)>,
        happening: impl FnOnce(&[ResponseStream]),
    ) -> Vec<Result<Response, Error>> {
        run_batch(&mut *self.instance, rows, happening)
    }

    /// Runs one batch. The caller that has made the executions reads the answers.
    pub(crate) fn execute(&mut self, executions: Vec<Execution>) {
        testing::batches::execute(&mut *self.instance, executions);
    }

    /// Runs one request alone.
    pub(crate) fn infer(&mut self, inputs: Vec<Tensor>) -> Result<Response, Error> {
        self.run(vec![request(inputs)]).pop().unwrap()
    }
}
