//! Traces of requests.
use std::sync::Arc;

use c_api::types::trace::{TENSORS, TIMESTAMPS};
use inference::{Response, Timestamp, TraceContext};
use parking_lot::Mutex;
use vocabulary::{DataType, Tensor};

use crate::support::{App, Event, MOVABLE, Native, TestRequest, TestServer, pinned};

fn position(events: &[Event], event: &Event) -> usize {
    events.iter().position(|other| other == event).unwrap_or_else(|| panic!("no {event:?} in {events:?}"))
}

#[test]
fn a_traced_request_reports_its_activities_in_order_and_releases_the_trace() {
    for config in [MOVABLE.to_owned(), pinned("")] {
        let (stage, app) = (TestServer::of(&config, Native::echo()), App::new());
        let ask = TestRequest::new(&stage, &app).input(b"abc");
        ask.send_traced(app.trace(TIMESTAMPS)).unwrap();
        let events = app.traced_events(1);
        let activities: Vec<_> = events
            .iter()
            .filter_map(|event| if let Event::Activity(activity) = event { Some(*activity) } else { None })
            .collect();
        assert_eq!(activities, [0, 1, 2, 3, 4, 5, 6]);
        let answered = events.iter().position(|event| matches!(event, Event::Answer(_))).unwrap();
        assert!(position(&events, &Event::Activity(6)) < answered, "whoever has the answer knows the times");
        assert_eq!(events.iter().filter(|event| **event == Event::TraceReleased).count(), 1);
    }
}

#[test]
fn tensors_are_reported_if_the_trace_wants_them() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    ask.send_traced(app.trace(TENSORS)).unwrap();
    let events = app.traced_events(1);
    let told: Vec<_> =
        events.into_iter().filter(|event| matches!(event, Event::Tensor(..) | Event::Activity(_))).collect();
    let tensor = |activity, name: &str| Event::Tensor(activity, name.to_owned(), b"abc".to_vec());
    assert_eq!(told, [tensor(7, "IN"), tensor(9, "OUT")]);
}

#[test]
fn an_output_with_fewer_bytes_than_its_shape_is_not_reported() {
    for shape in [-1, 4] {
        let odd = Native::each(move |execution| {
            let output = Tensor::new("OUT".into(), DataType::Uint8, [shape][..].into(), vec![1, 2, 3]);
            execution.responder.complete(Response::of(vec![output]));
        });
        let (stage, app) = (TestServer::of(MOVABLE, odd), App::new());
        let ask = TestRequest::new(&stage, &app).input(b"abc");
        ask.send_traced(app.trace(TENSORS)).unwrap();
        let events = app.traced_events(1);
        let told = |event: &&Event| matches!(event, Event::Tensor(9, ..));
        assert_eq!(events.iter().filter(told).count(), 0, "{events:?}");
    }
}

#[test]
fn a_trace_is_released_even_if_its_request_is_refused() {
    let (stage, app) = (TestServer::of(MOVABLE, Native::echo()), App::new());
    let ask = TestRequest::new(&stage, &app);
    ask.send_traced(app.trace(TIMESTAMPS)).unwrap_err();
    assert_eq!(app.recorded_events(), [Event::TraceReleased]);
}

/// `TRITONSERVER_TRACE_CUSTOM_ACTIVITY`.
const CUSTOM: Event = Event::Activity(10);

#[test]
fn traces_of_steps_are_reported_when_they_happen() {
    let asks_another = Native::each(|execution| {
        let step = execution.request.trace.as_ref().and_then(TraceContext::child).unwrap();
        step.custom("of the step", Timestamp::from_nanos(1));
        drop(step);
        execution.responder.complete(Response::of(Vec::new()));
    });
    let (stage, app) = (TestServer::of(MOVABLE, asks_another), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    ask.send_traced(app.trace(TIMESTAMPS)).unwrap();
    let events = app.traced_events(2);
    let answered = events.iter().position(|event| matches!(event, Event::Answer(_))).unwrap();
    assert!(position(&events, &CUSTOM) < answered);
    assert!(position(&events, &Event::Activity(2)) < position(&events, &CUSTOM));
}

#[test]
fn what_happens_after_the_last_response_is_reported_before_the_trace_is_released() {
    let kept = Arc::<Mutex<Option<TraceContext>>>::default();
    let keeper = kept.clone();
    let keeps = Native::each(move |execution| {
        *keeper.lock() = execution.request.trace.clone();
        execution.responder.complete(Response::of(Vec::new()));
    });
    let (stage, app) = (TestServer::of(MOVABLE, keeps), App::new());
    let ask = TestRequest::new(&stage, &app).input(b"abc");
    ask.send_traced(app.trace(TIMESTAMPS)).unwrap();
    let events = app.events(|events| {
        events.contains(&Event::Released) && events.iter().any(|event| matches!(event, Event::Answer(_)))
    });
    assert!(!events.contains(&Event::TraceReleased));
    let trace = kept.lock().take().unwrap();
    trace.custom("late", Timestamp::from_nanos(1));
    trace.custom("later", Timestamp::from_nanos(2));
    drop(trace);
    let events = app.events(|events| events.contains(&Event::TraceReleased));
    let released = position(&events, &Event::TraceReleased);
    assert_eq!(events[..released].iter().filter(|event| **event == CUSTOM).count(), 2, "{events:?}");
}
