//! `ModelInfer`: one request, one response.
use std::sync::Arc;

use http::{HeaderMap, Response, request::Parts};
use hyper::body::Incoming;
use inference::{Error, Request, ResponseStream};

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
use crate::{cache_headers, decode_pool::Work};

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
    let message = Messages::new(body, coding, limits, state.engine.inflight_bytes()).only().await?;
    drop(open);
    let compressor = Compressor::agreed(state.options.compression, &head.headers);
    let (asked, mut responses) = match brief(message) {
        Ok(message) => start(state, &head.headers, message)?,
        // The future is boxed, so that calls with brief messages have a smaller future.
        Err(LongMessage(message)) => Box::pin(start_long(state, head.headers.clone(), message)).await?,
    };
    drop(head);
    let mut watch = CallWatch::begin("ModelInferHandler");
    let response = responses.take_only().await;
    watch.end();
    let mut response = response?;
    asked.finish(&mut response)?;
    let mut version = itoa::Buffer::new();
    let message = asked.message(&response, version.format(asked.model.version()), None).unary()?;
    let mut reply = match compressor {
        None => reply::message(message, None),
        Some(compressor) => {
            let message = compressor.compress(message).await?;
            reply::message(message, Some(compressor.coding))
        }
    };
    cache_headers::tell(reply.headers_mut(), &responses);
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
    headers: &HeaderMap,
    message: ReceivedMessage,
) -> Result<(RequestContext, ResponseStream), Status> {
    let mut request = Request::default();
    let asked = decode_request(state, headers, message, &mut request)?;
    let responses = asked.model.infer(request)?;
    Ok((asked, responses))
}

/// As [`start`], for a message that takes long to decode.
async fn start_long(
    state: &Arc<GrpcState>,
    headers: HeaderMap,
    message: ReceivedMessage,
) -> Result<(RequestContext, ResponseStream), Status> {
    let state = state.clone();
    let decoded = Work::pooled(move |_| {
        let mut request = Request::default();
        decode_request(&state, &headers, message, &mut request).map(|asked| (asked, request))
    });
    let (asked, request) = decoded.await??;
    let responses = asked.model.infer(request)?;
    Ok((asked, responses))
}

fn decode_request(
    state: &GrpcState,
    headers: &HeaderMap,
    ReceivedMessage { frames, reservation }: ReceivedMessage,
    request: &mut Request,
) -> Result<RequestContext, Status> {
    let message = InferMessage::decode(&frames).map_err(|_| Status::unparsable())?;
    let model = request::model(state, &message)?;
    if model.config().decoupled {
        return Err(Error::unsupported(
            "ModelInfer RPC doesn't support models with decoupled transaction policy",
        )
        .into());
    }
    let origin = MessageOrigin { headers, reservation, stream: None };
    Ok(request::decode(state, model, message, origin, request)?)
}
