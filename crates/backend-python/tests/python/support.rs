//! Support for all tests: models of a few lines, their instances, requests and answers.
use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::{Duration, Instant},
};

use backend_python::PythonBackend;
use bytes::Bytes;
use config::{Completion, CompletionContext, ConfigSource, ModelConfig, ModelLayout, declare, finish};
use inference::{
    ExecutionTimes, Inferer, Request, RequestInputs, Response, ResponseItem, ResponseStream, Timeline,
    Timestamp, Unobserved, UnreadPolicy,
    backend::{
        Backend, BackendModel, Batch, BuiltInstance, Execution, InstanceDevice, InstanceSpec, ModelSource,
    },
    response_channel,
};
use vocabulary::{DataType, Error, Name, Tensor};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// A model: the text of `model.py`, and its configuration.
pub(crate) struct TestModel {
    folder: Arc<tempfile::TempDir>,
    pub(crate) settings: Vec<(String, String)>,
    config: String,
    backend: PythonBackend,
    inferer: Option<Arc<dyn Inferer>>,
}

/// The interpreter with NumPy that the tests of the workspace have.
pub(crate) fn interpreter() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("target/venv/bin/python")
}

/// One input `X` and one output `Y`.
pub(crate) const CONFIG: &str = "input { name: 'X' data_type: TYPE_FP32 dims: [ -1 ] }\n\
                                 output { name: 'Y' data_type: TYPE_FP32 dims: [ -1 ] }\n";

/// The beginning of each model.
const HEAD: &str = "import os, time, json, threading, asyncio\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\
                    def x_of(request):\n    return pb_utils.get_input_tensor_by_name(request, 'X').as_numpy()\n\n\
                    def y(array):\n    return pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.asarray(array, np.float32))])\n\n";

/// Writes the log to the output of a failing test.
struct TestLog;

impl log::Log for TestLog {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

impl TestModel {
    /// A model with those lines in its class.
    pub(crate) fn new(config: &str, methods: &str) -> Self {
        let indented: String = methods.lines().map(|line| format!("    {line}\n")).collect();
        Self::of_file(config, &format!("{HEAD}class TritonPythonModel:\n{indented}"))
    }

    /// A model with that file.
    pub(crate) fn of_file(config: &str, file: &str) -> Self {
        // Fails if another test of the process has set it.
        let _ = log::set_logger(&TestLog);
        log::set_max_level(log::LevelFilter::Info);
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("m/1")).unwrap();
        fs::write(folder.path().join("m/1/model.py"), file).unwrap();
        let interpreter = interpreter().to_string_lossy().into_owned();
        Self {
            folder: Arc::new(folder),
            settings: vec![("python-executable".to_owned(), interpreter)],
            config: format!("backend: 'python'\n{config}"),
            backend: PythonBackend::new(Arc::default()),
            inferer: None,
        }
    }

    /// A folder for files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn with_setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets the model ask other models.
    pub(crate) fn with_inferer(mut self, inferer: Arc<dyn Inferer>) -> Self {
        self.inferer = Some(inferer);
        self
    }

    /// Opens the model and completes its configuration.
    pub(crate) fn open(&self) -> Result<(Box<dyn BackendModel>, Arc<ModelConfig>), Error> {
        let model_directory = self.folder.path().join("m");
        let layout = ModelLayout { name: "m".to_owned(), versions: [(1, Vec::new())].into() };
        let path = model_directory.join("config.pbtxt");
        let source = ConfigSource::Text { path: &path, content: self.config.as_bytes() };
        let declared = declare(source, &layout, Completion::Auto)?;
        let model = self.backend.open(&ModelSource {
            name: "m".into(),
            version: 1,
            version_directory: model_directory.join("1"),
            model_directory,
            declared: Arc::new(declared.config.clone()),
            settings: self.settings.iter().cloned().collect(),
            inferer: self.inferer.clone(),
            host_policies: Default::default(),
        })?;
        let mut completed = declared.config.clone();
        model.complete_config(&mut completed)?;
        model.configured(&completed);
        let config = finish(&declared, completed, &CompletionContext::default())?.typed;
        Ok((model, Arc::new(config)))
    }

    /// An instance of the model on a thread of its own.
    pub(crate) fn load(&self) -> Result<Loaded, Error> {
        let (model, config) = self.open()?;
        let model: Arc<dyn BackendModel> = model.into();
        let (batches, given) = mpsc::channel::<Batch>();
        let (report, loaded) = mpsc::channel();
        let shared = model.clone();
        // An instance is built, run and dropped on one thread.
        let thread = std::thread::spawn(move || {
            let spec = InstanceSpec {
                name: "m_0".into(),
                device: InstanceDevice::Cpu,
                threads: NonZeroUsize::MIN,
                passive: false,
            };
            match shared.instance(&config, &spec) {
                Ok(BuiltInstance::Movable(mut instance)) => {
                    report.send(Ok(())).unwrap();
                    given.into_iter().for_each(|batch| instance.execute(batch));
                }
                Ok(BuiltInstance::ThreadBound(_)) => panic!("network threads run brief executions"),
                Err(error) => report.send(Err(error)).unwrap(),
            }
        });
        loaded.recv().expect("the thread reports")?;
        Ok(Loaded { batches: Some(batches), thread: Some(thread), model, _folder: self.folder.clone() })
    }

    /// Why the model cannot be loaded.
    pub(crate) fn refusal(&self) -> String {
        self.load().map(|_| ()).unwrap_err().with_code()
    }
}

/// A loaded model with one instance.
pub(crate) struct Loaded {
    batches: Option<mpsc::Sender<Batch>>,
    thread: Option<std::thread::JoinHandle<()>>,
    pub(crate) model: Arc<dyn BackendModel>,
    /// A worker that starts again reads the model's file again.
    _folder: Arc<tempfile::TempDir>,
}

/// Requests as one batch, and their responses, of which a client may leave so many unread.
pub(crate) fn batch_of(
    requests: Vec<Request>,
    most_unread: Option<NonZeroUsize>,
) -> (Batch, Vec<ResponseStream>) {
    let (executions, streams) = requests
        .into_iter()
        .map(|request| {
            let timeline = Timeline::new(Timestamp::from_nanos(1), 1);
            let flow = UnreadPolicy { most_unread, ..UnreadPolicy::unlimited() };
            let (responder, stream) = response_channel(timeline, Arc::new(Unobserved), flow);
            (Execution::new(request, responder), stream)
        })
        .unzip();
    let execution_times = Arc::new(ExecutionTimes::start(1, || Timestamp::from_nanos(1)));
    (Batch { executions, execution_times }, streams)
}

impl Loaded {
    /// Gives the instance requests as one batch.
    pub(crate) fn send(&self, requests: Vec<Request>) -> Vec<ResponseStream> {
        self.send_to_reader(requests, None)
    }

    /// As [`Self::send`], for clients that may leave so many responses unread.
    pub(crate) fn send_to_reader(
        &self,
        requests: Vec<Request>,
        most_unread: Option<NonZeroUsize>,
    ) -> Vec<ResponseStream> {
        let (batch, streams) = batch_of(requests, most_unread);
        self.batches.as_ref().unwrap().send(batch).unwrap();
        streams
    }

    /// The answers to a batch, one for each request.
    pub(crate) fn run(&self, requests: Vec<Request>) -> Vec<Result<Response, Error>> {
        self.send(requests).into_iter().map(only).collect()
    }

    /// The values of `Y` for those of `X`.
    pub(crate) fn ask(&self, x: &[f32]) -> Result<Vec<f32>, Error> {
        self.run(vec![request(x)]).remove(0).map(|response| floats(&response))
    }

    /// Waits until a panic has ended the thread of the instance, and the instance with it.
    pub(crate) fn ended_by_panic(mut self) {
        let thread = self.thread.take().unwrap();
        eventually("the instance has left", || thread.is_finished());
        assert!(thread.join().is_err(), "the thread has panicked");
    }

    /// The error for a request.
    pub(crate) fn failure(&self, x: &[f32]) -> Error {
        self.ask(x).expect_err("the request fails")
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The next item of a stream.
pub(crate) fn next(stream: &mut ResponseStream) -> Option<ResponseItem> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut next = None;
    eventually("a response", || match stream.poll_item(&mut Context::from_waker(&waker)) {
        Poll::Ready(item) => {
            next = Some(item);
            true
        }
        Poll::Pending => false,
    });
    next.flatten()
}

/// The only response of a stream.
pub(crate) fn only(mut stream: ResponseStream) -> Result<Response, Error> {
    let item = next(&mut stream).expect("a request has a response");
    assert!(item.last, "a request has one response");
    item.result
}

/// A tensor of numbers.
pub(crate) fn tensor(name: &str, values: &[f32]) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = [i64::try_from(values.len()).unwrap()][..].into();
    Tensor::new(Name::new(name), DataType::Fp32, shape, bytes)
}

/// A request with values of `X`.
pub(crate) fn request(x: &[f32]) -> Request {
    Request { inputs: RequestInputs::Tensors(vec![tensor("X", x)]), ..Request::default() }
}

/// The values of an input.
pub(crate) fn floats_of_input(request: &Request, name: &str) -> Vec<f32> {
    numbers(&request.input(name).expect("the request has the input").host().unwrap().contiguous())
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
}

pub(crate) fn bytes_of(response: &Response, name: &str) -> Bytes {
    response.output(name).expect("the response has the output").host().unwrap().contiguous()
}

/// The values of `Y`.
pub(crate) fn floats(response: &Response) -> Vec<f32> {
    numbers(&bytes_of(response, "Y"))
}

/// Asks until something is so, each time that somebody unparks the thread, and each millisecond. The time limit only
/// decides when the test gives up.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
