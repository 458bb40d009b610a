//! Requests: their properties, and how they are sent and given back.
use std::{
    ffi::c_void,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use c_api::types::{
    buffer_attributes::BufferAttributes,
    enums::{MEMORY_GPU, datatype_number},
};
use in_process::{infer::*, request::*, response::*};
use inference::{Response, backend::Execution};
use parking_lot::Mutex;
use testing::Gate;
use vocabulary::{DataType, DeviceRange, Error, Parameter, Tensor, TensorMemory};

use crate::support::{
    Answer, App, Event, MOVABLE, Native, TestRequest, TestServer, c, echoed, pinned, read, result_of,
};

fn answer(bytes: &[u8]) -> Answer {
    let outputs = vec![("OUT".to_owned(), bytes.to_vec())];
    Answer { model: "m".into(), version: 1, outputs, last: true, ..Answer::default() }
}

#[test]
fn a_request_is_answered_and_comes_back() {
    for config in [MOVABLE.to_owned(), pinned("")] {
        let (stage, app) = (TestServer::of(&config, Native::echo()), App::new());
        let ask = TestRequest::new(&stage, &app).input(b"abc");
        assert_eq!(ask.answer(), answer(b"abc"));
    }
}

#[test]
fn a_request_that_came_back_can_be_sent_again_with_other_data() {
    let (stage, app) = (TestServer::of(&pinned(""), Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    assert_eq!(ask.answer(), answer(b"abc"));
    assert_eq!(ask.answer(), answer(b"abc"));
    // SAFETY: a live request.
    unsafe { result_of(TRITONSERVER_InferenceRequestRemoveAllInputData(ask.handle, c"IN".as_ptr())) }
        .unwrap();
    ask.append("IN", b"x").unwrap();
    ask.append("IN", b"yz").unwrap();
    assert_eq!(ask.answer(), answer(b"xyz"));
}

#[test]
fn a_cached_answer_is_written_into_the_memory_of_the_application() {
    for config in [MOVABLE.to_owned(), pinned("")] {
        let executed = Arc::new(AtomicUsize::new(0));
        let count = executed.clone();
        let backend = Native::each(move |execution| {
            count.fetch_add(1, Ordering::SeqCst);
            let response = echoed(&execution);
            execution.responder.complete(response);
        });
        let config = format!("{config} response_cache {{ enable: true }}");
        let (stage, app) = (TestServer::of(&config, backend), App::new());
        for (bytes, executions) in [(b"abc", 1), (b"abc", 1), (b"abd", 2), (b"abc", 2)] {
            let ask = TestRequest::new(&stage, &app).input(bytes);
            assert_eq!(ask.answer(), answer(bytes));
            assert_eq!(executed.load(Ordering::SeqCst), executions);
        }
    }
}

#[test]
fn backends_read_the_memory_of_the_application() {
    let (seen, place) = mpsc::channel();
    let seen = Mutex::new(seen);
    let backend = Native::each(move |execution| {
        let pieces: Vec<_> = execution.request.tensors()[0]
            .host()
            .unwrap()
            .pieces()
            .iter()
            .map(|p| p.as_ptr().addr())
            .collect();
        seen.lock().send(pieces).unwrap();
        let response = echoed(&execution);
        execution.responder.complete(response);
    });
    let (stage, app) = (TestServer::of(MOVABLE, backend), App::new());
    let (one, two) = (b"a".to_vec(), b"bc".to_vec());
    let ask = TestRequest::new(&stage, &app);
    ask.add("IN", DataType::Uint8, &[3]).unwrap();
    ask.append("IN", &one).unwrap();
    ask.append("IN", &[]).unwrap();
    ask.append("IN", &two).unwrap();
    assert_eq!(ask.answer(), answer(b"abc"));
    assert_eq!(place.recv().unwrap(), [one.as_ptr().addr(), two.as_ptr().addr()]);
}

#[test]
fn a_request_comes_back_when_the_backend_lets_go_of_it_even_before_its_answer() {
    let gate = Gate::shut();
    let behind = gate.clone();
    let backend = Native::each(move |execution| {
        let Execution { request, responder, .. } = execution;
        drop(request);
        behind.pass();
        responder.complete(Response::default());
    });
    let (stage, app) = (TestServer::of(&pinned(""), backend), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    ask.send().unwrap();
    assert_eq!(app.events(|events| !events.is_empty()), [Event::Released]);
    gate.open();
    app.events(|events| matches!(events, [Event::Answer(_)]));
}

#[test]
fn a_request_without_data_comes_back_after_its_answer() {
    let (stage, app) = (TestServer::of(&pinned(""), Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"");
    ask.send().unwrap();
    assert_eq!(app.finished(), (vec![answer(b"")], false));
}

#[test]
fn the_attributes_of_a_request_reach_the_backend() {
    let (seen, requests) = mpsc::channel();
    let seen = Mutex::new(seen);
    let backend = Native::each(move |execution| {
        let request = &execution.request;
        let step = format!("{:?}", request.sequence);
        seen.lock()
            .send((request.id.to_string(), step, request.timeout, request.parameters.clone()))
            .unwrap();
        execution.responder.complete(Response::default());
    });
    let (stage, app) = (TestServer::of(MOVABLE, backend), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    // SAFETY: a live request.
    unsafe {
        result_of(TRITONSERVER_InferenceRequestSetId(ask.handle, c"seven".as_ptr())).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetFlags(ask.handle, 3)).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetCorrelationIdString(ask.handle, c"s".as_ptr())).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(ask.handle, 5)).unwrap();
        let text = c"text".as_ptr();
        result_of(TRITONSERVER_InferenceRequestSetStringParameter(ask.handle, c"a".as_ptr(), text)).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetIntParameter(ask.handle, c"b".as_ptr(), -1)).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetBoolParameter(ask.handle, c"c".as_ptr(), true)).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetDoubleParameter(ask.handle, c"a".as_ptr(), 0.5)).unwrap();
    }
    assert_eq!(ask.answer().id, "seven");
    let (id, step, timeout, parameters) = requests.recv().unwrap();
    assert_eq!((id.as_str(), timeout), ("seven", Some(std::time::Duration::from_micros(5))));
    assert_eq!(step, "SequencePosition { id: Some(Text(\"s\")), start: true, end: true }");
    let expected = [
        ("a", Parameter::String("text".into())),
        ("b", Parameter::Int(-1)),
        ("c", Parameter::Bool(true)),
        ("a", Parameter::Double(0.5)),
    ];
    assert_eq!(parameters, expected.map(|(name, value)| (name.into(), value)));
}

#[test]
fn wanted_outputs_are_named_and_sorted() {
    let (seen, outputs) = mpsc::channel();
    let seen = Mutex::new(seen);
    let backend = Native::each(move |execution| {
        seen.lock().send(execution.request.outputs.names().to_vec()).unwrap();
        execution.responder.complete(Response::default());
    });
    let two = format!("{MOVABLE} output {{ name: 'MORE' data_type: TYPE_UINT8 dims: -1 }}");
    let (stage, app) = (TestServer::of(&two, backend), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    // SAFETY: a live request.
    unsafe {
        for name in [c"OUT", c"MORE"] {
            result_of(TRITONSERVER_InferenceRequestAddRequestedOutput(ask.handle, name.as_ptr())).unwrap();
        }
        assert_eq!(
            result_of(TRITONSERVER_InferenceRequestAddRequestedOutput(ask.handle, c"OUT".as_ptr())),
            Err("Invalid argument: [request id: <id_unknown>] output 'OUT' already exists in request".into())
        );
        ask.answer();
        assert_eq!(outputs.recv().unwrap(), ["MORE", "OUT"]);
        result_of(TRITONSERVER_InferenceRequestRemoveRequestedOutput(ask.handle, c"MORE".as_ptr())).unwrap();
        ask.answer();
        assert_eq!(outputs.recv().unwrap(), ["OUT"]);
        result_of(TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(ask.handle)).unwrap();
        ask.answer();
        assert!(outputs.recv().unwrap().is_empty());
    }
}

#[test]
fn a_refused_request_stays_with_the_caller_and_no_callback_comes() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    ask.add("IN", DataType::Uint8, &[2]).unwrap();
    ask.append("IN", b"abc").unwrap();
    let refusal = "Invalid argument: [request id: <id_unknown>] input byte size mismatch for input 'IN' for model 'm'. \
                   Expected 2, got 3";
    assert_eq!(ask.send(), Err(refusal.to_owned()));
    assert_eq!(app.recorded_events(), []);
    // SAFETY: a live request.
    unsafe { result_of(TRITONSERVER_InferenceRequestRemoveInput(ask.handle, c"IN".as_ptr())) }.unwrap();
    let ask = ask.input(b"abc");
    assert_eq!(ask.answer(), answer(b"abc"));
}

#[test]
fn a_request_needs_its_callbacks() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    // SAFETY: a live request.
    unsafe { result_of(TRITONSERVER_InferenceRequestSetReleaseCallback(ask.handle, None, ptr::null_mut())) }
        .unwrap();
    let refusal = "Invalid argument: the release callback of the request is not set";
    assert_eq!(ask.send(), Err(refusal.to_owned()));
}

#[test]
fn errors_of_inputs_are_reported_before_missing_callbacks() {
    let stage = TestServer::of(&MOVABLE.replace("TYPE_UINT8", "TYPE_STRING"), Native::echo());
    let mut handle = ptr::null_mut();
    let data = *b"\x01\0\0\0a\x01\0\0\0b";
    // SAFETY: live handles and places of this function; the data outlives the request.
    let refused = unsafe {
        let server = stage.server.as_ptr();
        result_of(TRITONSERVER_InferenceRequestNew(&mut handle, server, c"m".as_ptr(), -1)).unwrap();
        let (name, base) = (c"IN".as_ptr(), data.as_ptr().cast());
        let kind = datatype_number(DataType::Bytes);
        result_of(TRITONSERVER_InferenceRequestAddInput(handle, name, kind, [3].as_ptr(), 1)).unwrap();
        result_of(TRITONSERVER_InferenceRequestAppendInputData(handle, name, base, data.len(), 0, 0))
            .unwrap();
        let refused = result_of(TRITONSERVER_ServerInferAsync(server, handle, ptr::null_mut()));
        result_of(TRITONSERVER_InferenceRequestDelete(handle)).unwrap();
        refused
    };
    let text = "Invalid argument: [request id: <id_unknown>] expected 3 string elements for inference input 'IN' for model \
                'm', got 2";
    assert_eq!(refused, Err(text.to_owned()));
}

#[test]
fn a_raw_input_takes_its_form_from_the_configuration_and_stands_alone() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    // SAFETY: a live request.
    let raw =
        || result_of(unsafe { TRITONSERVER_InferenceRequestAddRawInput(ask.handle, c"whatever".as_ptr()) });
    raw().unwrap();
    ask.append("whatever", b"abc").unwrap();
    assert_eq!(ask.answer(), answer(b"abc"));
    let prefix = "Invalid argument: [request id: <id_unknown>] ";
    let refusal = format!("{prefix}raw input 'whatever' can't be added to request with other inputs");
    assert_eq!(raw(), Err(refusal));
    ask.add("IN", DataType::Uint8, &[0]).unwrap();
    let refusal = "Raw request must only have 1 input (found 2) to be deduced but got 1 inputs in 'm' model configuration";
    assert_eq!(ask.send(), Err(format!("{prefix}{refusal}")));
    // SAFETY: a live request.
    unsafe { result_of(TRITONSERVER_InferenceRequestRemoveAllInputs(ask.handle)) }.unwrap();
    assert_eq!(TestRequest::new(&stage, &app).input(b"abc").answer(), answer(b"abc"));
}

#[test]
fn data_of_a_host_policy_is_read_where_there_is_no_other() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    ask.add("IN", DataType::Uint8, &[3]).unwrap();
    let (bytes, policy) = (b"abc", c"cpu".as_ptr());
    // SAFETY: a live request; the bytes outlive its run.
    unsafe {
        result_of(TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
            ask.handle,
            c"IN".as_ptr(),
            bytes.as_ptr().cast(),
            3,
            1,
            0,
            policy,
        ))
        .unwrap();
    }
    assert_eq!(ask.answer(), answer(b"abc"));
    ask.append("IN", b"xyz").unwrap();
    assert_eq!(ask.answer(), answer(b"xyz"));
}

#[test]
fn input_data_fits_into_memory() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    ask.add("IN", DataType::Uint8, &[3]).unwrap();
    let append = |size| {
        // SAFETY: a live request, which is refused before the data is read.
        result_of(unsafe {
            let base = b"abc".as_ptr().cast();
            TRITONSERVER_InferenceRequestAppendInputData(ask.handle, c"IN".as_ptr(), base, size, 0, 0)
        })
    };
    let too_large = format!("Invalid argument: input data cannot have {} bytes", usize::MAX);
    assert_eq!(append(usize::MAX), Err(too_large));
    for _ in 0..3 {
        append(isize::MAX as usize).unwrap();
    }
    let refused = ask.send().unwrap_err();
    assert!(refused.ends_with("input 'IN' has more data than memory can have"), "{refused}");
    assert_eq!(app.recorded_events(), []);
}

/// Appends data to the input `IN`: the address, the number of bytes, the kind of memory, and its number.
fn append_in(ask: &TestRequest, base: *const c_void, size: usize, kind: u32, id: i64) -> Result<(), String> {
    // SAFETY: a live request; what is not refused outlives its run, or is never read.
    result_of(unsafe {
        TRITONSERVER_InferenceRequestAppendInputData(ask.handle, c"IN".as_ptr(), base, size, kind, id)
    })
}

#[test]
fn a_backend_that_reads_device_memory_gets_its_address() {
    let (seen, place) = mpsc::channel();
    let seen = Mutex::new(seen);
    let backend = Native::each(move |execution| {
        let input = &execution.request.tensors()[0];
        let TensorMemory::Device(memory) = input.memory() else { panic!("it is in memory of a device") };
        seen.lock().send((memory.id(), memory.pieces().to_vec(), input.host().unwrap_err().message)).unwrap();
        let output = Tensor::new("OUT".into(), DataType::Uint8, [1][..].into(), vec![7]);
        execution.responder.complete(Response::of(vec![output]));
    });
    let (stage, app) = (TestServer::of(MOVABLE, backend.reading_device_memory()), App::new());
    let ask = TestRequest::new(&stage, &app);
    ask.add("IN", DataType::Uint8, &[5]).unwrap();
    append_in(&ask, ptr::without_provenance(64), 3, MEMORY_GPU, 1).unwrap();
    append_in(&ask, ptr::without_provenance(96), 2, MEMORY_GPU, 1).unwrap();
    assert_eq!(ask.answer(), answer(&[7]));
    let pieces = [(64, 3), (96, 2)].map(|(address, byte_size)| DeviceRange { address, byte_size });
    let unreadable = "tensor 'IN' is in memory of type GPU, which the host cannot read";
    assert_eq!(place.recv().unwrap(), (1, pieces.to_vec(), unreadable.into()));
}

#[test]
fn a_request_with_device_memory_runs_without_the_cache() {
    let executed = Arc::new(AtomicUsize::new(0));
    let count = executed.clone();
    let backend = Native::each(move |execution| {
        count.fetch_add(1, Ordering::SeqCst);
        let output = Tensor::new("OUT".into(), DataType::Uint8, [1][..].into(), vec![7]);
        execution.responder.complete(Response::of(vec![output]));
    });
    let config = format!("{MOVABLE} response_cache {{ enable: true }}");
    let (stage, app) = (TestServer::of(&config, backend.reading_device_memory()), App::new());
    for executions in [1, 2] {
        let ask = TestRequest::new(&stage, &app);
        ask.add("IN", DataType::Uint8, &[3]).unwrap();
        append_in(&ask, ptr::without_provenance(64), 3, MEMORY_GPU, 0).unwrap();
        assert_eq!(ask.answer(), answer(&[7]));
        assert_eq!(executed.load(Ordering::SeqCst), executions);
    }
}

#[test]
fn input_data_is_in_one_memory_that_the_model_can_read() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    ask.add("IN", DataType::Uint8, &[3]).unwrap();
    let address = ptr::without_provenance(64);
    append_in(&ask, address, 3, MEMORY_GPU, 0).unwrap();
    let refused = |text: &str| Err(format!("Unsupported: [request id: <id_unknown>] {text}"));
    assert_eq!(ask.send(), refused("input 'IN' is in memory of type GPU, which model 'm' cannot read"));
    append_in(&ask, b"abc".as_ptr().cast(), 3, 0, 0).unwrap();
    assert_eq!(ask.send(), refused("input 'IN' has data in more than one memory"));
    // SAFETY: a live request.
    unsafe { result_of(TRITONSERVER_InferenceRequestRemoveAllInputData(ask.handle, c"IN".as_ptr())) }
        .unwrap();
    append_in(&ask, address, 3, MEMORY_GPU, 0).unwrap();
    append_in(&ask, address, 3, MEMORY_GPU, 1).unwrap();
    assert_eq!(ask.send(), refused("input 'IN' has data in more than one memory"));
}

#[test]
fn input_data_without_an_address_is_refused() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    ask.add("IN", DataType::Uint8, &[3]).unwrap();
    let append = |base: *const c_void, size, kind| append_in(&ask, base, size, kind, 0);
    assert_eq!(append(ptr::null(), 3, 0), Err("Invalid argument: unexpected null input data".to_owned()));
    assert_eq!(append(ptr::null(), 0, 0), Ok(()));
    let attributes = BufferAttributes::host(3);
    let place = ptr::from_ref(&attributes).cast_mut();
    // SAFETY: a live request; the bytes outlive its run.
    unsafe {
        result_of(TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
            ask.handle,
            c"IN".as_ptr(),
            b"abc".as_ptr().cast(),
            place,
        ))
        .unwrap();
    }
    assert_eq!(ask.answer(), answer(b"abc"));
}

#[test]
fn inputs_exist_once() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    let says = |text: &str| Err(format!("Invalid argument: [request id: <id_unknown>] {text}"));
    assert_eq!(ask.add("IN", DataType::Uint8, &[1]), says("input 'IN' already exists in request"));
    assert_eq!(ask.append("NO", b"abc"), says("input 'NO' does not exist in request"));
    // SAFETY: a live request.
    unsafe {
        let missing = says("input 'NO' does not exist in request");
        assert_eq!(result_of(TRITONSERVER_InferenceRequestRemoveInput(ask.handle, c"NO".as_ptr())), missing);
        assert_eq!(
            result_of(TRITONSERVER_InferenceRequestRemoveAllInputData(ask.handle, c"NO".as_ptr())),
            missing
        );
        let unknown = TRITONSERVER_InferenceRequestAddInput(ask.handle, c"X".as_ptr(), 99, ptr::null(), 0);
        assert_eq!(
            result_of(unknown),
            Err("Invalid argument: input 'X' has no datatype of number 99".to_owned())
        );
    }
}

#[test]
fn a_correlation_id_is_read_as_what_it_was_set_to() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    let (mut number, mut text) = (7, ptr::null());
    // SAFETY: a live request and places of this function.
    unsafe {
        result_of(TRITONSERVER_InferenceRequestCorrelationId(ask.handle, &mut number)).unwrap();
        assert_eq!(number, 0);
        assert_eq!(
            result_of(TRITONSERVER_InferenceRequestCorrelationIdString(ask.handle, &mut text)),
            Err("Invalid argument: given request's correlation id is not a string".to_owned())
        );
        let long = c(&"x".repeat(129));
        assert_eq!(
            result_of(TRITONSERVER_InferenceRequestSetCorrelationIdString(ask.handle, long.as_ptr())),
            Err("Unsupported: string correlation ID cannot be longer than 128 characters".to_owned())
        );
        result_of(TRITONSERVER_InferenceRequestSetCorrelationIdString(ask.handle, c"me".as_ptr())).unwrap();
        result_of(TRITONSERVER_InferenceRequestCorrelationIdString(ask.handle, &mut text)).unwrap();
        assert_eq!(read(text), "me");
        assert_eq!(
            result_of(TRITONSERVER_InferenceRequestCorrelationId(ask.handle, &mut number)),
            Err("Invalid argument: given request's correlation id is not an unsigned int".to_owned())
        );
        result_of(TRITONSERVER_InferenceRequestSetCorrelationId(ask.handle, 5)).unwrap();
        result_of(TRITONSERVER_InferenceRequestCorrelationId(ask.handle, &mut number)).unwrap();
        assert_eq!(number, 5);
    }
}

#[test]
fn a_priority_the_model_does_not_have_is_its_default() {
    let levels = "dynamic_batching { priority_levels: 18446744073709551615 default_priority_level: 2 }";
    let config = format!("{MOVABLE} max_batch_size: 4 {levels}");
    let (stage, app) = (TestServer::of(&config, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    let priority = || {
        let mut priority = 0;
        // SAFETY: a live request.
        result_of(unsafe { TRITONSERVER_InferenceRequestPriority(ask.handle, &mut priority) })
            .map(|()| priority)
    };
    assert_eq!(priority(), Ok(2));
    // SAFETY: a live request.
    unsafe {
        result_of(TRITONSERVER_InferenceRequestSetPriority(ask.handle, 3)).unwrap();
        assert_eq!(priority(), Ok(3));
        result_of(TRITONSERVER_InferenceRequestSetPriorityUInt64(ask.handle, 1 << 32)).unwrap();
    }
    let refusal = "Invalid argument: request priority overflows uint32_t, use \
                   TRITONSERVER_InferenceRequestPriorityUInt64, priority=4294967296";
    assert_eq!(priority(), Err(refusal.to_owned()));
    let mut wide = 0;
    // SAFETY: a live request.
    unsafe { result_of(TRITONSERVER_InferenceRequestPriorityUInt64(ask.handle, &mut wide)) }.unwrap();
    assert_eq!(wide, 1 << 32);
}

#[test]
fn what_was_set_can_be_read() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    let (mut id, mut flags, mut timeout) = (ptr::null(), 0, 0);
    // SAFETY: a live request and places of this function.
    unsafe {
        result_of(TRITONSERVER_InferenceRequestSetId(ask.handle, c"seven".as_ptr())).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetFlags(ask.handle, 2)).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(ask.handle, 9)).unwrap();
        result_of(TRITONSERVER_InferenceRequestId(ask.handle, &mut id)).unwrap();
        result_of(TRITONSERVER_InferenceRequestFlags(ask.handle, &mut flags)).unwrap();
        result_of(TRITONSERVER_InferenceRequestTimeoutMicroseconds(ask.handle, &mut timeout)).unwrap();
    }
    assert_eq!((read(id).as_str(), flags, timeout), ("seven", 2, 9));
}

#[test]
fn a_cancelled_request_is_answered_so_and_can_be_sent_again() {
    let gate = Gate::shut();
    let behind = gate.clone();
    let backend = Native::each(move |execution| {
        behind.pass();
        let response = echoed(&execution);
        execution.responder.complete(response);
    });
    let (stage, app, busy) = (TestServer::of(&pinned(""), backend), App::new(), App::new());
    let occupant = TestRequest::new(&stage, &busy).input(b"abc");
    occupant.send().unwrap();
    assert!(gate.wait_for(1, std::time::Duration::from_secs(30)));
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    let unsent = "before calling TRITONSERVER_InferAsync.";
    assert!(ask.cancel().unwrap_err().ends_with(unsent));
    assert!(ask.is_cancelled().unwrap_err().ends_with(unsent));
    ask.send().unwrap();
    assert_eq!(ask.is_cancelled(), Ok(false));
    ask.cancel().unwrap();
    assert_eq!(app.answer().error.as_deref(), Some("Cancelled: Request cancelled"));
    assert_eq!(ask.is_cancelled(), Ok(true));
    gate.open();
    busy.answer();
    assert_eq!(ask.answer(), answer(b"abc"));
    assert_eq!(ask.is_cancelled(), Ok(false), "an answer cancels nothing");
}

#[test]
fn a_decoupled_model_sends_any_number_of_responses() {
    let backend = Native::each(|execution| {
        let count = execution.request.input("IN").unwrap().byte_size();
        for _ in 0..count {
            execution.responder.send(echoed(&execution));
        }
        execution.responder.send_error(Error::internal("not this one"));
        execution.responder.finish();
    });
    let decoupled = pinned("model_transaction_policy { decoupled: true }");
    let (stage, app) = (TestServer::of(&decoupled, backend), App::new());
    let bytes = [7; 1000];
    let ask = TestRequest::new(&stage, &app).input(&bytes);
    ask.send().unwrap();
    let (answers, _) = app.finished();
    assert_eq!(answers.len(), 1001);
    assert!(answers.iter().all(|answer| !answer.last));
    assert_eq!(answers[999].outputs[0].1, bytes);
    assert_eq!(answers[1000].error.as_deref(), Some("Internal: not this one"));
}

#[test]
fn several_threads_respond_to_one_request_without_losing_a_response() {
    let backend = Native::each(|execution| {
        let execution = Arc::new(execution);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let execution = execution.clone();
                std::thread::spawn(move || {
                    (0..250).for_each(|_| execution.responder.send(echoed(&execution)));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        Arc::into_inner(execution).unwrap().responder.finish();
    });
    let decoupled = pinned("model_transaction_policy { decoupled: true }");
    let (stage, app) = (TestServer::of(&decoupled, backend), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    ask.send().unwrap();
    assert_eq!(app.finished().0.len(), 1000);
}

#[test]
fn a_request_that_the_backend_drops_gets_an_error() {
    let (stage, app) = (TestServer::of(&pinned(""), Native::each(drop)), App::new());
    let error = TestRequest::new(&stage, &app).input(b"abc").answer().error;
    assert_eq!(error.as_deref(), Some("Internal: the backend dropped the request without an answer"));
}

#[test]
fn a_stopping_server_refuses_requests() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    stage.stop();
    assert!(ask.send().unwrap_err().contains("has stopped accepting new inference requests"));
    assert_eq!(app.recorded_events(), []);
}

#[test]
fn null_is_refused_and_never_followed() {
    let null = ptr::null_mut::<InferenceRequest>();
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    let missing = |what: &str| Err(format!("Invalid argument: unexpected null {what}"));
    // SAFETY: null where it is allowed to be refused.
    unsafe {
        assert_eq!(
            result_of(TRITONSERVER_InferenceRequestSetFlags(null, 1)),
            missing("TRITONSERVER_InferenceRequest")
        );
        assert_eq!(result_of(TRITONSERVER_InferenceRequestSetId(ask.handle, ptr::null())), missing("text"));
        assert_eq!(
            result_of(TRITONSERVER_InferenceRequestId(ask.handle, ptr::null_mut())),
            missing("place for an answer")
        );
        assert_eq!(
            result_of(TRITONSERVER_ServerInferAsync(ptr::null_mut(), ask.handle, ptr::null_mut())),
            missing("TRITONSERVER_Server")
        );
        assert_eq!(
            result_of(TRITONSERVER_ServerInferAsync(stage.server.as_ptr(), null, ptr::null_mut())),
            missing("TRITONSERVER_InferenceRequest")
        );
        assert_eq!(
            result_of(TRITONSERVER_InferenceRequestSetResponseCallback(
                ask.handle,
                ptr::null_mut(),
                ptr::null_mut(),
                None,
                ptr::null_mut()
            )),
            missing("TRITONSERVER_ResponseAllocator")
        );
        assert_eq!(result_of(TRITONSERVER_InferenceRequestDelete(null)), Ok(()));
        assert_eq!(result_of(TRITONSERVER_InferenceResponseDelete(ptr::null_mut())), Ok(()));
        let datatype = datatype_number(DataType::Uint8);
        let unnamed =
            TRITONSERVER_InferenceRequestAddInput(ask.handle, ptr::null(), datatype, ptr::null(), 1);
        assert_eq!(result_of(unnamed), missing("text"));
    }
}

#[test]
fn a_model_that_is_not_there_is_named() {
    let stage = TestServer::of(MOVABLE, Native::echo());
    let mut handle = ptr::null_mut();
    let mut new = |name: &std::ffi::CStr, version| {
        // SAFETY: a live server.
        result_of(unsafe {
            TRITONSERVER_InferenceRequestNew(&mut handle, stage.server.as_ptr(), name.as_ptr(), version)
        })
    };
    assert_eq!(new(c"n", -1), Err("Not found: Request for unknown model: 'n' is not found".to_owned()));
    assert_eq!(
        new(c"m", 2),
        Err("Not found: Request for unknown model: 'm' version 2 is not found".to_owned())
    );
}
