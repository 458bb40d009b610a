//! Tests of sequence models through the engine: controls, state, padding, rescheduling, in every order of requests.
use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::mpsc,
};

use config::{
    ControlInput, FlagValues, ModelConfig, Scheduling, SequenceControl, SequenceScheduling, StateSpec,
};
use inference::{
    Request, Response, ResponseItem, ResponseStream, SequenceId, SequencePosition,
    backend::{BackendInstance, Batch, BuiltInstance, InstanceSpec},
};
use scheduling::{OldestStrategy, SequenceBatching, SequenceStrategy};
use vocabulary::{DataType, Tensor};

use super::{
    tests::{config, instance},
    *,
};

/// Adds `IN` to the sum of the sequence and answers with the sum. Starts from zero at START. Reports each batch.
#[derive(Clone)]
struct Accumulator {
    batches: mpsc::Sender<Vec<Seen>>,
}

/// What the model received in a row.
#[derive(Debug, PartialEq, Clone, Copy)]
struct Seen {
    id: u64,
    start: bool,
    end: bool,
    ready: bool,
}

impl BackendModel for Accumulator {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(self.clone())))
    }
}

impl BackendInstance for Accumulator {
    fn execute(&mut self, batch: Batch) {
        let seen = batch.executions.iter().map(|execution| seen(&execution.request)).collect();
        let _ = self.batches.send(seen);
        for execution in batch.executions {
            let state = execution.state.as_ref().expect("the model has a state");
            let before = if seen_start(&execution.request) { 0 } else { number(&state.inputs()[0]) };
            let sum = before + number(execution.request.input("IN").expect("padding looks like a request"));
            let output = tensor("SUM", sum);
            state.update("SUM_OUT", &output).expect("the state is configured");
            if execution.request.wants("OUT") {
                execution.responder.clone().complete(Response::of(vec![tensor("OUT", sum)]));
            } else {
                execution.responder.clone().finish();
            }
        }
    }
}

fn seen_start(request: &Request) -> bool {
    seen(request).start
}

fn seen(request: &Request) -> Seen {
    let flag =
        |name: &str| request.input(name).is_some_and(|control| control.host().unwrap().contiguous()[0] != 0);
    let id = request
        .input("CORRID")
        .map_or(0, |id| u64::from_le_bytes(id.host().unwrap().contiguous()[..8].try_into().unwrap()));
    Seen { id, start: flag("START"), end: flag("END"), ready: flag("READY") }
}

fn number(tensor: &Tensor) -> i32 {
    i32::from_le_bytes(tensor.host().unwrap().contiguous()[..].try_into().unwrap())
}

fn tensor(name: &str, value: i32) -> Tensor {
    Tensor::new(name.into(), DataType::Int32, [1, 1][..].into(), value.to_le_bytes().to_vec())
}

pub(super) fn sequences(batching: SequenceBatching) -> ModelConfig {
    let pair = FlagValues::Bool([false, true]);
    let control = |name: &str, control| ControlInput { name: name.into(), control };
    let mut config = config(Scheduling::Sequence(SequenceScheduling {
        batching,
        controls: vec![
            control("START", SequenceControl::Start(pair)),
            control("END", SequenceControl::End(pair)),
            control("READY", SequenceControl::Ready(FlagValues::Int32([0, 1]))),
            control("CORRID", SequenceControl::CorrelationId(DataType::Uint64)),
        ],
        states: vec![StateSpec {
            input_name: "SUM_IN".into(),
            output_name: "SUM_OUT".into(),
            datatype: DataType::Int32,
            dims: [1][..].into(),
            initial: None,
            uses_same_buffer: false,
            uses_growable_memory: false,
        }],
    }));
    config.max_batch_size = NonZeroU32::new(4);
    config.inputs[0].datatype = DataType::Int32;
    config.inputs[0].dims = [1][..].into();
    config
}

pub(super) fn start(
    config: ModelConfig,
    backend: impl BackendModel + 'static,
    instances: usize,
) -> Arc<LoadedVersion> {
    let instances = (0..instances).map(|index| instance(&format!("m_{index}"))).collect();
    LoadedVersion::start(VersionParts::for_test(config, backend, instances)).unwrap()
}

fn accumulator(
    batching: SequenceBatching,
    instances: usize,
) -> (Arc<LoadedVersion>, mpsc::Receiver<Vec<Seen>>) {
    let (batches, seen) = mpsc::channel();
    (start(sequences(batching), Accumulator { batches }, instances), seen)
}

pub(super) fn direct() -> SequenceBatching {
    SequenceBatching { max_batch_size: 4, ..SequenceBatching::default() }
}

pub(super) fn oldest() -> SequenceBatching {
    let oldest = OldestStrategy {
        max_candidate_sequences: 8,
        preferred_batch_sizes: [4].into(),
        ..OldestStrategy::default()
    };
    SequenceBatching { strategy: SequenceStrategy::Oldest(oldest), ..direct() }
}

pub(super) fn step(id: u64, start: bool, end: bool) -> SequencePosition {
    SequencePosition { id: NonZeroU64::new(id).map(SequenceId::Number), start, end }
}

pub(super) fn ask(
    model: &Arc<LoadedVersion>,
    value: i32,
    sequence: SequencePosition,
) -> Result<ResponseStream, Error> {
    let inputs = inference::RequestInputs::Tensors(vec![tensor("IN", value)]);
    model.model().infer(Request { inputs, sequence, ..Request::default() })
}

async fn answer(stream: Result<ResponseStream, Error>) -> i32 {
    number(&stream.unwrap().only().await.unwrap().outputs[0])
}

#[tokio::test]
async fn interleaved_sequences_keep_their_own_sums() {
    for batching in [direct(), oldest()] {
        let (model, _batches) = accumulator(batching, 2);
        // Forty sequences use eight or sixteen slots at the same time. Each sequence sends its next request after the
        // answer to the previous one.
        let runs = (1..=40).map(|id| {
            let model = model.clone();
            tokio::spawn(async move {
                let mut sum = 0;
                for value in 0..20 {
                    let value = value * i32::try_from(id).unwrap();
                    sum += value;
                    let sequence = step(id, value == 0, value == 19 * i32::try_from(id).unwrap());
                    assert_eq!(answer(ask(&model, value, sequence)).await, sum, "sequence {id}");
                }
            })
        });
        for run in runs.collect::<Vec<_>>() {
            run.await.unwrap();
        }
        assert_eq!(model.statistics().totals.success.count, 800);
        model.close();
    }
}

#[tokio::test]
async fn a_row_keeps_its_slot_and_absent_ones_are_padded() {
    let hold = SequenceBatching { hold_until_queued: 2, ..direct() };
    let (model, batches) = accumulator(hold, 1);
    let first = ask(&model, 1, step(7, true, false));
    let second = ask(&model, 10, step(9, true, false));
    assert_eq!((answer(first).await, answer(second).await), (1, 10));
    let row = |id, start, end| Seen { id, start, end, ready: true };
    assert_eq!(batches.recv().unwrap(), [row(7, true, false), row(9, true, false)]);
    assert_eq!(answer(ask(&model, 5, step(9, false, true))).await, 15);
    let padding = Seen { id: 0, start: false, end: false, ready: false };
    assert_eq!(batches.recv().unwrap(), [padding, row(9, false, true)]);
    // The padding row has not changed the state of the first sequence.
    assert_eq!(answer(ask(&model, 2, step(7, false, true))).await, 3);
    assert_eq!(model.statistics().totals.inference_count, 4);
}

#[tokio::test]
async fn what_is_no_step_of_a_sequence_is_refused_in_tritons_words() {
    let (model, _batches) = accumulator(direct(), 1);
    let refused = |sequence| ask(&model, 1, sequence).unwrap_err().message.into_owned();
    assert_eq!(
        refused(SequencePosition::default()),
        "inference request to model 'm' must specify a non-zero or non-empty correlation ID"
    );
    let missing_start = "inference request for sequence 5 to model 'm' must specify the START flag on the first request of the sequence";
    assert_eq!(refused(step(5, false, false)), missing_start);
    assert_eq!(answer(ask(&model, 1, step(5, true, true))).await, 1);
    assert_eq!(refused(step(5, false, false)), missing_start);
    let text = SequencePosition { id: Some(SequenceId::Text("x".into())), start: true, end: false };
    assert_eq!(
        refused(text),
        "[request id: <id_unknown>] sequence batching control 'CORRID' data-type is 'BYTES', but model 'm' expects 'UINT64'"
    );
    let long = SequenceId::Text("x".repeat(1025).as_str().into());
    assert_eq!(
        refused(SequencePosition { id: Some(long), start: true, end: false }),
        "the correlation id has 1025 bytes, and at most 1024 are allowed"
    );
    let two = inference::RequestInputs::Tensors(vec![Tensor::new(
        "IN".into(),
        DataType::Int32,
        [2, 1][..].into(),
        vec![0; 8],
    )]);
    let error = model
        .model()
        .infer(Request { inputs: two, sequence: step(6, true, false), ..Request::default() })
        .unwrap_err();
    assert_eq!(
        error.message,
        "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"
    );
}

#[tokio::test]
async fn an_idle_sequence_is_closed() {
    let idle = Duration::from_millis(20);
    let (model, _batches) =
        accumulator(SequenceBatching { max_sequence_idle: idle, max_batch_size: 1, ..direct() }, 1);
    assert_eq!(answer(ask(&model, 1, step(1, true, false))).await, 1);
    // The only slot is occupied. The second sequence runs as soon as the first has been idle for too long.
    assert_eq!(answer(ask(&model, 5, step(2, true, false))).await, 5);
    assert!(ask(&model, 1, step(1, false, false)).is_err());
}

/// Remembers tensors whose memory tells when it is freed. Receives from `steps` before and after it has begun an
/// execution, until the other end is dropped.
struct Rememberer {
    freed: mpsc::Sender<i32>,
    steps: Arc<Mutex<mpsc::Receiver<()>>>,
}

/// The bytes of a state. Reports their end.
struct CountedBytes {
    bytes: [u8; 4],
    freed: mpsc::Sender<i32>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        let _ = self.freed.send(i32::from_le_bytes(self.bytes));
    }
}

impl BackendModel for Rememberer {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(Self {
            freed: self.freed.clone(),
            steps: self.steps.clone(),
        })))
    }
}

impl BackendInstance for Rememberer {
    fn execute(&mut self, batch: Batch) {
        for _ in 0..2 {
            let _ = self.steps.lock().recv();
        }
        for execution in batch.executions {
            let value = number(execution.request.input("IN").unwrap());
            assert!(value >= 0, "the state of a sequence is freed after a panic, too");
            let counted = CountedBytes { bytes: value.to_le_bytes(), freed: self.freed.clone() };
            let data = bytes::Bytes::from_owner(counted);
            let state = Tensor::new("SUM".into(), DataType::Int32, [1, 1][..].into(), data);
            execution.state.as_ref().unwrap().update("SUM_OUT", &state).unwrap();
            execution.responder.clone().complete(Response::of(vec![tensor("OUT", value)]));
        }
    }
}

/// A model with one slot that remembers tensors, what lets it execute, and the states that are freed.
fn rememberer(
    max_sequence_idle: Duration,
) -> (Arc<LoadedVersion>, mpsc::SyncSender<()>, mpsc::Receiver<i32>) {
    let ((freed, states), (step, steps)) = (mpsc::channel(), mpsc::sync_channel(0));
    let batching = SequenceBatching { max_batch_size: 1, max_sequence_idle, ..direct() };
    let model = start(sequences(batching), Rememberer { freed, steps: Arc::new(Mutex::new(steps)) }, 1);
    (model, step, states)
}

/// The next states that are freed, in the order of their values.
fn freed_states<const N: usize>(states: &mpsc::Receiver<i32>) -> [i32; N] {
    let mut values = [(); N].map(|()| states.recv_timeout(Duration::from_secs(60)).unwrap());
    values.sort_unstable();
    values
}

#[tokio::test]
async fn the_state_of_a_sequence_is_freed_when_the_sequence_has_ended() {
    let (model, _, states) = rememberer(Duration::MAX);
    answer(ask(&model, 1, step(1, true, false))).await;
    answer(ask(&model, 2, step(1, false, false))).await;
    // The second state has replaced the first one, and stays.
    assert_eq!(freed_states(&states), [1]);
    assert!(states.try_recv().is_err());
    answer(ask(&model, 3, step(1, false, true))).await;
    assert_eq!(freed_states(&states), [2, 3]);
    model.close();
}

#[tokio::test]
async fn the_state_of_a_sequence_is_freed_when_the_sequence_was_idle_for_too_long() {
    let (model, _, states) = rememberer(Duration::from_millis(1));
    answer(ask(&model, 1, step(1, true, false))).await;
    assert_eq!(freed_states(&states), [1]);
    model.close();
}

#[tokio::test]
async fn the_state_of_a_sequence_is_freed_when_the_sequence_is_cancelled() {
    let (model, steps, states) = rememberer(Duration::MAX);
    let first = ask(&model, 1, step(1, true, false));
    steps.send(()).unwrap();
    let second = ask(&model, 2, step(1, false, false));
    // The first request runs, and goes on with its state.
    drop(second);
    assert!(states.try_recv().is_err());
    drop(steps);
    assert_eq!(answer(first).await, 1);
    assert_eq!(freed_states(&states), [1]);
    assert!(ask(&model, 3, step(1, false, false)).is_err(), "the sequence is over");
    model.close();
}

#[tokio::test]
async fn the_state_of_a_sequence_is_freed_when_its_instance_has_panicked() {
    let (model, _, states) = rememberer(Duration::MAX);
    answer(ask(&model, 1, step(1, true, false))).await;
    assert!(ask(&model, -1, step(1, false, false)).unwrap().only().await.is_err());
    assert_eq!(freed_states(&states), [1]);
    model.close();
}

#[tokio::test]
async fn the_state_of_a_sequence_is_freed_when_its_model_ends() {
    let (model, _, states) = rememberer(Duration::MAX);
    answer(ask(&model, 1, step(1, true, false))).await;
    assert!(states.try_recv().is_err());
    model.close();
    assert_eq!(states.try_recv(), Ok(1), "a user of the model holds it longer");
}

/// Answers `IN`, `IN - 1`, ... 1, one in each execution. Reports how many requests shared each execution. Starts when
/// the other end of `hold` is dropped.
struct Countdown {
    sizes: mpsc::Sender<usize>,
    hold: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl BackendModel for Countdown {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(Self { sizes: self.sizes.clone(), hold: self.hold.clone() })))
    }
}

impl BackendInstance for Countdown {
    fn execute(&mut self, batch: Batch) {
        let _ = self.hold.lock().recv();
        let _ = self.sizes.send(batch.executions.len());
        for execution in batch.executions {
            let state = execution.state.clone().expect("the model has a state");
            let sequence = &execution.request.sequence;
            assert_eq!((sequence.id.is_some(), sequence.start), (true, seen_start(&execution.request)));
            let left = match seen_start(&execution.request) {
                true => number(execution.request.input("IN").unwrap()),
                false => number(&state.inputs()[0]),
            };
            state.update("SUM_OUT", &tensor("SUM", left - 1)).unwrap();
            if left > 1 {
                execution.responder.send(Response::of(vec![tensor("OUT", left)]));
                execution.reschedule().map_err(|(error, _)| error).unwrap();
            } else {
                execution.responder.clone().complete(Response::of(vec![tensor("OUT", left)]));
            }
        }
    }
}

#[tokio::test]
async fn an_iterative_request_runs_until_it_is_done_and_others_join_it() {
    let batching = SequenceBatching { iterative: true, ..oldest() };
    let (executions, sizes) = mpsc::channel();
    let mut config = sequences(batching);
    config.decoupled = true;
    let (hold, held) = mpsc::channel();
    let model = start(config, Countdown { sizes: executions, hold: Arc::new(Mutex::new(held)) }, 1);
    let streams: Vec<_> =
        [5, 1, 3].map(|from| (from, ask(&model, from, SequencePosition::default()).unwrap())).into();
    // All requests have arrived before the first execution ends.
    drop(hold);
    for (from, mut stream) in streams {
        let mut answers = Vec::new();
        while let Some(ResponseItem { result, .. }) = stream.next().await {
            answers.push(number(&result.unwrap().outputs[0]));
        }
        assert_eq!(answers, (1..=from).rev().collect::<Vec<_>>());
    }
    let counted = model.statistics();
    assert_eq!((counted.totals.success.count, counted.totals.fail.count), (3, 0));
    model.close();
    drop(model);
    let sizes: Vec<_> = sizes.iter().collect();
    assert_eq!(sizes.iter().sum::<usize>(), 9, "each step of each request runs once");
    assert!(sizes.len() < 9, "no execution was shared: {sizes:?}");
}

#[tokio::test]
async fn a_model_that_is_not_iterative_cannot_reschedule() {
    struct AlwaysReschedules;
    impl BackendModel for AlwaysReschedules {
        fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
            Ok(BuiltInstance::ThreadBound(Box::new(Self)))
        }
    }
    impl BackendInstance for AlwaysReschedules {
        fn execute(&mut self, batch: Batch) {
            for execution in batch.executions {
                let (error, execution) = execution.reschedule().unwrap_err();
                execution.responder.clone().fail(error);
            }
        }
    }
    let model = start(sequences(direct()), AlwaysReschedules, 1);
    let error = ask(&model, 1, step(1, true, false)).unwrap().only().await.unwrap_err();
    assert!(
        error.message.starts_with("Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while")
    );
    // The slot has been released, and the sequence goes on.
    assert!(ask(&model, 1, step(1, false, true)).unwrap().only().await.is_err());
}

/// Reports `IN` of the first request, and then waits: `true` lets it answer the batch, `false` lets it panic.
struct PanicsOnRequest(mpsc::Sender<(mpsc::Sender<bool>, i32)>);

impl BackendModel for PanicsOnRequest {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::ThreadBound(Box::new(Self(self.0.clone()))))
    }
}

impl BackendInstance for PanicsOnRequest {
    fn execute(&mut self, batch: Batch) {
        let (verdict, told) = mpsc::channel();
        let first = number(batch.executions[0].request.input("IN").unwrap());
        self.0.send((verdict, first)).unwrap();
        assert!(told.recv().unwrap(), "as told");
        for execution in batch.executions {
            execution.responder.clone().complete(Response::default());
        }
    }
}

async fn only_item(mut stream: ResponseStream) -> Result<(), Error> {
    let item = stream.next().await.expect("each request is answered");
    assert!(item.last && stream.next().await.is_none(), "and once");
    item.result.map(drop)
}

#[tokio::test]
async fn a_panicking_instance_fails_its_sequences_once_and_the_others_finish() {
    for batching in [direct(), oldest()] {
        let one_slot = SequenceBatching { max_batch_size: 1, ..batching };
        let (begun, reports) = mpsc::channel();
        let model = start(sequences(one_slot), PanicsOnRequest(begun), 2);
        // Each of two sequences has one running request and two waiting ones. A third sequence waits for a slot.
        let [doomed, lucky] = [1, 2].map(|id| {
            let value = i32::try_from(id).unwrap();
            let streams =
                [true, false, false].map(|start| ask(&model, value, step(id, start, false)).unwrap());
            let (verdict, first) = reports.recv().unwrap();
            assert_eq!(first, value);
            (verdict, streams)
        });
        let backlogged = ask(&model, 3, step(3, true, true)).unwrap();
        doomed.0.send(false).unwrap();
        for stream in doomed.1 {
            assert_eq!(only_item(stream).await.unwrap_err().code, vocabulary::ErrorCode::Internal);
        }
        assert!(only_item(backlogged).await.is_err());
        lucky.0.send(true).unwrap();
        let [runs, first_waiting, second_waiting] = lucky.1;
        assert_eq!(only_item(runs).await, Ok(()), "the other instance finishes what it has begun");
        for stream in [first_waiting, second_waiting] {
            assert_eq!(
                only_item(stream).await.unwrap_err().message,
                "the backend of model 'm' version 1 panicked: as told"
            );
        }
        assert_eq!((model.in_flight(), model.work().workload().requests), (0, 0));
        let counted = model.statistics();
        assert_eq!((counted.totals.success.count, counted.totals.fail.count), (1, 6));
        model.close();
    }
}
