//! What callbacks may do: delete, send, cancel, wait.
use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicUsize, Ordering},
        mpsc,
    },
};

use in_process::{infer::*, request::*, response::*};
use parking_lot::Mutex;
use vocabulary::DataType;

use crate::support::{App, Event, MOVABLE, Native, TestRequest, TestServer, echoed, pinned, read, result_of};

/// Sends a request again each time it is given back, for a number of times.
fn send_again(stage: &TestServer, app: &App, times: usize) {
    let server = AtomicPtr::new(stage.server.as_ptr());
    let left = AtomicUsize::new(times);
    *app.on_release.lock() = Some(Arc::new(Box::new(move |request| {
        if left.fetch_sub(1, Ordering::SeqCst) > 1 {
            let server = server.load(Ordering::SeqCst);
            // SAFETY: the request has just come back.
            result_of(unsafe { TRITONSERVER_ServerInferAsync(server, request, ptr::null_mut()) }).unwrap();
        }
    })));
}

fn is_answer(event: &&Event) -> bool {
    matches!(event, Event::Answer(answer) if answer.error.is_none())
}

#[test]
fn a_request_that_sends_itself_again_never_fills_the_stack() {
    const TIMES: usize = 5_000;
    for config in [MOVABLE.to_owned(), pinned("")] {
        let (stage, app) = (TestServer::of(&config, Native::echo()), App::new());
        let ask = TestRequest::new(&stage, &app).input(b"abc");
        send_again(&stage, &app, TIMES);
        ask.send().unwrap();
        let all =
            |events: &[Event]| events.iter().filter(|event| **event == Event::Released).count() == TIMES;
        let answered = |events: &[Event]| events.iter().filter(is_answer).count() == TIMES;
        app.events(|events| all(events) && answered(events));
    }
}

#[test]
fn a_response_callback_may_ask_for_more_and_wait_for_it() {
    // One instance may wait in its callback for the other instance.
    for config in [MOVABLE, &pinned("")].map(|config| config.replace("KIND_CPU", "KIND_CPU count: 2")) {
        let (stage, app, inner) = (Arc::new(TestServer::of(&config, Native::echo())), App::new(), App::new());
        let within = (stage.clone(), inner.clone());
        *app.on_response.lock() = Some(Arc::new(Box::new(move |_| {
            let (stage, inner) = &within;
            let answer = TestRequest::new(stage, inner).input(b"more").answer();
            assert_eq!(answer.outputs[0].1, b"more");
        })));
        let ask = TestRequest::new(&stage, &app).input(b"abc");
        assert_eq!(ask.answer().error, None);
        *app.on_response.lock() = None;
    }
}

fn batch_of_one(ask: &TestRequest<'_>, bytes: &'static [u8]) {
    ask.add("IN", DataType::Uint8, &[1, i64::try_from(bytes.len()).unwrap()]).unwrap();
    ask.append("IN", bytes).unwrap();
}

#[test]
fn a_callback_may_wait_for_a_delayed_batch_of_another_request() {
    const BUSY: &str = "parameters { key: 'instance' value { string_value: 'pinned' } }
        dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000 } }";
    const DELAYED: &str = "dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 1000 }";
    let batched = |rest: &str| format!("max_batch_size: 8 {MOVABLE} {rest}");
    let (started, begun) = mpsc::channel();
    let (gate, opened) = mpsc::channel::<()>();
    let opened = Mutex::new(opened);
    let backend = Native::each(move |execution| {
        let response = echoed(&execution);
        if response.outputs[0].host().unwrap().contiguous()[..] == *b"block" {
            started.send(()).unwrap();
            let _ = opened.lock().recv();
        }
        execution.responder.complete(response);
    });
    let stage = Arc::new(TestServer::new(&[("m", &batched(BUSY)), ("delayed", &batched(DELAYED))], backend));
    let (blocking, timed_out, inner) = (App::new(), App::new(), App::new());
    // The only instance is busy.
    let first = TestRequest::new(&stage, &blocking);
    batch_of_one(&first, b"block");
    first.send().unwrap();
    begun.recv().unwrap();
    // The timer ends this request. Its callback waits for a request that the timer releases.
    let within = (stage.clone(), inner.clone());
    *timed_out.on_response.lock() = Some(Arc::new(Box::new(move |_| {
        let (stage, inner) = &within;
        let more = TestRequest::to(stage, inner, c"delayed");
        batch_of_one(&more, b"more");
        assert_eq!(more.answer().outputs[0].1, b"more");
    })));
    let second = TestRequest::new(&stage, &timed_out);
    batch_of_one(&second, b"second");
    assert_eq!(second.answer().error.as_deref(), Some("Unavailable: Request timeout expired"));
    drop(gate);
    assert_eq!(blocking.answer().error, None);
    *timed_out.on_response.lock() = None;
}

#[test]
fn a_blocking_callback_delays_neither_the_instance_nor_other_callbacks() {
    let (stage, app, others) = (TestServer::of(&pinned(""), Native::echo()), App::new(), App::new());
    let (gate, opened) = mpsc::channel::<()>();
    let opened = Mutex::new(opened);
    *app.on_response.lock() = Some(Arc::new(Box::new(move |_| {
        let _ = opened.lock().recv();
    })));
    let blocked = TestRequest::new(&stage, &app).input(b"abc");
    blocked.send().unwrap();
    for _ in 0..10 {
        assert_eq!(TestRequest::new(&stage, &others).input(b"def").answer().outputs[0].1, b"def");
    }
    assert!(!app.recorded_events().iter().any(|event| is_answer(&event)));
    drop(gate);
    assert_eq!(app.answer().error, None);
}

#[test]
fn a_callback_may_wait_for_a_lock_that_is_held_while_requests_are_sent() {
    for config in [MOVABLE.to_owned(), pinned("")] {
        let (stage, app) = (TestServer::of(&config, Native::echo()), App::new());
        let lock = Arc::new(Mutex::new(()));
        let held = lock.clone();
        *app.on_response.lock() = Some(Arc::new(Box::new(move |_| drop(held.lock()))));
        let ask = TestRequest::new(&stage, &app).input(b"abc");
        for _ in 0..50 {
            let sending = lock.lock();
            ask.send().unwrap();
            drop(sending);
            assert_eq!(app.answer().error, None);
        }
    }
}

#[test]
fn a_release_callback_may_delete_its_request() {
    let (stage, app) = (TestServer::of(&pinned(""), Native::echo()), App::new());
    *app.on_release.lock() = Some(Arc::new(Box::new(|request| {
        // SAFETY: the request has just come back, and the test lets go of it.
        result_of(unsafe { TRITONSERVER_InferenceRequestDelete(request) }).unwrap();
    })));
    for _ in 0..100 {
        let ask = TestRequest::new(&stage, &app).input(b"abc");
        ask.send().unwrap();
        std::mem::forget(ask);
        assert_eq!(app.answer().error, None);
    }
}

#[test]
fn a_response_callback_may_cancel_its_request() {
    let backend = Native::each(|execution| {
        while !execution.responder.is_cancelled() {
            execution.responder.send(Default::default());
        }
        execution.responder.finish();
    });
    let decoupled = pinned("model_transaction_policy { decoupled: true }");
    let (stage, app) = (TestServer::of(&decoupled, backend), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    let request = AtomicPtr::new(ask.handle);
    *app.on_response.lock() = Some(Arc::new(Box::new(move |_| {
        // SAFETY: the request is under way.
        result_of(unsafe { TRITONSERVER_InferenceRequestCancel(request.load(Ordering::SeqCst)) }).unwrap();
    })));
    ask.send().unwrap();
    assert!(!app.finished().0.is_empty());
}

#[test]
fn the_send_function_returns_while_a_model_responds_without_end() {
    let backend = Native::each(|execution| {
        while !execution.responder.is_cancelled() {
            execution.responder.send(Default::default());
        }
        execution.responder.finish();
    });
    let decoupled = pinned("model_transaction_policy { decoupled: true }");
    let (stage, app) = (TestServer::of(&decoupled, backend), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    ask.send().unwrap();
    app.events(|events| events.len() > 200);
    ask.cancel().unwrap();
    app.finished();
}

#[test]
fn a_program_may_have_a_model_wait_for_its_callbacks() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let backend = Native::each(move |execution| {
        for _ in 0..500 {
            assert_eq!(execution.request.parameters, [], "the model does not see the parameter");
            execution.responder.send(Default::default());
            counted.fetch_add(1, Ordering::SeqCst);
        }
        execution.responder.finish();
    });
    let decoupled = pinned("model_transaction_policy { decoupled: true }");
    let (stage, app) = (TestServer::of(&decoupled, backend), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    let set = |value| {
        // SAFETY: a live request and a text.
        result_of(unsafe {
            TRITONSERVER_InferenceRequestSetIntParameter(ask.handle, c"MAX_UNREAD_RESPONSES".as_ptr(), value)
        })
    };
    let (delivered, most_ahead) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let noted = most_ahead.clone();
    *app.on_response.lock() = Some(Arc::new(Box::new(move |_| {
        let ahead = sent.load(Ordering::SeqCst).saturating_sub(delivered.fetch_add(1, Ordering::SeqCst));
        noted.fetch_max(ahead, Ordering::SeqCst);
    })));
    set(2).unwrap();
    ask.send().unwrap();
    assert_eq!(app.finished().0.len(), 500);
    // Two that are unread, and one that is being delivered.
    assert!(most_ahead.load(Ordering::SeqCst) <= 3, "{most_ahead:?} responses ahead");
}

#[test]
fn an_invalid_number_of_unread_responses_is_refused() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    // SAFETY: a live request and a text.
    result_of(unsafe {
        TRITONSERVER_InferenceRequestSetIntParameter(ask.handle, c"MAX_UNREAD_RESPONSES".as_ptr(), 0)
    })
    .unwrap();
    assert_eq!(
        ask.send(),
        Err("Invalid argument: [request id: <id_unknown>] parameter 'MAX_UNREAD_RESPONSES' must be an integer from 1"
            .into())
    );
}

#[test]
fn a_response_outlives_its_request_and_all_its_fields_are_readable() {
    let labelled = MOVABLE.replace("name: 'OUT'", "name: 'OUT' label_filename: 'labels.txt'");
    let backend = Native::each(|execution| {
        let mut response = crate::support::echoed(&execution);
        response.parameters.push(("key".into(), vocabulary::Parameter::Int(5)));
        execution.responder.complete(response);
    });
    let (stage, app) = (TestServer::of(&labelled, backend), App::new());
    *app.on_response.lock() = Some(Arc::new(Box::new(examine)));
    TestRequest::new(&stage, &app).input(b"abc").answer();
}

fn examine(response: *mut InferenceResponse) {
    let (mut count, mut name, mut kind, mut value) = (0, ptr::null(), 9, ptr::null());
    let (mut datatype, mut shape, mut dims) = (0, ptr::null(), 0);
    let none = ptr::null_mut::<()>();
    // SAFETY: a live response and places of this function.
    unsafe {
        result_of(TRITONSERVER_InferenceResponseParameterCount(response, &mut count)).unwrap();
        result_of(TRITONSERVER_InferenceResponseParameter(response, 0, &mut name, &mut kind, &mut value))
            .unwrap();
        assert_eq!((count, read(name).as_str(), kind, *value.cast::<i64>()), (1, "key", 1, 5));
        result_of(TRITONSERVER_InferenceResponseOutput(
            response,
            0,
            none.cast(),
            &mut datatype,
            &mut shape,
            &mut dims,
            none.cast(),
            none.cast(),
            none.cast(),
            none.cast(),
            none.cast(),
        ))
        .unwrap();
        assert_eq!((datatype, dims, *shape), (2, 1, 3));
        let label = |class| {
            let mut label = ptr::null();
            result_of(TRITONSERVER_InferenceResponseOutputClassificationLabel(
                response, 0, class, &mut label,
            ))
            .unwrap();
            (!label.is_null()).then(|| read(label))
        };
        assert_eq!(label(2).as_deref(), Some("dog"));
        assert_eq!((label(1), label(3)), (None, None));
        let out_of_bounds =
            |what| Err(format!("Invalid argument: out of bounds index 1: response has 1 {what}"));
        assert_eq!(
            result_of(TRITONSERVER_InferenceResponseParameter(response, 1, &mut name, &mut kind, &mut value)),
            out_of_bounds("parameters")
        );
        let mut label = ptr::null();
        assert_eq!(
            result_of(TRITONSERVER_InferenceResponseOutputClassificationLabel(response, 1, 0, &mut label)),
            out_of_bounds("outputs")
        );
    }
}
