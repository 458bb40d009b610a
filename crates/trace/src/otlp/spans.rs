//! The spans of a trace.
//!
//! The root span `InferRequest` contains the times of the frontend. Below it is a span with the name of the model, and
//! below that the span `compute`. Requests to further models have such a pair each, below the span of the model that
//! has sent them. If the operator wants phases, there is a span `queue` beside `compute`. Activities of plug-ins named `X_START` and `X_END` are a span `X` below that of the model.
use std::borrow::Cow;

use crate::record::{FinishedRequest, FinishedTrace, TraceElement, TraceOrigin, TracedModel, new_span};

/// A span in the form of OpenTelemetry. Times are those since 1970, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    /// 0 for none.
    pub(super) parent_id: u64,
    pub(super) state: Option<String>,
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) events: Vec<(Cow<'static, str>, u64)>,
    pub(super) is_root: bool,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(i64),
}

/// The kind SERVER, as all spans of Triton have it.
pub(super) const SERVER_KIND: i32 = 2;

/// The name of what has made the spans.
pub(super) const SCOPE: &str = "triton-server";

const ROOT: &str = "InferRequest";
const COMPUTE: &str = "compute";
const QUEUE: &str = "queue";
/// The attribute of `compute` that says how many rows its batch has.
const BATCH_ROWS: &str = "nereid.batch_rows";

/// The number of spans of a trace, with `phases` or without.
pub(super) fn count(trace: &FinishedTrace, phases: bool) -> usize {
    let of_request = |request: &FinishedRequest| {
        let opens = |element: &&TraceElement| match element {
            TraceElement::Time(name, _) => *name == "COMPUTE_START",
            TraceElement::Custom(name, _) => name.ends_with("_START"),
            TraceElement::Accepted | TraceElement::Batch(_) | TraceElement::Tensor(_) => false,
        };
        let has = |name| {
            request.elements.iter().any(|element| matches!(element, TraceElement::Time(at, _) if *at == name))
        };
        let queue = usize::from(phases && has("QUEUE_START") && has("COMPUTE_START"));
        1 + queue + request.elements.iter().filter(opens).count()
    };
    1 + trace.requests.iter().map(of_request).sum::<usize>()
}

/// The spans of a trace, with `phases` or without: those inside others come first, and the root last.
pub(super) fn of(trace: &FinishedTrace, phases: bool) -> Vec<Span> {
    let Some(origin) = &trace.origin else { return Vec::new() };
    let mut root = Span {
        span_id: origin.root_span,
        parent_id: origin.parent_span.unwrap_or(0),
        is_root: true,
        ..span(origin, ROOT, 0, origin.begun.as_nanos())
    };
    let mut spans = Vec::with_capacity(count(trace, phases));
    for request in &trace.requests {
        RequestSpans::new(origin, request, phases).collect(&mut root, &mut spans);
    }
    let times = spans.iter().map(|span: &Span| span.end).chain(root.events.iter().map(|(_, at)| *at));
    root.end = times.fold(root.start, u64::max);
    spans.push(root);
    spans
}

/// A span that begins at this time of the process.
fn span(origin: &TraceOrigin, name: &str, parent_id: u64, start: u64) -> Span {
    let start = origin.wall(start);
    Span {
        trace_id: origin.trace_id,
        span_id: new_span(),
        parent_id,
        state: origin.state.clone(),
        name: name.to_owned(),
        start,
        end: start,
        attributes: Vec::new(),
        events: Vec::new(),
        is_root: false,
    }
}

/// The spans of one request while they are made.
struct RequestSpans<'t> {
    origin: &'t TraceOrigin,
    request: &'t FinishedRequest,
    model: Span,
    phases: bool,
    /// Where it begins, if the operator wants it, and the request has been in a queue.
    queue: Option<Span>,
    compute: Option<Span>,
    batch_rows: Option<u32>,
    /// The spans of plug-ins that have not ended, the outermost first.
    open: Vec<Span>,
    ended: Vec<Span>,
}

impl<'t> RequestSpans<'t> {
    fn new(origin: &'t TraceOrigin, request: &'t FinishedRequest, phases: bool) -> Self {
        let name = request.about.as_ref().map_or("", |about| about.name.as_str());
        let start = request.elements.iter().find_map(|element| match element {
            TraceElement::Time("REQUEST_START", at) => Some(*at),
            _ => None,
        });
        let start = start.unwrap_or_else(|| origin.begun.as_nanos());
        let mut model =
            Span { span_id: request.spans.own, ..span(origin, name, request.spans.parent, start) };
        model.attributes = attributes(request);
        Self {
            origin,
            request,
            model,
            phases,
            queue: None,
            compute: None,
            batch_rows: None,
            open: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Adds the spans to `spans`, and the times of the frontend to `root`.
    fn collect(mut self, root: &mut Span, spans: &mut Vec<Span>) {
        for element in &self.request.elements {
            match element {
                TraceElement::Time(name, at) => self.time(root, name, *at),
                TraceElement::Custom(name, at) => self.custom(name, *at),
                TraceElement::Batch(rows) => self.batch_rows = self.phases.then_some(*rows),
                TraceElement::Accepted | TraceElement::Tensor(_) => {}
            }
        }
        let last = self.ended.iter().chain(&self.compute).map(|span| span.end).fold(self.model.end, u64::max);
        // A plug-in has not ended these.
        self.open.iter_mut().for_each(|span| span.end = last.max(span.end));
        self.model.end = self.open.iter().map(|span| span.end).fold(last, u64::max);
        spans.append(&mut self.ended);
        spans.extend(self.open.into_iter().rev());
        if let (Some(compute), Some(rows)) = (&mut self.compute, self.batch_rows) {
            compute.attributes.push((BATCH_ROWS, AttributeValue::Number(rows.into())));
        }
        spans.extend(self.compute);
        spans.push(self.model);
    }

    fn time(&mut self, root: &mut Span, name: &'static str, at: u64) {
        let wall = self.origin.wall(at);
        let event = (Cow::Borrowed(name), wall);
        if name == "COMPUTE_START" && self.compute.is_none() {
            self.compute = Some(span(self.origin, COMPUTE, self.model.span_id, at));
        }
        if name == "QUEUE_START" && self.phases {
            self.queue = Some(span(self.origin, QUEUE, self.model.span_id, at));
        }
        if name == "COMPUTE_START"
            && let Some(mut queue) = self.queue.take()
        {
            queue.end = wall.max(queue.start);
            self.ended.push(queue);
        }
        let span = match (&mut self.compute, name) {
            (
                Some(compute),
                "COMPUTE_START" | "COMPUTE_INPUT_END" | "COMPUTE_OUTPUT_START" | "COMPUTE_END",
            ) => compute,
            (_, "REQUEST_START" | "QUEUE_START" | "REQUEST_END") => &mut self.model,
            _ => root,
        };
        span.end = span.end.max(wall);
        span.events.push(event);
    }

    fn custom(&mut self, name: &str, at: u64) {
        let wall = self.origin.wall(at);
        if let Some(name) = name.strip_suffix("_START") {
            let parent = self.open.last().unwrap_or(&self.model).span_id;
            let mut opened = span(self.origin, name, parent, at);
            opened.events.push((Cow::Owned(format!("{name}_START")), wall));
            return self.open.push(opened);
        }
        let ends =
            name.strip_suffix("_END").and_then(|name| self.open.iter().rposition(|span| span.name == name));
        match ends {
            Some(index) => {
                let mut span = self.open.remove(index);
                span.events.push((Cow::Owned(name.to_owned()), wall));
                span.end = wall.max(span.start);
                self.ended.push(span);
            }
            None => {
                let span = self.open.last_mut().unwrap_or(&mut self.model);
                span.end = span.end.max(wall);
                span.events.push((Cow::Owned(name.to_owned()), wall));
            }
        }
    }
}

fn attributes(request: &FinishedRequest) -> Vec<(&'static str, AttributeValue)> {
    let number = |number: u64| AttributeValue::Number(i64::try_from(number).unwrap_or(i64::MAX));
    let mut attributes = Vec::with_capacity(5);
    if let Some(TracedModel { name, version, .. }) = &request.about {
        attributes.push(("triton.model_name", AttributeValue::Text(name.to_string())));
        attributes.push(("triton.model_version", AttributeValue::Number(*version)));
    }
    attributes.push(("triton.trace_id", number(request.identity.id)));
    attributes.push(("triton.trace_parent_id", number(request.identity.parent_id)));
    if let Some(TracedModel { request_id, .. }) =
        request.about.as_ref().filter(|about| !about.request_id.is_empty())
    {
        attributes.push(("triton.request_id", AttributeValue::Text(request_id.to_string())));
    }
    attributes
}

#[cfg(test)]
#[path = "spans_tests.rs"]
pub(super) mod tests;
