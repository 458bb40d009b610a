//! Support for all tests: stand-ins, models on disk, and loaded instances.
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::Write,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
};

use backend_pytorch::AotInductorBackend;
use config::{
    Completion, CompletionContext, ConfigSource, FileEntry, ModelConfig, ModelLayout, declare, finish,
};
use inference::{
    Request, Response,
    backend::{
        Backend, BackendInstance, BackendModel, BuiltInstance, InstanceDevice, InstanceSpec, ModelSource,
    },
};
use native_backend::LibrarySearch;
use tempfile::TempDir;
use testing::batches::run_batch;
pub(crate) use testing::batches::{bytes_of, floats, read_floats, request, shape_of, tensor};
use vocabulary::{Error, Tensor};

/// The folder with the stand-in for PyTorch's library. It has the layout of the Python package.
fn torch() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let library = folder.path().join("torch/lib");
            fs::create_dir_all(&library).unwrap();
            fs::write(
                folder.path().join("torch/version.py"),
                "cuda = None\n__version__ = '2.99.0+stand.in'\n",
            )
            .unwrap();
            compile("torch.c", &library.join("libtorch_cpu.so"), &["-Wl,-soname,libtorch_cpu.so"]);
            // Code needs a library of this name, which no test puts where the loader searches.
            let unused = folder.path().join("unused");
            fs::create_dir(&unused).unwrap();
            fs::write(unused.join("empty.c"), "").unwrap();
            compile(
                unused.join("empty.c").to_str().unwrap(),
                &unused.join("libtorch.so"),
                &["-Wl,-soname,libtorch.so"],
            );
            folder
        })
        .path()
}

/// The machine code that a stand-in has with those flags.
pub(crate) fn code(flags: &[&str]) -> Vec<u8> {
    static MADE: std::sync::Mutex<BTreeMap<String, Vec<u8>>> = std::sync::Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("code.so");
        let directory = |below: &str| format!("-L{}", torch().join(below).display());
        let libraries = [directory("torch/lib"), directory("unused")];
        let mut all = flags.to_vec();
        all.extend(libraries.iter().map(String::as_str));
        all.extend(["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu"]);
        compile("code.c", &file, &all);
        fs::read(file).unwrap()
    };
    made.entry(flags.join(" ")).or_insert_with(make).clone()
}

fn compile(source: &str, library: &Path, flags: &[&str]) {
    let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_ins");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc"));
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(stand_ins.join(source)).args(flags);
    let output = command.output().expect("these tests need a C compiler, which CC names");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Metadata of code that any processor can run.
pub(crate) const METADATA: &str = r#"{"AOTI_DEVICE_KEY": "cpu", "AOTI_CPU_ISA": "INVALID_VEC_ISA"}"#;

/// A package with that machine code and those metadata, as torch 2.15 writes it.
pub(crate) fn package(code: &[u8], metadata: &str) -> Vec<u8> {
    let folder = "model/data/aotinductor/model";
    archive(&[
        (&format!("{folder}/c1.wrapper.cpp"), b"source"),
        (&format!("{folder}/c1.wrapper_metadata.json"), metadata.as_bytes()),
        (&format!("{folder}/k1.kernel_metadata.json"), metadata.as_bytes()),
        (&format!("{folder}/c1.wrapper.so"), code),
        ("model/archive_format", b"pt2"),
        ("model/byteorder", b"little"),
    ])
}

/// An archive whose members are stored as they are.
pub(crate) fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = rawzip::ZipArchiveWriter::new(&mut bytes);
    for (path, content) in members {
        let (mut entry, config) = writer.new_file(*path).start().unwrap();
        let mut data = config.wrap(&mut entry);
        data.write_all(content).unwrap();
        let (_, descriptor) = data.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

/// The backend with the stand-in.
pub(crate) fn backend() -> AotInductorBackend {
    let named = Some(torch().join("torch/lib"));
    AotInductorBackend::new(LibrarySearch { named, ..LibrarySearch::default() })
}

/// A model named `model` with one version, in a repository of its own.
pub(crate) struct Model {
    repository: TempDir,
    config: String,
    /// The processors of an instance.
    pub(crate) share: usize,
}

/// The tensors of `add_sub`, for batches.
pub(crate) const ADD_SUB: &str = "max_batch_size: 8
    input { name: 'ARGS[0]' data_type: TYPE_FP32 dims: 4 } input { name: 'INPUT__1' data_type: TYPE_FP32 dims: 4 }
    output { name: 'RESULT[sum]' data_type: TYPE_FP32 dims: 4 }
    output { name: 'OUTPUT__0' data_type: TYPE_FP32 dims: 4 }";

impl Model {
    /// A version with this package.
    pub(crate) fn new(package: &[u8], config: &str) -> Self {
        let repository = tempfile::tempdir().unwrap();
        let model = Self { repository, config: format!("backend: 'pytorch'\n{config}"), share: 1 };
        fs::create_dir_all(model.file().parent().unwrap()).unwrap();
        fs::write(model.file(), package).unwrap();
        model
    }

    /// A version with the package of a stand-in.
    pub(crate) fn of(flags: &[&str], config: &str) -> Self {
        Self::new(&package(&code(flags), METADATA), config)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.repository.path().join("model/1/model.pt2")
    }

    fn source(&self) -> Result<(ModelSource, config::DeclaredConfig), Error> {
        let entries = [FileEntry { name: "model.pt2".to_owned(), is_directory: false }];
        let layout = ModelLayout { name: "model".to_owned(), versions: [(1, entries.into())].into() };
        let path = self.repository.path().join("model/config.pbtxt");
        let source = ConfigSource::Text { path: &path, content: self.config.as_bytes() };
        let declared = declare(source, &layout, Completion::Auto)?;
        let source = ModelSource {
            name: "model".into(),
            version: 1,
            model_directory: self.repository.path().join("model"),
            version_directory: self.repository.path().join("model/1"),
            declared: Arc::new(declared.config.clone()),
            settings: BTreeMap::new(),
            inferer: None,
            host_policies: Arc::default(),
        };
        Ok((source, declared))
    }

    /// Whether the backend takes the model with this value of its setting.
    pub(crate) fn runs(&self, backend: &AotInductorBackend, setting: &str) -> bool {
        let settings = BTreeMap::from([("aotinductor".to_owned(), setting.to_owned())]);
        backend.runs(&self.source().unwrap().0, &|_| settings.clone()).unwrap()
    }

    /// Why the model would not be loaded, as far as its file tells; empty for no reason.
    pub(crate) fn inspected(&self, backend: &AotInductorBackend) -> String {
        let inspection = backend.inspect(&self.source().unwrap().0);
        inspection.map_or_else(
            |error| error.message.into_owned(),
            |inspection| {
                assert!(inspection.is_some());
                String::new()
            },
        )
    }

    pub(crate) fn load_with(&self, backend: &AotInductorBackend) -> Result<Loaded, Error> {
        let (source, declared) = self.source()?;
        let model: Arc<dyn BackendModel> = backend.open(&source)?.into();
        let mut completed = declared.config.clone();
        let request_rows = model.complete_config(&mut completed)?;
        let environment = CompletionContext { request_rows, ..CompletionContext::default() };
        let config = Arc::new(finish(&declared, completed, &environment)?.typed);
        let share = NonZeroUsize::new(self.share).unwrap();
        Ok(Loaded { instance: instance(&*model, &config, share)?, model, config })
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
    threads: NonZeroUsize,
) -> Result<Box<dyn BackendInstance>, Error> {
    let (name, device) = ("model_0".into(), InstanceDevice::Cpu);
    let spec = InstanceSpec { name, device, threads, passive: false };
    Ok(match model.instance(config, &spec)? {
        BuiltInstance::Movable(instance) => {
            assert_eq!(threads.get(), 1, "threads of OpenMP belong to the thread that runs");
            instance
        }
        BuiltInstance::ThreadBound(instance) => instance,
    })
}

pub(crate) struct Loaded {
    /// Declared before the model, because the server drops them in this order.
    instance: Box<dyn BackendInstance>,
    model: Arc<dyn BackendModel>,
    config: Arc<ModelConfig>,
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

    /// What further instances of the model are made of.
    pub(crate) fn parts(&self) -> ModelParts {
        ModelParts { model: self.model.clone(), config: self.config.clone() }
    }
}

/// A model version, which threads share.
#[derive(Clone)]
pub(crate) struct ModelParts {
    model: Arc<dyn BackendModel>,
    config: Arc<ModelConfig>,
}

impl ModelParts {
    /// A further instance.
    pub(crate) fn instance(self) -> Loaded {
        let instance = instance(&*self.model, &self.config, NonZeroUsize::MIN).unwrap();
        Loaded { instance, model: self.model, config: self.config }
    }
}
