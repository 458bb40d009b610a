//! Tests of inputs and outputs in memory that does not belong to the server: copied, or used in place where its owner
//! allows it.
use std::sync::Arc;

use inference::{Request, Response};
use testing::{OutputOffer, TestRegion};
use vocabulary::{DataType, ForeignMemory, TensorMemory};

use crate::{
    graph::Graph,
    support::{
        Loaded, Model, backend, bytes_of, float_bytes, floats, read_floats, request, shape_of, tensor,
    },
};

fn memory_of(values: &[f32]) -> ForeignMemory {
    ForeignMemory::copied_from(&float_bytes(values).into())
}

fn values_in(memory: &ForeignMemory) -> Vec<f32> {
    let bytes = memory.read().unwrap();
    bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
}

fn offering(memory: &ForeignMemory, values: &[f32]) -> Request {
    let count = values.len() as i64;
    let mut request = request(vec![floats("X", &[count], values)]);
    request.output_placement = Some(Arc::new(OutputOffer { output: "Y", memory: memory.clone() }));
    request
}

fn is_in(response: &Response, memory: &ForeignMemory) -> bool {
    matches!(response.output("Y").unwrap().memory(), TensorMemory::Foreign(own) if own.begins_as(memory))
}

fn run(model: &mut Loaded, request: Request) -> Response {
    model.run(vec![request]).pop().unwrap().unwrap()
}

fn negation() -> Graph {
    Graph::unary("Neg", DataType::Fp32, &[-1])
}

const NO_BATCHES: &str = "max_batch_size: 0";

#[test]
fn an_input_is_used_in_place_only_if_its_owner_allows_it() {
    let backend = backend();
    let mut model = Model::new(negation(), NO_BATCHES).load(&backend).unwrap();
    let allowed = memory_of(&[1., 2.]);
    let region = TestRegion::new(&float_bytes(&[1., 2.]));
    for (memory, copied) in [(allowed, 0), (region.memory(), 8)] {
        let before = backend.copied_bytes();
        let response = model.infer(vec![tensor("X", DataType::Fp32, &[2], memory)]).unwrap();
        assert_eq!(read_floats(&response, "Y"), [-1., -2.]);
        assert_eq!(backend.copied_bytes() - before, copied);
    }
}

#[test]
fn an_input_at_an_odd_address_is_copied() {
    let backend = backend();
    let mut model = Model::new(negation(), NO_BATCHES).load(&backend).unwrap();
    let bytes = [&[0][..], &float_bytes(&[1., 2.])].concat();
    let memory = ForeignMemory::copied_from(&bytes.into()).starting_at(1).unwrap();
    let response = model.infer(vec![tensor("X", DataType::Fp32, &[2], memory)]).unwrap();
    assert_eq!(read_floats(&response, "Y"), [-1., -2.]);
    assert_eq!(backend.copied_bytes(), 8);
}

#[test]
fn an_output_is_written_in_place_when_its_shape_is_known() {
    let mut model = Model::new(negation(), NO_BATCHES).load(&backend()).unwrap();
    let memory = memory_of(&[9.; 4]);
    // The first run shows the shape.
    let first = run(&mut model, offering(&memory, &[1., 2.]));
    assert!(!is_in(&first, &memory));
    let response = run(&mut model, offering(&memory, &[3., 4.]));
    assert!(is_in(&response, &memory));
    assert_eq!(shape_of(&response, "Y"), shape_of(&first, "Y"));
    assert_eq!(bytes_of(&response, "Y"), float_bytes(&[-3., -4.]));
    assert_eq!(values_in(&memory), [-3., -4., 9., 9.]);
    // Another shape is not known yet.
    assert!(!is_in(&run(&mut model, offering(&memory, &[5., 6., 7.])), &memory));
    assert!(is_in(&run(&mut model, offering(&memory, &[5., 6., 7.])), &memory));
}

#[test]
fn an_output_that_does_not_fit_stays_where_it_is() {
    let mut model = Model::new(negation(), NO_BATCHES).load(&backend()).unwrap();
    let memory = memory_of(&[9.; 1]);
    for _ in 0..2 {
        let response = run(&mut model, offering(&memory, &[1., 2.]));
        assert!(!is_in(&response, &memory));
        assert_eq!(read_floats(&response, "Y"), [-1., -2.]);
    }
    assert_eq!(values_in(&memory), [9.]);
}

#[test]
fn an_output_whose_shape_depends_on_the_contents_is_right_and_never_expected_again() {
    // The number of elements that are not zero.
    let graph = Graph::default()
        .input("X", DataType::Fp32, &[-1])
        .output("Y", DataType::Int64, &[1, -1])
        .node("NonZero", &["X"], &["Y"]);
    let mut model = Model::new(graph, NO_BATCHES).load(&backend()).unwrap();
    let memory = memory_of(&[0.; 16]);
    let found = |response: &Response| shape_of(response, "Y")[1];
    assert_eq!(found(&run(&mut model, offering(&memory, &[1., 0., 1.]))), 2);
    let response = run(&mut model, offering(&memory, &[1., 1., 1.]));
    assert_eq!((found(&response), is_in(&response, &memory)), (3, false));
    for _ in 0..2 {
        let response = run(&mut model, offering(&memory, &[1., 1., 1.]));
        assert_eq!((found(&response), is_in(&response, &memory)), (3, false));
    }
}

#[test]
fn a_run_that_fails_does_not_make_shapes_unknowable() {
    let graph = Graph::default()
        .input("X", DataType::Int64, &[-1])
        .output("Y", DataType::Fp32, &[-1])
        .initializer("table", DataType::Fp32, &[2], &float_bytes(&[10., 20.]))
        .node("Gather", &["table", "X"], &["Y"]);
    let mut model = Model::new(graph, NO_BATCHES).load(&backend()).unwrap();
    let memory = memory_of(&[0.; 4]);
    let mut ask = |index: i64| {
        let mut request = request(vec![tensor("X", DataType::Int64, &[1], index.to_le_bytes().to_vec())]);
        request.output_placement = Some(Arc::new(OutputOffer { output: "Y", memory: memory.clone() }));
        model.run(vec![request]).pop().unwrap()
    };
    assert!(ask(0).is_ok());
    assert!(ask(7).is_err());
    assert!(is_in(&ask(1).unwrap(), &memory));
    assert_eq!(values_in(&memory)[0], 20.);
}

#[test]
fn an_input_that_is_an_output_is_written_to_the_offered_memory() {
    let graph = Graph::default().input("X", DataType::Fp32, &[-1]).output("Y", DataType::Fp32, &[-1]).node(
        "Identity",
        &["X"],
        &["Y"],
    );
    let mut model = Model::new(graph, NO_BATCHES).load(&backend()).unwrap();
    let memory = memory_of(&[9.; 2]);
    for value in [1., 2., 3.] {
        let response = run(&mut model, offering(&memory, &[value, -value]));
        assert_eq!(read_floats(&response, "Y"), [value, -value]);
    }
    assert_eq!(values_in(&memory), [3., -3.]);
}

#[test]
fn a_batch_of_several_requests_is_not_written_in_place() {
    let mut model = Model::new(Graph::unary("Neg", DataType::Fp32, &[-1, 2]), "max_batch_size: 4")
        .load(&backend())
        .unwrap();
    let memories = [memory_of(&[9.; 2]), memory_of(&[9.; 2])];
    let mut ask = || {
        let requests = memories.iter().enumerate().map(|(index, memory)| {
            let mut request = request(vec![floats("X", &[1, 2], &[index as f32, 5.])]);
            request.output_placement = Some(Arc::new(OutputOffer { output: "Y", memory: memory.clone() }));
            request
        });
        model.run(requests.collect())
    };
    ask();
    for (index, answer) in ask().into_iter().enumerate() {
        let response = answer.unwrap();
        assert!(!is_in(&response, &memories[index]));
        assert_eq!(read_floats(&response, "Y"), [-(index as f32), -5.]);
    }
}
