//! A request as a library sees it.
use std::sync::Arc;

use inference::{TraceContext, backend::ModelSource};
use vocabulary::{DataType, Tensor};

use super::*;
use crate::{
    backend::ServerHandle,
    types::{
        error::consume,
        trace::{TIMESTAMPS, functions::TRITONSERVER_InferenceTraceNew},
    },
};

fn model() -> Arc<Model> {
    let source = ModelSource {
        name: "m".into(),
        version: 1,
        model_directory: Default::default(),
        version_directory: Default::default(),
        declared: Arc::default(),
        settings: Default::default(),
        inferer: None,
        host_policies: Arc::default(),
    };
    Arc::new(Model::shown(&source, &source.declared, ServerHandle(ptr::null_mut())))
}

fn shown(client_request: inference::Request) -> Request {
    *Request::shown(client_request, &model())
}

#[test]
fn a_backend_finds_the_trace_of_a_request_that_has_one() {
    let mut trace = ptr::null_mut();
    // SAFETY: a place of this function, and functions that are none.
    let made =
        unsafe { TRITONSERVER_InferenceTraceNew(&raw mut trace, TIMESTAMPS, 0, None, None, ptr::null_mut()) };
    // SAFETY: made just now, and handed over once.
    let owned = unsafe {
        consume(made).unwrap();
        OwnedTrace::take(trace).unwrap()
    };
    let traced = inference::Request { trace: Some(TraceContext::new(Arc::new(owned))), ..Default::default() };
    for (client_request, expected) in [(traced, trace), (inference::Request::default(), ptr::null_mut())] {
        let request = shown(client_request);
        let mut found = ptr::dangling_mut();
        // SAFETY: a live request and a place of this function.
        let result =
            unsafe { TRITONBACKEND_RequestTrace(ptr::from_ref(&request).cast_mut(), &raw mut found) };
        // SAFETY: made just now.
        assert!(unsafe { consume(result) }.is_ok());
        assert_eq!(found, expected);
    }
}

#[test]
fn wanted_outputs_are_sorted_and_a_padding_row_wants_none() {
    let named = |names: &[&str]| inference::Request {
        outputs: names.iter().map(|name| (*name).into()).collect(),
        ..Default::default()
    };
    let request = shown(named(&["b", "a"]));
    assert_eq!(request.outputs(), ["a", "b"]);
    let nothing = inference::Request { outputs: OutputSelection::Nothing, ..Default::default() };
    let request = shown(nothing);
    assert!(request.outputs().is_empty());
}

#[test]
fn an_index_out_of_bounds_gives_an_error_with_the_requests_id() {
    let tensor = Tensor::new("IN".into(), DataType::Uint8, [1][..].into(), vec![1]);
    let inputs = RequestInputs::Tensors(vec![tensor]);
    let client_request = inference::Request { id: "7".into(), inputs, ..Default::default() };
    let request = shown(client_request);
    assert_eq!(request.input_at(0).unwrap().tensor().name(), &"IN");
    assert_eq!(
        request.input_at(1).unwrap_err().message,
        "[request id: 7] out of bounds index 1: request has 1 inputs"
    );
}

#[test]
fn a_request_for_inspection_is_not_cancelled_and_takes_no_response() {
    let shown = shown(inference::Request::default());
    let request = ptr::from_ref(&shown).cast_mut();
    let (mut cancelled, mut response) = (true, ptr::null_mut());
    // SAFETY: a live request and places of this function.
    unsafe {
        assert!(consume(TRITONBACKEND_RequestIsCancelled(request, &raw mut cancelled)).is_ok());
        let answer = super::super::response::TRITONBACKEND_ResponseNew(&raw mut response, request);
        assert!(consume(answer).is_err());
    }
    assert!(!cancelled);
}
