//! A program that embeds the server: its models, its requests, and the record of its callbacks.
use std::{
    ffi::{CStr, CString, c_char, c_void},
    fs, ptr, slice,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicUsize, Ordering},
    },
    time::Duration,
};

use c_api::types::{
    enums::datatype_number,
    error::{CError, consume},
    message::Message,
    trace::{Activity, Trace, TraceLevel, functions::TRITONSERVER_InferenceTraceTensorNew},
};
use cache::local::LocalResponseCache;
use config::ModelConfig;
use engine::{Engine, EngineOptions, MetricsOptions, ModelControl, ServerMetadata};
use in_process::{Server, allocator::*, infer::*, request::*, response::*};
use inference::{
    Plugins, Response,
    backend::{
        Backend, BackendInstance, BackendModel, Batch, BuiltInstance, Execution, InstanceSpec, MemoryUsage,
        ModelSource,
    },
};
use parking_lot::{Condvar, Mutex};
use repository::LoadParameters;
use tokio::runtime::Runtime;
use vocabulary::{DataType, Error, MemoryKind, Tensor};

/// Longer than anything in these tests takes; a wait of this length has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The error that a function returned; `Ok` for null.
pub(crate) fn result_of(error: *mut CError) -> Result<(), String> {
    // SAFETY: null or an error that this function owns.
    unsafe { consume(error) }.map_err(|error| error.with_code())
}

pub(crate) fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// A text that a function has returned.
pub(crate) fn read(text: *const c_char) -> String {
    // SAFETY: shown just now.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

/// The JSON of a message, which is deleted.
pub(crate) fn json(message: *mut Message) -> String {
    // SAFETY: this function owns the message.
    unsafe { Box::from_raw(message) }.json().to_owned()
}

type Execute = dyn Fn(Batch) + Send + Sync;

/// A backend named `native` that is a closure.
#[derive(Clone)]
pub(crate) struct Native {
    execute: Arc<Execute>,
    well: bool,
    reads_device_memory: bool,
}

impl Native {
    pub(crate) fn each(answer: impl Fn(Execution) + Send + Sync + 'static) -> Self {
        let execute = Arc::new(move |batch: Batch| batch.executions.into_iter().for_each(&answer));
        Self { execute, well: true, reads_device_memory: false }
    }

    /// Accepts inputs in memory of devices.
    pub(crate) fn reading_device_memory(self) -> Self {
        Self { reads_device_memory: true, ..self }
    }

    /// Reports that its models are not ready.
    pub(crate) fn not_ready(self) -> Self {
        Self { well: false, ..self }
    }

    /// Returns its input as its output.
    pub(crate) fn echo() -> Self {
        Self::each(|execution| {
            let response = echoed(&execution);
            execution.responder.complete(response);
        })
    }
}

/// The input `IN` as a copy named `OUT`.
pub(crate) fn echoed(execution: &Execution) -> Response {
    let input = execution.request.input("IN").expect("it was checked");
    let copy = input.host().unwrap().contiguous().to_vec();
    Response::of(vec![Tensor::new("OUT".into(), input.datatype(), input.shape().into(), copy)])
}

impl Backend for Native {
    fn name(&self) -> &str {
        "native"
    }

    fn open(&self, _: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl BackendModel for Native {
    fn memory_usage(&self) -> Vec<MemoryUsage> {
        vec![MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size: 5 }]
    }

    fn reads_device_memory(&self) -> bool {
        self.reads_device_memory
    }

    fn reports_readiness(&self) -> bool {
        !self.well
    }

    fn ready(&self) -> Result<(), Error> {
        if self.well { Ok(()) } else { Err(Error::internal("unwell")) }
    }

    fn instance(&self, config: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        let runner = Box::new(self.clone());
        let pinned = config.parameters.get("instance").is_some_and(|kind| kind == "pinned");
        Ok(if pinned { BuiltInstance::ThreadBound(runner) } else { BuiltInstance::Movable(runner) })
    }
}

impl BackendInstance for Native {
    fn execute(&mut self, batch: Batch) {
        batch.execution_times.compute_started();
        batch.execution_times.compute_ended();
        (self.execute)(batch);
    }
}

/// A configuration of [`Native`]: `IN` to `OUT`, any number of bytes. Executions run on the thread that sends the
/// request.
pub(crate) const MOVABLE: &str = "backend: 'native' instance_group { kind: KIND_CPU }
    input { name: 'IN' data_type: TYPE_UINT8 dims: -1 } output { name: 'OUT' data_type: TYPE_UINT8 dims: -1 }";

/// The same with executions on the thread of the instance.
pub(crate) fn pinned(rest: &str) -> String {
    format!("{MOVABLE} parameters {{ key: 'instance' value {{ string_value: 'pinned' }} }} {rest}")
}

/// A server on models of a native backend.
pub(crate) struct TestServer {
    runtime: Runtime,
    pub(crate) engine: Engine,
    pub(crate) server: Arc<Server>,
    repository: tempfile::TempDir,
}

impl TestServer {
    pub(crate) fn new(models: &[(&str, &str)], backend: Native) -> Self {
        Self::controlled(models, backend, ModelControl::None)
    }

    /// A server that loads models as `control` says.
    pub(crate) fn controlled(models: &[(&str, &str)], backend: Native, control: ModelControl) -> Self {
        let repository = tempfile::tempdir().unwrap();
        for (name, config) in models {
            let directory = repository.path().join(name);
            // Models with a version policy of their own have two versions.
            let versions = if config.contains("version_policy") { &["1", "2"][..] } else { &["1"] };
            versions.iter().for_each(|version| fs::create_dir_all(directory.join(version)).unwrap());
            fs::write(directory.join("config.pbtxt"), config).unwrap();
            fs::write(directory.join("labels.txt"), "cat\n\ndog\n").unwrap();
        }
        let options = EngineOptions {
            control,
            namespacing: false,
            sequence_limit: std::time::Duration::from_secs(60),
            server: ServerMetadata { name: "stage".into(), version: "1".into(), extensions: vec![] },
            repositories: vec![repository.path().into()],
            readiness: Default::default(),
            load_threads: 2,
            load_retries: 0,
            auto_complete: false,
            config_name: None,
            backend_settings: vec![],
            on_demand: None,
            limits: host::MemoryLimits::default(),
            metrics: MetricsOptions { counter_latencies: false, host: false, ..MetricsOptions::default() },
            hold_until_queued: 0,
            hold_until_backlogged: 0,
            rate_limit: None,
            host_policies: Default::default(),
            load_policy: Default::default(),
            agent_directory: std::path::PathBuf::new(),
        };
        let runtime = Runtime::new().unwrap();
        let server = Server::hosting();
        let engine = runtime.block_on(async {
            let plugins = Plugins {
                backends: vec![Arc::new(backend)],
                cache: Some(Arc::new(LocalResponseCache::of(1 << 20))),
                more_metrics: Some(in_process::custom_metrics()),
                ..Plugins::default()
            };
            let engine = Engine::new(options, plugins).unwrap();
            server.attach(engine.clone());
            engine.load_models().await.unwrap();
            engine
        });
        assert!(engine.all_loaded(), "{:?}", engine.known_models(false));
        Self { runtime, engine, server, repository }
    }

    /// A server with one model `m`.
    pub(crate) fn of(config: &str, backend: Native) -> Self {
        Self::new(&[("m", config)], backend)
    }

    /// Adds a version to a model, and loads the model.
    pub(crate) fn add_version(&self, model: &str, version: &str) {
        fs::create_dir(self.repository.path().join(model).join(version)).unwrap();
        self.runtime.block_on(self.engine.repository().load(model, LoadParameters::default())).unwrap();
    }

    /// Stops the engine.
    pub(crate) fn stop(&self) {
        self.runtime.block_on(self.engine.stop(TIMEOUT)).unwrap();
    }
}

/// The contents of a response.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) model: String,
    pub(crate) version: i64,
    pub(crate) id: String,
    pub(crate) error: Option<String>,
    /// Name and bytes.
    pub(crate) outputs: Vec<(String, Vec<u8>)>,
    pub(crate) last: bool,
}

impl Answer {
    fn of(response: *mut InferenceResponse, last: bool) -> Self {
        let (mut model, mut version, mut id, mut count) = (ptr::null(), 0, ptr::null(), 0);
        // SAFETY: a live response and places of this function.
        unsafe {
            let error = result_of(TRITONSERVER_InferenceResponseError(response)).err();
            result_of(TRITONSERVER_InferenceResponseModel(response, &mut model, &mut version)).unwrap();
            result_of(TRITONSERVER_InferenceResponseId(response, &mut id)).unwrap();
            result_of(TRITONSERVER_InferenceResponseOutputCount(response, &mut count)).unwrap();
            let outputs = (0..count).map(|index| output(response, index)).collect();
            Self { model: read(model), version, id: read(id), error, outputs, last }
        }
    }
}

fn output(response: *mut InferenceResponse, index: u32) -> (String, Vec<u8>) {
    let (mut name, mut base, mut size) = (ptr::null(), ptr::null(), 0);
    let none = ptr::null_mut::<()>();
    // SAFETY: a live response and places of this function; the others may be null.
    unsafe {
        result_of(TRITONSERVER_InferenceResponseOutput(
            response,
            index,
            &mut name,
            none.cast(),
            none.cast(),
            none.cast(),
            &mut base,
            &mut size,
            none.cast(),
            none.cast(),
            none.cast(),
        ))
        .unwrap();
        let bytes = if base.is_null() { &[][..] } else { slice::from_raw_parts(base.cast::<u8>(), size) };
        (read(name), bytes.to_vec())
    }
}

/// A callback that was made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Answer(Answer),
    /// A null response.
    End,
    Released,
    Activity(Activity),
    Tensor(Activity, String, Vec<u8>),
    TraceReleased,
}

type Hook = Box<dyn Fn(*mut InferenceRequest) + Send + Sync>;
type ResponseHook = Box<dyn Fn(*mut InferenceResponse) + Send + Sync>;

/// The program: one allocator, and callbacks that record what they receive.
pub(crate) struct App {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
    pub(crate) allocator: AtomicPtr<ResponseAllocator>,
    /// The number of buffers that were allocated and not released.
    pub(crate) buffers: AtomicUsize,
    pub(crate) on_response: Mutex<Option<Arc<ResponseHook>>>,
    pub(crate) on_release: Mutex<Option<Arc<Hook>>>,
}

unsafe extern "C-unwind" fn alloc(
    _: *mut ResponseAllocator,
    _: *const c_char,
    size: usize,
    _: u32,
    _: i64,
    userp: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_userp: *mut *mut c_void,
    _: *mut u32,
    _: *mut i64,
) -> *mut CError {
    let bytes = Box::leak(vec![0xAA_u8; size].into_boxed_slice());
    // SAFETY: places of the server; `userp` is the app that outlives its requests.
    unsafe {
        *buffer = if size == 0 { ptr::null_mut() } else { bytes.as_mut_ptr().cast() };
        *buffer_userp = userp;
        (*userp.cast::<App>()).buffers.fetch_add(usize::from(size > 0), Ordering::SeqCst);
    }
    ptr::null_mut()
}

unsafe extern "C-unwind" fn free(
    _: *mut ResponseAllocator,
    buffer: *mut c_void,
    buffer_userp: *mut c_void,
    size: usize,
    _: u32,
    _: i64,
) -> *mut CError {
    // SAFETY: allocated above.
    unsafe {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(buffer.cast::<u8>(), size)));
        (*buffer_userp.cast::<App>()).buffers.fetch_sub(1, Ordering::SeqCst);
    }
    ptr::null_mut()
}

unsafe extern "C-unwind" fn responded(response: *mut InferenceResponse, flags: u32, userp: *mut c_void) {
    // SAFETY: the app outlives its requests.
    let app = unsafe { &*userp.cast::<App>() };
    if response.is_null() {
        assert_eq!(flags, 1);
        return app.record(Event::End);
    }
    let hook = app.on_response.lock().clone();
    hook.iter().for_each(|hook| hook(response));
    let answer = Answer::of(response, flags == 1);
    // SAFETY: this function owns the response.
    unsafe { result_of(TRITONSERVER_InferenceResponseDelete(response)).unwrap() };
    app.record(Event::Answer(answer));
}

unsafe extern "C-unwind" fn released(request: *mut InferenceRequest, flags: u32, userp: *mut c_void) {
    assert_eq!(flags, 1);
    // SAFETY: the app outlives its requests.
    let app = unsafe { &*userp.cast::<App>() };
    let hook = app.on_release.lock().clone();
    app.record(Event::Released);
    hook.iter().for_each(|hook| hook(request));
}

unsafe extern "C-unwind" fn passed(_: *mut Trace, activity: Activity, _: u64, userp: *mut c_void) {
    // SAFETY: the app outlives its requests.
    unsafe { &*userp.cast::<App>() }.record(Event::Activity(activity));
}

unsafe extern "C-unwind" fn shown(
    _: *mut Trace,
    activity: Activity,
    name: *const c_char,
    _: u32,
    base: *const c_void,
    size: usize,
    _: *const i64,
    _: u64,
    _: u32,
    _: i64,
    userp: *mut c_void,
) {
    // SAFETY: a tensor of so many bytes; the app outlives its requests.
    unsafe {
        let bytes = slice::from_raw_parts(base.cast::<u8>(), size).to_vec();
        (*userp.cast::<App>()).record(Event::Tensor(activity, read(name), bytes));
    }
}

unsafe extern "C-unwind" fn trace_released(trace: *mut Trace, userp: *mut c_void) {
    // SAFETY: this function owns the trace; the app outlives its requests.
    unsafe {
        drop(Box::from_raw(trace));
        (*userp.cast::<App>()).record(Event::TraceReleased);
    }
}

impl App {
    pub(crate) fn new() -> Arc<Self> {
        let mut allocator = ptr::null_mut();
        // SAFETY: functions and places of this module.
        unsafe {
            result_of(TRITONSERVER_ResponseAllocatorNew(&mut allocator, Some(alloc), Some(free), None))
        }
        .unwrap();
        Arc::new(Self {
            events: Mutex::default(),
            changed: Condvar::new(),
            allocator: AtomicPtr::new(allocator),
            buffers: AtomicUsize::new(0),
            on_response: Mutex::default(),
            on_release: Mutex::default(),
        })
    }

    fn record(&self, event: Event) {
        self.events.lock().push(event);
        self.changed.notify_all();
    }

    pub(crate) fn userp(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// All events in order, as soon as `enough` accepts them. They are removed from the record.
    pub(crate) fn events(&self, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let mut events = self.events.lock();
        while !enough(&events) {
            let timeout = self.changed.wait_for(&mut events, TIMEOUT);
            assert!(!timeout.timed_out(), "only {events:?}");
        }
        std::mem::take(&mut events)
    }

    /// All events of a request, after its last response, its release and the release of so many traces. Nothing of it comes
    /// later.
    pub(crate) fn traced_events(&self, traces: usize) -> Vec<Event> {
        self.events(|events| {
            let released = events.iter().filter(|event| **event == Event::TraceReleased).count();
            released == traces && events.iter().any(is_end) && events.contains(&Event::Released)
        })
    }

    /// The responses to one request, and whether the request was given back before the last of them.
    pub(crate) fn finished(&self) -> (Vec<Answer>, bool) {
        let events = self.events(|events| events.iter().any(is_end) && events.contains(&Event::Released));
        let released = events.iter().position(|event| *event == Event::Released);
        let early = released < events.iter().position(is_end);
        assert_eq!(events.iter().filter(|event| **event == Event::Released).count(), 1);
        let answers = events.into_iter().filter_map(|event| match event {
            Event::Answer(answer) => Some(answer),
            _ => None,
        });
        (answers.collect(), early)
    }

    /// The only response to one request.
    pub(crate) fn answer(&self) -> Answer {
        let (answers, _) = self.finished();
        let [only] = &answers[..] else { panic!("{answers:?}") };
        only.clone()
    }

    /// The events so far.
    pub(crate) fn recorded_events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// A trace that reports to this program.
    pub(crate) fn trace(&self, level: TraceLevel) -> *mut Trace {
        let mut trace = ptr::null_mut();
        // SAFETY: functions and places of this module.
        unsafe {
            result_of(TRITONSERVER_InferenceTraceTensorNew(
                &mut trace,
                level,
                0,
                Some(passed),
                Some(shown),
                Some(trace_released),
                self.userp(),
            ))
            .unwrap();
        }
        trace
    }
}

/// Whether the event is the last of its request's responses.
fn is_end(event: &Event) -> bool {
    match event {
        Event::Answer(answer) => answer.last,
        other => *other == Event::End,
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // SAFETY: the allocator is not used after the app.
        unsafe { result_of(TRITONSERVER_ResponseAllocatorDelete(self.allocator.load(Ordering::SeqCst))) }
            .unwrap();
        assert_eq!(self.buffers.load(Ordering::SeqCst), 0, "every buffer was given back");
    }
}

/// A request of an app to model `m`.
pub(crate) struct TestRequest<'a> {
    pub(crate) handle: *mut InferenceRequest,
    server: &'a Arc<Server>,
    app: &'a App,
}

impl<'a> TestRequest<'a> {
    pub(crate) fn new(stage: &'a TestServer, app: &'a App) -> Self {
        Self::to(stage, app, c"m")
    }

    /// A request to another model.
    pub(crate) fn to(stage: &'a TestServer, app: &'a App, model: &CStr) -> Self {
        let mut handle = ptr::null_mut();
        // SAFETY: live handles; the allocator and the app outlive the request.
        unsafe {
            let made =
                TRITONSERVER_InferenceRequestNew(&mut handle, stage.server.as_ptr(), model.as_ptr(), -1);
            result_of(made).unwrap();
            let allocator = app.allocator.load(Ordering::SeqCst);
            result_of(TRITONSERVER_InferenceRequestSetResponseCallback(
                handle,
                allocator,
                app.userp(),
                Some(responded),
                app.userp(),
            ))
            .unwrap();
            result_of(TRITONSERVER_InferenceRequestSetReleaseCallback(handle, Some(released), app.userp()))
                .unwrap();
        }
        Self { handle, server: &stage.server, app }
    }

    /// The same with another allocator.
    pub(crate) fn with(self, allocator: *mut ResponseAllocator, userp: *mut c_void) -> Self {
        let (app, respond) = (self.app.userp(), Some(responded as ResponseFn));
        // SAFETY: a live request; the allocator outlives it.
        unsafe {
            let set = TRITONSERVER_InferenceRequestSetResponseCallback;
            result_of(set(self.handle, allocator, userp, respond, app)).unwrap();
        }
        self
    }

    /// Adds `IN` with these bytes, which must outlive the request.
    pub(crate) fn input(self, bytes: &[u8]) -> Self {
        let len = i64::try_from(bytes.len()).unwrap();
        self.add("IN", DataType::Uint8, &[len]).unwrap();
        self.append("IN", bytes).unwrap();
        self
    }

    pub(crate) fn add(&self, name: &str, datatype: DataType, shape: &[i64]) -> Result<(), String> {
        let (name, datatype, count) = (c(name), datatype_number(datatype), shape.len() as u64);
        // SAFETY: a live request.
        result_of(unsafe {
            TRITONSERVER_InferenceRequestAddInput(self.handle, name.as_ptr(), datatype, shape.as_ptr(), count)
        })
    }

    pub(crate) fn append(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let (name, base) = (c(name), bytes.as_ptr().cast());
        // SAFETY: a live request.
        result_of(unsafe {
            TRITONSERVER_InferenceRequestAppendInputData(self.handle, name.as_ptr(), base, bytes.len(), 0, 0)
        })
    }

    pub(crate) fn send(&self) -> Result<(), String> {
        self.send_traced(ptr::null_mut())
    }

    pub(crate) fn send_traced(&self, trace: *mut Trace) -> Result<(), String> {
        // SAFETY: a live request that is not under way.
        result_of(unsafe { TRITONSERVER_ServerInferAsync(self.server.as_ptr(), self.handle, trace) })
    }

    /// Sends the request and waits for its only response.
    pub(crate) fn answer(&self) -> Answer {
        self.send().unwrap();
        self.app.answer()
    }

    pub(crate) fn cancel(&self) -> Result<(), String> {
        // SAFETY: a live request.
        result_of(unsafe { TRITONSERVER_InferenceRequestCancel(self.handle) })
    }

    pub(crate) fn is_cancelled(&self) -> Result<bool, String> {
        let mut cancelled = false;
        // SAFETY: a live request.
        result_of(unsafe { TRITONSERVER_InferenceRequestIsCancelled(self.handle, &mut cancelled) })?;
        Ok(cancelled)
    }
}

impl Drop for TestRequest<'_> {
    fn drop(&mut self) {
        // SAFETY: it came back, or never went.
        unsafe { result_of(TRITONSERVER_InferenceRequestDelete(self.handle)) }.unwrap();
    }
}
