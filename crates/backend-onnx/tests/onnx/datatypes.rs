//! Tests that values of every datatype pass unchanged, and that numbers of a request that runs alone are not copied.
use bytes::Bytes;
use testing::TestRegion;
use vocabulary::{DataType, TensorData};

use crate::{
    graph::Graph,
    support::{Model, backend, bytes_of, request, shape_of, strings, tensor},
};

/// A copy that begins `shift` bytes after a multiple of 8. A tensor in the body of a request may have such an address.
fn placed(bytes: &[u8], shift: usize) -> Bytes {
    let mut room = vec![0; bytes.len() + 16];
    let start = room.as_ptr().align_offset(8) + shift;
    room[start..start + bytes.len()].copy_from_slice(bytes);
    Bytes::from(room).slice(start..start + bytes.len())
}

const IDENTITY: &str = "max_batch_size: 4";

fn numbers() -> impl Iterator<Item = (DataType, usize)> {
    DataType::ALL.into_iter().filter_map(|datatype| Some((datatype, datatype.byte_size()?)))
}

/// Six elements whose bytes are all different, or truth values.
fn six(datatype: DataType, size: usize) -> Vec<u8> {
    let byte = |index: usize| if datatype == DataType::Bool { index as u8 % 2 } else { index as u8 };
    (0..6 * size).map(byte).collect()
}

#[test]
fn every_fixed_size_datatype_comes_back_unchanged_and_uncopied() {
    for (datatype, size) in numbers() {
        let backend = backend();
        let mut model =
            Model::new(Graph::unary("Identity", datatype, &[-1, 3]), IDENTITY).load(&backend).unwrap();
        let bytes = six(datatype, size);
        let response = model.infer(vec![tensor("X", datatype, &[2, 3], placed(&bytes, 0))]).unwrap();
        assert_eq!(response.output("Y").unwrap().datatype(), datatype);
        assert_eq!(shape_of(&response, "Y"), [2, 3]);
        assert_eq!(bytes_of(&response, "Y"), bytes, "{datatype:?}");
        assert_eq!(backend.copied_bytes(), 0, "{datatype:?}");
    }
}

#[test]
fn an_odd_address_or_several_pieces_cost_one_copy() {
    let backend = backend();
    let mut model =
        Model::new(Graph::unary("Identity", DataType::Fp32, &[-1, 3]), IDENTITY).load(&backend).unwrap();
    let bytes = six(DataType::Fp32, 4);
    let pieces =
        TensorData::from_pieces([Bytes::copy_from_slice(&bytes[..5]), Bytes::copy_from_slice(&bytes[5..])]);
    for data in [TensorData::from(placed(&bytes, 1)), pieces] {
        let before = backend.copied_bytes();
        let response = model.infer(vec![tensor("X", DataType::Fp32, &[2, 3], data)]).unwrap();
        assert_eq!(bytes_of(&response, "Y"), bytes);
        assert_eq!(backend.copied_bytes() - before, 24);
    }
}

#[test]
fn a_batch_costs_one_copy_in_and_none_out() {
    let backend = backend();
    let mut model =
        Model::new(Graph::unary("Identity", DataType::Fp32, &[-1, 3]), IDENTITY).load(&backend).unwrap();
    let bytes = six(DataType::Fp32, 4);
    let requests = [1, 3].map(|rows: usize| {
        let data = placed(&bytes.repeat(2)[..rows * 12], 0);
        request(vec![tensor("X", DataType::Fp32, &[rows as i64, 3], data)])
    });
    let responses: Vec<_> = model.run(requests.into()).into_iter().map(Result::unwrap).collect();
    let outputs: Vec<_> = responses.iter().map(|response| bytes_of(response, "Y")).collect();
    assert_eq!(outputs, [&bytes[..12], &bytes.repeat(2)[..36]]);
    assert_eq!(backend.copied_bytes(), 48);
    assert_eq!(outputs[0].as_ptr().wrapping_add(12), outputs[1].as_ptr(), "both are parts of one tensor");
}

#[test]
fn strings_may_be_empty_and_hold_any_byte() {
    let backend = backend();
    let mut model =
        Model::new(Graph::unary("Identity", DataType::Bytes, &[-1, 2]), IDENTITY).load(&backend).unwrap();
    let long = vec![b'x'; 5000];
    let values: [&[u8]; 4] = [b"", b"a\0b\0", b"\xff\xfe\x80", &long];
    let data = strings(&values);
    let response = model.infer(vec![tensor("X", DataType::Bytes, &[2, 2], data.clone())]).unwrap();
    assert_eq!(shape_of(&response, "Y"), [2, 2]);
    assert_eq!(bytes_of(&response, "Y"), data);
}

#[test]
fn strings_that_came_in_pieces_are_put_together() {
    let backend = backend();
    let mut model =
        Model::new(Graph::unary("Identity", DataType::Bytes, &[-1, 2]), IDENTITY).load(&backend).unwrap();
    let data = strings(&[b"hello", b"world"]);
    for cut in 1..data.len() {
        let pieces = [Bytes::copy_from_slice(&data[..cut]), Bytes::copy_from_slice(&data[cut..])];
        let input = tensor("X", DataType::Bytes, &[1, 2], TensorData::from_pieces(pieces));
        assert_eq!(bytes_of(&model.infer(vec![input]).unwrap(), "Y"), data, "cut at {cut}");
    }
}

#[test]
fn unreadable_strings_fail_their_own_request_only() {
    let backend = backend();
    let mut model =
        Model::new(Graph::unary("Identity", DataType::Bytes, &[-1, 2]), IDENTITY).load(&backend).unwrap();
    let good = strings(&[b"good", b"one"]);
    let mut cut = strings(&[b"abc", b"defg"]);
    cut.truncate(cut.len() - 1);
    let bad = [strings(&[b"a", b"b", b"c"]), strings(&[b"a"]), cut, [strings(&[b"a"]), vec![1, 0]].concat()];
    let texts = [
        "Invalid argument: unexpected number of string elements 3 for inference input 'X', expecting 2",
        "Invalid argument: expected 2 strings for inference input 'X', got 1",
        "Invalid argument: incomplete string data for inference input 'X', expecting string of length 4 but only 3 bytes \
         available",
        "Invalid argument: incomplete string length indicator for inference input 'X', expecting 4 bytes but only 2 bytes \
         available.",
    ];
    for (data, text) in bad.into_iter().zip(texts) {
        let inputs = [data, good.clone()];
        let requests = inputs.map(|data| request(vec![tensor("X", DataType::Bytes, &[1, 2], data)]));
        let answers = model.run(requests.into());
        assert_eq!(answers[0].as_ref().unwrap_err().with_code(), text);
        assert_eq!(bytes_of(answers[1].as_ref().unwrap(), "Y"), good);
    }
}

#[test]
fn memory_that_cannot_be_read_any_more_fails_its_own_request_only() {
    let backend = backend();
    for (datatype, data) in [(DataType::Uint8, b"ab".to_vec()), (DataType::Bytes, strings(&[b"a", b"b"]))] {
        let graph = Graph::unary("Identity", datatype, &[-1, 2]);
        let mut model = Model::new(graph, IDENTITY).load(&backend).unwrap();
        let regions = [(); 2].map(|()| TestRegion::new(&data));
        regions[0].write(b"");
        let requests = regions.map(|region| request(vec![tensor("X", datatype, &[1, 2], region.memory())]));
        let answers = model.run(requests.into());
        assert_eq!(answers[0].as_ref().unwrap_err().message, "the region is smaller than it was");
        assert_eq!(bytes_of(answers[1].as_ref().unwrap(), "Y"), data);
    }
}

#[test]
fn a_batch_of_strings_is_split_at_its_rows() {
    let backend = backend();
    let mut model =
        Model::new(Graph::unary("Identity", DataType::Bytes, &[-1, 1]), IDENTITY).load(&backend).unwrap();
    let data = [strings(&[b"a", b"bb"]), strings(&[b"ccc"])];
    let requests = [(2, &data[0]), (1, &data[1])]
        .map(|(rows, data)| request(vec![tensor("X", DataType::Bytes, &[rows, 1], data.clone())]));
    let answers = model.run(requests.into());
    for (answer, data) in answers.iter().zip(&data) {
        assert_eq!(bytes_of(answer.as_ref().unwrap(), "Y"), data);
    }
}

#[test]
fn tensors_without_elements_go_through() {
    for datatype in [DataType::Fp32, DataType::Bytes] {
        let config = "max_batch_size: 4 output { name: 'Y' data_type: TYPE_FP32 dims: -1 }"
            .replace("TYPE_FP32", datatype.config_name());
        let backend = backend();
        let graph = Graph::unary("Identity", datatype, &[-1, -1]);
        let mut model = Model::new(graph, &config).load(&backend).unwrap();
        let response = model.infer(vec![tensor("X", datatype, &[2, 0], Bytes::new())]).unwrap();
        assert_eq!(shape_of(&response, "Y"), [2, 0]);
        assert!(bytes_of(&response, "Y").is_empty());
    }
}

/// The runtime gives such an output the memory of the input, which the request owns.
#[test]
fn an_input_that_the_graph_returns_unchanged_outlives_its_request() {
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1, 2])
        .output("X", DataType::Fp32, &[-1, 2])
        .node("Identity", &["X"], &["Unused"]);
    let backend = backend();
    let mut model = Model::new(graph, IDENTITY).load(&backend).unwrap();
    let bytes: Vec<u8> = (0..8).collect();
    let input = placed(&bytes, 0);
    let lent = input.as_ptr_range();
    let response = model.infer(vec![tensor("X", DataType::Fp32, &[1, 2], input)]).unwrap();
    let output = bytes_of(&response, "X");
    assert!(!lent.contains(&output.as_ptr()));
    assert_eq!(output, bytes);
}

#[test]
fn an_output_outlives_its_model() {
    let backend = backend();
    let mut model =
        Model::new(Graph::unary("Identity", DataType::Fp32, &[-1, 3]), IDENTITY).load(&backend).unwrap();
    let bytes = six(DataType::Fp32, 4);
    let response = model.infer(vec![tensor("X", DataType::Fp32, &[2, 3], placed(&bytes, 0))]).unwrap();
    drop((model, backend));
    assert_eq!(bytes_of(&response, "Y"), bytes);
}
