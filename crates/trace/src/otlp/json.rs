//! The JSON form of OTLP: ids in hexadecimal, numbers of 64 bits as texts.
use serde_json::{Value, json};

use super::spans::{AttributeValue, SCOPE, SERVER_KIND, Span};

/// The body of a request with these spans.
pub(super) fn request(resource: &[(String, String)], spans: &[Span]) -> Vec<u8> {
    let attributes: Vec<_> =
        resource.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}})).collect();
    let spans: Vec<_> = spans.iter().map(span).collect();
    let request = json!({
        "resourceSpans": [{
            "resource": {"attributes": attributes},
            "scopeSpans": [{"scope": {"name": SCOPE}, "spans": spans}],
        }],
    });
    request.to_string().into_bytes()
}

fn span(span: &Span) -> Value {
    let mut object = json!({
        "traceId": format!("{:032x}", span.trace_id),
        "spanId": format!("{:016x}", span.span_id),
        "name": span.name,
        "kind": SERVER_KIND,
        "startTimeUnixNano": span.start.to_string(),
        "endTimeUnixNano": span.end.to_string(),
    });
    if span.parent_id != 0 {
        object["parentSpanId"] = format!("{:016x}", span.parent_id).into();
    }
    if let Some(state) = &span.state {
        object["traceState"] = state.as_str().into();
    }
    if !span.attributes.is_empty() {
        object["attributes"] = span.attributes.iter().map(attribute).collect();
    }
    let event = |(name, at): &(_, u64)| json!({"name": name, "timeUnixNano": at.to_string()});
    object["events"] = span.events.iter().map(event).collect();
    object
}

fn attribute((key, value): &(&'static str, AttributeValue)) -> Value {
    let value = match value {
        AttributeValue::Text(text) => json!({"stringValue": text}),
        AttributeValue::Number(number) => json!({"intValue": number.to_string()}),
    };
    json!({"key": key, "value": value})
}
