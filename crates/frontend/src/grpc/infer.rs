//! `ModelInfer`: one request, one response.
use http::{Response, request::Parts};
use hyper::body::Incoming;
use inference::{Error, ResponseStream};

use super::{
    cancellation::CallWatch,
    compression::{self, Compressor},
    decode::InferMessage,
    framing::{Messages, ReceivedMessage},
    reply::{self, GrpcReply},
    request::{self, MessageOrigin, RequestContext},
    state::GrpcState,
    status::Status,
};

/// Answers the call.
///
/// Dropping the future cancels the request.
///
/// # Errors
/// The status that ends the call.
pub(crate) async fn answer(
    state: &GrpcState,
    head: Parts,
    body: Incoming,
) -> Result<Response<GrpcReply>, Status> {
    let coding = compression::of_request(&head.headers)?;
    let limits = &state.options.limits;
    let message = Messages::new(body, coding, limits, state.engine.inflight_bytes()).only().await?;
    let compressor = Compressor::agreed(state.options.compression, &head.headers);
    let (asked, responses) = start(state, &head, message)?;
    drop(head);
    let mut watch = CallWatch::begin("ModelInferHandler");
    let response = responses.only().await;
    watch.end();
    let mut response = response?;
    asked.finish(&mut response)?;
    let mut version = itoa::Buffer::new();
    let message = asked.message(&response, version.format(asked.model.version()), None).unary()?;
    Ok(match compressor {
        None => reply::message(message, None),
        Some(compressor) => {
            let message = compressor.compress(message).await?;
            reply::message(message, Some(compressor.coding))
        }
    })
}

fn start(
    state: &GrpcState,
    head: &Parts,
    ReceivedMessage { frames, reservation }: ReceivedMessage,
) -> Result<(RequestContext, ResponseStream), Status> {
    let message = InferMessage::decode(&frames).map_err(|_| Status::unparsable())?;
    let model = request::model(state, &message)?;
    if model.config().decoupled {
        return Err(Error::unsupported(
            "ModelInfer RPC doesn't support models with decoupled transaction policy",
        )
        .into());
    }
    Ok(request::start(state, &head.headers, model, message, MessageOrigin { reservation, stream: None })?)
}
