//! `ModelInfer`: one request, one response.
use std::sync::Arc;

use engine::now;
use http::{HeaderMap, Response, request::Parts};
use hyper::body::Incoming;
use inference::{Error, Name, Request, ResponseStream};

use super::{
    cancellation::CallWatch,
    compression::{self, Compressor},
    decode::{self, InferMessage},
    framing::{Messages, ReceivedMessage},
    reply::{self, GrpcReply},
    request::{self, MessageOrigin, RequestContext},
    state::GrpcState,
    status::Status,
};
use crate::{
    access::{RequestFacts, request_facts},
    cache_headers,
    counted_bytes::room_of,
    decode_pool::Work,
    tracing::{MessageTimes, TracedSend, response_complete},
};

/// Answers the call.
///
/// Dropping the future cancels the request.
///
/// # Errors
/// The status that ends the call.
pub(crate) async fn answer(
    state: &Arc<GrpcState>,
    head: Parts,
    body: Incoming,
) -> Result<Response<GrpcReply>, Status> {
    let coding = compression::of_request(&head.headers)?;
    let limits = &state.options.limits;
    // From its message on, the call is counted as a request.
    let open = state.reserve_call()?;
    let waiting = state.options.tracer.is_on().then(now);
    let message =
        Messages::new(body, coding, (limits, &state.drain), state.engine.inflight_bytes()).only().await?;
    drop(open);
    let noted = NotedCall {
        times: waiting.map(|waiting| MessageTimes { waiting, arrived: now() }),
        facts: RequestFacts::of(&head.extensions).cloned(),
    };
    if let Some(facts) = &noted.facts {
        facts.set_request_bytes(message.len());
    }
    let wants_timing = request_facts::wants_timing(&head.headers);
    let compressor = Compressor::agreed(state.options.compression, &head.headers);
    let (asked, mut responses) = match brief(message) {
        Ok(message) => start(state, &head.headers, message, &noted)?,
        // The future is boxed, so that calls with brief messages have a smaller future.
        Err(LongMessage(message)) => {
            Box::pin(start_long(state, head.headers.clone(), message, noted.clone())).await?
        }
    };
    drop(head);
    let mut watch = CallWatch::begin("ModelInferHandler", noted.facts);
    let response = responses.take_only().await;
    watch.end(&responses);
    response_complete(asked.trace.as_ref());
    let mut response = match response {
        Ok(response) => response,
        Err(error) => {
            // The status is sent with the headers.
            drop(asked.trace.map(TracedSend::grpc));
            return Err(error.into());
        }
    };
    if asked.takes_long(&response) {
        (response, _) = asked.finish_in_pool(response, state.engine.inflight_bytes()).await??;
    } else {
        asked.finish(&mut response)?;
    }
    let mut version = itoa::Buffer::new();
    let message =
        asked.message(&response, version.format(asked.model.version_of(&responses)), None).unary()?;
    let room = || room_of(&responses, state.engine.inflight_bytes());
    let mut reply = match compressor {
        None => reply::message(message, room, None, asked.trace.map(TracedSend::grpc))?,
        Some(compressor) => {
            let message = compressor.compress(message).await?;
            reply::message(message, room, Some(compressor.coding), asked.trace.map(TracedSend::grpc))?
        }
    };
    cache_headers::tell(reply.headers_mut(), &responses);
    if wants_timing {
        return Ok(reply.map(|body| body.with_trailer(request_facts::timing(&responses))));
    }
    Ok(reply)
}

/// What is noted of a call besides its answer.
#[derive(Clone)]
struct NotedCall {
    /// If requests are traced.
    times: Option<MessageTimes>,
    /// If requests are logged.
    facts: Option<Arc<RequestFacts>>,
}

/// A message that takes long to decode.
struct LongMessage(ReceivedMessage);

/// Returns the message if it is decoded in little time.
// By value: a future keeps room for each value that it lends, until the value's scope ends.
#[inline]
fn brief(message: ReceivedMessage) -> Result<ReceivedMessage, LongMessage> {
    if decode::is_brief(&message.frames) { Ok(message) } else { Err(LongMessage(message)) }
}

fn start(
    state: &GrpcState,
    headers: &HeaderMap,
    message: ReceivedMessage,
    noted: &NotedCall,
) -> Result<(RequestContext, ResponseStream), Status> {
    let mut request = Request::default();
    let asked = decode_request(state, headers, message, noted, &mut request)?;
    let responses = asked.model.infer(request)?;
    Ok((asked, responses))
}

/// As [`start`], for a message that takes long to decode.
async fn start_long(
    state: &Arc<GrpcState>,
    headers: HeaderMap,
    message: ReceivedMessage,
    noted: NotedCall,
) -> Result<(RequestContext, ResponseStream), Status> {
    let state = state.clone();
    let decoded = Work::pooled(move |_| {
        let mut request = Request::default();
        let _copies = request::reserve_copies(&state, &message)?;
        decode_request(&state, &headers, message, &noted, &mut request).map(|asked| (asked, request))
    });
    let (asked, request) = decoded.await??;
    let responses = asked.model.infer(request)?;
    Ok((asked, responses))
}

fn decode_request(
    state: &GrpcState,
    headers: &HeaderMap,
    ReceivedMessage { frames, reservation }: ReceivedMessage,
    noted: &NotedCall,
    request: &mut Request,
) -> Result<RequestContext, Status> {
    let message = InferMessage::decode(&frames).map_err(|_| Status::unparsable())?;
    request::check(state, headers, &message)?;
    let model = request::model(state, &message)?;
    if let Some(facts) = &noted.facts {
        facts.set_model(&model);
        facts.set_request_id(&Name::new(&message.id));
    }
    if model.config().decoupled {
        return Err(Error::unsupported(
            "ModelInfer RPC doesn't support models with decoupled transaction policy",
        )
        .into());
    }
    let origin = MessageOrigin { headers, reservation, stream: None, times: noted.times };
    Ok(request::decode(state, model, message, origin, request)?)
}
