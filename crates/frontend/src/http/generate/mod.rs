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
//!
//! The endpoints send no load reports (`endpoint-load-metrics`). Such reports contain the metric family
//! `nv_trt_llm_kv_cache_block_metrics` of a backend, and they are left out if the backend does not report it. No
//! backend can report such metrics yet.
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
use inference::{Error, Name, Request, Response, ResponseStream};

use super::{
    body::{ReceivedBody, ResponseBody},
    reply::{self, HttpFailure, HttpReply},
    response::Origin,
    service::HttpService,
};
use crate::{cache_headers, decode_pool::Work, error};
pub(super) use request::{Schema, decode};

/// The bytes before the JSON of an event.
const DATA: &[u8] = b"data: ";

impl HttpService {
    pub(super) async fn generate<B: Body<Data = Bytes> + Unpin>(
        &self,
        parts: &Parts,
        body: &mut B,
        name: &str,
        version: Option<i64>,
    ) -> Result<HttpReply, HttpFailure> {
        let mut generation = self.start_generation(&parts.headers, body, name, version).await?;
        let mut json = Vec::new();
        let written = match generation.only().await {
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
        Ok(reply)
    }

    pub(super) async fn generate_stream<B: Body<Data = Bytes> + Unpin>(
        &self,
        parts: &Parts,
        body: &mut B,
        name: &str,
        version: Option<i64>,
    ) -> Result<HttpReply, HttpFailure> {
        let mut generation = self.start_generation(&parts.headers, body, name, version).await?;
        let (status, first) = match generation.responses.next().await {
            None => (StatusCode::OK, Bytes::new()),
            Some(item) => generation.event(item.result),
        };
        let mut headers = HeaderMap::new();
        cache_headers::tell(&mut headers, &generation.responses);
        let body = ResponseBody::events(first, generation);
        let mut reply = reply::typed(status, "text/event-stream; charset=utf-8", body);
        reply.headers_mut().extend(headers);
        Ok(reply)
    }

    async fn start_generation<B: Body<Data = Bytes> + Unpin>(
        &self,
        headers: &HeaderMap,
        body: &mut B,
        name: &str,
        version: Option<i64>,
    ) -> Result<GenerateCall, HttpFailure> {
        let model = self.engine.model(name, version)?;
        if !matches!(headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes), None | Some(b"" | b"identity"))
        {
            let text = "Unsupported content-encoding, only 'identity' is supported.";
            return Err(Error::invalid(text).into());
        }
        let ReceivedBody { bytes: json, reservation } = self.read_json(body).await?;
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
        let id = request.id.clone();
        let responses = model.infer(request)?;
        Ok(GenerateCall { model, id, responses })
    }
}

/// A request in flight, as a stream of events.
#[derive(Debug)]
struct GenerateCall {
    model: Arc<Model>,
    id: Name,
    responses: ResponseStream,
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
        let origin = Origin { id: &self.id, model: self.model.name(), version: self.model.version() };
        response::encode(json, origin, response)
    }

    /// The JSON of an error.
    fn failed(&self, error: &Error) -> Vec<u8> {
        error::note(self.model.name(), error);
        error::body(&error.message)
    }
}

impl Stream for GenerateCall {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let item = self.responses.poll_item(context);
        item.map(|item| item.map(|item| self.event(item.result).1))
    }
}
