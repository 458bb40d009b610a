//! Answers requests of generation.
use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use engine::Model;
use futures_core::Stream;
use http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_ENCODING};
use inference::{Response, ResponseStream};
use kserve::output::RequestedOutputs;
use trace::RequestTrace;
use vocabulary::{ByteBudget, ByteReservation, Error, Name};

use super::{
    request::{Schema, decode},
    response,
};
use crate::{
    access::{Category, RequestFacts, request_facts},
    cache_headers,
    chunks::Chunks,
    counted_bytes::room_of,
    decode_pool::{self, PooledResult, Written},
    error,
    http::{
        body::ResponseBody,
        call::HttpCall,
        context::{HttpContext, JsonLimit},
        json_work,
        reply::{self, HttpFailure, HttpOutcome},
        response::ResponseIdentity,
        route_rules::{Methods, ModelPath, RouteRules},
    },
    load_report::{self, CacheReport},
    tracing::{TracedSend, response_complete},
};

/// The bytes before the JSON of an event.
const DATA: &[u8] = b"data: ";

/// The bytes after it.
const END: &[u8] = b"\n\n";

/// The routes of generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum GenerateRoute<'p> {
    /// `/v2/models/{M}[/versions/{V}]/generate`
    Once(ModelPath<'p>),
    /// `/v2/models/{M}[/versions/{V}]/generate_stream`
    Stream(ModelPath<'p>),
}

pub(in crate::http) fn rules<'r>(route: &'r GenerateRoute<'_>) -> RouteRules<'r> {
    let (GenerateRoute::Once(path) | GenerateRoute::Stream(path)) = route;
    RouteRules::new(Category::Inference, Methods::Post).of_model(&path.model)
}

pub(in crate::http) async fn answer(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    route: &GenerateRoute<'_>,
) -> HttpOutcome {
    match route {
        GenerateRoute::Once(path) => answer_once(context, call, path).await,
        GenerateRoute::Stream(path) => answer_with_events(context, call, path).await,
    }
}

/// Answers with the only response.
async fn answer_once(context: &HttpContext, call: &mut HttpCall<'_>, path: &ModelPath<'_>) -> HttpOutcome {
    let mut generation = start(context, call, path).await?;
    let only = generation.only().await;
    generation.has_last = true;
    response_complete(call.trace.as_ref());
    let written = match only {
        Ok(response) => generation.write((b"", b""), response).await.flatten(),
        Err(error) => Err(error),
    };
    let (status, body) = match written {
        Ok((json, reservation)) => {
            let room = reservation.or_else(|| generation.responses.take_reservation());
            (StatusCode::OK, ResponseBody::chunked(json).reserved(room))
        }
        Err(error) => (error::status(error.code), ResponseBody::chunked(generation.failed(&error))),
    };
    let mut reply = reply::json(status, body);
    cache_headers::tell(reply.headers_mut(), &generation.responses);
    tell_load(context, reply.headers_mut(), call.headers);
    if request_facts::wants_timing(call.headers) {
        let (name, value) = request_facts::timing(&generation.responses);
        reply.headers_mut().insert(name, value);
    }
    Ok(reply)
}

/// Answers with an event for each response.
async fn answer_with_events(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    path: &ModelPath<'_>,
) -> HttpOutcome {
    let generation = start(context, call, path).await;
    // The trace follows the events, not the call.
    let trace = call.trace.take();
    let mut generation = generation?;
    generation.trace = trace;
    let first = poll_fn(|context| generation.poll_event(context)).await;
    let (status, first) = first.unwrap_or((StatusCode::OK, Chunks::new()));
    let mut headers = HeaderMap::new();
    cache_headers::tell(&mut headers, &generation.responses);
    tell_load(context, &mut headers, call.headers);
    let body = ResponseBody::events(first, generation);
    let mut reply = reply::typed(status, "text/event-stream; charset=utf-8", body);
    reply.headers_mut().extend(headers);
    Ok(reply)
}

fn tell_load(context: &HttpContext, reply: &mut HeaderMap, request_headers: &HeaderMap) {
    let cache = || CacheReport::of(|family, label| context.engine.plugin_metric(family, label));
    load_report::tell(reply, request_headers, cache, || context.load_reports.now(&context.engine));
}

/// Reads the request, and passes it to the model.
async fn start(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    path: &ModelPath<'_>,
) -> Result<GenerateCall, HttpFailure> {
    let version = path.version()?;
    let model = context.model(call, path).await?;
    call.note(|facts| facts.set_model(&model));
    if !matches!(
        call.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes),
        None | Some(b"" | b"identity")
    ) {
        let text = "Unsupported content-encoding, only 'identity' is supported.";
        return Err(Error::invalid(text).into());
    }
    call.sample(&context.options.tracer, &model);
    let received_body = context.read_json(call.body, JsonLimit::Input).await?;
    call.note_received();
    let (requested_model, max_input_size) = (model.clone(), context.options.max_input_size);
    let decoded = json_work::read(received_body, move |json| {
        let config = requested_model.config();
        let batched = config.max_batch_size.is_some();
        decode(json, Schema { inputs: &config.inputs, batched, max_input_size })
    });
    let (mut request, reservation) = decoded.await??;
    request.count_in(reservation)?;
    request.model_version = version;
    request.cache_control = cache_headers::of_request(call.headers);
    request.trace = call.trace.as_ref().map(RequestTrace::context);
    let id = request.id.clone();
    call.note(|facts| facts.set_request_id(&id));
    let responses = model.infer(request)?;
    let budget = context.engine.inflight_bytes().clone();
    let (facts, trace, sending, writing) = (call.facts.clone(), None, None, None);
    Ok(GenerateCall { model, id, responses, budget, writing, trace, sending, has_last: false, facts })
}

/// A request in flight, as a stream of events.
struct GenerateCall {
    model: Arc<Model>,
    id: Name,
    responses: ResponseStream,
    /// Counts the events until they have been sent.
    budget: Arc<ByteBudget>,
    /// The event that is being written.
    writing: Option<PooledResult<Result<Written<Chunks>, Error>>>,
    /// The trace of a stream of events.
    trace: Option<RequestTrace>,
    /// The event that the connection has not taken yet, if the request is traced.
    sending: Option<TracedSend>,
    /// The model has sent its final response.
    has_last: bool,
    facts: Option<Arc<RequestFacts>>,
}

impl Drop for GenerateCall {
    fn drop(&mut self) {
        if let Some(facts) = &self.facts {
            facts.set_times(&self.responses);
        }
    }
}

impl GenerateCall {
    /// The response, if the model sends exactly one. Returns at the second response without waiting for a third.
    async fn only(&mut self) -> Result<Response, Error> {
        let first = self.responses.next().await;
        match first {
            Some(first) if first.last || self.responses.next().await.is_none() => first.result,
            Some(_) | None => Err(Error::invalid(
                "generate expects model to produce exactly 1 response, use generate stream for model that generates \
                 various number of responses",
            )),
        }
    }

    /// The next event, and the matching HTTP status. The connection has taken the previous event.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<(StatusCode, Chunks)>> {
        let writing = match &mut self.writing {
            Some(writing) => writing,
            None => {
                let item = ready!(self.responses.poll_item(context));
                self.sending = None;
                if !self.has_last {
                    response_complete(self.trace.as_ref());
                }
                let Some(item) = item else {
                    // No more responses: the trace need not wait for the end of the body.
                    self.has_last = true;
                    self.trace = None;
                    return Poll::Ready(None);
                };
                self.has_last |= item.last;
                let writing = match item.result {
                    Ok(response) => self.write((DATA, END), response),
                    Err(error) => PooledResult::done(Err(error)),
                };
                self.writing.insert(writing)
            }
        };
        let written = ready!(Pin::new(writing).poll(context));
        self.writing = None;
        let event = self.event(written.flatten());
        self.sending = self.trace.clone().map(TracedSend::http);
        Poll::Ready(Some(event))
    }

    /// The event, counted until the connection has sent it, and the matching HTTP status.
    fn event(&self, written: Result<Written<Chunks>, Error>) -> (StatusCode, Chunks) {
        let counted = written.and_then(|(mut event, reservation)| {
            event.count_in(|| reservation.unwrap_or_else(|| self.room()))?;
            Ok(event)
        });
        if self.has_last {
            // An event that is not counted needs no room. From the last one a client concludes that the request has none.
            drop(self.responses.take_reservation());
        }
        match counted {
            Ok(event) => (StatusCode::OK, event),
            Err(error) => {
                let event = [DATA, &self.failed(&error), END].concat();
                (error::status(error.code), event.into())
            }
        }
    }

    /// A reservation for the text of a response. The last one takes the room of its request.
    fn room(&self) -> ByteReservation {
        if self.has_last { room_of(&self.responses, &self.budget) } else { self.budget.reservation() }
    }

    /// The text of a response between what stands before and behind it.
    fn write(
        &self,
        around: (&'static [u8], &'static [u8]),
        response: Response,
    ) -> PooledResult<Result<Written<Chunks>, Error>> {
        let version = self.model.version_of(&self.responses);
        if !RequestedOutputs::default().is_long(&response.outputs) {
            let identity = ResponseIdentity { id: &self.id, model: self.model.name(), version };
            return PooledResult::done(
                response::encode(around, identity, &response, None).map(|text| (text, None)),
            );
        }
        let (model, id, reservation) = (self.model.clone(), self.id.clone(), self.room());
        decode_pool::write_in_pool(reservation, move |long| {
            let identity = ResponseIdentity { id: &id, model: model.name(), version };
            response::encode(around, identity, &response, Some(long))
        })
    }

    /// The JSON of an error.
    fn failed(&self, error: &Error) -> Vec<u8> {
        error::note(self.model.name(), error, self.facts.as_deref());
        error::body(&error.message)
    }
}

impl Stream for GenerateCall {
    type Item = Chunks;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Chunks>> {
        self.poll_event(context).map(|event| Some(event?.1))
    }
}
