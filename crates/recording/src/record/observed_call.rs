//! A call on its way through: its bodies are passed on as they come, and what goes through is recorded.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use client::framing::{FRAME_HEAD, frame_length};
use http::{HeaderMap, request, response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use super::hidden_tensors::BodyContent;
use super::recorder::{CollectedBody, Recorder};
use crate::event::{CallProtocol, RecordedAnswer, RecordedBody, RecordedEvent, RecordedRequest};

/// A call that is recorded.
#[derive(Clone)]
pub(crate) struct ObservedCall {
    recorder: Arc<Recorder>,
    call: u64,
    protocol: CallProtocol,
    path: Arc<str>,
}

/// A body on its way. It ends and fails as the body that it passes on.
pub(crate) struct ObservedBody {
    inner: Either<Incoming, Full<Bytes>>,
    /// `None` if it is not recorded, or has ended.
    observer: Option<BodyObserver>,
}

/// What notes a body.
struct BodyObserver {
    recorder: Arc<Recorder>,
    /// The event of the whole body, or that begins or ends a stream of messages.
    event: RecordedEvent,
    content: BodyContent,
    parts: BodyParts,
}

/// How a body is kept.
enum BodyParts {
    Whole(CollectedBody),
    Messages(MessageSplitter),
}

impl ObservedCall {
    /// Begins a call whose head has just arrived. `None` if nothing more is recorded.
    pub(crate) fn begin(
        recorder: &Arc<Recorder>,
        protocol: CallProtocol,
        parts: &request::Parts,
    ) -> Option<ObservedCall> {
        let call = recorder.begin_call()?;
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let path = recorder.headers.path(path).into();
        Some(ObservedCall { recorder: recorder.clone(), call, protocol, path })
    }

    /// The call has a stream of messages in both directions.
    fn is_stream(&self) -> bool {
        self.protocol == CallProtocol::Grpc && self.path.ends_with("/ModelStreamInfer")
    }

    /// The body of the request.
    pub(crate) fn request_body(&self, parts: &request::Parts, body: Incoming) -> ObservedBody {
        let request = RecordedRequest {
            call: self.call,
            at_us: self.recorder.now_us(),
            protocol: self.protocol,
            method: parts.method.as_str().to_owned(),
            path: self.path.to_string(),
            headers: self.recorder.headers.of(&parts.headers),
            body: RecordedBody::Stream,
        };
        let content = BodyContent::of_request(self.protocol, &self.path, &parts.headers);
        let event = RecordedEvent::Request(request);
        if self.is_stream() {
            // It begins with its head; what follows are its messages.
            self.recorder.queue(event, None);
            let end = RecordedEvent::EndOfMessages { call: self.call, at_us: 0 };
            return self.observed(body, end, content);
        }
        self.observed(body, event, content)
    }

    /// The body of the answer.
    pub(crate) fn answer_body(&self, parts: &response::Parts, body: Incoming) -> ObservedBody {
        let answer = RecordedAnswer {
            call: self.call,
            at_us: 0,
            status: parts.status.as_u16(),
            headers: self.recorder.headers.of(&parts.headers),
            trailers: Vec::new(),
            body: RecordedBody::Stream,
        };
        let content = BodyContent::of_answer(self.protocol, &self.path, &parts.headers);
        self.observed(body, RecordedEvent::Answer(answer), content)
    }

    fn observed(&self, body: Incoming, event: RecordedEvent, content: BodyContent) -> ObservedBody {
        let parts = match self.is_stream() {
            true => BodyParts::Messages(MessageSplitter::default()),
            false => BodyParts::Whole(CollectedBody::default()),
        };
        let observer = BodyObserver { recorder: self.recorder.clone(), event, content, parts };
        let mut observed = ObservedBody { inner: Either::Left(body), observer: Some(observer) };
        // Nobody asks for the content of an empty body.
        if observed.inner.is_end_stream() {
            observed.end(None);
        }
        observed
    }
}

impl ObservedBody {
    /// A body that is not recorded.
    pub(crate) fn passed_on(body: Incoming) -> ObservedBody {
        ObservedBody { inner: Either::Left(body), observer: None }
    }

    /// A body of our own, which is not recorded.
    pub(crate) fn own(body: Bytes) -> ObservedBody {
        ObservedBody { inner: Either::Right(Full::new(body)), observer: None }
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) {
        if let Some(observer) = self.observer.take() {
            observer.end(trailers);
        }
    }
}

impl Body for ObservedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(observer), Some(piece)) = (&mut this.observer, frame.data_ref()) {
                    observer.data(piece);
                }
                if frame.is_trailers() || this.inner.is_end_stream() {
                    this.end(frame.trailers_ref());
                }
            }
            None => this.end(None),
            // A body that broke is no request and no answer.
            Some(Err(_)) => this.observer = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl BodyObserver {
    fn data(&mut self, piece: &Bytes) {
        match &mut self.parts {
            BodyParts::Whole(body) => self.recorder.collect(body, piece),
            BodyParts::Messages(splitter) => {
                for body in splitter.add(&self.recorder, piece.clone()) {
                    let (at_us, empty) = (self.recorder.now_us(), RecordedBody::Stream);
                    let event = match &self.event {
                        RecordedEvent::Answer(answer) => {
                            RecordedEvent::AnswerMessage { call: answer.call, at_us, body: empty }
                        }
                        RecordedEvent::EndOfMessages { call, .. } => {
                            RecordedEvent::Message { call: *call, at_us, body: empty }
                        }
                        _ => continue,
                    };
                    self.recorder.queue(event, Some((body, self.content.clone())));
                }
            }
        }
    }

    fn end(mut self, trailers: Option<&HeaderMap>) {
        let now = self.recorder.now_us();
        match &mut self.event {
            RecordedEvent::Answer(answer) => {
                answer.at_us = now;
                answer.trailers =
                    trailers.map(|trailers| self.recorder.headers.of(trailers)).unwrap_or_default();
            }
            RecordedEvent::EndOfMessages { at_us, .. } => *at_us = now,
            _ => {}
        }
        match self.parts {
            BodyParts::Whole(body) => self.recorder.queue(self.event, Some((body, self.content))),
            BodyParts::Messages(_) => self.recorder.queue(self.event, None),
        }
    }
}

/// Cuts a stream into the messages of gRPC, each with its frame.
#[derive(Default)]
struct MessageSplitter {
    head: Vec<u8>,
    /// The bytes of the message that have not arrived, if its head has.
    missing: usize,
    message: CollectedBody,
}

impl MessageSplitter {
    /// Takes a piece of the stream. Returns the messages that are complete.
    fn add(&mut self, recorder: &Recorder, mut piece: Bytes) -> Vec<CollectedBody> {
        let mut complete = Vec::new();
        while !piece.is_empty() {
            let wanted = match FRAME_HEAD - self.head.len() {
                0 => self.missing,
                rest => rest,
            };
            let part = piece.split_to(wanted.min(piece.len()));
            recorder.collect(&mut self.message, &part);
            if self.head.len() < FRAME_HEAD {
                self.head.extend_from_slice(&part);
                let length = frame_length(&self.head);
                self.missing = length.map_or(0, |length| length - FRAME_HEAD);
            } else {
                self.missing -= part.len();
            }
            if self.head.len() == FRAME_HEAD && self.missing == 0 {
                self.head.clear();
                complete.push(std::mem::take(&mut self.message));
            }
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::options;

    /// The bodies of messages that a recording has after these pieces of a stream.
    fn recorded(pieces: &[&[u8]], more_options: &[&str]) -> Vec<RecordedBody> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let words = ["record", file.path().to_str().unwrap()].into_iter().chain(more_options.iter().copied());
        let options = options::parse(words.map(Into::into)).unwrap();
        let (recorder, thread) = Recorder::start(&options).unwrap();
        let mut splitter = MessageSplitter::default();
        for piece in pieces {
            for body in splitter.add(&recorder, Bytes::copy_from_slice(piece)) {
                let event = RecordedEvent::Message { call: 0, at_us: 0, body: RecordedBody::Stream };
                recorder.queue(event, Some((body, BodyContent::Plain)));
            }
        }
        drop(recorder);
        thread.join(Duration::MAX).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let body = |line: &str| match serde_json::from_str(line).unwrap() {
            RecordedEvent::Message { body, .. } => body,
            event => panic!("{event:?}"),
        };
        text.lines().skip(1).map(body).collect()
    }

    #[test]
    fn messages_are_cut_wherever_pieces_end() {
        let stream = [&b"\0\0\0\0\x03abc"[..], b"\0\0\0\0\0", b"\x01\0\0\0\x01\xff"];
        let wanted = stream.map(|message| RecordedBody::of(message.to_vec()));
        let stream = stream.concat();
        for size in 1..=stream.len() {
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            assert_eq!(recorded(&pieces, &[]), wanted, "pieces of {size}");
        }
    }

    #[test]
    fn a_long_message_is_left_out_and_the_next_one_is_not() {
        let long = [&b"\0\0\0\0\x20"[..], &[7; 32]].concat();
        let bodies = recorded(&[&long, b"\0\0\0\0\x01a"], &["--max-body-bytes", "30"]);
        let omitted = RecordedBody::Omitted("longer than --max-body-bytes".into());
        assert_eq!(bodies, [omitted, RecordedBody::Text("\0\0\0\0\x01a".into())]);
    }

    #[test]
    fn a_file_has_at_most_its_bytes() {
        let messages = [b"\0\0\0\0\x01a"; 100];
        let pieces: Vec<&[u8]> = messages.iter().map(|message| &message[..]).collect();
        let all = recorded(&pieces, &["--max-file-bytes", "2000"]).len();
        assert!((1..100).contains(&all), "{all}");
    }
}
