//! Tests of outputs in memory that clients offer.
use std::sync::Arc;

use inference::{Request, Response};
use testing::{
    OutputOffer,
    batches::{float_bytes, floats, read_floats, request},
};
use vocabulary::{DataType, ForeignMemory, TensorMemory};

use crate::{
    graph::{MadeOutput, MemoryGraph},
    support::{Loaded, load},
};

const NO_BATCHES: &str =
    "max_batch_size: 0 parameters { key: 'AUTOCOMPLETE_BATCH' value { string_value: 'no' } }";

fn memory_of(values: &[f32]) -> ForeignMemory {
    ForeignMemory::copied_from(&float_bytes(values).into())
}

fn offering(memory: &ForeignMemory, values: &[f32]) -> Request {
    let mut request = request(vec![floats("X", &[values.len() as i64], values)]);
    request.output_placement = Some(Arc::new(OutputOffer { output: "Y", memory: memory.clone() }));
    request
}

fn is_in(response: &Response, memory: &ForeignMemory) -> bool {
    matches!(response.output("Y").unwrap().memory(), TensorMemory::Foreign(own) if own.begins_as(memory))
}

fn run(model: &mut Loaded, memory: &ForeignMemory, values: &[f32]) -> Response {
    model.run(vec![offering(memory, values)]).pop().unwrap().unwrap()
}

#[test]
fn an_output_is_written_to_its_place_when_its_shape_is_known() {
    let mut model = load(MemoryGraph::negation(&[-1]), NO_BATCHES).unwrap();
    let memory = memory_of(&[9.; 3]);
    assert!(!is_in(&run(&mut model, &memory, &[1., 2.]), &memory), "the first run shows the shape");
    assert!(is_in(&run(&mut model, &memory, &[3., 4.]), &memory));
    assert_eq!(memory.read().unwrap(), float_bytes(&[-3., -4., 9.]));
    assert!(!is_in(&run(&mut model, &memory, &[5.; 4]), &memory), "another shape");
    assert!(!is_in(&run(&mut model, &memory, &[6.; 4]), &memory), "the memory is too small");
    assert_eq!(model.take_runs().len(), 4);
}

#[test]
fn a_library_that_writes_to_no_place_is_right_all_the_same() {
    let graph = MemoryGraph { uses_places: false, ..MemoryGraph::negation(&[-1]) };
    let mut model = load(graph, NO_BATCHES).unwrap();
    let memory = memory_of(&[9.; 2]);
    for value in [1., 2.] {
        let response = run(&mut model, &memory, &[value; 2]);
        assert_eq!((is_in(&response, &memory), read_floats(&response, "Y")), (false, vec![-value; 2]));
    }
    assert_eq!((memory.read().unwrap(), model.take_runs().len()), (float_bytes(&[9.; 2]), 2));
}

#[test]
fn an_output_whose_shape_depends_on_the_contents_is_never_expected_again() {
    // The numbers that are not zero.
    let slot: (&str, DataType, &[i64]) = ("X", DataType::Fp32, &[-1]);
    let graph = MemoryGraph::new(&[slot], &[("Y", DataType::Fp32, &[-1])], |given| {
        let mut kept = given[0].floats();
        kept.retain(|&value| value != 0.);
        Ok(vec![MadeOutput::floats(&[kept.len() as i64], &kept)])
    });
    let mut model = load(graph, NO_BATCHES).unwrap();
    let memory = memory_of(&[0.; 8]);
    for (values, runs) in [([1., 0.], 1), ([1., 2.], 2), ([1., 2.], 1), ([1., 2.], 1)] {
        let response = run(&mut model, &memory, &values);
        assert!(!is_in(&response, &memory));
        assert_eq!(read_floats(&response, "Y").len(), values.iter().filter(|&&value| value != 0.).count());
        assert_eq!(model.take_runs().len(), runs, "one more if a place was wrong");
    }
}
