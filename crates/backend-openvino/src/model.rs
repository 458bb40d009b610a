//! The backend and the model versions that it has opened.
use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
};

use config::{KnownConfigNames, ModelConfig};
use inference::{
    backend::{
        Backend, BackendModel, BackendSettings, BuiltInstance, Implementation, InstanceDevice, InstanceSpec,
        MemoryUsage, ModelInspection, ModelSource,
    },
    lock::{LockRank, Mutex},
};
use native_backend::{
    CopiedBytes, DefaultBatchSize, LibrarySearch, NativeInstance, Rows, Signature, ToldFailure, complete,
    is_complete, is_left_to_directory, probe,
};
use vocabulary::{Error, MemoryKind, Name};

use crate::{
    compilation::{GraphCompilation, SharedGraph},
    graph::OpenVinoGraph,
    inspection::OpenVinoInspection,
    library::{self, LIBRARY},
    model_file::model_file,
    ov::{CompileOptions, ModelGraph, OpenVino},
    settings::{self, OpenVinoSettings},
    shapes::reshape,
    signature::signature,
    weights::WeightBytes,
};

/// OpenVINO on the CPU.
///
/// The backend opens the library with the first model. A server without such models neither needs the library nor waits
/// for it.
pub struct OpenVinoBackend {
    search: LibrarySearch,
    /// `None` until the first model. If the search fails, the next model repeats it.
    opened: Mutex<Option<OpenedLibrary>>,
    told_failure: ToldFailure,
    copied_bytes: Arc<CopiedBytes>,
}

/// The library, and the libraries of operators that it has loaded.
struct OpenedLibrary {
    openvino: Arc<OpenVino>,
    extensions: Vec<PathBuf>,
}

impl OpenVinoBackend {
    /// The backend's name in configurations.
    pub const NAME: &str = settings::BACKEND_NAME;

    /// A backend that will use this search. Opens nothing.
    pub fn new(search: LibrarySearch) -> Self {
        let opened = Mutex::ranked(LockRank::RuntimeSearch, None);
        Self { search, opened, told_failure: ToldFailure::default(), copied_bytes: Arc::default() }
    }

    /// Bytes of tensors that were copied between requests and the library since the start. A numeric tensor of a
    /// request that ran alone adds nothing, unless it had several pieces or its address was not aligned.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.bytes()
    }

    /// The library, with the operators that a model needs.
    fn openvino(&self, source: &ModelSource, settings: &OpenVinoSettings) -> Result<Arc<OpenVino>, Error> {
        let mut known = self.opened.lock();
        let opened = match &mut *known {
            Some(opened) => opened,
            unknown @ None => {
                let openvino = library::open(&self.search, &source.settings)
                    .map_err(|error| self.told_failure.tell(&LIBRARY, error))?;
                log::info!("using OpenVINO {} from {}", openvino.version(), openvino.path().display());
                unknown.insert(OpenedLibrary { openvino, extensions: Vec::new() })
            }
        };
        if let Some(extension) = &settings.extension
            && !opened.extensions.contains(extension)
        {
            opened.openvino.add_extension(extension)?;
            opened.extensions.push(extension.clone());
        }
        Ok(opened.openvino.clone())
    }
}

impl Backend for OpenVinoBackend {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn location(&self) -> String {
        let opened = self.opened.lock().as_ref().map(|opened| opened.openvino.path().to_owned());
        let path = opened.or_else(|| self.search.expected(&LIBRARY, &BTreeMap::new()));
        path.map(|path| path.display().to_string()).unwrap_or_default()
    }

    fn known_names(&self) -> Option<KnownConfigNames> {
        Some(settings::KNOWN_NAMES)
    }

    fn runs(&self, source: &ModelSource, settings: &BackendSettings<'_>) -> Result<bool, Error> {
        if source.asks_for(settings::TENSORFLOW) {
            return is_left_to_directory(source, settings).map(|is_left| !is_left);
        }
        let is_accelerator =
            || source.asks_for(settings::ONNX_RUNTIME) && settings::is_accelerator_of(&source.declared);
        let is_ours = source.asks_for(Self::NAME) || is_accelerator();
        Ok(is_ours && source.implementation(settings)? != Some(Implementation::Triton))
    }

    fn missing_runtime(&self, settings: &BTreeMap<String, String>) -> Option<String> {
        self.search.missing(&LIBRARY, settings)
    }

    fn inspect(&self, source: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        Ok(Some(Box::new(OpenVinoInspection::of(source)?)))
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        let declared = &source.declared;
        let settings = OpenVinoSettings::of(&source.parameters())?;
        let told =
            settings.without_effect().iter().map(|&(parameter, reason)| (parameter.to_owned(), reason));
        for (parameter, reason) in told.chain(settings::of_other_backends(declared)) {
            log::warn!("the parameter '{parameter}' of model '{}' has no effect: {reason}", source.name);
        }
        let default_max_batch_size = DefaultBatchSize::of(&source.settings)?;
        let file = model_file(source)?;
        let mut graph = ModelGraph::read(&self.openvino(source, &settings)?, &file)?;
        reshape(&mut graph, declared, &settings)?;
        Ok(Box::new(OpenVinoModel {
            name: source.name.clone(),
            version: source.version,
            settings,
            signature: Arc::new(signature(&graph, declared)?),
            graph: SharedGraph::new(graph),
            weights: WeightBytes::of(&file),
            default_max_batch_size,
            copied_bytes: self.copied_bytes.clone(),
        }))
    }
}

/// One version of a model.
struct OpenVinoModel {
    name: Name,
    version: i64,
    settings: OpenVinoSettings,
    signature: Arc<Signature>,
    graph: Arc<SharedGraph>,
    weights: WeightBytes,
    default_max_batch_size: DefaultBatchSize,
    copied_bytes: Arc<CopiedBytes>,
}

impl OpenVinoModel {
    fn graph(&self, options: CompileOptions, shares: bool) -> Result<OpenVinoGraph, Error> {
        let compilation = GraphCompilation { graph: self.graph.clone(), options, shares };
        Ok(OpenVinoGraph::new(compilation, self.signature.clone())?)
    }
}

impl BackendModel for OpenVinoModel {
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        if is_complete(config) {
            log::info!(
                "skipping model configuration auto-complete for '{}': inputs and outputs already specified",
                self.name
            );
            return Ok(None);
        }
        // A graph that does not run with the inputs of a probe is no fault.
        let probe = || {
            let graph = self.graph(self.settings.compile_options(NonZeroUsize::MIN), false);
            graph
                .map_or_else(|error| Rows::Unknown(error.message.into_owned()), |mut graph| probe(&mut graph))
        };
        complete(config, &self.signature, self.default_max_batch_size, probe)
    }

    fn copies_foreign_memory(&self) -> bool {
        true
    }

    fn memory_usage(&self) -> Vec<MemoryUsage> {
        let byte_size = self.weights.with_compiled(self.graph.compiled_models());
        vec![MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size }]
    }

    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        if let InstanceDevice::Gpu(ordinal) = spec.device {
            let text =
                format!("instance '{}' wants GPU {ordinal}, but OpenVINO runs on the CPU here", spec.name);
            return Err(Error::unsupported(text));
        }
        settings::check_fields(config)?;
        let shares = self.settings.wants_streams();
        let graph = self.graph(self.settings.compile_options(spec.threads), shares)?;
        let instance = NativeInstance::new(graph, config, self.version, self.copied_bytes.clone())?;
        Ok(BuiltInstance::Movable(Box::new(instance)))
    }
}
