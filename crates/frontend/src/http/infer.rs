//! `POST /v2/models/{M}[/versions/{V}]/infer`
use std::{borrow::Cow, sync::Arc};

use bytes::{Buf, Bytes};
use engine::Model;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::CONTENT_ENCODING};
use kserve::long_write::{BRIEF, LongWrite};
use trace::RequestTrace;
use vocabulary::{ByteReservation, Error, Parameters};

use super::{
    body::{self, ReceivedBody, ResponseBody},
    call::HttpCall,
    compression,
    context::{HttpContext, json_too_large},
    header_case::WrittenHead,
    json_work,
    reply::{self, HttpFailure, HttpOutcome, HttpReply},
    request::{self, DecodeContext, DecodedRequest},
    response::{self, EncodedResponse, ResponseIdentity},
    route_rules::{Methods, ModelPath, RouteRules},
};
use crate::{
    access::{Category, is_key_header, request_facts},
    cache_headers,
    counted_bytes::room_of,
    decode_pool::{self, PooledResult},
    forward::HeaderForward,
    load_report,
    tracing::response_complete,
};

/// The header with the length of the JSON part of a body, in bytes.
pub(super) const HEADER_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

pub(super) fn rules<'r>(path: &'r ModelPath<'_>) -> RouteRules<'r> {
    RouteRules::new(Category::Inference, Methods::Post).of_model(&path.model)
}

pub(super) async fn answer(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    path: &ModelPath<'_>,
) -> HttpOutcome {
    let version = path.version()?;
    let model = context.model(call, path).await?;
    call.note(|facts| facts.set_model(&model));
    if model.config().decoupled {
        let text = "HTTP end point doesn't support models with decoupled transaction policy";
        return Err(Error::unsupported(text).into());
    }
    call.sample(&context.options.tracer, &model);
    let json_len = header_length(call.headers);
    let body = read_request(context, call, json_len.as_ref().ok().copied().flatten()).await?;
    call.note_received();
    call.note(|facts| facts.set_request_bytes(body.bytes.len()));
    let DecodedRequest { mut request, requested_outputs } =
        decode(context, call.headers, body, json_len?, &model).await?;
    if let Some(forward) = &context.options.forward {
        let has_keys = context.options.api_keys.is_some();
        let written = call.written_head.as_ref();
        forward_headers(forward, (&*call.headers, written), has_keys, &mut request.parameters)?;
    }
    request.model_version = version;
    let id = request.id.clone();
    call.note(|facts| facts.set_request_id(&id));
    request.cache_control = cache_headers::of_request(call.headers);
    request.trace = call.trace.as_ref().map(RequestTrace::context);
    let mut responses = model.infer(request)?;
    let response = responses.take_only().await;
    response_complete(call.trace.as_ref());
    call.note(|facts| facts.set_times(&responses));
    let (mut response, version) = (response?, model.version_of(&responses));
    let is_long = requested_outputs.is_long(&response.outputs);
    let mut encode = move |mut long: Option<&mut LongWrite<'_>>| {
        requested_outputs.finish_for(model.config(), &mut response.outputs, long.as_deref_mut())?;
        let identity = ResponseIdentity { id: &id, model: model.name(), version };
        response::encode_in_pieces(identity, &response, &requested_outputs, long)
    };
    let (encoded, reservation) = if is_long {
        let room = room_of(&responses, context.engine.inflight_bytes());
        decode_pool::write_in_pool(room, move |long| encode(Some(long))).await??
    } else {
        (encode(None)?, None)
    };
    let mut reply = send(call.headers, encoded).await;
    if !reply.body().is_brief() {
        let room = reservation.or_else(|| responses.take_reservation());
        reply = reply.map(|body| body.reserved(room));
    }
    cache_headers::tell(reply.headers_mut(), &responses);
    load_report::tell(
        reply.headers_mut(),
        call.headers,
        || None,
        || context.load_reports.now(&context.engine),
    );
    if request_facts::wants_timing(call.headers) {
        let (name, value) = request_facts::timing(&responses);
        reply.headers_mut().insert(name, value);
    }
    Ok(reply)
}

/// Reads the whole body and decompresses it. `json_len` is the number of the header, if it is one: what is no number is
/// refused when the body is there.
async fn read_request(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    json_len: Option<i32>,
) -> Result<ReceivedBody, HttpFailure> {
    let (headers, body) = (&*call.headers, &mut *call.body);
    let limit = context.options.max_input_size;
    let most_bytes = context.options.limits.max_request_bytes;
    let bounds = |len: u64| context.body_limits(len.min(most_bytes));
    if compression::of_request(headers).map_err(HttpFailure::Coding)?.is_some() {
        // Decompression never makes a body much shorter.
        let most = (limit as u64).saturating_add(limit as u64 / 1000 + 1024);
        let body = body::collect(body, bounds(most), |_| compression::too_large(limit)).await?;
        let (bytes, reservation) = compression::decompress(body, limit).await?;
        return Ok(ReceivedBody { bytes: bytes.into(), reservation });
    }
    if let Some(len) = json_len
        && u64::try_from(len).is_ok_and(|len| len > limit as u64)
    {
        return Err(json_too_large(len.unsigned_abs().into(), limit).into());
    }
    let refuse = |len: u64| match json_len {
        _ if len > most_bytes => body::too_large(len, most_bytes),
        Some(0) => request::raw_too_large(usize::try_from(len).unwrap_or(usize::MAX), limit),
        _ => json_too_large(len, limit),
    };
    // Only binary tensors after a JSON part may exceed the limit of the JSON part.
    let most = if matches!(json_len, Some(1..)) { u64::MAX } else { limit as u64 };
    Ok(body::collect(body, bounds(most), refuse).await?)
}

async fn decode(
    context: &HttpContext,
    headers: &HeaderMap,
    body: ReceivedBody,
    json_len: Option<i32>,
    model: &Arc<Model>,
) -> Result<DecodedRequest, Error> {
    let ReceivedBody { bytes: mut body, reservation } = body;
    let max_input_size = context.options.max_input_size;
    let regions = &context.options.regions;
    let json_len = match json_len {
        None => body.len(),
        Some(len) => usize::try_from(len).ok().filter(|len| *len <= body.len()).ok_or_else(|| {
            let header = headers.get(HEADER_LENGTH).map(text).unwrap_or_default();
            Error::invalid(format!(
                "inference header size should be in range (0, {}), got: {header}",
                body.len()
            ))
        })?,
    };
    let context =
        DecodeContext { model: model.name(), max_input_size, inputs: &model.config().inputs, regions };
    if json_len == 0 {
        return counted(request::raw(body, context), reservation);
    }
    if json_len > max_input_size {
        return Err(json_too_large(json_len as u64, max_input_size));
    }
    let json = body.split_to(json_len);
    if json_len <= BRIEF {
        return counted(request::decode(&json.contiguous(), &body, context), reservation);
    }
    let (model, regions) = (model.clone(), regions.clone());
    let decoded = PooledResult::pooled(move |turn| {
        json_work::in_pieces(turn, json, reservation, |json| {
            let inputs = &model.config().inputs;
            let context = DecodeContext { model: model.name(), max_input_size, inputs, regions: &regions };
            request::decode_text(json, &body, context)
        })
    });
    let (decoded, reservation) = decoded.await??;
    counted(Ok(decoded), reservation)
}

/// Counts a request in the reservation of its body.
fn counted(
    mut decoded: Result<DecodedRequest, Error>,
    reservation: ByteReservation,
) -> Result<DecodedRequest, Error> {
    // Counted in place: a request is moved as seldom as possible.
    if let Ok(DecodedRequest { request, .. }) = &mut decoded {
        request.count_in(reservation)?;
    }
    decoded
}

/// The number at the beginning of `Inference-Header-Content-Length`, if there is that header. What follows the number
/// is ignored, as C's `stoi` does.
fn header_length(headers: &HeaderMap) -> Result<Option<i32>, Error> {
    let Some(value) = headers.get(HEADER_LENGTH) else { return Ok(None) };
    let header = text(value);
    let trimmed = header.trim_start();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(Error::invalid(format!(
            "Unable to parse Inference-Header-Content-Length, got: {header}"
        )));
    }
    let number = &trimmed[..trimmed.len() - unsigned.len() + digits];
    number.parse().map(Some).map_err(|_| {
        Error::invalid(format!(
            "Unable to parse Inference-Header-Content-Length, value is out of range [ {}, {} ], got: {header}",
            i32::MIN,
            i32::MAX
        ))
    })
}

/// Adds the forwarded headers as parameters, with names and values as the client wrote them. Models never see API keys.
fn forward_headers(
    forward: &HeaderForward,
    (headers, written_head): (&HeaderMap, Option<&WrittenHead>),
    has_keys: bool,
    parameters: &mut Parameters,
) -> Result<(), Error> {
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let headers = headers.filter(|(name, _)| forward.matches(name) && !(has_keys && is_key_header(name)));
    let headers: Vec<_> = headers.collect();
    let written = written_head.map_or_else(|| vec![None; headers.len()], |head| head.lines_of(&headers));
    for ((name, value), line) in headers.into_iter().zip(written) {
        match line {
            Some((name, value)) => forward.forward(&String::from_utf8_lossy(name), value, parameters)?,
            None => forward.forward(name, value, parameters)?,
        }
    }
    Ok(())
}

fn text(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

/// Sends the response, compressed if the client accepts a coding and the result is shorter.
async fn send(headers: &HeaderMap, encoded: EncodedResponse) -> HttpReply {
    let EncodedResponse { json, binary } = encoded;
    let json_len = (!binary.is_empty()).then_some(json.remaining());
    let len = json.remaining() + binary.iter().map(Bytes::len).sum::<usize>();
    let coding = compression::for_response(headers).filter(|_| len >= compression::MIN_LEN);
    let compressed = match coding {
        Some(coding) => {
            let whole = json.ranges().chain(&binary).cloned().collect();
            compression::compress(whole, coding).await.zip(Some(coding))
        }
        None => None,
    };
    let content_type = if json_len.is_some() { "application/octet-stream" } else { "application/json" };
    let (body, coding) = match compressed {
        Some((compressed, coding)) => (compressed.into(), Some(coding)),
        None => (ResponseBody::new(json, binary.into_iter()), None),
    };
    let mut reply = reply::typed(StatusCode::OK, content_type, body);
    if let Some(len) = json_len {
        reply.headers_mut().insert(HEADER_LENGTH, HeaderValue::from(len as u64));
    }
    if let Some(coding) = coding {
        reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(value: &str) -> Result<Option<i32>, String> {
        let headers = HeaderMap::from_iter([(HEADER_LENGTH, value.parse().unwrap())]);
        header_length(&headers).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn the_length_of_the_json_part_is_read_as_c_does() {
        assert_eq!(header_length(&HeaderMap::new()), Ok(None));
        assert_eq!(length("210"), Ok(Some(210)));
        assert_eq!(length("12abc"), Ok(Some(12)));
        assert_eq!(length("+5"), Ok(Some(5)));
        assert_eq!(length("-1"), Ok(Some(-1)));
        for wrong in ["abc", "", "-", "- 1"] {
            let text = format!("Unable to parse Inference-Header-Content-Length, got: {wrong}");
            assert_eq!(length(wrong), Err(text));
        }
        let text = "Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, 2147483647 ], got: 99999999999";
        assert_eq!(length("99999999999"), Err(text.into()));
    }
}
