//! Requests alone and joined, their tensors, and runs that fail.
use inference::Request;
use vocabulary::{DataType, Tensor};

use crate::support::{Loaded, Model, backend, bytes_of, floats, read_floats, request, shape_of, tensor};

/// A tensor of so many rows that begins with a number, and what the model makes of it.
fn affine(rows: u8, first: f32) -> (Tensor, Vec<f32>) {
    let values: Vec<f32> = (0..rows * 4).map(|at| f32::from(at) + first).collect();
    let bias = [0., 1., 2., 3.].into_iter().cycle();
    let expected = values.iter().zip(bias).map(|(value, bias)| (value * 2. + bias).max(0.)).collect();
    (floats("x", &[rows.into(), 4], &values), expected)
}

fn whole(name: &str, rows: i64, values: &[i64]) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, DataType::Int64, &[rows, 2], bytes)
}

fn sum_of_rows(loaded: &mut Loaded, rows: [i64; 2]) -> Result<Vec<i64>, String> {
    let values = |rows: i64| (0..rows * 2).collect::<Vec<_>>();
    let inputs = vec![whole("a", rows[0], &values(rows[0])), whole("b", rows[1], &values(rows[1]))];
    let response = loaded.infer(inputs).map_err(|error| error.with_code())?;
    let bytes = bytes_of(&response, "sum");
    Ok(bytes.as_chunks::<8>().0.iter().map(|value| i64::from_le_bytes(*value)).collect())
}

#[test]
fn a_request_alone_is_answered_without_a_copy() {
    let backend = backend();
    let mut loaded = Model::affine("max_batch_size: 8").load_with(&backend).unwrap();
    for (rows, first) in [(1, -5.), (8, 0.), (1, 3.)] {
        let (input, expected) = affine(rows, first);
        let response = loaded.infer(vec![input]).unwrap();
        assert_eq!(read_floats(&response, "y"), expected);
        assert_eq!(shape_of(&response, "y"), [rows.into(), 4]);
    }
    assert_eq!(backend.copied_bytes(), 0);
}

#[test]
fn an_answer_stays_when_a_later_request_runs() {
    let mut loaded = Model::affine("max_batch_size: 8").load();
    let (input, expected) = affine(2, 1.);
    let first = loaded.infer(vec![input]).unwrap();
    loaded.infer(vec![affine(2, 7.).0]).unwrap();
    assert_eq!(read_floats(&first, "y"), expected);
}

#[test]
fn joined_requests_get_the_rows_that_are_theirs() {
    let mut loaded = Model::affine("max_batch_size: 8").load();
    let (requests, expected): (Vec<Request>, Vec<_>) = [(1, 0.), (3, -4.), (2, 9.)]
        .map(|(rows, first)| affine(rows, first))
        .map(|(input, expected)| (request(vec![input]), expected))
        .into_iter()
        .unzip();
    let responses = loaded.run(requests);
    for (response, expected) in responses.iter().zip(expected) {
        assert_eq!(read_floats(response.as_ref().unwrap(), "y"), expected);
    }
}

#[test]
fn a_run_that_fails_is_told_and_does_not_harm_the_next_one() {
    let mut loaded = Model::pair(
        "max_batch_size: 0 parameters { key: 'AUTOCOMPLETE_BATCH' value { string_value: 'no' } }",
    )
    .load();
    assert_eq!(sum_of_rows(&mut loaded, [2, 2]), Ok(vec![0, 2, 4, 6]));
    let refusal = sum_of_rows(&mut loaded, [2, 3]).unwrap_err();
    assert!(refusal.contains("openvino error") && refusal.contains("cannot run the model"), "{refusal}");
    assert_eq!(sum_of_rows(&mut loaded, [2, 2]), Ok(vec![0, 2, 4, 6]));
    assert_eq!(sum_of_rows(&mut loaded, [1, 3]), Ok(vec![0, 2, 2, 4, 4, 6]));
}

#[test]
fn a_model_that_a_failed_run_has_broken_is_compiled_again() {
    // With several streams the library has no run that would reset the shapes of the failed one.
    let streams = "parameters { key: 'NUM_STREAMS' value { string_value: '2' } } \
                   parameters { key: 'INFERENCE_NUM_THREADS' value { string_value: '2' } } \
                   parameters { key: 'AUTOCOMPLETE_BATCH' value { string_value: 'no' } }";
    let mut loaded = Model::pair(streams).load();
    assert_eq!(sum_of_rows(&mut loaded, [2, 2]), Ok(vec![0, 2, 4, 6]));
    assert!(sum_of_rows(&mut loaded, [2, 3]).is_err());
    assert_eq!(sum_of_rows(&mut loaded, [2, 2]), Ok(vec![0, 2, 4, 6]));
}

#[test]
fn outputs_whose_shape_follows_from_values_are_answered() {
    let files = [("positions.xml", "model.xml")];
    let mut loaded =
        Model::new(&files, "parameters { key: 'AUTOCOMPLETE_BATCH' value { string_value: 'no' } }").load();
    for (values, positions) in [([0_i32, 5, 7], &[1_i64, 2][..]), ([0, 0, 1], &[2]), ([0, 0, 0], &[])] {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let response = loaded.infer(vec![tensor("x", DataType::Int32, &[3], bytes)]).unwrap();
        assert_eq!(shape_of(&response, "positions"), [1, i64::try_from(positions.len()).unwrap()]);
        let expected: Vec<u8> = positions.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(bytes_of(&response, "positions"), expected);
    }
}
