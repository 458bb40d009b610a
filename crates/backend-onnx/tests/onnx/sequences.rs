//! Tests of requests of sequences: their control inputs, their place in a batch, and the order of storing and
//! answering.
use std::sync::Arc;

use inference::{
    OutputSelection, PassingResponse, Request, RequestInputs, ResponseObserver,
    backend::{Execution, SequenceState, SlotGuard, SlotOwner, SlotRef},
};
use parking_lot::Mutex;
use vocabulary::DataType;

use crate::{
    graph::{Attribute, Graph},
    support::{
        Loaded, Model, backend, bytes_of, execution, float_bytes, floats, read_floats, request, shape_of,
        strings, tensor,
    },
};

/// `NEXT = SUM * (1 - START) + X`, which the client receives as `Y`; a START of any datatype.
fn accumulator(start: DataType) -> Graph {
    Graph::default()
        .input("START", start, &[-1, 1])
        .input("SUM", DataType::Fp32, &[-1, 2])
        .input("X", DataType::Fp32, &[-1, 2])
        .output("NEXT", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[-1, 2])
        .initializer("ONE", DataType::Fp32, &[1], &float_bytes(&[1.]))
        .node_with("Cast", &["START"], &["starts"], &[Attribute::Int("to", 1)])
        .node("Sub", &["ONE", "starts"], &["goes_on"])
        .node("Mul", &["SUM", "goes_on"], &["kept"])
        .node("Add", &["kept", "X"], &["NEXT"])
        .node("Identity", &["NEXT"], &["Y"])
}

fn config(values: &str) -> String {
    format!(
        "max_batch_size: 8
        sequence_batching {{
            control_input {{ name: 'START' control {{ kind: CONTROL_SEQUENCE_START {values} }} }}
            state {{ input_name: 'SUM' output_name: 'NEXT' data_type: TYPE_FP32 dims: 2 }}
        }}"
    )
}

fn load() -> Loaded {
    let config = config("fp32_false_true: [0, 1]");
    Model::new(accumulator(DataType::Fp32), &config).load(&backend()).unwrap()
}

fn fresh() -> SequenceState {
    SequenceState::new([("NEXT".into(), floats("SUM", &[1, 2], &[0., 0.]))])
}

/// The state that the next request of the sequence would receive.
fn sum(state: &SequenceState) -> Vec<f32> {
    let bytes = state.inputs()[0].host().unwrap().contiguous();
    bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
}

fn ask(x: f32, start: bool) -> Request {
    request(vec![floats("X", &[1, 2], &[x, -x]), floats("START", &[1, 1], &[if start { 1. } else { 0. }])])
}

fn padding() -> Request {
    let inputs = vec![floats("X", &[1, 2], &[0.; 2]), floats("START", &[1, 1], &[0.])];
    Request { outputs: OutputSelection::Nothing, ..request(inputs) }
}

#[test]
fn a_start_in_each_datatype_makes_the_model_begin_again() {
    let cases: [(_, _, [Vec<u8>; 2]); 3] = [
        (DataType::Int32, "int32_false_true: [0, 1]", [0_i32, 1].map(|value| value.to_le_bytes().to_vec())),
        (DataType::Fp32, "fp32_false_true: [0, 1]", [0_f32, 1.].map(|value| value.to_le_bytes().to_vec())),
        (DataType::Bool, "bool_false_true: [false, true]", [vec![0], vec![1]]),
    ];
    for (datatype, values, bytes) in cases {
        let mut model = Model::new(accumulator(datatype), &config(values)).load(&backend()).unwrap();
        let state = fresh();
        let mut sums = Vec::new();
        for (x, start) in [(1., true), (2., false), (4., false), (8., true), (16., false)] {
            let control = tensor("START", datatype, &[1, 1], bytes[usize::from(start)].clone());
            let request = request(vec![floats("X", &[1, 2], &[x, -x]), control]);
            let response = model.step(vec![(request, Some(state.clone()))]).pop().unwrap().unwrap();
            assert_eq!(read_floats(&response, "Y"), sum(&state));
            sums.push(sum(&state)[0]);
        }
        assert_eq!(sums, [1., 3., 7., 8., 24.], "{datatype:?}");
    }
}

#[test]
fn clients_neither_send_nor_receive_controls_and_states() {
    let mut model = load();
    let config = &model.opened.config;
    assert_eq!(config.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(), ["X"]);
    assert_eq!(config.outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>(), ["Y"]);
    let response = model.step(vec![(ask(1., true), Some(fresh()))]).pop().unwrap().unwrap();
    assert_eq!(response.outputs.len(), 1);
}

#[test]
fn a_correlation_id_arrives_in_each_datatype() {
    let id = 0x8123_4567_89ab_cdef_u64.to_le_bytes();
    let cases = [
        (DataType::Uint64, "TYPE_UINT64", id.to_vec()),
        (DataType::Int64, "TYPE_INT64", id.to_vec()),
        (DataType::Uint32, "TYPE_UINT32", id[..4].to_vec()),
        (DataType::Int32, "TYPE_INT32", id[..4].to_vec()),
        (DataType::Bytes, "TYPE_STRING", strings(&[b"call-7"])),
    ];
    for (datatype, name, bytes) in cases {
        let graph = Graph::default()
            .input("X", DataType::Fp32, &[-1, 2])
            .input("ID", datatype, &[-1, 1])
            .output("Y", DataType::Fp32, &[-1, 2])
            .output("ECHO", datatype, &[-1, 1])
            .node("Neg", &["X"], &["Y"])
            .node("Identity", &["ID"], &["ECHO"]);
        let config = format!(
            "max_batch_size: 8 sequence_batching {{
                control_input {{ name: 'ID' control {{ kind: CONTROL_SEQUENCE_CORRID data_type: {name} }} }}
            }}"
        );
        let mut model = Model::new(graph, &config).load(&backend()).unwrap();
        let ask =
            || request(vec![floats("X", &[1, 2], &[0.; 2]), tensor("ID", datatype, &[1, 1], bytes.clone())]);
        for answer in model.run(vec![ask(), ask()]) {
            let response = answer.unwrap();
            assert_eq!(
                (shape_of(&response, "ECHO"), bytes_of(&response, "ECHO")),
                (vec![1, 1], bytes.clone().into())
            );
        }
    }
}

#[test]
fn controls_of_a_model_without_batch_dimension_have_one() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[2])
        .input("READY", DataType::Bool, &[1])
        .output("Y", DataType::Fp32, &[2])
        .output("ECHO", DataType::Bool, &[1])
        .node("Neg", &["X"], &["Y"])
        .node("Identity", &["READY"], &["ECHO"]);
    let config = "sequence_batching {
        control_input { name: 'READY' control { kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] } }
    }";
    let mut model = Model::new(graph, config).load(&backend()).unwrap();
    let inputs = vec![floats("X", &[2], &[1., 2.]), tensor("READY", DataType::Bool, &[1], vec![1])];
    let response = model.infer(inputs).unwrap();
    assert_eq!((read_floats(&response, "Y"), &bytes_of(&response, "ECHO")[..]), (vec![-1., -2.], &[1][..]));
}

#[test]
fn each_row_of_a_batch_has_its_own_controls_and_state() {
    let mut model = load();
    let states = [1., 10., 100.]
        .map(|value| SequenceState::new([("NEXT".into(), floats("SUM", &[1, 2], &[value, -value]))]));
    let rows = |starts: [bool; 3]| {
        let asks = [2., 3., 4.].into_iter().zip(starts).map(|(x, start)| ask(x, start));
        asks.zip(&states).map(|(ask, state)| (ask, Some(state.clone()))).collect::<Vec<_>>()
    };
    for (starts, sums) in [([false; 3], [3., 13., 104.]), ([false, true, false], [5., 3., 108.])] {
        let answers = model.step(rows(starts));
        for ((answer, state), expected) in answers.iter().zip(&states).zip(sums) {
            assert_eq!(read_floats(answer.as_ref().unwrap(), "Y"), [expected, -expected]);
            assert_eq!(sum(state), [expected, -expected]);
        }
    }
}

#[test]
fn padding_rows_change_no_result() {
    let mut model = load();
    let (first, last) = (fresh(), fresh());
    let rows = vec![
        (ask(1., true), Some(first.clone())),
        (padding(), first.copied().ok()),
        (ask(2., true), Some(last.clone())),
    ];
    // No client reads the stream of a padding row.
    let answers = model.step_after(rows, |streams| streams[1].cancel());
    assert_eq!(read_floats(answers[0].as_ref().unwrap(), "Y"), [1., -1.]);
    assert!(answers[1].as_ref().unwrap().outputs.is_empty());
    assert_eq!(read_floats(answers[2].as_ref().unwrap(), "Y"), [2., -2.]);
    assert_eq!((sum(&first), sum(&last)), (vec![1., -1.], vec![2., -2.]));
}

#[test]
fn padding_rows_need_no_state() {
    let config = "max_batch_size: 8";
    let mut model =
        Model::new(Graph::unary("Neg", DataType::Fp32, &[-1, 2]), config).load(&backend()).unwrap();
    let rows = vec![(padding(), None), (ask(1., true), None)];
    let answers = model.step_after(rows, |streams| streams[0].cancel());
    assert!(answers[0].as_ref().unwrap().outputs.is_empty());
    assert_eq!(read_floats(answers[1].as_ref().unwrap(), "Y"), [-1., 1.]);
}

/// The run would fail: `X` is missing.
#[test]
fn padding_rows_alone_need_no_run() {
    let empty = Request { inputs: RequestInputs::Tensors(Vec::new()), ..padding() };
    assert!(load().step(vec![(empty, Some(fresh()))]).pop().unwrap().unwrap().outputs.is_empty());
}

#[test]
fn the_state_of_a_cancelled_step_is_kept() {
    let mut model = load();
    let state = fresh();
    model.step_after(vec![(ask(1., false), Some(state.clone()))], |streams| streams[0].cancel());
    assert_eq!(sum(&state), [1., -1.]);
}

/// The events of a request, in order.
struct EventRecorder {
    state: SequenceState,
    events: Mutex<Vec<String>>,
}

impl ResponseObserver for EventRecorder {
    fn responding(&self, response: &PassingResponse<'_>) {
        if response.outcome().is_some() {
            self.events.lock().push(format!("answered when the sum was {}", sum(&self.state)[0]));
        }
    }
}

impl SlotOwner for EventRecorder {
    fn returned(self: Arc<Self>, _: usize, slot: u32) {
        self.events.lock().push(format!("slot {slot} returned"));
    }
    fn reschedule(
        self: Arc<Self>,
        _: SlotRef,
        execution: Execution,
    ) -> Result<(), (vocabulary::Error, Execution)> {
        Err((inference::backend::not_iterative(), execution))
    }
}

#[test]
fn a_step_stores_its_state_then_responds_then_releases_its_slot() {
    let mut model = load();
    let state = fresh();
    let story = Arc::new(EventRecorder { state: state.clone(), events: Mutex::default() });
    let (execution, _stream) = execution(ask(5., true), story.clone());
    let slot_ref =
        SlotRef { slot_owner: story.clone(), instance: 0, slot: 3, attributes: Default::default() };
    model.execute(vec![execution.with_state(Some(state)).with_slot_guard(SlotGuard::new(slot_ref))]);
    assert_eq!(*story.events.lock(), ["answered when the sum was 5", "slot 3 returned"]);
}

#[test]
fn a_failed_run_changes_no_state() {
    let graph = Graph::default()
        .input("I", DataType::Int64, &[-1, 1])
        .input("SUM", DataType::Fp32, &[-1, 1])
        .output("NEXT", DataType::Fp32, &[-1, 1])
        .initializer("TABLE", DataType::Fp32, &[3], &float_bytes(&[1., 10., 100.]))
        .node("Gather", &["TABLE", "I"], &["value"])
        .node("Add", &["SUM", "value"], &["NEXT"]);
    let config = "max_batch_size: 8
        output { name: 'NEXT' data_type: TYPE_FP32 dims: 1 }
        sequence_batching {
            state { input_name: 'SUM' output_name: 'NEXT' data_type: TYPE_FP32 dims: 1 }
        }";
    let mut model = Model::new(graph, config).load(&backend()).unwrap();
    let states =
        [0., 1000.].map(|value| SequenceState::new([("NEXT".into(), floats("SUM", &[1, 1], &[value]))]));
    let mut step = |indices: [i64; 2]| {
        let rows = indices.into_iter().zip(&states).map(|(index, state)| {
            let index = tensor("I", DataType::Int64, &[1, 1], index.to_le_bytes().to_vec());
            (request(vec![index]), Some(state.clone()))
        });
        model.step(rows.collect())
    };
    assert!(step([0, 2]).iter().all(Result::is_ok));
    assert!(step([1, 77]).iter().all(Result::is_err));
    assert_eq!(states.each_ref().map(sum), [[1.], [1100.]]);
    assert!(step([1, 1]).iter().all(Result::is_ok));
    assert_eq!(states.each_ref().map(sum), [[11.], [1110.]]);
}

#[test]
fn a_state_of_another_model_is_refused() {
    let other = SequenceState::new([("OTHER".into(), floats("SUM", &[1, 2], &[7.; 2]))]);
    let error = load().step(vec![(ask(1., false), Some(other.clone()))]).pop().unwrap().unwrap_err();
    assert_eq!(error.message, "state 'NEXT' is not a valid state name.");
    assert_eq!(sum(&other), [7., 7.]);
}

/// The states join the inputs of the request. If the rows of a batch have none, the runtime refuses the batch.
#[test]
fn a_request_without_state_is_refused_by_name() {
    let error = load().step(vec![(ask(1., false), None)]).pop().unwrap().unwrap_err();
    assert!(error.message.contains("Missing Input: SUM"), "{error}");
}
