//! `POST /v2/models/{M}[/versions/{V}]/generate` and `/generate_stream`: a JSON request, and one JSON response or a
//! stream of them.
//!
//! [`request`] defines what the members of a request mean, [`response`] how a response is written. `generate` answers
//! when it is sure that exactly one response exists (P-W7). `generate_stream` sends each response as a server-sent
//! event when it comes. An event has no field but `data`. The stream ends with the model's final response. Both
//! endpoints wait for the first response before they send a status, so that a first error determines the status (P-W6).
//! A later error is an event like any other.
//!
//! Responses and errors of the model are sent as chunks, whatever their length. Refusals before the model gets the
//! request have a stated length. Both endpoints neither accept nor send compressed bodies, and they do not forward
//! headers.
//!
//! When the client disconnects, hyper drops the future or the body. That cancels the request (P-W25).
mod load_report;
mod request;
#[cfg(test)]
mod request_tests;
mod response;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use engine::Model;
use futures_core::Stream;
use http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_ENCODING, request::Parts};
use http_body::Body;
use inference::{Error, Name, Request, Response, ResponseItem, ResponseStream};
use trace::RequestTrace;

use super::{
    body::{ReceivedBody, ResponseBody},
    infer::received,
    reply::{self, HttpFailure, HttpReply},
    response::Origin,
    service::{HttpService, JsonLimit},
};
use crate::{
    cache_headers,
    decode_pool::Work,
    error,
    request_facts::{self, RequestFacts},
    tracing::{TracedSend, response_complete},
};
pub(super) use request::{Schema, decode};

/// The bytes before the JSON of an event.
const DATA: &[u8] = b"data: ";

impl HttpService {
    pub(super) async fn generate<B: Body<Data = Bytes> + Unpin>(
        &self,
        parts: &Parts,
        body: &mut B,
        model: (&str, Option<i64>),
        trace: &mut Option<RequestTrace>,
    ) -> Result<HttpReply, HttpFailure> {
        let mut generation = self.start_generation(parts, body, model, trace).await?;
        let mut json = Vec::new();
        let only = generation.only().await;
        response_complete(trace.as_ref());
        let written = match only {
            Ok(response) => generation.write(&mut json, &response),
            Err(error) => Err(error),
        };
        let status = match written {
            Ok(()) => StatusCode::OK,
            Err(error) => {
                json = generation.failed(&error);
                error::status(error.code)
            }
        };
        let mut reply = reply::json(status, ResponseBody::chunked(json));
        cache_headers::tell(reply.headers_mut(), &generation.responses);
        self.tell_load(reply.headers_mut(), &parts.headers);
        if request_facts::wants_timing(&parts.headers) {
            let (name, value) = request_facts::timing(&generation.responses);
            reply.headers_mut().insert(name, value);
        }
        Ok(reply)
    }

    pub(super) async fn generate_stream<B: Body<Data = Bytes> + Unpin>(
        &self,
        parts: &Parts,
        body: &mut B,
        model: (&str, Option<i64>),
    ) -> Result<HttpReply, HttpFailure> {
        let mut trace = None;
        let mut generation = self.start_generation(parts, body, model, &mut trace).await?;
        generation.trace = trace;
        let first = generation.responses.next().await;
        let (status, first) = generation.traced_event(first).unwrap_or((StatusCode::OK, Bytes::new()));
        let mut headers = HeaderMap::new();
        cache_headers::tell(&mut headers, &generation.responses);
        self.tell_load(&mut headers, &parts.headers);
        let body = ResponseBody::events(first, generation);
        let mut reply = reply::typed(status, "text/event-stream; charset=utf-8", body);
        reply.headers_mut().extend(headers);
        Ok(reply)
    }

    fn tell_load(&self, reply: &mut HeaderMap, asked: &HeaderMap) {
        load_report::tell(reply, asked, |family, label| self.engine.plugin_metric(family, label));
    }

    async fn start_generation<B: Body<Data = Bytes> + Unpin>(
        &self,
        parts: &Parts,
        body: &mut B,
        (name, version): (&str, Option<i64>),
        trace: &mut Option<RequestTrace>,
    ) -> Result<GenerateCall, HttpFailure> {
        let headers = &parts.headers;
        let model = self.engine.model(name, version)?;
        let facts = RequestFacts::of(&parts.extensions).cloned();
        if let Some(facts) = &facts {
            facts.set_model(&model);
        }
        if !matches!(headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes), None | Some(b"" | b"identity"))
        {
            let text = "Unsupported content-encoding, only 'identity' is supported.";
            return Err(Error::invalid(text).into());
        }
        *trace = self.sample(headers, &model);
        let ReceivedBody { bytes: json, reservation } = self.read_json(body, JsonLimit::Input).await?;
        received(trace.as_ref());
        let (asked, max_input_size) = (model.clone(), self.options.max_input_size);
        let decoded = Work::on_bytes(json.len(), move || {
            let config = asked.config();
            let batched = config.max_batch_size.is_some();
            let mut request =
                decode(&json.contiguous(), Schema { inputs: &config.inputs, batched, max_input_size })?;
            request.count_in(reservation)?;
            Ok::<Request, Error>(request)
        });
        let mut request = decoded.await??;
        request.model_version = version;
        request.cache_control = cache_headers::of_request(headers);
        request.trace = trace.as_ref().map(RequestTrace::context);
        let id = request.id.clone();
        if let Some(facts) = &facts {
            facts.set_request_id(&id);
        }
        let responses = model.infer(request)?;
        Ok(GenerateCall { model, id, responses, trace: None, sending: None, has_last: false, facts })
    }
}

/// A request in flight, as a stream of events.
#[derive(Debug)]
struct GenerateCall {
    model: Arc<Model>,
    id: Name,
    responses: ResponseStream,
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

    /// The event for an item of the stream of responses, and the matching HTTP status. The connection has taken the
    /// previous event.
    fn traced_event(&mut self, item: Option<ResponseItem>) -> Option<(StatusCode, Bytes)> {
        self.sending = None;
        if !self.has_last {
            response_complete(self.trace.as_ref());
        }
        let Some(item) = item else {
            // No more responses: the trace need not wait for the end of the body.
            self.has_last = true;
            self.trace = None;
            return None;
        };
        self.has_last |= item.last;
        let event = self.event(item.result);
        self.sending = self.trace.clone().map(TracedSend::http);
        Some(event)
    }

    /// An event, and the matching HTTP status.
    fn event(&self, result: Result<Response, Error>) -> (StatusCode, Bytes) {
        let mut event = DATA.to_vec();
        let mut status = StatusCode::OK;
        if let Err(error) = result.and_then(|response| self.write(&mut event, &response)) {
            event.truncate(DATA.len());
            event.extend_from_slice(&self.failed(&error));
            status = error::status(error.code);
        }
        event.extend_from_slice(b"\n\n");
        (status, event.into())
    }

    fn write(&self, json: &mut Vec<u8>, response: &Response) -> Result<(), Error> {
        let version = self.model.version_of(&self.responses);
        let origin = Origin { id: &self.id, model: self.model.name(), version };
        response::encode(json, origin, response)
    }

    /// The JSON of an error.
    fn failed(&self, error: &Error) -> Vec<u8> {
        error::note(self.model.name(), error, self.facts.as_deref());
        error::body(&error.message)
    }
}

impl Stream for GenerateCall {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let item = self.responses.poll_item(context);
        item.map(|item| self.traced_event(item).map(|(_, event)| event))
    }
}
