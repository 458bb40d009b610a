//! Measures a generating model that runs whole batches: the baseline of in-flight batching.
//!
//! Requests wait in the order of their arrival. As many as fit form a batch. The batch runs until its longest request
//! is done, and only then the next batch begins. Each caller sends its next request after the answer to its last one.
//! There is no server and no network, and a token counts as soon as its run has ended. So this baseline has an
//! advantage over the server that is compared with it.
//!
//! `whole_batch --model FOLDER --requests FILE [--callers N] [--seconds S] [--threads T] [--shrink 1] [--texts N]`
//! prints `tokens_per_second=... first_p50_us=... first_p99_us=... runs=... rows=...`. FOLDER contains the
//! configuration, FILE is the file of `nereid perf --streaming --input-data`. Finished requests stay in their batch as
//! unused rows, as in a graph that loops by itself. With `--shrink 1` they leave the batch. `--texts N` prints the
//! texts of the first N requests as JSON instead.
use std::{
    collections::VecDeque,
    error::Error,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use backend_onnx::OnnxBackend;
use config::{
    Completion, CompletionContext, ConfigSource, FileEntry, ModelConfig, ModelLayout, Scheduling,
    SequenceControl, declare, finish,
};
use inference::{
    ExecutionTimes, OutputSelection, Request, RequestInputs, ResponseStream, Timeline, Timestamp, Unobserved,
    UnreadPolicy,
    backend::{
        Backend, BackendInstance, BackendModel, Batch, BuiltInstance, Execution, InstanceDevice,
        InstanceSpec, ModelSource, SequenceState, SlotGuard, SlotOwner, SlotRef,
    },
    response_channel,
};
use native_backend::LibrarySearch;
use parking_lot::Mutex;
use vocabulary::{DataType, Tensor, TensorData};

type Failure = Box<dyn Error>;

struct Options {
    model: PathBuf,
    requests: PathBuf,
    callers: usize,
    seconds: f64,
    threads: NonZeroUsize,
    shrink: bool,
    texts: usize,
}

fn main() -> Result<(), Failure> {
    let options = options(std::env::args().skip(1))?;
    let mut loaded = Loaded::open(&options)?;
    let content: serde_json::Value = serde_json::from_slice(&std::fs::read(&options.requests)?)?;
    let content = content.as_array().filter(|all| !all.is_empty()).ok_or("the requests are no array")?;
    let requests = content.iter().map(|one| loaded.request(one)).collect::<Result<Vec<_>, _>>()?;
    let line = match options.texts {
        0 => measure(&mut loaded, &requests, &options)?,
        count => serde_json::to_string(&texts(&mut loaded, &requests[..count.min(requests.len())])?)?,
    };
    #[expect(clippy::print_stdout, reason = "the result of the program")]
    {
        println!("{line}");
    }
    Ok(())
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, Failure> {
    let mut options = Options {
        model: PathBuf::new(),
        requests: PathBuf::new(),
        callers: 32,
        seconds: 3.0,
        threads: NonZeroUsize::MIN,
        shrink: false,
        texts: 0,
    };
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--model" => options.model = value.into(),
            "--requests" => options.requests = value.into(),
            "--callers" => options.callers = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--threads" => options.threads = value.parse()?,
            "--shrink" => options.shrink = value == "1",
            "--texts" => options.texts = value.parse()?,
            _ => return Err(format!("unknown option {argument}").into()),
        }
    }
    Ok(options)
}

/// Warms up for a second, then counts.
fn measure(loaded: &mut Loaded, requests: &[Request], options: &Options) -> Result<String, Failure> {
    let mut turn = requests.iter().cycle();
    let mut next = || turn.next().expect("a cycle of something never ends").share();
    let start = Instant::now();
    let mut waiting: VecDeque<Asked> = (0..options.callers).map(|_| (start, next())).collect();
    let (opens, closes) = (1.0, 1.0 + options.seconds);
    let mut counted = Counted::default();
    while start.elapsed().as_secs_f64() < closes {
        let rows = waiting.drain(..waiting.len().min(loaded.max_rows)).collect();
        loaded.run_whole(rows, |event| {
            let now = Instant::now();
            let counts = (opens..closes).contains(&(now - start).as_secs_f64());
            match event {
                Event::Token(asked) if counts => {
                    counted.tokens += 1;
                    counted.first.extend(asked.map(|asked| now - asked));
                }
                Event::Run(rows) if counts => {
                    counted.runs += 1;
                    counted.rows += rows;
                }
                Event::Token(_) | Event::Run(_) => {}
                Event::Done => waiting.push_back((now, next())),
            }
        })?;
    }
    Ok(counted.line(options.seconds))
}

/// The answers of each of the requests, joined.
fn texts(loaded: &mut Loaded, requests: &[Request]) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for some in requests.chunks(loaded.max_rows) {
        let rows = some.iter().map(|request| (Instant::now(), request.share())).collect();
        texts.extend(loaded.run_whole(rows, |_| {})?);
    }
    Ok(texts)
}

/// A request and the time of its arrival.
type Asked = (Instant, Request);

enum Event {
    /// A token. The first token of a request carries the arrival time of the request.
    Token(Option<Instant>),
    /// A request has all its tokens.
    Done,
    /// A run of so many rows has ended.
    Run(u64),
}

#[derive(Default)]
struct Counted {
    tokens: u64,
    runs: u64,
    rows: u64,
    first: Vec<Duration>,
}

impl Counted {
    fn line(mut self, seconds: f64) -> String {
        self.first.sort_unstable();
        let quantile = |hundredths: usize| {
            let place = (self.first.len() * hundredths / 100).min(self.first.len().saturating_sub(1));
            self.first.get(place).map_or(0, Duration::as_micros)
        };
        #[expect(clippy::cast_precision_loss, reason = "far fewer tokens than a double counts")]
        let rate = self.tokens as f64 / seconds;
        let (p50, p99) = (quantile(50), quantile(99));
        let (runs, rows) = (self.runs, self.rows);
        format!("tokens_per_second={rate:.1} first_p50_us={p50} first_p99_us={p99} runs={runs} rows={rows}")
    }
}

/// Keeps rescheduled requests for the next run of the same batch.
#[derive(Default)]
struct Rows(Mutex<Vec<(u32, Execution)>>);
impl SlotOwner for Rows {
    fn returned(self: Arc<Self>, _: usize, _: u32) {}
    fn reschedule(
        self: Arc<Self>,
        slot_ref: SlotRef,
        execution: Execution,
    ) -> Result<(), (vocabulary::Error, Execution)> {
        self.0.lock().push((slot_ref.slot, execution));
        Ok(())
    }
}

/// A row of a batch: its request, its state, and its text so far.
struct Row {
    asked: Instant,
    request: Request,
    state: SequenceState,
    stream: ResponseStream,
    text: String,
}

/// One instance of the model, without a server.
struct Loaded {
    instance: Box<dyn BackendInstance + Send>,
    config: Arc<ModelConfig>,
    max_rows: usize,
    /// Whether finished requests leave the batch.
    shrink: bool,
    _model: Box<dyn BackendModel>,
}

impl Loaded {
    fn open(options: &Options) -> Result<Self, Failure> {
        let named = std::env::var_os("NEREID_ONNXRUNTIME_LIBRARY").map(PathBuf::from);
        let backend = OnnxBackend::new(LibrarySearch { named, ..LibrarySearch::default() });
        let name = options.model.file_name().and_then(|name| name.to_str()).ok_or("--model is needed")?;
        let path = options.model.join("config.pbtxt");
        let content = std::fs::read(&path)?;
        let file = FileEntry { name: "model.onnx".to_owned(), is_directory: false };
        let layout = ModelLayout { name: name.to_owned(), versions: [(1, vec![file])].into() };
        let source = ConfigSource::Text { path: &path, content: &content };
        let declared = declare(source, &layout, Completion::Auto)?;
        let model = backend.open(&source_of(name, &options.model, &declared.config))?;
        let mut completed = declared.config.clone();
        let request_rows = model.complete_config(&mut completed)?;
        let environment = CompletionContext { request_rows, ..CompletionContext::default() };
        let config = Arc::new(finish(&declared, completed, &environment)?.typed);
        let (threads, device) = (options.threads, InstanceDevice::Cpu);
        let spec = InstanceSpec { name: "whole_0".into(), device, threads, passive: false };
        let (BuiltInstance::Movable(instance), Some(rows)) =
            (model.instance(&config, &spec)?, config.max_batch_size)
        else {
            return Err("the model has no batches".into());
        };
        let max_rows = usize::try_from(rows.get())?;
        Ok(Self { instance, config, max_rows, shrink: options.shrink, _model: model })
    }

    /// A request with the values of a JSON object.
    fn request(&self, values: &serde_json::Value) -> Result<Request, Failure> {
        let tensor = |input: &config::InputSpec| -> Result<Tensor, Failure> {
            let value = &values[input.name.as_str()][0];
            let bytes = match input.datatype {
                DataType::Int64 => value.as_i64().ok_or("no integer")?.to_le_bytes().to_vec(),
                DataType::Bytes => {
                    let text = value.as_str().ok_or("no text")?;
                    [&u32::try_from(text.len())?.to_le_bytes(), text.as_bytes()].concat()
                }
                other => return Err(format!("inputs of {other:?} cannot be read").into()),
            };
            Ok(Tensor::new(input.name.clone(), input.datatype, [1, 1][..].into(), bytes))
        };
        let inputs = self.config.inputs.iter().map(tensor).collect::<Result<_, _>>()?;
        Ok(Request { inputs: RequestInputs::Tensors(inputs), ..Request::default() })
    }

    /// Runs a batch until its longest request is done. Returns the texts of its requests.
    fn run_whole(&mut self, asked: Vec<Asked>, mut on: impl FnMut(Event)) -> Result<Vec<String>, Failure> {
        let slot_owner = Arc::new(Rows::default());
        let mut rows = Vec::new();
        for (asked, request) in asked {
            let timeline = Timeline::new(Timestamp::from_nanos(1), 1);
            let (responder, stream) =
                response_channel(timeline, Arc::new(Unobserved), UnreadPolicy::unlimited());
            let state = self.fresh()?;
            let execution = Execution::new(request.share(), responder).with_state(Some(state.clone()));
            let slot = u32::try_from(rows.len())?;
            slot_owner.0.lock().push((slot, execution));
            rows.push(Row { asked, request, state, stream, text: String::new() });
        }
        let mut is_first = true;
        loop {
            let going_on = std::mem::take(&mut *slot_owner.0.lock());
            if going_on.is_empty() {
                return Ok(rows.into_iter().map(|row| row.text).collect());
            }
            let batch = self.batch(&rows, going_on, &slot_owner, is_first);
            let width = batch.executions.len() as u64;
            self.instance.execute(batch);
            on(Event::Run(width));
            is_first = false;
            rows.iter_mut().try_for_each(|row| row.listen(&mut on))?;
        }
    }

    /// The next run: the requests that continue, and the finished ones unless they have left.
    fn batch(
        &self,
        rows: &[Row],
        going_on: Vec<(u32, Execution)>,
        slot_owner: &Arc<Rows>,
        is_first: bool,
    ) -> Batch {
        let mut places: Vec<Option<Execution>> = rows.iter().map(|_| None).collect();
        for (slot, execution) in going_on {
            let slot_ref =
                SlotRef { slot_owner: slot_owner.clone(), instance: 0, slot, attributes: Default::default() };
            let state = execution.state.clone();
            places[slot as usize] =
                Some(execution.with_state(state).with_slot_guard(SlotGuard::new(slot_ref)));
        }
        let done = |row: &Row| {
            let timeline = Timeline::new(Timestamp::from_nanos(1), 1);
            // The row's answers are not read, and it requests no output.
            let (responder, _) = response_channel(timeline, Arc::new(Unobserved), UnreadPolicy::unlimited());
            let request = Request { outputs: OutputSelection::Nothing, ..row.request.share() };
            Execution::new(request, responder).with_state(row.state.copied().ok())
        };
        let filled = places.into_iter().zip(rows);
        let mut executions: Vec<Execution> =
            filled.filter_map(|(place, row)| place.or_else(|| (!self.shrink).then(|| done(row)))).collect();
        for execution in &mut executions {
            self.set_start(&mut execution.request, is_first);
        }
        let count = u32::try_from(executions.len()).unwrap_or(u32::MAX);
        let execution_times = Arc::new(ExecutionTimes::start(count, || Timestamp::from_nanos(1)));
        Batch { executions, execution_times }
    }

    fn set_start(&self, request: &mut Request, is_first: bool) {
        let Scheduling::Sequence(sequence) = &self.config.scheduling else { return };
        let RequestInputs::Tensors(inputs) = &mut request.inputs else { return };
        for control in
            sequence.controls.iter().filter(|control| matches!(control.control, SequenceControl::Start(_)))
        {
            let value: TensorData = vec![u8::from(is_first)].into();
            let tensor = Tensor::new(control.name.clone(), DataType::Bool, [1, 1][..].into(), value);
            match inputs.iter_mut().find(|input| *input.name() == control.name) {
                Some(input) => *input = tensor,
                None => inputs.push(tensor),
            }
        }
    }

    /// The state of a request that begins.
    fn fresh(&self) -> Result<SequenceState, Failure> {
        let Scheduling::Sequence(sequence) = &self.config.scheduling else {
            return Err("the model has no sequences".into());
        };
        Ok(SequenceState::new(sequence.states.iter().map(|state| {
            let shape = std::iter::once(1).chain(state.dims.iter().copied()).collect::<vocabulary::Shape>();
            let count: i64 = shape.iter().product();
            let size = usize::try_from(count).unwrap_or(0) * state.datatype.byte_size().unwrap_or(4);
            let zeros = Tensor::new(state.input_name.clone(), state.datatype, shape, vec![0; size]);
            (state.output_name.clone(), zeros)
        })))
    }
}

impl Row {
    /// Reads the answers that have come since the last call.
    fn listen(&mut self, on: &mut impl FnMut(Event)) -> Result<(), Failure> {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(item)) = self.stream.poll_item(&mut context) {
            for output in item.result?.outputs {
                on(Event::Token(self.text.is_empty().then_some(self.asked)));
                let bytes = output.host()?.contiguous();
                self.text.push_str(&String::from_utf8_lossy(bytes.get(4..).unwrap_or(&[])));
            }
            if item.last {
                on(Event::Done);
            }
        }
        Ok(())
    }
}

fn source_of(name: &str, directory: &Path, declared: &proto::ModelConfig) -> ModelSource {
    ModelSource {
        name: name.into(),
        version: 1,
        model_directory: directory.to_owned(),
        version_directory: directory.join("1"),
        declared: Arc::new(declared.clone()),
        settings: Default::default(),
        inferer: None,
        host_policies: Default::default(),
    }
}
