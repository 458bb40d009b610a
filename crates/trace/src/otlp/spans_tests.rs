//! The spans of traces.
use inference::{Timestamp, TraceIdentity};
use vocabulary::ByteBudget;

use super::*;
use crate::record::ModelSpans;

fn request(id: u64, parent_id: u64, spans: (u64, u64), elements: Vec<TraceElement>) -> FinishedRequest {
    FinishedRequest {
        identity: TraceIdentity { id, parent_id },
        spans: ModelSpans { own: spans.0, parent: spans.1 },
        about: Some(TracedModel { name: format!("model{id}").into(), version: 1, request_id: "r".into() }),
        elements,
        _reservation: ByteBudget::new(0).reservation(),
    }
}

fn times(names: &[(&'static str, u64)]) -> Vec<TraceElement> {
    names.iter().map(|&(name, at)| TraceElement::Time(name, at)).collect()
}

fn custom(name: &str, at: u64) -> TraceElement {
    TraceElement::Custom(name.into(), at)
}

fn trace(requests: Vec<FinishedRequest>) -> FinishedTrace {
    let origin = TraceOrigin {
        trace_id: 0xabc,
        parent_span: Some(77),
        state: Some("a=b".to_owned()),
        root_span: 1,
        begun: Timestamp::from_nanos(10),
        wall_offset: 1000,
    };
    FinishedTrace { setting: 0, log_frequency: 0, is_last: false, origin: Some(origin), requests }
}

/// A request of an ensemble with one step.
pub(in super::super) fn nested_trace() -> FinishedTrace {
    let step = times(&[
        ("REQUEST_START", 22),
        ("QUEUE_START", 23),
        ("COMPUTE_START", 24),
        ("COMPUTE_INPUT_END", 25),
        ("COMPUTE_OUTPUT_START", 26),
        ("COMPUTE_END", 27),
        ("REQUEST_END", 28),
    ]);
    let own = times(&[
        ("HTTP_RECV_START", 10),
        ("HTTP_RECV_END", 11),
        ("REQUEST_START", 20),
        ("QUEUE_START", 21),
        ("INFER_RESPONSE_COMPLETE", 30),
        ("REQUEST_END", 31),
        ("HTTP_SEND_END", 40),
    ]);
    trace(vec![request(6, 5, (60, 50), step), request(5, 0, (50, 1), own)])
}

fn shape(spans: &[Span]) -> Vec<(&str, u64, u64, u64)> {
    spans.iter().map(|span| (span.name.as_str(), span.parent_id, span.start, span.end)).collect()
}

fn events(span: &Span) -> Vec<(&str, u64)> {
    span.events.iter().map(|(name, at)| (&**name, *at)).collect()
}

#[test]
fn a_request_inside_another_is_a_span_below_its_model() {
    let nested = nested_trace();
    let spans = of(&nested, false);
    assert_eq!(count(&nested, false), spans.len());
    assert_eq!(
        shape(&spans),
        [
            ("compute", 60, 1024, 1027),
            ("model6", 50, 1022, 1028),
            ("model5", 1, 1020, 1031),
            ("InferRequest", 77, 1010, 1040),
        ]
    );
    assert_eq!(spans[1].span_id, 60);
    assert_eq!((spans[3].span_id, spans[3].is_root, spans[2].is_root), (1, true, false));
    assert!(spans.iter().all(|span| span.trace_id == 0xabc && span.state.as_deref() == Some("a=b")));
    let names: Vec<_> = events(&spans[3]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_END"]);
    assert_eq!(events(&spans[1]), [("REQUEST_START", 1022), ("QUEUE_START", 1023), ("REQUEST_END", 1028)]);
    assert_eq!(events(&spans[0])[3], ("COMPUTE_END", 1027));
    let attributes: Vec<_> = spans[1].attributes.iter().map(|(key, _)| *key).collect();
    let expected = ["model_name", "model_version", "trace_id", "trace_parent_id", "request_id"];
    assert_eq!(attributes, expected.map(|name| format!("triton.{name}")));
    assert_eq!(spans[1].attributes[2].1, AttributeValue::Number(6));
    assert_eq!(spans[1].attributes[3].1, AttributeValue::Number(5));
}

#[test]
fn activities_of_plug_ins_are_spans_or_events() {
    let mut elements = times(&[("REQUEST_START", 20)]);
    elements.extend([
        custom("OUTER_START", 21),
        custom("INNER_START", 22),
        custom("note", 23),
        custom("INNER_END", 24),
        custom("OTHER_END", 25),
        custom("OUTER_END", 26),
        custom("late", 27),
        custom("OPEN_START", 28),
    ]);
    elements.extend(times(&[("REQUEST_END", 30)]));
    let trace = trace(vec![request(5, 0, (50, 1), elements)]);
    let spans = of(&trace, false);
    assert_eq!(count(&trace, false), spans.len());
    let outer = spans.iter().find(|span| span.name == "OUTER").unwrap();
    assert_eq!(
        shape(&spans)[..4],
        [
            ("INNER", outer.span_id, 1022, 1024),
            ("OUTER", 50, 1021, 1026),
            ("OPEN", 50, 1028, 1030),
            ("model5", 1, 1020, 1030),
        ]
    );
    assert_eq!(events(&spans[0]), [("INNER_START", 1022), ("note", 1023), ("INNER_END", 1024)]);
    assert_eq!(events(outer), [("OUTER_START", 1021), ("OTHER_END", 1025), ("OUTER_END", 1026)]);
    assert_eq!(events(&spans[3]), [("REQUEST_START", 1020), ("late", 1027), ("REQUEST_END", 1030)]);
}

#[test]
fn a_request_that_no_instance_has_run_has_no_span_for_it() {
    let spans =
        of(&trace(vec![request(5, 0, (50, 1), times(&[("REQUEST_START", 20), ("REQUEST_END", 21)]))]), false);
    assert_eq!(shape(&spans), [("model5", 1, 1020, 1021), ("InferRequest", 77, 1010, 1021)]);
}

#[test]
fn phases_show_the_time_in_the_queue_and_the_rows_of_the_batch() {
    let mut run = times(&[("REQUEST_START", 20), ("QUEUE_START", 21)]);
    run.push(TraceElement::Batch(7));
    run.extend(times(&[("COMPUTE_START", 25), ("COMPUTE_END", 26), ("REQUEST_END", 27)]));
    let refused = times(&[("REQUEST_START", 30), ("QUEUE_START", 31), ("REQUEST_END", 32)]);
    let trace = trace(vec![request(5, 0, (50, 1), run), request(6, 0, (60, 1), refused)]);
    let spans = of(&trace, true);
    assert_eq!(count(&trace, true), spans.len());
    assert_eq!(
        shape(&spans)[..5],
        [
            ("queue", 50, 1021, 1025),
            ("compute", 50, 1025, 1026),
            ("model5", 1, 1020, 1027),
            ("model6", 1, 1030, 1032),
            ("InferRequest", 77, 1010, 1032),
        ]
    );
    assert_eq!(spans[1].attributes, [("nereid.batch_rows", AttributeValue::Number(7))]);
    assert_eq!(events(&spans[2]), [("REQUEST_START", 1020), ("QUEUE_START", 1021), ("REQUEST_END", 1027)]);
    assert!(
        of(&trace, false)
            .iter()
            .all(|span| span.name != "queue" && span.name != "compute" || span.attributes.is_empty())
    );
}
