//! The protobuf form of OTLP: `ExportTraceServiceRequest`, with the fields that the server uses. The numbers are those
//! of opentelemetry-proto 1.
use prost::Message;

use super::spans::{AttributeValue, SCOPE, SERVER_KIND, Span};

#[derive(Clone, PartialEq, Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<SpanResource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanResource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<SpanEvent>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanEvent {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AttributeMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeMessage {
    #[prost(oneof = "attribute_message::Value", tags = "1, 3")]
    value: Option<attribute_message::Value>,
}

mod attribute_message {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(super) enum Value {
        #[prost(string, tag = "1")]
        StringValue(String),
        #[prost(int64, tag = "3")]
        IntValue(i64),
    }
}

/// The body of a request with these spans.
pub(super) fn request(resource: &[(String, String)], spans: &[Span]) -> Vec<u8> {
    let attributes = resource.iter().map(|(key, value)| text(key, value)).collect();
    let spans = spans.iter().map(span).collect();
    let scope = Some(InstrumentationScope { name: SCOPE.to_owned() });
    let resource_spans = ResourceSpans {
        resource: Some(SpanResource { attributes }),
        scope_spans: vec![ScopeSpans { scope, spans }],
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

fn span(span: &Span) -> SpanMessage {
    let id = |id: u64| if id == 0 { Vec::new() } else { id.to_be_bytes().to_vec() };
    let event = |(name, at): &(std::borrow::Cow<'static, str>, u64)| SpanEvent {
        time_unix_nano: *at,
        name: name.clone().into_owned(),
    };
    let attribute = |(key, value): &(&'static str, AttributeValue)| match value {
        AttributeValue::Text(value) => text(key, value),
        AttributeValue::Number(value) => key_value(key, attribute_message::Value::IntValue(*value)),
    };
    SpanMessage {
        trace_id: span.trace_id.to_be_bytes().to_vec(),
        span_id: id(span.span_id),
        trace_state: span.state.clone().unwrap_or_default(),
        parent_span_id: id(span.parent_id),
        name: span.name.clone(),
        kind: SERVER_KIND,
        start_time_unix_nano: span.start,
        end_time_unix_nano: span.end,
        attributes: span.attributes.iter().map(attribute).collect(),
        events: span.events.iter().map(event).collect(),
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    key_value(key, attribute_message::Value::StringValue(value.to_owned()))
}

fn key_value(key: &str, value: attribute_message::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AttributeMessage { value: Some(value) }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::spans::{self, tests::nested_trace};

    #[test]
    fn both_forms_say_the_same() {
        let (resource, spans) = ([("a".to_owned(), "b".to_owned())], spans::of(&nested_trace(), true));
        let decoded = ExportTraceServiceRequest::decode(&request(&resource, &spans)[..]).unwrap();
        let json: serde_json::Value =
            serde_json::from_slice(&super::super::json::request(&resource, &spans)).unwrap();
        let found = &decoded.resource_spans[0].scope_spans[0].spans;
        let expected = json["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        assert_eq!(found.len(), expected.len());
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(hex(&found.trace_id), expected["traceId"].as_str().unwrap());
            assert_eq!(hex(&found.span_id), expected["spanId"].as_str().unwrap());
            assert_eq!(hex(&found.parent_span_id), expected["parentSpanId"].as_str().unwrap_or_default());
            assert_eq!(found.name, expected["name"].as_str().unwrap());
            assert_eq!(
                found.start_time_unix_nano.to_string(),
                expected["startTimeUnixNano"].as_str().unwrap()
            );
            assert_eq!(found.end_time_unix_nano.to_string(), expected["endTimeUnixNano"].as_str().unwrap());
            assert_eq!(found.trace_state, expected["traceState"].as_str().unwrap_or_default());
            let names: Vec<_> = found.events.iter().map(|event| event.name.as_str()).collect();
            let events = expected["events"].as_array().unwrap();
            assert_eq!(names, events.iter().map(|event| event["name"].as_str().unwrap()).collect::<Vec<_>>());
            let count = expected["attributes"].as_array().map_or(0, Vec::len);
            assert_eq!(found.attributes.len(), count);
        }
        let attributes = &decoded.resource_spans[0].resource.as_ref().unwrap().attributes;
        assert_eq!(attributes, &[text("a", "b")]);
    }
}
