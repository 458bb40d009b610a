//! The readers of gRPC messages and HTTP/2 frames, as entrances for fuzzers. They are called as a connection calls them.
use std::{
    convert::Infallible,
    task::{Context, Poll, Waker},
    time::Instant,
};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use inference::Request;
use kserve::version;
use vocabulary::ByteBudget;

use super::{
    frame_limits::{FrameRateLimits, PingRules},
    frames::FrameReader,
    message::{
        contents::{self, ContentsRoom},
        decode::{self, InferMessage},
        framing::{MessageError, Messages},
        parameters,
    },
    unix_authority::AuthorityRewriter,
};
use crate::port::{ClientLimits, Drain};

/// How many frames a fuzzer cuts from the beginning of a message. The rest is one frame.
const CUTS: usize = 32;

/// Cuts the bytes into frames of `size` bytes, and one with the rest.
fn cut(mut bytes: Bytes, size: usize) -> Vec<Bytes> {
    let mut frames = Vec::with_capacity(CUTS + 1);
    while !bytes.is_empty() {
        let rest = if frames.len() < CUTS { size.clamp(1, bytes.len()) } else { bytes.len() };
        frames.push(bytes.split_to(rest));
    }
    frames
}

/// Decodes a `ModelInferRequest` in frames of `size` bytes, and what it has for its inputs. Returns the bytes that were
/// reserved for the inputs.
pub fn infer_message(message: &Bytes, size: usize) -> usize {
    let frames = cut(message.clone(), size);
    let _ = (decode::is_brief(&frames), decode::leading_id(&frames), decode::bytes_besides_contents(&frames));
    let Ok(message) = InferMessage::decode(&frames) else { return 0 };
    let _ = version::parse(&message.model_version);
    let _ = parameters::read(&message.parameters, &mut Request::default());
    let mut reservation = ByteBudget::new(usize::MAX).reservation();
    let mut room = ContentsRoom::new(&mut reservation);
    for input in message.inputs {
        let _ = contents::region(&input.parameters, &input.name);
        let _ = contents::bytes(&input.contents, input.datatype, &input.name, &message.model_name, &mut room);
    }
    reservation.bytes()
}

/// Cuts a body, which arrives in frames of `size` bytes, into messages, with a budget of `limit` bytes. Each message is
/// held until all have come. Returns the most bytes that were reserved.
///
/// # Panics
/// A message has bytes that were not reserved, or a reservation outlives its message.
pub fn messages(body: &Bytes, size: usize, limit: usize) -> usize {
    let budget = ByteBudget::new(limit);
    let frames = cut(body.clone(), size).into_iter().map(|data| Ok::<_, Infallible>(Frame::data(data)));
    let body = StreamBody::new(stream::iter(frames));
    let mut messages = Messages::new(body, None, (&ClientLimits::default(), &Drain::new()), &budget);
    let mut context = Context::from_waker(Waker::noop());
    let (mut held, mut most) = (Vec::new(), 0);
    while let Poll::Ready(Some(message)) = messages.poll_next(&mut context) {
        most = most.max(budget.used());
        match message {
            Ok(message) => {
                let length: usize = message.frames.iter().map(Bytes::len).sum();
                assert!(message.reservation.bytes() >= length, "a message of {length} bytes is not reserved");
                held.push(message);
            }
            Err(MessageError::Refused(_)) => {}
            Err(MessageError::End(_) | MessageError::Gone) => break,
        }
    }
    drop((messages, held));
    assert_eq!(budget.used(), 0, "a reservation outlives its message");
    most
}

/// Reads the frames of a client that sends `size` bytes at once, and mends the names in them. Returns the bytes after
/// that, and for each frame its length and its stream.
pub fn frames(bytes: &[u8], size: usize) -> (Vec<u8>, Vec<(u32, u32)>) {
    let mut bytes = bytes.to_vec();
    let mut rewriter = AuthorityRewriter::after(0);
    let (mut reader, mut heads) = (FrameReader::default(), Vec::new());
    let now = Instant::now();
    let mut frame_limits = FrameRateLimits::new(PingRules::default(), 100, now);
    for piece in bytes.chunks_mut(size.max(1)) {
        rewriter.rewrite(piece);
        let _ = reader.advance(piece, |head| {
            let _ = frame_limits.received(head, 0, || now);
            heads.push((head.len, head.stream));
            Ok::<_, Infallible>(())
        });
        let _ = (reader.is_between_frames(), reader.is_within(), reader.is_within_head());
    }
    (bytes, heads)
}
