//! Tests of how requests become one run, and how its outputs become their responses.
use inference::{OutputSelection, Request};
use testing::{
    TestRegion,
    batches::{bytes_of, float_bytes, floats, read_floats, request, shape_of, strings, tensor},
};
use vocabulary::{DataType, ErrorCode, FailureReason, ForeignMemory};

use crate::{
    graph::{MadeOutput, MemoryGraph},
    support::{Loaded, load},
};

fn negation() -> Loaded {
    load(MemoryGraph::negation(&[-1, 2]), "max_batch_size: 8").unwrap()
}

fn rows_of(values: &[f32]) -> Request {
    request(vec![floats("X", &[values.len() as i64 / 2, 2], values)])
}

#[test]
fn a_request_alone_is_computed_where_it_is_and_several_are_copied_once() {
    let mut model = negation();
    let bytes: bytes::Bytes = float_bytes(&[1., 2.]).into();
    let address = bytes.as_ptr().addr();
    let alone = request(vec![tensor("X", DataType::Fp32, &[1, 2], bytes)]);
    assert_eq!(model.copied(|model| drop(model.run(vec![alone]).pop().unwrap().unwrap())), 0);
    assert_eq!(model.take_runs()[0][0].address, address);

    let inputs: [&[f32]; 3] = [&[1., 2.], &[3., 4., 5., 6.], &[7., 8.]];
    let copied = model.copied(|model| {
        let answers = model.run(inputs.map(rows_of).into());
        let mut memory = Vec::new();
        for (answer, values) in answers.iter().zip(inputs) {
            let response = answer.as_ref().unwrap();
            assert_eq!(shape_of(response, "Y"), [values.len() as i64 / 2, 2]);
            assert_eq!(read_floats(response, "Y"), values.iter().map(|value| -value).collect::<Vec<_>>());
            memory.push(bytes_of(response, "Y"));
        }
        assert_eq!(memory[1].as_ptr().addr(), memory[0].as_ptr().addr() + 8, "parts of one output");
    });
    assert_eq!(copied, 4 * 8);
    let runs = model.take_runs();
    assert_eq!((runs.len(), &runs[0][0].shape[..]), (1, &[4, 2][..]));
}

#[test]
fn foreign_memory_is_used_in_place_only_if_its_owner_allows_it() {
    let mut model = negation();
    let region = TestRegion::new(&float_bytes(&[1., 2.]));
    let allowed = ForeignMemory::copied_from(&float_bytes(&[1., 2.]).into());
    for (memory, copied) in [(allowed, 0), (region.memory(), 8)] {
        let asked = request(vec![tensor("X", DataType::Fp32, &[1, 2], memory)]);
        let bytes = model.copied(|model| {
            assert_eq!(read_floats(&model.run(vec![asked]).pop().unwrap().unwrap(), "Y"), [-1., -2.]);
        });
        assert_eq!((bytes, model.take_runs()[0][0].is_foreign), (copied, copied == 0));
    }
}

#[test]
fn an_error_of_one_request_is_its_answer_alone() {
    let mut model = negation();
    let region = TestRegion::new(&float_bytes(&[1., 2.]));
    let lost = request(vec![tensor("X", DataType::Fp32, &[1, 2], region.memory())]);
    region.write(&[]);
    let answers = model.run(vec![rows_of(&[3., 4.]), lost, rows_of(&[5., 6.])]);
    assert_eq!(read_floats(answers[0].as_ref().unwrap(), "Y"), [-3., -4.]);
    assert_eq!(read_floats(answers[2].as_ref().unwrap(), "Y"), [-5., -6.]);
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(
        (&*error.message, error.reason),
        ("the region is smaller than it was", FailureReason::Backend)
    );
}

#[test]
fn a_failed_run_fails_every_request_of_its_batch_and_no_other() {
    let mut model = negation();
    for answer in model.run(vec![rows_of(&[1., f32::NAN]), rows_of(&[3., 4.])]) {
        let error = answer.unwrap_err();
        assert_eq!(
            (error.with_code().as_str(), error.reason),
            (
                "Internal: memory graph error 3: a number is not finite (model 'model', version 1)",
                FailureReason::Backend
            )
        );
    }
    assert!(model.run(vec![rows_of(&[3., 4.])])[0].is_ok());
}

#[test]
fn a_batch_leaves_out_cancelled_requests_and_padding_needs_no_run() {
    let mut model = negation();
    let rows = vec![(rows_of(&[1., 2.]), None), (rows_of(&[3., 4.]), None)];
    let answers = model.step_after(rows, |streams| streams[0].cancel());
    assert_eq!(answers[0].as_ref().unwrap_err().code, ErrorCode::Cancelled);
    assert_eq!(read_floats(answers[1].as_ref().unwrap(), "Y"), [-3., -4.]);
    assert_eq!(model.take_runs()[0][0].shape[..], [1, 2]);

    let padding = || Request { outputs: OutputSelection::Nothing, ..rows_of(&[0., 0.]) };
    assert!(model.run(vec![padding(), padding()]).iter().all(Result::is_ok));
    assert_eq!(model.take_runs().len(), 0);
    let answers = model.run(vec![padding(), rows_of(&[5., 6.])]);
    assert_eq!(read_floats(answers[1].as_ref().unwrap(), "Y"), [-5., -6.]);
    assert_eq!(model.take_runs()[0][0].shape[..], [2, 2], "padding keeps its row");
}

/// Sums of parts of `X`, whose lengths are `COUNT`.
fn sums(given: &[crate::graph::GivenInput]) -> MadeOutput {
    let (values, counts) = (given[0].floats(), given[1].floats());
    let mut rest = &values[..];
    let sums: Vec<f32> = counts
        .iter()
        .map(|&count| {
            let (own, after) = rest.split_at(count as usize);
            rest = after;
            own.iter().sum()
        })
        .collect();
    MadeOutput::floats(&[sums.len() as i64, 1], &sums)
}

#[test]
fn ragged_inputs_are_joined_with_the_composition_of_the_batch() {
    let graph = MemoryGraph::new(
        &[("X", DataType::Fp32, &[-1]), ("COUNT", DataType::Fp32, &[-1])],
        &[("SUM", DataType::Fp32, &[-1, 1])],
        |given| Ok(vec![sums(given)]),
    );
    let config = "max_batch_size: 8
        input { name: 'X' data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
        batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'COUNT' data_type: TYPE_FP32 source_input: 'X' }";
    let mut model = load(graph, config).unwrap();
    let inputs: [&[f32]; 3] = [&[1., 2., 3.], &[4.], &[5., 6.]];
    let requests = inputs.map(|values| request(vec![floats("X", &[1, values.len() as i64], values)]));
    let answers = model.run(requests.into());
    let answers: Vec<_> = answers.iter().map(|answer| read_floats(answer.as_ref().unwrap(), "SUM")).collect();
    assert_eq!(answers, [[6.], [4.], [11.]]);
    assert_eq!(model.take_runs()[0][0].shape[..], [6]);
}

#[test]
fn strings_go_in_and_come_out_and_a_broken_one_fails_its_request_alone() {
    let slot: (&str, DataType, &[i64]) = ("X", DataType::Bytes, &[-1, 1]);
    let graph = MemoryGraph::new(&[slot], &[("Y", DataType::Bytes, &[-1, 1])], |given| {
        let upper: Vec<_> = given[0].strings.iter().map(|string| string.to_ascii_uppercase()).collect();
        Ok(vec![MadeOutput::strings(&given[0].shape, upper)])
    });
    let mut model = load(graph, "max_batch_size: 8").unwrap();
    let asked = |rows: i64, data: Vec<u8>| request(vec![tensor("X", DataType::Bytes, &[rows, 1], data)]);
    let answers = model.run(vec![
        asked(2, strings(&[b"one", b"t\0o"])),
        asked(1, vec![9, 0, 0, 0, b'x']),
        asked(1, strings(&[b""])),
    ]);
    assert_eq!(bytes_of(answers[0].as_ref().unwrap(), "Y"), strings(&[b"ONE", b"T\0O"]));
    assert_eq!(bytes_of(answers[2].as_ref().unwrap(), "Y"), strings(&[b""]));
    let error = answers[1].as_ref().unwrap_err();
    assert!(error.message.contains("expecting string of length 9 but only 1 bytes available"), "{error}");
}
