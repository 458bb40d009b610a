//! Tests of custom batching strategies: where they are found, which models use them, and which batches they form.
use std::{
    fs,
    path::Path,
    sync::{Arc, mpsc},
};

use engine::{Engine, EngineOptions};
use inference::{
    BackendSetting, Plugins, Request, RequestInputs, ResponseStream,
    backend::{Backend, ModelSource},
    batching::{BatchCandidate, BatchingStrategy, StrategyOpener},
    metrics::MetricsForm,
};
use parking_lot::Mutex;
use vocabulary::Error;

use crate::support::{ECHO, Native, Repository, TIMEOUT, answer, echo, index, request, value};

/// A model whose queue delay is one hour.
const PATIENT: &str = "dynamic_batching { max_queue_delay_microseconds: 3600000000 }";

/// What a strategy tells the test, and what it then waits for.
type Gate = (mpsc::Sender<()>, mpsc::Receiver<()>);

/// Opens "libraries" whose text defines their behaviour: `alone`, `sum 10` (of the bytes in the requests), `panic`,
/// `nothing` or `broken`. Clones share the notes.
#[derive(Clone, Default)]
struct Strategies {
    /// The libraries that were opened, and how the strategies ended.
    notes: Arc<Mutex<Vec<String>>>,
    /// What the first call of `include` tells the test, and what it waits for.
    gate: Arc<Mutex<Option<Gate>>>,
}

impl Strategies {
    fn notes(&self) -> Vec<String> {
        self.notes.lock().clone()
    }
}

impl StrategyOpener for Strategies {
    fn open(
        &self,
        library: &Path,
        source: &ModelSource,
        config: &proto::ModelConfig,
    ) -> Result<Option<Box<dyn BatchingStrategy>>, Error> {
        assert_eq!(config.instance_group.len(), 1, "the configuration is complete");
        let text = fs::read_to_string(library).unwrap();
        self.notes.lock().push(format!("{}: {text}", source.name));
        match text.as_str() {
            "nothing" => Ok(None),
            "broken" => Err(Error::invalid("it lacks a function")),
            _ => Ok(Some(Box::new(Strategy { text, notes: self.notes.clone(), gate: self.gate.clone() }))),
        }
    }
}

struct Strategy {
    text: String,
    notes: Arc<Mutex<Vec<String>>>,
    gate: Arc<Mutex<Option<Gate>>>,
}

impl BatchingStrategy for Strategy {
    fn begin(&self) -> Box<dyn BatchCandidate> {
        self.notes.lock().push("begun".to_owned());
        let most = self.text.strip_prefix("sum ").map(|most| most.parse().unwrap());
        Box::new(Pending {
            most,
            requests: 0,
            sum: 0,
            panics: self.text == "panic",
            gate: self.gate.lock().take(),
        })
    }
}

impl Drop for Strategy {
    fn drop(&mut self) {
        self.notes.lock().push("ended".to_owned());
    }
}

struct Pending {
    most: Option<u8>,
    requests: u8,
    sum: u8,
    panics: bool,
    gate: Option<Gate>,
}

impl BatchCandidate for Pending {
    fn include(&mut self, request: &Request) -> bool {
        assert!(!self.panics, "as it says");
        if let Some((asked, opened)) = self.gate.take() {
            asked.send(()).unwrap();
            let _ = opened.recv();
        }
        self.requests += 1;
        self.sum += value(request);
        match self.most {
            None => self.requests == 1,
            Some(most) => self.sum <= most,
        }
    }
}

/// Echoes, and records the bytes in the requests of each batch.
fn noting_batches() -> (Native, Arc<Mutex<Vec<Vec<u8>>>>) {
    let batches = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let backend = echo().execute({
        let batches = batches.clone();
        move |_, batch| {
            let values = batch.executions.iter().map(|execution| value(&execution.request));
            batches.lock().push(values.collect());
            batch.executions.into_iter().for_each(answer);
        }
    });
    (backend, batches)
}

async fn start(options: EngineOptions, backend: Native, strategies: Option<Strategies>) -> Engine {
    let strategies = strategies.map(|strategies| Arc::new(strategies) as Arc<dyn StrategyOpener>);
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(backend)];
    Engine::start(options, Plugins { backends, strategies, ..Plugins::default() }).await.unwrap()
}

/// Sends requests with these bytes to the model `m` at the same time, and waits for their answers.
async fn ask_all(engine: &Engine, values: &[u8]) {
    let model = engine.model("m", None).unwrap();
    let send = |&value: &u8| model.infer(request(value)).unwrap();
    let streams: Vec<ResponseStream> = values.iter().map(send).collect();
    for (stream, &value) in streams.into_iter().zip(values) {
        assert_eq!(stream.only().await.unwrap().outputs[0].host().unwrap().contiguous()[..], [value]);
    }
}

/// The batches of these requests, if the model has that library. The batches wait until all requests have arrived.
async fn batches(library: &str, scheduling: &str, values: &[u8]) -> (Vec<Vec<u8>>, Vec<String>) {
    let repository = Repository::new()
        .model("m", &format!("{ECHO} {scheduling}"), &["1"])
        .file("m/batchstrategy.so", library);
    let (backend, batches) = noting_batches();
    let mut options = repository.options();
    options.hold_until_queued = values.len();
    let strategies = Strategies::default();
    let engine = start(options, backend, Some(strategies.clone())).await;
    ask_all(&engine, values).await;
    assert_eq!(index(&engine), ["m 1 READY"]);
    engine.stop(TIMEOUT).await.unwrap();
    let batches = batches.lock().clone();
    (batches, strategies.notes())
}

#[tokio::test]
async fn a_strategy_decides_which_requests_share_a_batch() {
    let dynamic = "dynamic_batching {}";
    assert_eq!(batches("alone", dynamic, &[1, 2, 3]).await.0, [[1], [2], [3]]);
    assert_eq!(batches("sum 10", dynamic, &[4, 6, 1, 2]).await.0, [[4, 6], [1, 2]]);
    assert_eq!(batches("nothing", dynamic, &[4, 6, 1, 2]).await.0, [[4, 6, 1, 2]]);
}

#[tokio::test]
async fn a_request_that_is_refused_even_alone_runs_alone() {
    assert_eq!(batches("sum 10", PATIENT, &[50, 60, 11]).await.0, [[50], [60], [11]]);
}

#[tokio::test]
async fn requests_run_alone_after_a_strategy_panics() {
    assert_eq!(batches("panic", PATIENT, &[1, 2, 3]).await.0, [[1], [2], [3]]);
}

#[tokio::test]
async fn without_a_dynamic_batcher_a_strategy_is_loaded_and_never_called() {
    let (batches, notes) = batches("sum 10", "", &[1, 2]).await;
    assert_eq!(batches, [[1], [2]]);
    assert_eq!(notes, ["m: sum 10", "ended"]);
}

#[tokio::test]
async fn a_strategy_ends_with_its_model_after_its_last_batch() {
    let (_, notes) = batches("alone", "dynamic_batching {}", &[1, 2]).await;
    let [opened, begun @ .., ended] = &notes[..] else { panic!("{notes:?}") };
    assert_eq!((&opened[..], &ended[..]), ("m: alone", "ended"));
    assert!(!begun.is_empty() && begun.iter().all(|note| note == "begun"), "{begun:?}");
}

#[tokio::test]
async fn a_strategy_sees_requests_after_their_validation() {
    let repository = Repository::new()
        .model("m", &format!("{ECHO} dynamic_batching {{}}"), &["1"])
        .file("m/batchstrategy.so", "sum 10");
    let (backend, batches) = noting_batches();
    let mut options = repository.options();
    options.hold_until_queued = 2;
    let engine = start(options, backend, Some(Strategies::default())).await;
    // The check of the request deduces its shape and its name.
    let raw = |value: u8| Request { inputs: RequestInputs::Raw(vec![value].into()), ..Request::default() };
    let model = engine.model("m", None).unwrap();
    let streams = [7, 8].map(|value| model.infer(raw(value)).unwrap());
    for stream in streams {
        stream.only().await.unwrap();
    }
    assert_eq!(*batches.lock(), [[7], [8]]);
}

#[tokio::test]
async fn the_most_specific_library_is_used() {
    let shared = Repository::new().file("first/other", "").file("second/batchstrategy.so", "shared");
    let directories = ["first", "second"].map(|directory| shared.path().join(directory)).to_vec();
    for (own, found) in [
        (&["m/1/batchstrategy.so", "m/batchstrategy.so"][..], "m/1/batchstrategy.so"),
        (&["m/batchstrategy.so", "m/2/batchstrategy.so"], "m/batchstrategy.so"),
        (&[], "shared"),
    ] {
        let policy = "version_policy { specific { versions: 1 } }";
        let repository = Repository::new().model("m", &format!("{ECHO} {policy}"), &["1"]);
        let repository = own.iter().fold(repository, |repository, path| repository.file(path, path));
        let strategies = Strategies::default();
        let backend = echo().in_directories(directories.clone());
        start(repository.options(), backend, Some(strategies.clone())).await;
        assert_eq!(strategies.notes()[0], format!("m: {found}"));
    }
}

#[tokio::test]
async fn the_directory_of_a_built_in_backend_is_where_its_library_would_be() {
    let shared = Repository::new().file("echo/batchstrategy.so", "shared");
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let mut options = repository.options();
    let (key, value) = ("backend-directory".to_owned(), shared.path().display().to_string());
    options.backend_settings = vec![BackendSetting { backend: None, key, value }];
    let strategies = Strategies::default();
    start(options, echo(), Some(strategies.clone())).await;
    assert_eq!(strategies.notes()[0], "m: shared");
}

/// The index of a model with that parameter, and the library that was opened. `$` in the parameter stands for the
/// model's directory.
async fn with_parameter(parameter: &str, scheduling: &str) -> (String, Vec<String>) {
    let repository = Repository::new()
        .file("m/1/mine.so", "mine")
        .file("m/batchstrategy.so", "not mine")
        .file("other/1/theirs.so", "theirs");
    let path = parameter.replace('$', &repository.path().join("m").display().to_string());
    let parameter =
        format!("parameters {{ key: 'TRITON_BATCH_STRATEGY_PATH' value {{ string_value: '{path}' }} }}");
    let repository = repository.file("m/config.pbtxt", format!("{ECHO} {scheduling} {parameter}"));
    let strategies = Strategies::default();
    let engine = start(repository.options(), echo(), Some(strategies.clone())).await;
    let line = index(&engine)[0].replace(&repository.path().display().to_string(), "");
    (line, strategies.notes())
}

#[tokio::test]
async fn a_parameter_names_the_library() {
    for path in ["$/1/mine.so", "1/mine.so"] {
        let (line, notes) = with_parameter(path, "dynamic_batching {}").await;
        assert_eq!((&line[..], &notes[0][..]), ("m 1 READY", "m: mine"), "{path}");
    }
}

#[tokio::test]
async fn a_missing_library_fails_the_version() {
    let sequences = "sequence_batching { control_input { name: 'START' control {
        kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }";
    for (parameter, scheduling, reason) in [
        ("$/../other/1/theirs.so", "", "Invalid argument: Batching library path escapes model repository."),
        ("../other/1/theirs.so", "", "Invalid argument: Batching library path escapes model repository."),
        ("$/none.so", "", "Not found: Batching library path not found: /m/none.so"),
        ("none.so", "", "Not found: Batching library path not found: none.so"),
        (
            "$/1/mine.so",
            sequences,
            "Invalid argument: TRITON_BATCH_STRATEGY_PATH cannot be specified with sequence batcher, using default \
             batching strategy",
        ),
    ] {
        let (line, notes) = with_parameter(parameter, scheduling).await;
        assert_eq!(line, format!("m 1 UNAVAILABLE {reason}"));
        assert!(notes.is_empty(), "{notes:?}");
    }
}

#[tokio::test]
async fn a_model_with_sequences_looks_for_no_library() {
    let repository = Repository::new()
        .model("m", &format!("{ECHO} sequence_batching {{}}"), &["1"])
        .file("m/batchstrategy.so", "alone");
    let strategies = Strategies::default();
    let engine = start(repository.options(), echo(), Some(strategies.clone())).await;
    assert_eq!(index(&engine), ["m 1 READY"]);
    assert!(strategies.notes().is_empty());
}

#[tokio::test]
async fn a_library_that_does_not_open_fails_the_version() {
    let repository = Repository::new().model("m", ECHO, &["1"]).file("m/batchstrategy.so", "broken");
    let engine = start(repository.options(), echo(), Some(Strategies::default())).await;
    assert_eq!(index(&engine), ["m 1 UNAVAILABLE Invalid argument: it lacks a function"]);
}

#[tokio::test]
async fn a_library_that_nobody_can_open_fails_the_version() {
    let repository = Repository::new().model("m", ECHO, &["1"]).file("m/batchstrategy.so", "alone");
    let engine = start(repository.options(), echo(), None).await;
    let path = repository.path().join("m/batchstrategy.so");
    assert_eq!(
        index(&engine),
        [format!(
            "m 1 UNAVAILABLE Unsupported: custom batching strategy library '{}' of model 'm' is not supported by this \
             version of nereid",
            path.display()
        )]
    );
}

#[tokio::test]
async fn while_a_strategy_hangs_no_other_thread_waits_for_it() {
    let repository = Repository::new()
        .model("m", &format!("{ECHO} dynamic_batching {{}}"), &["1"])
        .file("m/batchstrategy.so", "alone");
    let (asked, is_asked) = mpsc::channel();
    let (gate, opened) = mpsc::channel();
    let strategies =
        Strategies { gate: Arc::new(Mutex::new(Some((asked, opened)))), ..Strategies::default() };
    let engine = start(repository.options(), echo(), Some(strategies)).await;
    let model = engine.model("m", None).unwrap();
    let first = model.infer(request(1)).unwrap();
    is_asked.recv().unwrap();
    // The test would hang at one of these lines if its thread ran the strategy, or waited for it.
    let second = model.infer(request(2)).unwrap();
    drop(model.infer(request(3)).unwrap());
    assert!(engine.metrics(MetricsForm::Prometheus).contains("nv_inference_pending_request_count"));
    assert_eq!(engine.in_flight(), 3);
    engine.announce_exit().await;
    drop(gate);
    for stream in [first, second] {
        stream.only().await.unwrap();
    }
    engine.stop(TIMEOUT).await.unwrap();
}
