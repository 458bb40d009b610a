//! Tests of the states of sequences: pairs, shapes and datatypes, and how few bytes are copied.
use inference::{Request, Response, backend::SequenceState};
use vocabulary::DataType;

use crate::{
    graph::{Attribute, Graph},
    support::{
        Loaded, Model, backend, bytes_of, float_bytes, floats, read_floats, request, shape_of, strings,
        tensor,
    },
};

fn bytes_in(state: &SequenceState, index: usize) -> bytes::Bytes {
    state.inputs()[index].host().unwrap().contiguous()
}

/// `NEXT = S + X`, also for clients.
fn adding() -> Graph {
    Graph::default()
        .input("X", DataType::Fp32, &[-1, 4])
        .input("S", DataType::Fp32, &[-1, 4])
        .output("NEXT", DataType::Fp32, &[-1, 4])
        .node("Add", &["S", "X"], &["NEXT"])
}

const ADDING: &str = "max_batch_size: 8
    output { name: 'NEXT' data_type: TYPE_FP32 dims: [2, 2] reshape { shape: 4 } }
    sequence_batching { state { input_name: 'S' output_name: 'NEXT' data_type: TYPE_FP32 dims: 4 } }";

fn beginning_with(value: f32) -> SequenceState {
    SequenceState::new([("NEXT".into(), floats("S", &[1, 4], &[value; 4]))])
}

fn step_of(value: f32, state: &SequenceState) -> (Request, Option<SequenceState>) {
    (request(vec![floats("X", &[1, 4], &[value; 4])]), Some(state.clone()))
}

#[test]
fn the_state_of_a_single_sequence_stays_in_the_runtime_and_is_never_copied() {
    let backend = backend();
    let mut model = Model::new(adding(), ADDING).load(&backend).unwrap();
    let state = beginning_with(0.);
    let before = backend.copied_bytes();
    for step in 1..=5 {
        let response = model.step(vec![step_of(1., &state)]).pop().unwrap().unwrap();
        assert_eq!(read_floats(&response, "NEXT"), [step as f32; 4]);
        assert_eq!(shape_of(&response, "NEXT"), [1, 2, 2], "clients see the configured shape");
        assert_eq!(state.inputs()[0].shape(), [1, 4], "the model sees its own");
        assert_eq!(
            bytes_of(&response, "NEXT").as_ptr(),
            bytes_in(&state, 0).as_ptr(),
            "both are the same memory"
        );
    }
    assert_eq!(backend.copied_bytes() - before, 0);
}

#[test]
fn the_states_of_sequences_that_share_every_batch_are_gathered_once() {
    const X: u64 = 3 * 16;
    const STATE: u64 = 3 * 16;
    let backend = backend();
    let mut model = Model::new(adding(), ADDING).load(&backend).unwrap();
    let states = [1., 10., 100.].map(beginning_with);
    let mut copied = |order: [usize; 3], expected: [f32; 3]| {
        let before = backend.copied_bytes();
        let rows = order.map(|index| step_of(1., &states[index]));
        let answers = model.step(rows.into());
        for (answer, index) in answers.iter().zip(order) {
            assert_eq!(read_floats(answer.as_ref().unwrap(), "NEXT"), [expected[index]; 4]);
        }
        backend.copied_bytes() - before
    };
    assert_eq!(copied([0, 1, 2], [2., 11., 101.]), X + STATE);
    assert_eq!(copied([0, 1, 2], [3., 12., 102.]), X, "the output is the next input as a whole");
    assert_eq!(copied([2, 1, 0], [4., 13., 103.]), X + STATE, "another order");
    assert_eq!(copied([2, 1, 0], [5., 14., 104.]), X);
    assert_eq!(copied([2, 1, 0], [6., 15., 105.]), X);
}

#[test]
fn a_sequence_that_leaves_or_restarts_costs_the_others_one_copy() {
    let backend = backend();
    let mut model = Model::new(adding(), ADDING).load(&backend).unwrap();
    let mut states = [1., 10., 100.].map(beginning_with);
    let mut values = |states: &[SequenceState]| {
        let answers = model.step(states.iter().map(|state| step_of(1., state)).collect());
        answers.iter().map(|answer| read_floats(answer.as_ref().unwrap(), "NEXT")[0]).collect::<Vec<_>>()
    };
    assert_eq!(values(&states), [2., 11., 101.]);
    assert_eq!(values(&states[..2]), [3., 12.]);
    states[1] = beginning_with(0.);
    assert_eq!(values(&states), [4., 1., 102.]);
}

/// `N = A + X`, `M = 10 * B`, `Y = A + B`. The output of `B` comes first in the graph and in the alphabet.
fn pair() -> Graph {
    Graph::default()
        .input("X", DataType::Fp32, &[-1, 1])
        .input("A", DataType::Fp32, &[-1, 1])
        .input("B", DataType::Fp32, &[-1, 1])
        .initializer("TEN", DataType::Fp32, &[1], &float_bytes(&[10.]))
        .output("M", DataType::Fp32, &[-1, 1])
        .output("N", DataType::Fp32, &[-1, 1])
        .output("Y", DataType::Fp32, &[-1, 1])
        .node("Mul", &["B", "TEN"], &["M"])
        .node("Add", &["A", "X"], &["N"])
        .node("Add", &["A", "B"], &["Y"])
}

#[test]
fn states_are_paired_as_configured_however_their_names_sort() {
    let config = "max_batch_size: 8 sequence_batching {
        state { input_name: 'A' output_name: 'N' data_type: TYPE_FP32 dims: 1 }
        state { input_name: 'B' output_name: 'M' data_type: TYPE_FP32 dims: 1 }
    }";
    let backend = backend();
    let mut model = Model::new(pair(), config).load(&backend).unwrap();
    let states = [1000., 2000.].map(|value| {
        SequenceState::new([
            ("N".into(), floats("A", &[1, 1], &[0.])),
            ("M".into(), floats("B", &[1, 1], &[value])),
        ])
    });
    let mut copied = Vec::new();
    for (x, sums) in [(1., [1000., 2000.]), (2., [10_001., 20_001.]), (4., [100_003., 200_003.])] {
        let before = backend.copied_bytes();
        let rows =
            states.each_ref().map(|state| (request(vec![floats("X", &[1, 1], &[x])]), Some(state.clone())));
        let answers = model.step(rows.into());
        let seen = answers.iter().map(|answer| read_floats(answer.as_ref().unwrap(), "Y")[0]);
        assert_eq!(seen.collect::<Vec<_>>(), sums);
        copied.push(backend.copied_bytes() - before);
    }
    assert_eq!(copied, [3 * 8, 8, 8], "after the first step only what clients send is gathered");
}

/// `NEXT` is `S` with `X` at its end; of any length.
fn growing(datatype: DataType) -> Loaded {
    let graph = Graph::default()
        .input("X", datatype, &[-1, 1])
        .input("S", datatype, &[-1, -1])
        .output("NEXT", datatype, &[-1, -1])
        .node_with("Concat", &["S", "X"], &["NEXT"], &[Attribute::Int("axis", 1)]);
    let config = "max_batch_size: 8
        output { name: 'NEXT' data_type: TYPE dims: -1 }
        sequence_batching { state { input_name: 'S' output_name: 'NEXT' data_type: TYPE dims: -1 } }"
        .replace("TYPE ", &format!("{} ", datatype.config_name()));
    Model::new(graph, &config).load(&backend()).unwrap()
}

fn grow(
    model: &mut Loaded,
    rows: &[(&SequenceState, Vec<u8>)],
    datatype: DataType,
) -> Vec<Result<Response, vocabulary::Error>> {
    let rows = rows
        .iter()
        .map(|(state, x)| (request(vec![tensor("X", datatype, &[1, 1], x.clone())]), Some((*state).clone())));
    model.step(rows.collect())
}

#[test]
fn a_state_may_have_another_shape_after_every_step() {
    let mut model = growing(DataType::Fp32);
    let state = SequenceState::new([("NEXT".into(), floats("S", &[1, 0], &[]))]);
    let seen: Vec<f32> = vec![1., 2., 3., 4.];
    for (step, x) in seen.iter().enumerate() {
        let answers = grow(&mut model, &[(&state, float_bytes(&[*x]))], DataType::Fp32);
        assert_eq!(read_floats(answers[0].as_ref().unwrap(), "NEXT"), seen[..=step]);
        assert_eq!(state.inputs()[0].shape(), [1, step as i64 + 1]);
    }
}

#[test]
fn sequences_of_different_lengths_share_a_batch() {
    let mut model = growing(DataType::Fp32);
    let beginnings: [&[f32]; 4] = [&[1.], &[2., 3.], &[4.], &[]];
    let states = beginnings
        .map(|values| SequenceState::new([("NEXT".into(), floats("S", &[1, values.len() as i64], values))]));
    for added in 1..=2 {
        let rows: Vec<_> = states.iter().map(|state| (state, float_bytes(&[9.]))).collect();
        let answers = grow(&mut model, &rows, DataType::Fp32);
        for (answer, beginning) in answers.iter().zip(beginnings) {
            let expected = [beginning, &vec![9.; added]].concat();
            assert_eq!(read_floats(answer.as_ref().unwrap(), "NEXT"), expected);
        }
    }
}

#[test]
fn a_state_may_hold_strings() {
    let mut model = growing(DataType::Bytes);
    let beginning = |values: &[&[u8]]| {
        let shape = [1, values.len() as i64];
        SequenceState::new([("NEXT".into(), tensor("S", DataType::Bytes, &shape, strings(values)))])
    };
    let states = [beginning(&[b"a\0b"]), beginning(&[b""]), beginning(&[b"x", b"y"])];
    for _ in 0..2 {
        let rows = states.each_ref().map(|state| (state, strings(&[b"more"])));
        assert!(grow(&mut model, &rows, DataType::Bytes).iter().all(Result::is_ok));
    }
    let expected: [&[&[u8]]; 3] =
        [&[b"a\0b", b"more", b"more"], &[b"", b"more", b"more"], &[b"x", b"y", b"more", b"more"]];
    for (state, expected) in states.iter().zip(expected) {
        assert_eq!(bytes_in(state, 0), strings(expected));
        assert_eq!(state.inputs()[0].shape(), [1, expected.len() as i64]);
    }
}

#[test]
fn unreadable_strings_do_not_change_their_state() {
    let mut model = growing(DataType::Bytes);
    let states = [(); 2].map(|()| {
        SequenceState::new([("NEXT".into(), tensor("S", DataType::Bytes, &[1, 1], strings(&[b"old"])))])
    });
    let rows = [(&states[0], vec![1, 0]), (&states[1], strings(&[b"new"]))];
    let answers = grow(&mut model, &rows, DataType::Bytes);
    assert!(answers[0].is_err() && answers[1].is_ok());
    assert_eq!(bytes_in(&states[0], 0), strings(&[b"old"]));
    assert_eq!(bytes_in(&states[1], 0), strings(&[b"old", b"new"]));
}

#[test]
fn a_state_may_have_every_datatype() {
    for datatype in DataType::ALL {
        let graph = Graph::default()
            .input("X", datatype, &[-1, 3])
            .input("S", datatype, &[-1, 3])
            .output("Y", datatype, &[-1, 3])
            .output("NEXT", datatype, &[-1, 3])
            .node("Identity", &["S"], &["Y"])
            .node("Identity", &["X"], &["NEXT"]);
        let config = format!(
            "max_batch_size: 4 sequence_batching {{
                state {{ input_name: 'S' output_name: 'NEXT' data_type: {} dims: 3 }}
            }}",
            datatype.config_name()
        );
        let mut model = Model::new(graph, &config).load(&backend()).unwrap();
        let three = |value: u8| match datatype.byte_size() {
            Some(size) => vec![value; 3 * size],
            None => strings(&[&[value], &[value; 2], &[]]),
        };
        let states = [0, 1]
            .map(|value| SequenceState::new([("NEXT".into(), tensor("S", datatype, &[1, 3], three(value)))]));
        let mut seen = |values: [u8; 2]| {
            let rows = values.iter().zip(&states).map(|(value, state)| {
                (request(vec![tensor("X", datatype, &[1, 3], three(*value))]), Some(state.clone()))
            });
            let answers = model.step(rows.collect());
            answers.iter().map(|answer| bytes_of(answer.as_ref().unwrap(), "Y")).collect::<Vec<_>>()
        };
        assert_eq!(seen([1, 0]), [three(0), three(1)], "{datatype:?}");
        assert_eq!(seen([1, 1]), [three(1), three(0)], "{datatype:?}");
        assert_eq!(seen([0, 0]), [three(1), three(1)], "{datatype:?}");
    }
}

#[test]
fn models_without_batch_dimension_keep_state() {
    for (dims, shape) in [(&[2][..], &[2][..]), (&[1][..], &[][..])] {
        let graph = Graph::default()
            .input("X", DataType::Fp32, shape)
            .input("S", DataType::Fp32, shape)
            .output("NEXT", DataType::Fp32, shape)
            .output("Y", DataType::Fp32, shape)
            .node("Add", &["S", "X"], &["NEXT"])
            .node("Neg", &["NEXT"], &["Y"]);
        let config = format!(
            "sequence_batching {{
                state {{ input_name: 'S' output_name: 'NEXT' data_type: TYPE_FP32 dims: {} }}
            }}",
            dims[0]
        );
        let mut model = Model::new(graph, &config).load(&backend()).unwrap();
        let count = dims[0] as usize;
        let state = SequenceState::new([("NEXT".into(), floats("S", dims, &vec![0.; count]))]);
        for sum in [3., 6.] {
            let row = (request(vec![floats("X", dims, &vec![3.; count])]), Some(state.clone()));
            let response = model.step(vec![row]).pop().unwrap().unwrap();
            assert_eq!(read_floats(&response, "Y"), vec![-sum; count]);
            assert_eq!(state.inputs()[0].shape(), dims);
        }
    }
}

#[test]
fn a_state_is_returned_only_if_it_is_configured_and_requested() {
    let graph = || adding().output("Y", DataType::Fp32, &[-1, 4]).node("Neg", &["X"], &["Y"]);
    let visible = format!("{ADDING} output {{ name: 'Y' data_type: TYPE_FP32 dims: 4 }}");
    let hidden =
        visible.replace("output { name: 'NEXT' data_type: TYPE_FP32 dims: [2, 2] reshape { shape: 4 } }", "");
    let mut names = Vec::new();
    for (config, wanted) in [(&visible, &[][..]), (&visible, &["Y".into()][..]), (&hidden, &[][..])] {
        let mut model = Model::new(graph(), config).load(&backend()).unwrap();
        let state = beginning_with(5.);
        let (request, memory) = step_of(1., &state);
        let request = Request { outputs: wanted.iter().cloned().collect(), ..request };
        let response = model.step(vec![(request, memory)]).pop().unwrap().unwrap();
        names.push(response.outputs.iter().map(|output| output.name().to_string()).collect::<Vec<_>>());
        assert_eq!(bytes_in(&state, 0), float_bytes(&[6.; 4]));
    }
    assert_eq!(names, [vec!["NEXT", "Y"], vec!["Y"], vec!["Y"]]);
}

/// The graph keeps only the first row of every batch.
#[test]
fn a_state_without_the_rows_of_its_batch_is_an_error() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 2])
        .input("S", DataType::Fp32, &[-1, 2])
        .output("Y", DataType::Fp32, &[-1, 2])
        .output("NEXT", DataType::Fp32, &[-1, 2])
        .initializer("KEEP", DataType::Bool, &[1], &[1])
        .node("Add", &["X", "S"], &["Y"])
        .node_with("Compress", &["X", "KEEP"], &["NEXT"], &[Attribute::Int("axis", 0)]);
    let config = "max_batch_size: 8
        sequence_batching { state { input_name: 'S' output_name: 'NEXT' data_type: TYPE_FP32 dims: 2 } }";
    let mut model = Model::new(graph, config).load(&backend()).unwrap();
    let states =
        [1., 2.].map(|value| SequenceState::new([("NEXT".into(), floats("S", &[1, 2], &[value; 2]))]));
    let rows =
        states.each_ref().map(|state| (request(vec![floats("X", &[1, 2], &[0.; 2])]), Some(state.clone())));
    for answer in model.step(rows.into()) {
        let text = "output 'NEXT' of model 'model' has shape [1, 2], which cannot give 2 rows";
        assert_eq!(answer.unwrap_err().message, text);
    }
    assert_eq!(states.map(|state| bytes_in(&state, 0)), [1., 2.].map(|value| float_bytes(&[value; 2])));
}

/// The runtime gives such an output the memory of the input, which may be the output of the previous step.
#[test]
fn a_state_that_the_graph_returns_unchanged_keeps_its_value() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 4])
        .input("S", DataType::Fp32, &[-1, 4])
        .output("Y", DataType::Fp32, &[-1, 4])
        .output("S", DataType::Fp32, &[-1, 4])
        .node("Add", &["S", "X"], &["Y"]);
    let config = "max_batch_size: 8 sequence_batching {
        state { input_name: 'S' output_name: 'S' data_type: TYPE_FP32 dims: 4 }
    }";
    let mut model = Model::new(graph, config).load(&backend()).unwrap();
    let states = [1., 2.].map(|value| SequenceState::new([("S".into(), floats("S", &[1, 4], &[value; 4]))]));
    for _ in 0..3 {
        let answers = model.step(states.iter().map(|state| step_of(1., state)).collect());
        let sums = answers.iter().map(|answer| read_floats(answer.as_ref().unwrap(), "Y")[0]);
        assert_eq!(sums.collect::<Vec<_>>(), [2., 3.]);
    }
}

#[test]
fn a_state_outlives_its_model() {
    let state = beginning_with(1.);
    let other = beginning_with(2.);
    {
        let mut model = Model::new(adding(), ADDING).load(&backend()).unwrap();
        assert!(model.step(vec![step_of(1., &state), step_of(1., &other)]).iter().all(Result::is_ok));
        drop(other);
    }
    assert_eq!(bytes_in(&state, 0), float_bytes(&[2.; 4]));
}
