//! The replies of the endpoint: headers, and a body that hyper polls.
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT, ALLOW, CONTENT_TYPE},
};
use http_body::{Body, Frame};
use smallvec::SmallVec;
use vocabulary::{ByteReservation, Error};

use super::{
    call_tasks,
    compression::{ACCEPTED, GRPC_ACCEPT_ENCODING, GRPC_ENCODING},
    pieces::Pieces,
    reflection_call::ReflectionBody,
    status::Status,
    stream::StreamBody,
};
use crate::{chunks::Chunks, compression::Coding, tracing::TracedSend};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The body of a reply.
pub(crate) enum GrpcReply {
    /// One message, then the status OK.
    Message(Chunks, Pieces, Option<TracedSend>, Option<Box<MoreTrailers>>),
    /// The status OK, after hyper has taken the message.
    Status(Option<Box<MoreTrailers>>),
    /// An empty body, or the end of any body.
    Empty,
    /// The responses of a stream, each when it is ready.
    Stream(Box<StreamBody>),
    /// The answers of the reflection service, each when its question has come.
    Reflection(Box<ReflectionBody>),
    /// A text for a client that does not speak gRPC.
    Text(&'static str),
}

/// Trailers beside the status, for clients that ask for them.
pub(crate) type MoreTrailers = SmallVec<[(HeaderName, HeaderValue); 2]>;

/// The text for clients that send another content type than gRPC's.
const NOT_GRPC: &str = "this port speaks gRPC (content-type: application/grpc); gRPC-Web and Connect need a proxy that \
                        translates them\n";

impl Body for GrpcReply {
    type Data = Chunks;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunks>, Infallible>>> {
        call_tasks::frame_requested();
        let polled = self.poll_next(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && frame.is_data()
        {
            call_tasks::frame_given();
        }
        polled
    }

    /// A reply without body ends with its headers. gRPC calls that "Trailers-Only".
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Message(..) | Self::Status(_) | Self::Stream(_) | Self::Reflection(_) | Self::Text(_) => {
                false
            }
        }
    }
}

impl GrpcReply {
    /// The number of bytes that are present.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Message(message, ..) => message.remaining() as u64,
            Self::Text(text) => text.len() as u64,
            Self::Status(_) | Self::Empty | Self::Stream(_) | Self::Reflection(_) => 0,
        }
    }

    /// The same reply with another trailer after its message.
    pub(crate) fn with_trailer(mut self, trailer: (HeaderName, HeaderValue)) -> Self {
        if let Self::Message(_, _, _, trailers) = &mut self {
            trailers.get_or_insert_default().push(trailer);
        }
        self
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunks>, Infallible>>> {
        match self {
            Self::Message(message, pieces, traced, trailers) => {
                let piece = pieces.next(message);
                if !message.has_remaining() {
                    drop(traced.take());
                    *self = Self::Status(trailers.take());
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Self::Status(more) => {
                let mut trailers = Status::ok().trailers();
                if let Some(more) = more.take() {
                    trailers.extend(*more);
                }
                *self = Self::Empty;
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Self::Empty => Poll::Ready(None),
            Self::Stream(stream) => stream.poll_frame(context).map(|frame| frame.map(Ok)),
            Self::Reflection(answers) => answers.poll_frame(context).map(|frame| frame.map(Ok)),
            Self::Text(text) => {
                let text = Bytes::from_static(text.as_bytes());
                *self = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(text.into()))))
            }
        }
    }
}

/// A reply with one message, which counts in the reservation that `room` gives until it has been sent. `traced` learns when
/// the connection has taken the message.
///
/// # Errors
/// RESOURCE_EXHAUSTED: the budget has no room for the message.
pub(crate) fn message(
    mut message: Chunks,
    room: impl FnOnce() -> ByteReservation,
    coding: Option<Coding>,
    traced: Option<TracedSend>,
) -> Result<Response<GrpcReply>, Status> {
    message.count_in(room).map_err(Error::from)?;
    let mut response = grpc(GrpcReply::Message(message, Pieces::new(), traced, None));
    name_coding(&mut response, coding);
    Ok(response)
}

/// The responses of a streamed call.
pub(crate) fn stream(body: Box<StreamBody>, coding: Option<Coding>) -> Response<GrpcReply> {
    let mut response = grpc(GrpcReply::Stream(body));
    name_coding(&mut response, coding);
    response
}

/// The answers of the reflection service.
pub(crate) fn reflection(body: ReflectionBody) -> Response<GrpcReply> {
    grpc(GrpcReply::Reflection(Box::new(body)))
}

/// The reply to a call that fails.
pub(crate) fn failed(status: &Status) -> Response<GrpcReply> {
    let mut response = grpc(GrpcReply::Empty);
    status.write(response.headers_mut());
    response
}

/// The reply to a request that is no gRPC call: it names the method or content type that gRPC needs.
pub(crate) fn not_grpc(status: StatusCode) -> Response<GrpcReply> {
    let (name, value, body) = match status {
        StatusCode::METHOD_NOT_ALLOWED => (ALLOW, HeaderValue::from_static("POST"), GrpcReply::Empty),
        _ => (ACCEPT, GRPC, GrpcReply::Text(NOT_GRPC)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(name, value);
    response
}

fn grpc(body: GrpcReply) -> Response<GrpcReply> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
    response
}

fn name_coding(response: &mut Response<GrpcReply>, coding: Option<Coding>) {
    if let Some(coding) = coding {
        response.headers_mut().insert(GRPC_ENCODING, HeaderValue::from_static(coding.name()));
    }
}
