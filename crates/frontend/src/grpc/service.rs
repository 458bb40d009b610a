//! Finds the handler for a call from its headers, and runs it.
use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, Uri, request::Parts};
use hyper::body::Incoming;
use vocabulary::Error;

use super::{
    admin::AdminCall,
    call::CallHead,
    compression::{self, Compressor},
    grpc_context::GrpcContext,
    infer,
    message::framing::Messages,
    metadata,
    reflection::ReflectionVersion,
    reflection_call::{MAX_QUESTION, ReflectionBody},
    reply::{self, GrpcReply},
    status::{Code, Status},
    stream::StreamBody,
};
use crate::{
    access::{AccessLine, Category, KnownFacts, RequestFacts},
    error,
    port::ClientLimits,
    server_name,
};

/// How long the server still answers calls that come after the beginning of its stop: their clients may not know of it.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// The meaning of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Infer,
    StreamInfer,
    Admin(AdminCall),
    Reflection(ReflectionVersion),
}

impl Target {
    fn of(path: &str) -> Option<Self> {
        match path.strip_prefix("/inference.GRPCInferenceService/") {
            Some("ModelInfer") => Some(Self::Infer),
            Some("ModelStreamInfer") => Some(Self::StreamInfer),
            Some(name) => AdminCall::named(name).map(Self::Admin),
            None => Some(match path {
                "/grpc.health.v1.Health/Check" => Self::Admin(AdminCall::HealthCheck),
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" => {
                    Self::Reflection(ReflectionVersion::V1)
                }
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
                    Self::Reflection(ReflectionVersion::V1Alpha)
                }
                _ => return None,
            }),
        }
    }

    /// The category that restricts the call.
    fn category(self) -> Category {
        match self {
            Self::Infer | Self::StreamInfer => Category::Inference,
            Self::Admin(call) => call.category(),
            Self::Reflection(_) => Category::Metadata,
        }
    }
}

/// Answers one call. Dropping the future, or the body of the answer, cancels the call.
pub(crate) async fn answer(
    endpoint: Arc<GrpcContext>,
    request: Request<Incoming>,
    peer: Option<SocketAddr>,
) -> Result<Response<GrpcReply>, Infallible> {
    if request.method() != Method::POST {
        return Ok(reply::not_grpc(StatusCode::METHOD_NOT_ALLOWED));
    }
    if !metadata::is_grpc(request.headers()) {
        return Ok(reply::not_grpc(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    if let Err(status) = metadata::check_size(request.headers()) {
        return Ok(reply::failed(&status));
    }
    let (Parts { uri, headers, .. }, body) = request.into_parts();
    let target = Target::of(uri.path());
    // The requests of a stream have entries of their own.
    let log = endpoint.options.access_log.as_ref().filter(|_| target != Some(Target::StreamInfer));
    let line = AccessLine::begin(log, "grpc", peer, || call_name(uri.path()).to_owned());
    let mut call = CallHead::new(headers, endpoint.options.api_keys.as_ref(), peer);
    let outcome = if line.is_some() || error::is_noted() {
        // The future is boxed, so that calls that nobody notes have a smaller future.
        Box::pin(answer_noted(&endpoint, (target, uri), &mut call, body, line)).await
    } else {
        drop(uri);
        dispatch(&endpoint, target, &mut call, body).await
    };
    let mut reply = outcome.unwrap_or_else(|status| reply::failed(&status));
    server_name::tell(endpoint.options.server_name.as_ref(), reply.headers_mut());
    Ok(reply)
}

/// Answers a call whose facts are for the log.
async fn answer_noted(
    endpoint: &Arc<GrpcContext>,
    (target, uri): (Option<Target>, Uri),
    call: &mut CallHead,
    body: Incoming,
    mut line: Option<Box<AccessLine>>,
) -> Result<Response<GrpcReply>, Status> {
    let facts = line.as_ref().map(|line| line.facts().clone()).unwrap_or_default();
    call.facts = Some(facts.clone());
    let outcome = dispatch(endpoint, target, call, body).await;
    let (code, bytes) = match &outcome {
        Ok(reply) => (Code::Ok, reply.body().len()),
        Err(status) => {
            note(call_name(uri.path()), status, &facts);
            (status.code(), 0)
        }
    };
    if let Some(line) = &mut line {
        line.set_status(code as u16);
        line.add_response_bytes(bytes);
    }
    outcome
}

/// The name of a call without its service.
fn call_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn note(call: &str, status: &Status, facts: &RequestFacts) {
    let (code, message) = (status.code(), status.message());
    let KnownFacts { model, version, request_id, .. } = facts.read();
    match version {
        Some(version) => {
            log::debug!(model:%, version, request_id:%; "{call} failed: {code:?}: {message}");
        }
        None => log::debug!("{call} failed: {code:?}: {message}"),
    }
}

/// A call is lent, not given: a future keeps room for each value that it is given, and the futures of a call lie in each
/// other.
async fn dispatch(
    endpoint: &Arc<GrpcContext>,
    target: Option<Target>,
    call: &mut CallHead,
    body: Incoming,
) -> Result<Response<GrpcReply>, Status> {
    // h2 accepts calls until the client has confirmed that it knows of the end of its connection.
    if endpoint.drain.has_begun_since(LAST_CALLS) {
        return Err(Status::stopping());
    }
    let Some(target) = target else {
        return Err(Status::new(Code::Unimplemented, ""));
    };
    endpoint.check(target.category(), call)?;
    let granted = metadata::timeout(&call.headers)?;
    if granted.is_some_and(|granted| granted.is_zero()) {
        return Err(Status::late());
    }
    if let Target::StreamInfer = target {
        let coding = compression::of_request(&call.headers)?;
        let open = endpoint.reserve_call()?;
        let limits = (&endpoint.options.limits, &endpoint.drain);
        let messages = Messages::new(body, coding, limits, endpoint.engine.inflight_bytes());
        let compressor = Compressor::agreed(endpoint.options.compression, &call.headers);
        let body = StreamBody::new(endpoint.clone(), call.take_for_stream(), messages, granted, open);
        return Ok(reply::stream(body, compressor.map(|compressor| compressor.coding)));
    }
    if let Target::Reflection(version) = target {
        return reflect(endpoint, version, call, body, granted);
    }
    if let (Target::Infer, None) = (target, granted) {
        return infer::answer(endpoint, call, body).await;
    }
    // The future is boxed, so that inference without a deadline, which is the fast call, has a smaller future.
    let answer = Box::pin(answer_once(endpoint, target, call, body));
    match granted {
        None => answer.await,
        Some(granted) => tokio::time::timeout(granted, answer).await.unwrap_or_else(|_| Err(Status::late())),
    }
}

async fn answer_once(
    endpoint: &Arc<GrpcContext>,
    target: Target,
    call: &mut CallHead,
    body: Incoming,
) -> Result<Response<GrpcReply>, Status> {
    match target {
        Target::Infer => infer::answer(endpoint, call, body).await,
        Target::Admin(admin) => answer_admin(endpoint, admin, call, body).await,
        Target::StreamInfer | Target::Reflection(_) => unreachable!("streams are answered by their body"),
    }
}

/// Begins the answers of a call of reflection.
#[cold]
fn reflect(
    endpoint: &Arc<GrpcContext>,
    version: ReflectionVersion,
    call: &CallHead,
    body: Incoming,
    granted: Option<Duration>,
) -> Result<Response<GrpcReply>, Status> {
    if !endpoint.options.reflection {
        return Err(Status::new(Code::Unimplemented, ""));
    }
    let coding = compression::of_request(&call.headers)?;
    let open = endpoint.reserve_call()?;
    let limits = limits_below(endpoint, MAX_QUESTION);
    let questions = Messages::new(body, coding, (&limits, &endpoint.drain), endpoint.engine.inflight_bytes());
    Ok(reply::reflection(ReflectionBody::new(endpoint.clone(), version, questions, granted, open)))
}

/// The limits of clients, for calls whose messages have at most so many bytes.
fn limits_below(endpoint: &GrpcContext, max_message: u64) -> ClientLimits {
    let limits = endpoint.options.limits;
    ClientLimits { max_request_bytes: limits.max_request_bytes.min(max_message), ..limits }
}

async fn answer_admin(
    endpoint: &GrpcContext,
    admin: AdminCall,
    call: &CallHead,
    body: Incoming,
) -> Result<Response<GrpcReply>, Status> {
    let coding = compression::of_request(&call.headers)?;
    let limits = limits_below(endpoint, admin.max_message());
    let limits = (&limits, &endpoint.drain);
    let mut message = Messages::new(body, coding, limits, endpoint.engine.inflight_bytes()).only().await?;
    message.reservation.grow(admin.decoded_bytes(message.len())).map_err(Error::from)?;
    admin.check_model(&call.access, &message.frames).await?;
    let answer = admin.answer(endpoint, &mut message, call).await?;
    reply::message(answer, || endpoint.engine.inflight_bytes().reservation(), None, None)
}
