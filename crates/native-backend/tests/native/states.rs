//! Tests of the states of sequences: what goes round, and how few bytes are copied.
use inference::{OutputSelection, Request, backend::SequenceState};
use testing::batches::{float_bytes, floats, read_floats, request};
use vocabulary::DataType;

use crate::{
    graph::{MadeOutput, MemoryGraph},
    support::{Loaded, load},
};

/// `NEXT = S + X`, also for clients.
fn running_sum() -> Loaded {
    let row: &[i64] = &[-1, 2];
    let graph = MemoryGraph::new(
        &[("X", DataType::Fp32, row), ("S", DataType::Fp32, row)],
        &[("NEXT", DataType::Fp32, row)],
        |given| {
            let sums: Vec<f32> =
                given[0].floats().iter().zip(given[1].floats()).map(|(one, other)| one + other).collect();
            Ok(vec![MadeOutput::floats(&given[0].shape, &sums)])
        },
    );
    let config = "max_batch_size: 8
        output { name: 'NEXT' data_type: TYPE_FP32 dims: 2 }
        sequence_batching { state { input_name: 'S' output_name: 'NEXT' data_type: TYPE_FP32 dims: 2 } }";
    load(graph, config).unwrap()
}

fn beginning_with(value: f32) -> SequenceState {
    SequenceState::new([("NEXT".into(), floats("S", &[1, 2], &[value; 2]))])
}

fn step_of(value: f32, state: &SequenceState) -> (Request, Option<SequenceState>) {
    (request(vec![floats("X", &[1, 2], &[value; 2])]), Some(state.clone()))
}

fn value_of(state: &SequenceState) -> Vec<u8> {
    state.inputs()[0].host().unwrap().contiguous().to_vec()
}

#[test]
fn the_state_of_a_sequence_alone_is_never_copied() {
    let (mut model, state) = (running_sum(), beginning_with(0.));
    let copied = model.copied(|model| {
        for step in 1..=3 {
            let response = model.step(vec![step_of(1., &state)]).pop().unwrap().unwrap();
            assert_eq!(read_floats(&response, "NEXT"), [step as f32; 2]);
        }
    });
    assert_eq!((copied, value_of(&state)), (0, float_bytes(&[3.; 2])));
}

#[test]
fn states_that_stay_together_are_gathered_once() {
    let mut model = running_sum();
    let states = [1., 10., 100.].map(beginning_with);
    let mut copied = |order: [usize; 3], expected: [f32; 3]| {
        model.copied(|model| {
            let answers = model.step(order.map(|index| step_of(1., &states[index])).into());
            for (answer, index) in answers.iter().zip(order) {
                assert_eq!(read_floats(answer.as_ref().unwrap(), "NEXT"), [expected[index]; 2]);
            }
        })
    };
    let (inputs, all_states) = (3 * 8, 3 * 8);
    assert_eq!(copied([0, 1, 2], [2., 11., 101.]), inputs + all_states);
    assert_eq!(copied([0, 1, 2], [3., 12., 102.]), inputs, "the output is the next input as a whole");
    assert_eq!(copied([2, 1, 0], [4., 13., 103.]), inputs + all_states, "another order");
    assert_eq!(copied([2, 1, 0], [5., 14., 104.]), inputs);
}

#[test]
fn a_cancelled_step_of_a_sequence_runs_and_padding_has_no_state() {
    let (mut model, state) = (running_sum(), beginning_with(0.));
    let padding = Request {
        outputs: OutputSelection::Nothing,
        ..request(vec![floats("X", &[1, 2], &[0.; 2]), floats("S", &[1, 2], &[0.; 2])])
    };
    let rows = vec![(padding, None), step_of(4., &state)];
    let answers = model.step_after(rows, |streams| streams[1].cancel());
    assert!(answers[0].is_ok());
    assert_eq!(value_of(&state), float_bytes(&[4.; 2]));
}
