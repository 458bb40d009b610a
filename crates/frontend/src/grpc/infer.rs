//! `ModelInfer`: one request, one response.
use std::sync::Arc;

use host::now;
use http::Response;
use hyper::body::Incoming;
use inference::{Request, ResponseStream};
use vocabulary::{Error, Name};

use super::{
    call::CallHead,
    cancellation::CallWatch,
    compression::{self, Compressor},
    grpc_context::GrpcContext,
    message::{
        decode::{self, InferMessage},
        framing::{Messages, ReceivedMessage},
    },
    reply::{self, GrpcReply},
    request::{self, RequestContext},
    status::Status,
};
use crate::{
    access::request_facts,
    cache_headers,
    counted_bytes::room_of,
    decode_pool::PooledResult,
    load_report,
    tracing::{MessageTimes, TracedSend, response_complete},
};

/// Answers the call.
///
/// Dropping the future cancels the request.
///
/// # Errors
/// The status that ends the call.
pub(crate) async fn answer(
    endpoint: &Arc<GrpcContext>,
    call: &mut CallHead,
    body: Incoming,
) -> Result<Response<GrpcReply>, Status> {
    let coding = compression::of_request(&call.headers)?;
    let limits = &endpoint.options.limits;
    // From its message on, the call is counted as a request.
    let open = endpoint.reserve_call()?;
    let waiting = endpoint.options.tracer.is_on().then(now);
    let message = Messages::new(body, coding, (limits, &endpoint.drain), endpoint.engine.inflight_bytes())
        .only()
        .await?;
    drop(open);
    let times = waiting.map(|waiting| MessageTimes { waiting, arrived: now() });
    if let Some(facts) = &call.facts {
        facts.set_request_bytes(message.len());
    }
    let wants_timing = request_facts::wants_timing(&call.headers);
    let wants_load = load_report::is_asked_for(&call.headers);
    let compressor = Compressor::agreed(endpoint.options.compression, &call.headers);
    if let Some(load) = request::load_before(endpoint, call, &message) {
        Box::pin(load).await?;
    }
    let (context, mut responses) = match brief(message) {
        Ok(message) => start(endpoint, call, message, times)?,
        // The future is boxed, so that calls with brief messages have a smaller future.
        Err(LongMessage(message)) => Box::pin(start_long(endpoint, call.clone(), message, times)).await?,
    };
    let mut watch = CallWatch::begin("ModelInferHandler", call.facts.take());
    drop(std::mem::take(&mut call.headers));
    let response = responses.take_only().await;
    watch.end(&responses);
    response_complete(context.trace.as_ref());
    let mut response = match response {
        Ok(response) => response,
        Err(error) => {
            // The status is sent with the headers.
            drop(context.trace.map(TracedSend::grpc));
            return Err(error.into());
        }
    };
    if context.takes_long(&response) {
        (response, _) = context.finish_in_pool(response, endpoint.engine.inflight_bytes()).await??;
    } else {
        context.finish(&mut response)?;
    }
    let mut version = itoa::Buffer::new();
    let message =
        context.message(&response, version.format(context.model.version_of(&responses)), None).unary()?;
    let room = || room_of(&responses, endpoint.engine.inflight_bytes());
    let mut reply = match compressor {
        None => reply::message(message, room, None, context.trace.map(TracedSend::grpc))?,
        Some(compressor) => {
            let message = compressor.compress(message).await?;
            reply::message(message, room, Some(compressor.coding), context.trace.map(TracedSend::grpc))?
        }
    };
    cache_headers::tell(reply.headers_mut(), &responses);
    if wants_timing {
        reply = reply.map(|body| body.with_trailer(request_facts::timing(&responses)));
    }
    if wants_load {
        reply = reply.map(|body| body.with_trailer(endpoint.load_reports.now(&endpoint.engine).metadata()));
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
    endpoint: &GrpcContext,
    call: &CallHead,
    message: ReceivedMessage,
    times: Option<MessageTimes>,
) -> Result<(RequestContext, ResponseStream), Status> {
    let mut request = Request::default();
    let context = decode_request(endpoint, call, message, times, &mut request)?;
    let responses = context.model.infer(request)?;
    Ok((context, responses))
}

/// As [`start`], for a message that takes long to decode.
async fn start_long(
    endpoint: &Arc<GrpcContext>,
    call: CallHead,
    message: ReceivedMessage,
    times: Option<MessageTimes>,
) -> Result<(RequestContext, ResponseStream), Status> {
    let endpoint = endpoint.clone();
    let decoded = PooledResult::pooled(move |_| {
        let mut request = Request::default();
        let _copies = request::reserve_copies(&endpoint, &message)?;
        decode_request(&endpoint, &call, message, times, &mut request).map(|context| (context, request))
    });
    let (context, request) = decoded.await??;
    let responses = context.model.infer(request)?;
    Ok((context, responses))
}

fn decode_request(
    endpoint: &GrpcContext,
    call: &CallHead,
    ReceivedMessage { frames, reservation }: ReceivedMessage,
    times: Option<MessageTimes>,
    request: &mut Request,
) -> Result<RequestContext, Status> {
    let message = InferMessage::decode(&frames)?;
    request::check(call, &message)?;
    let model = endpoint.model(call, &message.model_name, &message.model_version)?;
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
    Ok(request::decode(endpoint, call, (model, message), (reservation, times), request)?)
}
