//! Requests: values, memory, rows, threads, instances.
use bytes::Bytes;
use vocabulary::{DataType, ForeignMemory, Tensor};

use crate::support::{
    ADD_SUB, Loaded, Model, backend, bytes_of, floats, read_floats, request, shape_of, tensor,
};

/// The two inputs of `add_sub`, each with the values of so many rows from a number on.
fn rows(first: f32, count: i64) -> Vec<Tensor> {
    let values: Vec<f32> = (0..count * 4).map(|place| first + place as f32).collect();
    vec![floats("ARGS[0]", &[count, 4], &values), floats("INPUT__1", &[count, 4], &vec![1.0; values.len()])]
}

fn expected(first: f32, count: usize, add: f32) -> Vec<f32> {
    (0..count * 4).map(|place| first + place as f32 + add).collect()
}

#[test]
fn outputs_have_the_values_of_the_code_by_their_names() {
    let mut loaded = Model::of(&["-DCOMPUTE=add_sub"], ADD_SUB).load();
    for count in [1, 2, 5] {
        let response = loaded.infer(rows(3.0, count)).unwrap();
        assert_eq!(shape_of(&response, "RESULT[sum]"), [count, 4]);
        assert_eq!(read_floats(&response, "RESULT[sum]"), expected(3.0, count as usize, 1.0));
        assert_eq!(read_floats(&response, "OUTPUT__0"), expected(3.0, count as usize, -1.0));
    }
}

#[test]
fn requests_of_a_batch_run_together_and_get_their_own_rows() {
    let backend = backend();
    let mut loaded = Model::of(&["-DCOMPUTE=add_sub"], ADD_SUB).load_with(&backend).unwrap();
    let batch = || [(0.0, 1), (50.0, 3), (9.0, 2)].map(|(first, count)| request(rows(first, count)));
    for _ in 0..2 {
        let answers = loaded.run(batch().into());
        for (answer, (first, count)) in answers.iter().zip([(0.0, 1), (50.0, 3), (9.0, 2)]) {
            assert_eq!(read_floats(answer.as_ref().unwrap(), "RESULT[sum]"), expected(first, count, 1.0));
        }
    }
    // Two inputs of 6 rows, in two runs.
    assert_eq!(backend.copied_bytes(), 2 * 2 * 6 * 16);
}

const REPORT: &str = "max_batch_size: 8 input { name: 'INPUT__0' data_type: TYPE_FP32 dims: 4 }
    output { name: 'RESULT' data_type: TYPE_INT64 dims: 4 }";

/// What the stand-in says of a run: tensors that exist, the address of the input, runs, threads.
struct Report {
    live_tensors: i64,
    address: i64,
    runs: i64,
    threads: i64,
}

fn report(loaded: &mut Loaded, input: Tensor) -> Report {
    let response = loaded.infer(vec![input]).unwrap();
    let bytes = bytes_of(&response, "RESULT");
    let numbers: Vec<i64> =
        bytes.as_chunks::<8>().0.iter().map(|number| i64::from_le_bytes(*number)).collect();
    Report { live_tensors: numbers[0], address: numbers[1], runs: numbers[2], threads: numbers[3] }
}

fn row() -> Tensor {
    floats("INPUT__0", &[1, 4], &[0.0; 4])
}

#[test]
fn an_input_is_used_where_it_is_after_the_first_run_has_shown_that_the_code_only_reads() {
    let mut loaded = Model::of(&["-DCOMPUTE=report"], REPORT).load();
    let bytes = Bytes::from(vec![0; 16]);
    let address = bytes.as_ptr().addr() as i64;
    let input = || tensor("INPUT__0", DataType::Fp32, &[1, 4], bytes.clone());
    assert_ne!(report(&mut loaded, input()).address, address);
    assert_eq!(report(&mut loaded, input()).address, address);
    let memory = ForeignMemory::copied_from(&vec![0; 16].into());
    let foreign = tensor("INPUT__0", DataType::Fp32, &[1, 4], memory.clone());
    assert_eq!(report(&mut loaded, foreign).address, memory.address().addr() as i64);
}

#[test]
fn code_that_writes_into_its_input_never_gets_the_memory_of_a_request() {
    let config = "input { name: 'INPUT__0' data_type: TYPE_FP32 dims: 4 }
        output { name: 'RESULT' data_type: TYPE_FP32 dims: 4 }";
    let mut loaded = Model::of(&["-DCOMPUTE=in_place"], config).load();
    let bytes: Bytes = [1_f32, 2., 3., 4.].iter().flat_map(|value| value.to_le_bytes()).collect();
    let before = bytes.to_vec();
    for _ in 0..3 {
        let response = loaded.infer(vec![tensor("INPUT__0", DataType::Fp32, &[4], bytes.clone())]).unwrap();
        assert_eq!(read_floats(&response, "RESULT"), [2., 3., 4., 5.]);
        assert_eq!(bytes, before);
    }
}

#[test]
fn tensors_exist_as_long_as_responses_and_failed_runs_leave_none() {
    let mut loaded = Model::of(&["-DCOMPUTE=report"], REPORT).load();
    let mut adding = Model::of(&["-DCOMPUTE=add_sub", "-DCOLUMNS=3"], ADD_SUB).load();
    // The input of the run itself.
    assert_eq!(report(&mut loaded, row()).live_tensors, 1);
    let held: Vec<_> = (0..3).map(|_| loaded.infer(vec![row()]).unwrap()).collect();
    assert_eq!(report(&mut loaded, row()).live_tensors, 1 + 3);
    drop(held);
    assert_eq!(report(&mut loaded, row()).live_tensors, 1);
    let error = adding.infer(rows(0.0, 2)).unwrap_err();
    assert_eq!(
        error.with_code(),
        "Internal: pytorch error 1: cannot run the model: input_handles[0]: unmatched dim value at 1, expected: 3, but \
         got: 4 (model 'model', version 1)"
    );
    assert_eq!(report(&mut loaded, row()).live_tensors, 1);
    drop(adding);
    assert_eq!(report(&mut loaded, row()).runs, 8);
}

#[test]
fn an_output_that_is_an_input_or_is_not_in_order_becomes_a_copy() {
    let config = "input { name: 'INPUT__0' data_type: TYPE_FP32 dims: [2, 3] }
        output { name: 'RESULT[0]' data_type: TYPE_FP32 dims: [2, 3] }
        output { name: 'RESULT[1]' data_type: TYPE_FP32 dims: [3, 2] }";
    let mut loaded = Model::of(&["-DCOMPUTE=returned"], config).load();
    for _ in 0..2 {
        let bytes: Bytes = (0..6_u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
        let input = tensor("INPUT__0", DataType::Fp32, &[2, 3], bytes.clone());
        let response = loaded.infer(vec![input]).unwrap();
        assert_eq!(read_floats(&response, "RESULT[0]"), [0., 1., 2., 3., 4., 5.]);
        let place = bytes_of(&response, "RESULT[0]").as_ptr();
        assert!(!bytes.as_ptr_range().contains(&place));
        assert_eq!(shape_of(&response, "RESULT[1]"), [3, 2]);
        assert_eq!(read_floats(&response, "RESULT[1]"), [0., 3., 1., 4., 2., 5.]);
    }
}

#[test]
fn every_datatype_of_numbers_goes_in_and_out() {
    for datatype in DataType::ALL.into_iter().filter(|datatype| *datatype != DataType::Bytes) {
        let name = datatype.config_name();
        let config = format!(
            "max_batch_size: 4 input {{ name: 'INPUT__0' data_type: {name} dims: 2 }}
             output {{ name: 'RESULT' data_type: {name} dims: 2 }}"
        );
        let mut loaded = Model::of(&["-DCOMPUTE=copied"], &config).load();
        let size = datatype.byte_size().unwrap();
        let bytes: Vec<u8> = (0..4 * size).map(|byte| u8::try_from(byte % 2).unwrap()).collect();
        for _ in 0..2 {
            let input = tensor("INPUT__0", datatype, &[2, 2], bytes.clone());
            let response = loaded.infer(vec![input]).unwrap();
            assert_eq!(bytes_of(&response, "RESULT"), bytes, "{name}");
        }
    }
}

#[test]
fn code_that_refuses_one_row_gets_it_twice() {
    let mut loaded = Model::of(&["-DCOMPUTE=add_sub", "-DLEAST_ROWS=2"], ADD_SUB).load();
    for count in [1, 1, 3, 1] {
        let response = loaded.infer(rows(7.0, count)).unwrap();
        assert_eq!(shape_of(&response, "RESULT[sum]"), [count, 4]);
        assert_eq!(read_floats(&response, "RESULT[sum]"), expected(7.0, count as usize, 1.0));
    }
}

#[test]
fn an_output_that_the_configuration_does_not_describe_is_an_error_of_the_request() {
    let wrong = |from: &str, to: &str| {
        let mut loaded = Model::of(&["-DCOMPUTE=add_sub"], &ADD_SUB.replace(from, to)).load();
        loaded.infer(rows(0.0, 2)).unwrap_err().message
    };
    let sum = "'RESULT[sum]' data_type: TYPE_FP32 dims: 4";
    let text = wrong(sum, "'RESULT[sum]' data_type: TYPE_INT32 dims: 4");
    let part = "configuration expects datatype TYPE_INT32 for output 'RESULT[sum]', model provides TYPE_FP32";
    assert!(text.contains(part), "{text}");
    for dims in ["5", "[2, 2]"] {
        let text = wrong(sum, &format!("'RESULT[sum]' data_type: TYPE_FP32 dims: {dims}"));
        let part = "for output 'RESULT[sum]', model provides [2,4]";
        assert!(text.contains("configuration expects the shape [-1,") && text.contains(part), "{text}");
    }
}

#[test]
fn an_instance_computes_with_its_share_of_the_processors_or_what_a_parameter_says() {
    let threads = |share: usize, parameters: &str| {
        let mut model = Model::of(&["-DCOMPUTE=report"], &format!("{REPORT} {parameters}"));
        model.share = share;
        let mut loaded = model.load();
        [report(&mut loaded, row()).threads, report(&mut loaded, row()).threads]
    };
    assert_eq!(threads(1, ""), [1, 1]);
    assert_eq!(threads(3, ""), [3, 3]);
    let parameter = "parameters { key: 'INTRA_OP_THREAD_COUNT' value { string_value: '2' } }";
    assert_eq!(threads(3, parameter), [2, 2]);
}

#[test]
fn instances_share_the_code_and_run_at_the_same_time() {
    let loaded = Model::of(&["-DCOMPUTE=add_sub"], ADD_SUB).load();
    let parts = loaded.parts();
    std::thread::scope(|scope| {
        for number in 0..2_u8 {
            let parts = parts.clone();
            scope.spawn(move || {
                let mut instance = parts.instance();
                for turn in 0..50_u8 {
                    let first = f32::from(number) * 1000.0 + f32::from(turn);
                    let response = instance.infer(rows(first, 2)).unwrap();
                    assert_eq!(read_floats(&response, "RESULT[sum]"), expected(first, 2, 1.0));
                }
            });
        }
    });
}

#[test]
fn a_response_outlives_its_model_and_a_new_load_computes_with_new_code() {
    for columns in [4, 2] {
        let flags = ["-DCOMPUTE=add_sub", if columns == 4 { "-DCOLUMNS=4" } else { "-DCOLUMNS=2" }];
        let config = ADD_SUB.replace("dims: 4", &format!("dims: {columns}"));
        let mut loaded = Model::of(&flags, &config).load();
        let input = |name| floats(name, &[1, columns], &vec![2.0; columns as usize]);
        let held = loaded.infer(vec![input("ARGS[0]"), input("INPUT__1")]).unwrap();
        drop(loaded);
        assert_eq!(read_floats(&held, "RESULT[sum]"), vec![4.0; columns as usize]);
    }
}
