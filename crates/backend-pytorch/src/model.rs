//! The backend and the model versions that it has opened.
use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, thread};

use config::{KnownConfigNames, ModelConfig};
use inference::{
    backend::{
        Backend, BackendModel, BackendSettings, BuiltInstance, InstanceDevice, InstanceSpec, ModelInspection,
        ModelSource,
    },
    lock::{LockRank, Mutex},
};
use native_backend::{CopiedBytes, LibrarySearch, NativeInstance, ToldFailure};
use vocabulary::{Error, Name};

use crate::{
    call_spec::{input_paths, output_paths},
    choice,
    graph::CodeGraph,
    library::{self, LIBRARY},
    machine_code::processor_has,
    model_file::{self, FoundPackage},
    package::refused,
    requirements::{self, Processor},
    settings::{self, TorchSettings},
    tensor_bindings::TensorBindings,
    torch::{OpenedCode, Torch, are_inputs_checked, check_inputs_by_environment},
};

/// Packages of AOTInductor on the CPU, computed in the process of the server.
///
/// The backend runs a model only if the operator has asked for that (`aotinductor=native`) and each of its checks can
/// be made. Other models of PyTorch, and all without the setting, are those of the backend in Python of the same name.
/// The library is opened with the first model.
pub struct AotInductorBackend {
    search: LibrarySearch,
    /// `None` until the first model. If the search fails, the next model repeats it.
    opened: Mutex<Option<Arc<Torch>>>,
    told_failure: ToldFailure,
    copied_bytes: Arc<CopiedBytes>,
}

/// This machine.
const PROCESSOR: Processor = Processor { machine: std::env::consts::ARCH, has: processor_has };

/// Switches on that compiled code checks its inputs, if the settings ask for code in this process. Each setting has its
/// backend, its name and its value.
///
/// A program calls this before it starts threads. In a process of several threads the call changes nothing, and
/// packages run in Python.
pub fn check_inputs_of_code<'a>(settings: impl IntoIterator<Item = (Option<&'a str>, &'a str, &'a str)>) {
    let asks = |(backend, name, value): (Option<&str>, &str, &str)| {
        let setting = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        backend.is_none_or(|backend| backend == settings::BACKEND_NAME)
            && settings::is_native(&setting) == Ok(true)
    };
    if settings.into_iter().any(asks) {
        check_inputs_by_environment();
    }
}

impl AotInductorBackend {
    /// The backend's name in configurations.
    pub const NAME: &str = settings::BACKEND_NAME;

    /// A backend that will use this search. Opens nothing.
    pub fn new(search: LibrarySearch) -> Self {
        let opened = Mutex::ranked(LockRank::RuntimeSearch, None);
        Self { search, opened, told_failure: ToldFailure::default(), copied_bytes: Arc::default() }
    }

    /// Bytes of tensors that were copied between requests and the library since the start, without those of the first
    /// run of each instance.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.bytes()
    }

    fn torch(&self, settings: &BTreeMap<String, String>) -> Result<Arc<Torch>, Error> {
        let mut known = self.opened.lock();
        if let Some(torch) = &*known {
            return Ok(torch.clone());
        }
        let torch =
            library::open(&self.search, settings).map_err(|error| self.told_failure.tell(&LIBRARY, error))?;
        log::info!("using PyTorch {} from {}", torch.release(), torch.path().display());
        Ok(known.insert(torch).clone())
    }

    /// Why a package runs in Python although the operator wants it to run natively.
    fn reason_for_python(
        &self,
        source: &ModelSource,
        found: &FoundPackage,
        settings: &BTreeMap<String, String>,
    ) -> Option<String> {
        if !are_inputs_checked() {
            let text =
                "AOTI_RUNTIME_CHECK_INPUTS=1 is not among the variables of the program, which has threads";
            return Some(text.to_owned());
        }
        choice::reason_for_python(source, &found.package, PROCESSOR)
            .or_else(|| self.search.missing(&LIBRARY, settings))
    }
}

impl Backend for AotInductorBackend {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn location(&self) -> String {
        let opened = self.opened.lock().as_ref().map(|torch| torch.path().display().to_string());
        opened.unwrap_or_default()
    }

    fn known_names(&self) -> Option<KnownConfigNames> {
        Some(settings::KNOWN_NAMES)
    }

    fn runs(&self, source: &ModelSource, settings: &BackendSettings<'_>) -> Result<bool, Error> {
        if !choice::is_ours(source, settings)? {
            return Ok(false);
        }
        let settings = settings(Self::NAME);
        if !settings::is_native(&settings)? {
            return Ok(false);
        }
        let found = match model_file::find(source) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            // The load tells what is wrong.
            Err(_) => return Ok(true),
        };
        let reason = self.reason_for_python(source, &found, &settings);
        if let Some(reason) = &reason {
            log::info!("model '{}' runs in a process of Python: {reason}", source.name);
        }
        Ok(reason.is_none())
    }

    fn inspect(&self, source: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        TorchSettings::of(&source.parameters())?;
        let found = package_of(source)?;
        requirements::check(&found.package, &found.path, PROCESSOR)?;
        Ok(Some(Box::new(PackageInspection)))
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        let parameters = source.parameters();
        let settings = TorchSettings::of(&parameters)?;
        let found = package_of(source)?;
        requirements::check(&found.package, &found.path, PROCESSOR)?;
        let torch = self.torch(&source.settings)?;
        let code = open_code(&torch, source, &found)?;
        let (inputs, outputs) = tensors(&code, &found)?;
        Ok(Box::new(AotInductorModel {
            name: source.name.clone(),
            version: source.version,
            settings,
            code,
            inputs,
            outputs,
            copied_bytes: self.copied_bytes.clone(),
        }))
    }
}

/// A package that fits this machine. Only its code tells the rest.
struct PackageInspection;

impl ModelInspection for PackageInspection {}

fn package_of(source: &ModelSource) -> Result<FoundPackage, Error> {
    model_file::find(source)?.ok_or_else(|| {
        let directory = source.version_directory.display();
        Error::unavailable(format!("'{directory}' has no package of AOTInductor"))
    })
}

/// Opens the code in a private folder, which exists only meanwhile.
fn open_code(
    torch: &Arc<Torch>,
    source: &ModelSource,
    found: &FoundPackage,
) -> Result<Arc<OpenedCode>, Error> {
    let folder = tempfile::Builder::new().prefix("nereid-code-").tempdir().map_err(|error| {
        Error::internal(format!("cannot make a temporary folder for model '{}': {error}", source.name))
    })?;
    let file = found.package.write_code(folder.path()).map_err(|refusal| refused(&found.path, &refusal))?;
    OpenedCode::open(torch, &file, concurrent_runs(&source.declared)).map_err(|error| {
        Error::invalid(format!("the package '{}' cannot be opened: {}", found.path.display(), error.message))
    })
}

/// The runs at the same time that code must allow: one for each instance. Instances may be added later, but more than
/// the processors gain nothing.
fn concurrent_runs(declared: &proto::ModelConfig) -> NonZeroUsize {
    let counts = declared.instance_group.iter().map(|group| usize::try_from(group.count).unwrap_or(0));
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(counts.sum::<usize>().max(processors)).unwrap_or(NonZeroUsize::MIN)
}

/// The paths of inputs and outputs.
fn tensors(code: &OpenedCode, found: &FoundPackage) -> Result<(Vec<String>, Vec<String>), Error> {
    let refusal = |text: String| Error::invalid(format!("the package '{}' {text}", found.path.display()));
    let (inputs, outputs) = code.call_spec()?;
    let broken =
        |error: String| refusal(format!("has a specification of its call that cannot be used: {error}"));
    let (inputs, outputs) = (input_paths(&inputs).map_err(broken)?, output_paths(&outputs).map_err(broken)?);
    for (kind, told, has) in
        [("inputs", inputs.len(), code.inputs()), ("outputs", outputs.len(), code.outputs())]
    {
        if told != has {
            return Err(refusal(format!("tells {told} {kind}, and its code has {has}: some are no tensors")));
        }
    }
    Ok((inputs, outputs))
}

/// One version of a model.
struct AotInductorModel {
    name: Name,
    version: i64,
    settings: TorchSettings,
    code: Arc<OpenedCode>,
    /// The paths of the inputs and outputs of a call.
    inputs: Vec<String>,
    outputs: Vec<String>,
    copied_bytes: Arc<CopiedBytes>,
}

impl BackendModel for AotInductorModel {
    fn copies_foreign_memory(&self) -> bool {
        true
    }

    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        if let InstanceDevice::Gpu(ordinal) = spec.device {
            let (name, model) = (&spec.name, &self.name);
            let text = format!(
                "instance '{name}' of model '{model}' wants GPU {ordinal}, but the code is for the CPU"
            );
            return Err(Error::unsupported(text));
        }
        let bindings = TensorBindings::of(config, &self.inputs, &self.outputs)?;
        let threads = self.settings.threads(spec.threads);
        let graph = CodeGraph::new(self.code.clone(), bindings, threads, config.max_batch_size.is_some());
        let instance = NativeInstance::new(graph, config, self.version, self.copied_bytes.clone())?;
        // OpenMP keeps further threads for each thread that has run something.
        Ok(if threads == NonZeroUsize::MIN {
            BuiltInstance::Movable(Box::new(instance))
        } else {
            BuiltInstance::ThreadBound(Box::new(instance))
        })
    }
}
