//! Model repositories on disk, and backends built from closures.
use std::{
    fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, ThreadId},
    time::Duration,
};

use config::ModelConfig;
use engine::{Engine, EngineOptions, MetricsOptions, ModelState, ServerMetadata};
use inference::{
    Request, RequestInputs, Response, ResponseStream,
    backend::{
        Backend, BackendInstance, BackendModel, Batch, BuiltInstance, Execution, InstanceSpec, MemoryUsage,
        ModelSource,
    },
};
use parking_lot::{Condvar, Mutex};
use vocabulary::{DataType, Error, Tensor};

/// A timeout longer than any step of these tests. A step that takes so long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A model of the backend [`echo`], without its instance groups and its scheduling.
pub(crate) const ECHO: &str = "backend: 'echo' max_batch_size: 8
    input { name: 'IN' data_type: TYPE_UINT8 dims: -1 } output { name: 'OUT' data_type: TYPE_UINT8 dims: -1 }";

/// A model repository that is deleted at the end of the test.
pub(crate) struct Repository {
    root: tempfile::TempDir,
}

impl Repository {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    /// Adds a model with these version directories.
    pub(crate) fn model(self, name: &str, config: &str, versions: &[&str]) -> Self {
        for version in versions {
            fs::create_dir_all(self.path().join(name).join(version)).unwrap();
        }
        self.file(&format!("{name}/config.pbtxt"), config)
    }

    /// Adds a file.
    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn options(&self) -> EngineOptions {
        options(vec![self.path().to_path_buf()])
    }

    /// Starts an engine on this repository with the usual options.
    pub(crate) async fn serve(&self, backend: Native) -> Engine {
        start(self.options(), backend).await
    }
}

pub(crate) fn options(repositories: Vec<PathBuf>) -> EngineOptions {
    EngineOptions {
        control: engine::ModelControl::None,
        namespacing: false,
        sequence_limit: std::time::Duration::from_secs(60),
        server: ServerMetadata::default(),
        repositories,
        readiness: Default::default(),
        load_threads: 4,
        load_retries: 0,
        auto_complete: true,
        config_name: None,
        agent_directory: "/agents".into(),
        backend_settings: Vec::new(),
        on_demand: None,
        limits: host::MemoryLimits::default(),
        metrics: MetricsOptions { host: false, ..MetricsOptions::default() },
        hold_until_queued: 0,
        hold_until_backlogged: 0,
        rate_limit: None,
        host_policies: Default::default(),
        load_policy: Default::default(),
    }
}

pub(crate) async fn start(options: EngineOptions, backend: Native) -> Engine {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(backend)];
    Engine::start(options, backends).await.unwrap()
}

type Open = dyn Fn(&ModelSource) -> Result<(), Error> + Send + Sync;
type Complete = dyn Fn(&mut proto::ModelConfig) -> Result<(), Error> + Send + Sync;
type Build = dyn Fn(&ModelConfig, &InstanceSpec) -> Result<(), Error> + Send + Sync;
type Ready = dyn Fn() -> Result<(), Error> + Send + Sync;
type Execute = dyn Fn(&str, Batch) + Send + Sync;

/// A backend of closures. Without a closure, it does nothing or echoes.
#[derive(Clone)]
pub(crate) struct Native {
    name: &'static str,
    directories: Vec<PathBuf>,
    mobile: bool,
    is_brief: bool,
    open: Arc<Open>,
    complete: Arc<Complete>,
    request_rows: Option<NonZeroU32>,
    build: Arc<Build>,
    memory: Vec<MemoryUsage>,
    code: Arc<AtomicU32>,
    ready: Option<Arc<Ready>>,
    execute: Arc<Execute>,
    instances: Arc<AtomicUsize>,
}

/// The backend of [`ECHO`].
pub(crate) fn echo() -> Native {
    Native::new("echo")
}

impl Native {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            directories: Vec::new(),
            mobile: false,
            is_brief: false,
            open: Arc::new(|_| Ok(())),
            complete: Arc::new(|_| Ok(())),
            request_rows: None,
            build: Arc::new(|_, _| Ok(())),
            memory: Vec::new(),
            code: Arc::default(),
            ready: None,
            execute: Arc::new(|_, batch| batch.executions.into_iter().for_each(answer)),
            instances: Arc::default(),
        }
    }

    /// Counts the instances that exist.
    pub(crate) fn instances(&self) -> Arc<AtomicUsize> {
        self.instances.clone()
    }

    /// Sets the backend's directories.
    pub(crate) fn in_directories(self, directories: Vec<PathBuf>) -> Self {
        Self { directories, ..self }
    }

    /// Lets its instances change threads.
    pub(crate) fn mobile(self) -> Self {
        Self { mobile: true, ..self }
    }

    /// Any thread may run an instance, and executions are brief, whatever a slow machine makes of them.
    pub(crate) fn brief(self) -> Self {
        Self { mobile: true, is_brief: true, ..self }
    }

    /// Sets what happens when a model version is opened.
    pub(crate) fn open(
        self,
        open: impl Fn(&ModelSource) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(open), ..self }
    }

    /// Sets what the backend adds to a configuration.
    pub(crate) fn complete(
        self,
        complete: impl Fn(&mut proto::ModelConfig) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self { complete: Arc::new(complete), ..self }
    }

    /// Sets how many rows a request may have, if those are more than `max_batch_size`.
    pub(crate) fn request_rows(self, rows: u32) -> Self {
        Self { request_rows: NonZeroU32::new(rows), ..self }
    }

    /// Sets what happens when an instance is built.
    pub(crate) fn build(
        self,
        build: impl Fn(&ModelConfig, &InstanceSpec) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self { build: Arc::new(build), ..self }
    }

    /// Sets the memory that each model reports.
    pub(crate) fn memory(self, memory: Vec<MemoryUsage>) -> Self {
        Self { memory, ..self }
    }

    /// Sets where the number of the backend's code is. A model is outdated when the number has changed since it was
    /// opened.
    pub(crate) fn code(self, code: &Arc<AtomicU32>) -> Self {
        Self { code: code.clone(), ..self }
    }

    /// Sets the readiness that each model reports.
    pub(crate) fn ready(self, ready: impl Fn() -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self { ready: Some(Arc::new(ready)), ..self }
    }

    /// Sets what an instance of a model does with a batch.
    pub(crate) fn execute(self, execute: impl Fn(&str, Batch) + Send + Sync + 'static) -> Self {
        Self { execute: Arc::new(execute), ..self }
    }
}

impl Backend for Native {
    fn name(&self) -> &str {
        self.name
    }

    fn directories(&self) -> Vec<PathBuf> {
        self.directories.clone()
    }

    fn open(&self, source: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        (self.open)(source)?;
        Ok(Box::new(Opened(self.clone(), self.code.load(SeqCst))))
    }
}

/// A model, and the number of the code that opened it.
struct Opened(Native, u32);

impl BackendModel for Opened {
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        (self.0.complete)(config).map(|()| self.0.request_rows)
    }

    fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.0.memory.clone()
    }

    fn is_outdated(&self) -> bool {
        self.0.code.load(SeqCst) != self.1
    }

    fn reports_readiness(&self) -> bool {
        self.0.ready.is_some()
    }

    fn ready(&self) -> Result<(), Error> {
        self.0.ready.as_ref().map_or(Ok(()), |ready| ready())
    }

    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        (self.0.build)(config, spec)?;
        let instances = self.0.instances.clone();
        instances.fetch_add(1, Ordering::SeqCst);
        let running = Running {
            model: config.name.to_string(),
            execute: self.0.execute.clone(),
            is_brief: self.0.is_brief,
            instances,
        };
        let instance = Box::new(running);
        Ok(if self.0.mobile {
            BuiltInstance::Movable(instance)
        } else {
            BuiltInstance::ThreadBound(instance)
        })
    }
}

struct Running {
    model: String,
    execute: Arc<Execute>,
    is_brief: bool,
    instances: Arc<AtomicUsize>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.instances.fetch_sub(1, Ordering::SeqCst);
    }
}

impl BackendInstance for Running {
    fn execute(&mut self, batch: Batch) {
        (self.execute)(&self.model, batch);
    }

    fn is_brief(&self) -> Option<bool> {
        self.is_brief.then_some(true)
    }
}

/// A batch that an instance has begun. The batch continues when this value is dropped.
pub(crate) struct Begun<T> {
    pub(crate) model: String,
    /// The thread of the instance.
    pub(crate) thread: ThreadId,
    /// What the test reads from the batch.
    pub(crate) seen: T,
    _held: mpsc::Sender<()>,
}

impl<T> Begun<T> {
    /// Lets the batch continue. Returns the thread of its instance.
    pub(crate) fn end(self) -> ThreadId {
        self.thread
    }
}

/// The backend with batches that report what `look` reads from them. They wait for the test before each request goes to
/// `answer`.
pub(crate) fn held<T: Send + 'static>(
    backend: Native,
    look: impl Fn(&[Execution]) -> T + Send + Sync + 'static,
    answer: impl Fn(Execution) + Send + Sync + 'static,
) -> (Native, mpsc::Receiver<Begun<T>>) {
    let (tell, told) = mpsc::channel();
    let backend = backend.execute(move |model, batch| {
        let (held, until_dropped) = mpsc::channel();
        let seen = look(&batch.executions);
        let begun = Begun { model: model.to_owned(), thread: thread::current().id(), seen, _held: held };
        // If the test has ended, the batch does not wait.
        if tell.send(begun).is_ok() {
            let _ = until_dropped.recv();
        }
        batch.executions.into_iter().for_each(&answer);
    });
    (backend, told)
}

/// Echoes `IN` as `OUT`.
pub(crate) fn answer(Execution { request, responder, .. }: Execution) {
    let input = request.input("IN").unwrap();
    let output = Tensor::new("OUT".into(), input.datatype(), input.shape().into(), input.memory().clone());
    responder.complete(Response::of(vec![output]));
}

/// The byte in a request made by [`request`].
pub(crate) fn value(request: &Request) -> u8 {
    request.input("IN").unwrap().host().unwrap().contiguous()[0]
}

pub(crate) fn request(value: u8) -> Request {
    let input = Tensor::new("IN".into(), DataType::Uint8, [1, 1][..].into(), vec![value]);
    Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() }
}

/// Sends a request to the default version.
pub(crate) fn ask(engine: &Engine, model: &str, value: u8) -> ResponseStream {
    engine.model(model, None).unwrap().infer(request(value)).unwrap()
}

/// Whether the default version of the model answers a request correctly.
pub(crate) async fn serves(engine: &Engine, model: &str) -> bool {
    let response = ask(engine, model, 42).only().await.unwrap();
    response.output("OUT").is_some_and(|output| output.host().unwrap().contiguous()[..] == [42])
}

/// The index, one line for each entry: name, version, state and reason, `-` for absent fields.
pub(crate) fn index(engine: &Engine) -> Vec<String> {
    let line = |entry: engine::IndexEntry| {
        let version = entry.version.map_or("-".to_owned(), |version| version.to_string());
        let state = entry.state.map_or("-", ModelState::as_str);
        format!("{} {version} {state} {}", entry.name, entry.reason).trim_end().to_owned()
    };
    engine.known_models(false).into_iter().map(line).collect()
}

/// Waits until the condition is true, and lets the other tasks run meanwhile. The time limit only decides when the test
/// gives up.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, waiting).await.is_ok(), "waited in vain for {what}");
}

/// A point where several threads wait until all of them have arrived.
pub(crate) struct Rendezvous {
    missing: Mutex<usize>,
    complete: Condvar,
}

impl Rendezvous {
    pub(crate) fn of(count: usize) -> Arc<Self> {
        Arc::new(Self { missing: Mutex::new(count), complete: Condvar::new() })
    }

    /// Whether all threads arrived before the timeout.
    pub(crate) fn join(&self, timeout: Duration) -> bool {
        let mut missing = self.missing.lock();
        *missing -= 1;
        self.complete.notify_all();
        !self.complete.wait_while_for(&mut missing, |missing| *missing > 0, timeout).timed_out()
    }
}
