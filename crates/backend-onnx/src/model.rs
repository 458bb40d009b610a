//! The backend and the model versions that it has opened.
use std::{
    collections::BTreeMap,
    ffi::CString,
    fs,
    num::NonZeroU32,
    path::PathBuf,
    sync::{Arc, Once, Weak},
};

use config::{KnownConfigNames, ModelConfig};
use inference::{
    backend::{
        Backend, BackendModel, BuiltInstance, InstanceDevice, InstanceSpec, MemoryUsage, ModelInspection,
        ModelSource,
    },
    lock::{LockRank, Mutex},
};
use native_backend::{
    CopiedBytes, DefaultBatchSize, GraphValue, LibrarySearch, NativeInstance, Rows, ToldFailure, ValueKind,
    complete, is_complete, probe,
};
use vocabulary::{Error, FailureReason, FileIdentity, MemoryKind, Name};

use crate::{
    external_data,
    graph::OnnxGraph,
    inspection::{OnnxInspection, model_file},
    known_graphs::{KnownGraph, KnownGraphs},
    library::{self, LIBRARY},
    ort::{FilesInMemory, GraphLevel, RunOptions, Runtime, Session, SessionOptions},
    session_memory::{SessionMemory, files_bytes},
    settings::{self, SessionSettings},
    zip_map::{self, GraphWithoutZipMap, ZipMapOutput},
};

/// ONNX Runtime on the CPU.
///
/// The backend opens the library with the first model. A server without such models neither needs the library nor waits
/// for it.
pub struct OnnxBackend {
    search: LibrarySearch,
    /// `None` until the first model. If the search fails, the next model repeats it.
    runtime: Mutex<Option<Arc<Runtime>>>,
    told_failure: ToldFailure,
    copied_bytes: Arc<CopiedBytes>,
    known_graphs: Arc<KnownGraphs>,
    uses_process_allocator: bool,
}

impl OnnxBackend {
    /// The backend's name in configurations.
    pub const NAME: &str = settings::BACKEND_NAME;

    /// A backend that will use this search. Opens nothing.
    pub fn new(search: LibrarySearch) -> Self {
        let runtime = Mutex::ranked(LockRank::RuntimeSearch, None);
        Self {
            search,
            runtime,
            told_failure: ToldFailure::default(),
            copied_bytes: Arc::default(),
            known_graphs: Arc::default(),
            uses_process_allocator: false,
        }
    }

    /// The same backend, but models take memory from the global allocator of the program instead of an arena of their own,
    /// unless their parameters say otherwise. An arena keeps what the largest run has needed.
    ///
    /// For programs whose allocator is fast for large blocks, and returns them after a while.
    #[must_use]
    pub fn with_process_allocator(self) -> Self {
        Self { uses_process_allocator: true, ..self }
    }

    /// Bytes of tensors that were copied between requests and the runtime since the start. A numeric tensor of a
    /// request that ran alone adds nothing, unless it had several pieces or its address was not aligned.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.bytes()
    }

    fn runtime(&self, source: &ModelSource) -> Result<Arc<Runtime>, Error> {
        let threads = settings::global_threads(&source.settings)?;
        let mut known = self.runtime.lock();
        let runtime = match &*known {
            Some(runtime) => runtime.clone(),
            None => {
                let runtime = library::open(&self.search, &source.settings, threads)
                    .map_err(|error| self.told_failure.tell(&LIBRARY, error))?;
                log::info!("using ONNX Runtime {} from {}", runtime.version(), runtime.path().display());
                if self.uses_process_allocator
                    && let Err(error) = runtime.offer_process_allocator()
                {
                    log::warn!("models keep the memory of their largest runs: {error}");
                }
                known.insert(runtime).clone()
            }
        };
        drop(known);
        runtime.follow_log_level();
        Ok(runtime)
    }
}

impl Backend for OnnxBackend {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn location(&self) -> String {
        let opened = self.runtime.lock().as_ref().map(|runtime| runtime.path().to_owned());
        let path = opened.or_else(|| self.search.expected(&LIBRARY, &BTreeMap::new()));
        path.map(|path| path.display().to_string()).unwrap_or_default()
    }

    fn known_names(&self) -> Option<KnownConfigNames> {
        Some(settings::KNOWN_NAMES)
    }

    fn missing_runtime(&self, settings: &BTreeMap<String, String>) -> Option<String> {
        self.search.missing(&LIBRARY, settings)
    }

    fn inspect(&self, source: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        Ok(Some(Box::new(OnnxInspection::of(source, library::op_directories(&self.search, source))?)))
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        let file = model_file(source)?;
        let default_max_batch_size = DefaultBatchSize::of(&source.settings)?;
        let maps = settings::maps_external_data(&source.declared)?;
        Ok(Box::new(OnnxModel {
            runtime: self.runtime(source)?,
            name: source.name.clone(),
            version: source.version,
            op_directories: library::op_directories(&self.search, source),
            file,
            maps_external_data: maps,
            external_data: Mutex::new(maps.then(Arc::default)),
            default_max_batch_size,
            copied_bytes: self.copied_bytes.clone(),
            known_graphs: self.known_graphs.clone(),
            sessions: Mutex::default(),
            shared: Mutex::ranked(LockRank::SharedSession, Weak::new()),
            replacement_logged: Once::new(),
            run_logged: Once::new(),
            is_configured: is_complete(&source.declared),
        }))
    }
}

/// Models with smaller files have a session for each instance: each run counts in its session, and what several processors
/// count together costs more than little runs can afford. To read larger weights takes longer than that.
const LEAST_SHARED_BYTES: u64 = 1 << 20;

/// One version of a model.
struct OnnxModel {
    runtime: Arc<Runtime>,
    name: Name,
    version: i64,
    /// Where libraries of custom operators may be.
    op_directories: Vec<PathBuf>,
    file: PathBuf,
    /// Whether the runtime maps the files that the graph refers to.
    maps_external_data: bool,
    /// `None` until the first session. No files if the runtime maps them.
    external_data: Mutex<Option<Arc<FilesInMemory>>>,
    default_max_batch_size: DefaultBatchSize,
    copied_bytes: Arc<CopiedBytes>,
    /// The backend's, with what it knows of graphs that were opened before.
    known_graphs: Arc<KnownGraphs>,
    /// The sessions of the instances.
    sessions: Mutex<Vec<SessionMemory>>,
    /// The session that instances share.
    shared: Mutex<Weak<Session>>,
    /// Ensures that the replacement of its ZipMaps is logged once.
    replacement_logged: Once,
    /// Ensures that how it runs is logged once, and only if its configuration is made here.
    run_logged: Once,
    is_configured: bool,
}

impl OnnxModel {
    fn load(&self, options: SessionOptions) -> Result<Arc<Session>, Error> {
        let owner =
            CString::new(format!("model '{}', version {}", self.name, self.version)).unwrap_or_default();
        let options = &SessionOptions { owner, files: self.external_data()?, ..options };
        let session = Session::load(&self.runtime, &self.file, options)?;
        let is_tensor = |slot: &GraphValue| matches!(slot.kind, ValueKind::Tensor(..));
        if session.signature().outputs.iter().all(is_tensor) {
            return Ok(session);
        }
        let content = fs::read(&self.file)
            .map_err(|error| Error::internal(format!("unable to read '{}': {error}", self.file.display())))?;
        let Some(replaced) = zip_map::replace(&content) else { return Ok(session) };
        drop(session);
        self.load_without_zip_maps(&replaced, options)
    }

    /// The session of an instance: one of its own, or one for all that would run it as they would run their own. So large
    /// weights are in memory once.
    fn session(&self, options: SessionOptions) -> Result<Arc<Session>, Error> {
        let all_files = files_bytes(&self.file, true);
        if all_files < LEAST_SHARED_BYTES || !options.can_be_shared(&self.runtime) {
            return self.counted_session(options);
        }
        // Instances are built at the same time. The others wait for the first one.
        let mut shared = self.shared.lock();
        if let Some(session) = shared.upgrade() {
            return Ok(session);
        }
        let session = self.counted_session(options)?;
        *shared = Arc::downgrade(&session);
        Ok(session)
    }

    /// A new session, whose memory is the model's.
    fn counted_session(&self, options: SessionOptions) -> Result<Arc<Session>, Error> {
        let session = self.load(options)?;
        let memory = SessionMemory::of(&session, files_bytes(&self.file, self.maps_external_data));
        let mut sessions = self.sessions.lock();
        sessions.retain(SessionMemory::is_alive);
        sessions.push(memory);
        Ok(session)
    }

    /// A session only for the signature: it reads and checks the graph, but does not optimise it.
    fn unoptimised(&self, op_libraries: Vec<PathBuf>) -> Result<Arc<Session>, Error> {
        self.load(SessionOptions {
            graph_level: GraphLevel::Disabled,
            intra_threads: 1,
            inter_threads: 1,
            op_libraries,
            ..SessionOptions::default()
        })
    }

    /// Whether a batch gives the results of its rows. A graph that does not run with the inputs of a probe is no fault.
    fn rows(&self, session: Arc<Session>) -> Rows {
        match RunOptions::silent(&self.runtime) {
            Ok(silent) => probe(&mut OnnxGraph::new(session, Some(silent))),
            Err(failure) => Rows::Unknown(failure.message),
        }
    }

    /// The identity of the graph's file. `None` if the graph needs other files, too.
    fn sole_file(&self) -> Result<Option<FileIdentity>, Error> {
        // Before the file is read. What is written later is another file.
        let file = fs::metadata(&self.file).map(FileIdentity::from).ok();
        let is_sole = !self.maps_external_data && self.external_data()?.is_empty();
        Ok(file.filter(|_| is_sole))
    }

    /// The files that the graph refers to. They are read once.
    fn external_data(&self) -> Result<Arc<FilesInMemory>, Error> {
        let mut known = self.external_data.lock();
        match &*known {
            Some(files) => Ok(files.clone()),
            None => Ok(known.insert(external_data::read(&self.file)?).clone()),
        }
    }

    fn load_without_zip_maps(
        &self,
        replaced: &GraphWithoutZipMap,
        options: &SessionOptions,
    ) -> Result<Arc<Session>, Error> {
        self.replacement_logged.call_once(|| {
            for ZipMapOutput { name, labels } in &replaced.outputs {
                log::info!(
                    "output '{name}' of model '{}' is a ZipMap's; it is served as the tensor that the ZipMap is given, with a \
                     column for each of {labels} labels, in their order",
                    self.name
                );
            }
        });
        Session::load_content(&self.runtime, &replaced.model, options).map_err(|failure| {
            let text = format!(
                "the ZipMap at the end of model '{}' cannot be replaced, convert the model with options={{'zipmap': False}}: \
                 {failure}",
                self.name
            );
            Error::unsupported(text).because(FailureReason::Backend)
        })
    }
}

impl BackendModel for OnnxModel {
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        if is_complete(config) {
            log::info!(
                "skipping model configuration auto-complete for '{}': inputs and outputs already specified",
                self.name
            );
            return Ok(None);
        }
        let operations = config.model_operations.as_ref();
        let names = operations.map_or(&[][..], |operations| &operations.op_library_filename);
        let op_libraries = settings::op_libraries(names, &self.op_directories)?;
        let file = if op_libraries.is_empty() { self.sole_file()? } else { None };
        let known = file.as_ref().and_then(|file| self.known_graphs.get(&self.file, file));
        let (mut graph, session) = match known {
            Some(graph) => (graph, None),
            None => {
                let session = self.unoptimised(op_libraries.clone())?;
                (KnownGraph { signature: session.signature().clone(), rows: None }, Some(session))
            }
        };
        let KnownGraph { signature, rows } = &mut graph;
        let mut failure = None;
        let try_rows = || match session.map_or_else(|| self.unoptimised(op_libraries), Ok) {
            Ok(session) => self.rows(session),
            Err(error) => Rows::Unknown(failure.insert(error).to_string()),
        };
        let probe = || rows.get_or_insert_with(try_rows).clone();
        let request_rows = complete(config, signature, self.default_max_batch_size, probe)?;
        failure.map_or(Ok(()), Err)?;
        file.into_iter().for_each(|file| self.known_graphs.put(&self.file, file, graph.clone()));
        Ok(request_rows)
    }

    fn copies_foreign_memory(&self) -> bool {
        true
    }

    fn memory_usage(&self) -> Vec<MemoryUsage> {
        // The sessions are asked after the lock is released.
        let sessions = self.sessions.lock().clone();
        // The files are read before the model serves, so the lock is held for a moment only.
        let external = self.external_data.lock().as_ref().map_or(0, |files| files.byte_size());
        let byte_size = sessions.iter().map(SessionMemory::bytes).fold(external, u64::saturating_add);
        vec![MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size }]
    }

    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        if let InstanceDevice::Gpu(ordinal) = spec.device {
            let text = format!(
                "instance '{}' wants GPU {ordinal}, but ONNX Runtime runs on the CPU here",
                spec.name
            );
            return Err(Error::unsupported(text));
        }
        let SessionSettings { options, run_entry } =
            settings::session_settings(config, spec.threads, &self.op_directories)?;
        if !self.is_configured {
            self.run_logged.call_once(|| log::info!("{}", run_line(config, options.intra_threads)));
        }
        let session = self.session(options)?;
        let run_options =
            run_entry.map(|(key, value)| RunOptions::with_entry(&self.runtime, &key, &value)).transpose()?;
        let graph = OnnxGraph::new(session, run_options);
        let instance = NativeInstance::new(graph, config, self.version, self.copied_bytes.clone())?;
        Ok(BuiltInstance::Movable(Box::new(instance)))
    }
}

/// How a model runs whose configuration the server has made, and which fields of a configuration decide that.
fn run_line(config: &ModelConfig, threads: usize) -> String {
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let instances = config.instance_groups.iter().map(|group| group.count.get()).sum();
    let batching = match (config.max_batch_size, config.request_limit()) {
        (None, _) | (_, None) => "no batching".to_owned(),
        (Some(batch), Some(request)) => {
            format!("batches of up to {batch} rows, requests of up to {request}")
        }
    };
    format!(
        "model '{}' runs with {batching}, {}, {} each; config.pbtxt can set max_batch_size, instance_group and \
         intra_op_thread_count",
        config.name,
        count(instances, "instance"),
        count(threads, "thread")
    )
}
