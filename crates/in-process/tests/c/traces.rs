//! Traces of requests.
use c_api::types::trace::{TENSORS, TIMESTAMPS};
use inference::{DataType, Response, Tensor};

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
        let events =
            app.events(|events| events.contains(&Event::TraceReleased) && events.contains(&Event::Released));
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
    let events = app.events(|events| events.contains(&Event::TraceReleased));
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
        let events = app.events(|events| events.contains(&Event::TraceReleased));
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
