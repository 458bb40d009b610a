//! Tests of what becomes of a configuration, and which ones are refused.
use native_backend::{Rows, probe};
use vocabulary::DataType;

use crate::{
    graph::{MadeOutput, MemoryGraph, failure},
    support::load,
};

/// Each row becomes the sum of all rows.
fn mixing() -> MemoryGraph {
    let slot: (&str, DataType, &[i64]) = ("X", DataType::Fp32, &[-1, 1]);
    MemoryGraph::new(&[slot], &[("Y", DataType::Fp32, &[-1, 1])], |given| {
        let values = given[0].floats();
        let sum = values.iter().sum();
        Ok(vec![MadeOutput::floats(&given[0].shape, &vec![sum; values.len()])])
    })
}

#[test]
fn a_probe_tells_whether_rows_are_independent() {
    assert_eq!(probe(&mut MemoryGraph::negation(&[-1, 3])), Rows::Independent);
    let mixed = "output 'Y' is another one for two requests together than for each alone";
    assert_eq!(probe(&mut mixing()), Rows::Mixed(mixed.to_owned()));
    let refusing = MemoryGraph { compute: |_| Err(failure("never")), ..mixing() };
    assert_eq!(probe(&mut refusing.clone()), Rows::Unknown("never".to_owned()));
}

#[test]
fn a_graph_that_mixes_rows_is_not_batched() {
    assert_eq!(load(MemoryGraph::negation(&[-1, 3]), "").unwrap().config.max_batch_size.unwrap().get(), 4);
    assert_eq!(load(mixing(), "").unwrap().config.max_batch_size, None);
}

#[test]
fn a_configuration_that_contradicts_its_graph_is_refused() {
    let refusal = |config: &str| load(MemoryGraph::negation(&[-1, 3]), config).err().unwrap().with_code();
    assert_eq!(
        refusal("max_batch_size: 4 input { name: 'X' data_type: TYPE_INT8 dims: 3 }"),
        "Invalid argument: unable to load model 'model', configuration expects datatype TYPE_INT8 for input 'X', model \
         provides TYPE_FP32"
    );
    assert_eq!(
        refusal("parameters { key: 'ITERATION_DONE_OUTPUT' value { string_value: 'Y' } }"),
        "Invalid argument: unable to load model 'model', it has the parameter 'ITERATION_DONE_OUTPUT', which needs \
         sequence_batching with iterative_sequence"
    );
}
