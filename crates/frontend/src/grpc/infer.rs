//! `ModelInfer`: one request, one response.
use std::sync::Arc;

use engine::now;
use http::Response;
use hyper::body::Incoming;
use inference::{Error, Name, Request, ResponseStream};

use super::{
    call::CallHead,
    cancellation::CallWatch,
    compression::{self, Compressor},
    message::{
        decode::{self, InferMessage},
        framing::{Messages, ReceivedMessage},
    },
    reply::{self, GrpcReply},
    request::{self, RequestContext},
    state::GrpcState,
    status::Status,
};
use crate::{
    access::request_facts,
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
    mut call: CallHead,
    body: Incoming,
) -> Result<Response<GrpcReply>, Status> {
    let coding = compression::of_request(&call.headers)?;
    let limits = &state.options.limits;
    // From its message on, the call is counted as a request.
    let open = state.reserve_call()?;
    let waiting = state.options.tracer.is_on().then(now);
    let message =
        Messages::new(body, coding, (limits, &state.drain), state.engine.inflight_bytes()).only().await?;
    drop(open);
    let times = waiting.map(|waiting| MessageTimes { waiting, arrived: now() });
    if let Some(facts) = &call.facts {
        facts.set_request_bytes(message.len());
    }
    let wants_timing = request_facts::wants_timing(&call.headers);
    let compressor = Compressor::agreed(state.options.compression, &call.headers);
    let (asked, mut responses) = match brief(message) {
        Ok(message) => start(state, &call, message, times)?,
        // The future is boxed, so that calls with brief messages have a smaller future.
        Err(LongMessage(message)) => Box::pin(start_long(state, call.clone(), message, times)).await?,
    };
    let mut watch = CallWatch::begin("ModelInferHandler", call.facts.take());
    drop(call);
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
    call: &CallHead,
    message: ReceivedMessage,
    times: Option<MessageTimes>,
) -> Result<(RequestContext, ResponseStream), Status> {
    let mut request = Request::default();
    let asked = decode_request(state, call, message, times, &mut request)?;
    let responses = asked.model.infer(request)?;
    Ok((asked, responses))
}

/// As [`start`], for a message that takes long to decode.
async fn start_long(
    state: &Arc<GrpcState>,
    call: CallHead,
    message: ReceivedMessage,
    times: Option<MessageTimes>,
) -> Result<(RequestContext, ResponseStream), Status> {
    let state = state.clone();
    let decoded = Work::pooled(move |_| {
        let mut request = Request::default();
        let _copies = request::reserve_copies(&state, &message)?;
        decode_request(&state, &call, message, times, &mut request).map(|asked| (asked, request))
    });
    let (asked, request) = decoded.await??;
    let responses = asked.model.infer(request)?;
    Ok((asked, responses))
}

fn decode_request(
    state: &GrpcState,
    call: &CallHead,
    ReceivedMessage { frames, reservation }: ReceivedMessage,
    times: Option<MessageTimes>,
    request: &mut Request,
) -> Result<RequestContext, Status> {
    let message = InferMessage::decode(&frames).map_err(|_| Status::unparsable())?;
    request::check(call, &message)?;
    let model = request::model(state, &message)?;
    if let Some(facts) = &call.facts {
        facts.set_model(&model);
        facts.set_request_id(&Name::new(&message.id));
    }
    if model.config().decoupled {
        return Err(Error::unsupported(
            "ModelInfer RPC doesn't support models with decoupled transaction policy",
        )
        .into());
    }
    Ok(request::decode(state, call, (model, message), (reservation, times), request)?)
}
