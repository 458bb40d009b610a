//! The messages of a request body. Before each message stand five bytes: its length, and whether it is compressed.
//!
//! The messages are cut out of the received frames without copying. Source: "gRPC over HTTP2".
use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use inference::{ByteBudget, ByteReservation, Error, NoRoom};
use smallvec::SmallVec;

use super::{
    message::{MAX_MESSAGE, PREFIX},
    status::{Code, Status},
};
use crate::{
    compression::{Coding, InflateError},
    connection::{BodyProgress, ClientLimits},
    decode_pool::Work,
};

/// A message, in the frames in which it arrived.
pub(crate) type Frames = SmallVec<[Bytes; 2]>;

/// A whole message, decompressed.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) frames: Frames,
    /// Holds its bytes.
    pub(crate) reservation: ByteReservation,
}

/// Frames below this size are small, and [`SMALL_RUN`] of them in a row are joined: each costs more memory than it brings.
const SMALL: usize = 1024;
const SMALL_RUN: usize = 64;

/// Cuts a body into messages. One task polls it. Polling is cancel-safe.
pub(crate) struct Messages<B> {
    body: B,
    coding: Option<Coding>,
    /// The frames that have arrived and that are not yet given out. No frame is empty.
    frames: Frames,
    /// The number of bytes in `frames`.
    held: usize,
    /// Holds them, and those of the prefix of the message that is arriving.
    reservation: ByteReservation,
    /// Small frames at the end of `frames`.
    small_run: usize,
    /// The header of the message that is arriving.
    header: Option<Header>,
    inflating: Option<Work<Result<(Bytes, ByteReservation), InflateError>>>,
    ended: bool,
    max_message: usize,
    progress: BodyProgress,
    /// If true, the time limit of the first message starts at once. Otherwise the limit of each message starts with its
    /// first byte.
    is_unary: bool,
}

#[derive(Clone, Copy)]
struct Header {
    compressed: bool,
    length: usize,
}

impl<B: Body<Data = Bytes> + Unpin> Messages<B> {
    /// The messages of `body`; compressed ones are in `coding`. A message of more bytes than the limits allow, or one that
    /// unfolds to more, is refused, and so is one for which `budget` has no room: its bytes are reserved as they arrive.
    pub(crate) fn new(
        body: B,
        coding: Option<Coding>,
        limits: &ClientLimits,
        budget: &Arc<ByteBudget>,
    ) -> Self {
        Self {
            reservation: budget.reservation(),
            body,
            coding,
            frames: Frames::new(),
            held: 0,
            small_run: 0,
            header: None,
            inflating: None,
            ended: false,
            max_message: usize::try_from(limits.max_request_bytes)
                .map_or(MAX_MESSAGE, |max| max.min(MAX_MESSAGE)),
            progress: BodyProgress::new(limits.body_pace),
            is_unary: false,
        }
    }

    /// Returns the only message of the body.
    ///
    /// # Errors
    /// The body holds no message or several, or one that cannot be read.
    pub(crate) async fn only(mut self) -> Result<ReceivedMessage, Status> {
        self.is_unary = true;
        let Some(message) = poll_fn(|context| self.poll_next(context)).await else {
            return Err(Status::unparsable());
        };
        let message = message?;
        // Usually the client ends the body together with the message. Then this poll returns at once.
        match poll_fn(|context| self.poll_next(context)).await {
            None => Ok(message),
            Some(Ok(_)) => Err(Status::new(Code::Internal, "Expected one request message, got several")),
            Some(Err(status)) => Err(status),
        }
    }

    /// The next message, decompressed; `None` when the client has ended the body.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<ReceivedMessage, Status>>> {
        loop {
            if let Some(work) = &mut self.inflating {
                let inflated = ready!(Pin::new(work).poll(context));
                self.inflating = None;
                return Poll::Ready(Some(match inflated {
                    Ok(Ok((message, reservation))) => {
                        Ok(ReceivedMessage { frames: SmallVec::from_iter([message]), reservation })
                    }
                    Ok(Err(InflateError::NoRoom(refused))) => Err(Error::from(refused).into()),
                    // It is not known how many bytes more.
                    Ok(Err(InflateError::TooLarge)) => Err(too_long(self.max_message + 1, self.max_message)),
                    Ok(Err(InflateError::Corrupt | InflateError::Abandoned)) => {
                        Err(Status::new(Code::Internal, "failed to decompress request"))
                    }
                    Err(error) => Err(error.into()),
                }));
            }
            match self.cut() {
                Ok(Some((message, None))) => return Poll::Ready(Some(Ok(message))),
                Ok(Some((message, Some(coding)))) => {
                    let ReceivedMessage { frames, reservation } = message;
                    let source = frames.into_iter().collect();
                    self.inflating = Some(coding.inflate(source, self.max_message, reservation));
                    continue;
                }
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
            if self.ended || self.body.is_end_stream() {
                self.ended = true;
                let cut_off = self.held > 0 || self.header.is_some();
                return Poll::Ready(cut_off.then(|| Err(self.give_up())));
            }
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending => return self.poll_too_slow(context).map(|status| Some(Err(status))),
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && let Err(refused) = self.hold(data)
                    {
                        self.give_up();
                        return Poll::Ready(Some(Err(Error::from(refused).into())));
                    }
                }
                // The client has disconnected and cannot read the status.
                Some(Err(_)) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(Status::new(Code::Cancelled, "the client has gone"))));
                }
                None => self.ended = true,
            }
        }
    }

    /// Ready when a message that has begun does not arrive fast enough.
    fn poll_too_slow(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if !self.is_unary && self.held == 0 && self.header.is_none() {
            self.progress.stop();
            return Poll::Pending;
        }
        ready!(self.progress.poll_too_slow(context));
        Poll::Ready(Status::new(Code::DeadlineExceeded, "the request did not arrive in time"))
    }

    /// Stops the time limit, because the server does not read from the client for now.
    pub(crate) fn pause(&mut self) {
        self.progress.stop();
    }

    /// The body ends inside a message. The error is returned once.
    fn give_up(&mut self) -> Status {
        self.frames.clear();
        self.held = 0;
        self.header = None;
        self.reservation.shrink_to(0);
        Status::new(Code::Internal, "The request ends inside a message")
    }

    fn hold(&mut self, data: Bytes) -> Result<(), NoRoom> {
        if data.is_empty() {
            return Ok(());
        }
        self.reservation.grow(data.len())?;
        self.held += data.len();
        self.progress.add(data.len());
        self.small_run = if data.len() < SMALL { self.small_run + 1 } else { 0 };
        self.frames.push(data);
        if self.small_run < SMALL_RUN {
            return Ok(());
        }
        let run = self.frames.drain(self.frames.len() - SMALL_RUN..);
        let joined = run.fold(BytesMut::new(), |mut joined, frame| {
            joined.extend_from_slice(&frame);
            joined
        });
        self.small_run = usize::from(joined.len() < SMALL);
        self.frames.push(joined.freeze());
        Ok(())
    }

    /// A whole message and how it is compressed, if one has arrived.
    fn cut(&mut self) -> Result<Option<(ReceivedMessage, Option<Coding>)>, Status> {
        let header = match self.header {
            Some(header) => header,
            None if self.held < PREFIX => return Ok(None),
            None => {
                let header = self.take_header()?;
                *self.header.insert(header)
            }
        };
        if self.held < header.length {
            return Ok(None);
        }
        self.header = None;
        let frames = self.take(header.length);
        let reservation = self.reservation.split_off(PREFIX + header.length);
        let message = ReceivedMessage { frames, reservation };
        match (header.compressed, self.coding) {
            (false, _) => Ok(Some((message, None))),
            (true, Some(coding)) => Ok(Some((message, Some(coding)))),
            (true, None) => Err(Status::new(
                Code::Internal,
                "A message is compressed, but 'grpc-encoding' names no algorithm",
            )),
        }
    }

    fn take_header(&mut self) -> Result<Header, Status> {
        let mut prefix = [0; PREFIX];
        for byte in &mut prefix {
            *byte = self.frames[0].get_u8();
            if self.frames[0].is_empty() {
                self.frames.remove(0);
            }
        }
        self.held -= PREFIX;
        self.small_run = self.small_run.min(self.frames.len());
        let [flag, length @ ..] = prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if flag > 1 {
            return Err(Status::new(
                Code::Internal,
                format!("A message begins with the invalid flag {flag}"),
            ));
        }
        if length > self.max_message {
            return Err(too_long(length, self.max_message));
        }
        Ok(Header { compressed: flag == 1, length })
    }

    /// Takes the first `length` bytes. They must have arrived.
    fn take(&mut self, length: usize) -> Frames {
        self.held -= length;
        if self.held == 0 {
            self.small_run = 0;
            return std::mem::take(&mut self.frames);
        }
        let mut missing = length;
        let whole = self.frames.iter().take_while(|frame| {
            let fits = frame.len() <= missing;
            missing -= if fits { frame.len() } else { 0 };
            fits
        });
        let whole = whole.count();
        let mut message: Frames = self.frames.drain(..whole).collect();
        if missing > 0 {
            message.push(self.frames[0].split_to(missing));
        }
        self.small_run = self.small_run.min(self.frames.len());
        message
    }
}

/// The refusal of a message of `length` bytes.
fn too_long(length: usize, max: usize) -> Status {
    Status::new(Code::ResourceExhausted, format!("Received message larger than max ({length} vs. {max})"))
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible, task::Waker};

    use http_body::Frame;
    use proptest::{collection, prelude::*};

    use super::*;

    /// A body whose frames have all arrived.
    struct Arrived(VecDeque<Bytes>);

    impl Body for Arrived {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
        }
    }

    fn of(body: Arrived) -> Messages<Arrived> {
        Messages::new(body, None, &ClientLimits::default(), &ByteBudget::new(usize::MAX))
    }

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.push(0);
            bytes.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(message);
        }
        bytes
    }

    fn read(frames: impl IntoIterator<Item = Bytes>) -> Vec<Result<Vec<u8>, Status>> {
        let mut messages = of(Arrived(frames.into_iter().collect()));
        let mut read = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(message)) = messages.poll_next(&mut context) {
            let failed = message.is_err();
            read.push(message.map(|message| {
                assert_eq!(
                    message.reservation.bytes(),
                    message.frames.iter().map(Bytes::len).sum::<usize>() + PREFIX
                );
                message.frames.concat()
            }));
            if failed {
                break;
            }
        }
        read
    }

    proptest! {
        #[test]
        fn messages_survive_any_cut_into_frames(
            sent in collection::vec(collection::vec(any::<u8>(), 0..2500), 0..5),
            sizes in collection::vec(1..3000_usize, 1..8),
        ) {
            let mut bytes = Bytes::from(framed(&sent));
            let mut frames = Vec::new();
            for size in sizes.into_iter().cycle() {
                if bytes.is_empty() {
                    break;
                }
                frames.push(bytes.split_to(size.min(bytes.len())));
            }
            let read: Vec<_> = read(frames).into_iter().map(Result::unwrap).collect();
            prop_assert_eq!(read, sent);
        }
    }

    #[test]
    fn many_tiny_frames_are_joined_and_nothing_is_lost() {
        let sent = vec![(0..=255).cycle().take(10_000).collect::<Vec<u8>>(), vec![1, 2, 3]];
        let bytes = framed(&sent);
        let mut messages = of(Arrived(VecDeque::new()));
        for byte in &bytes {
            messages.hold(Bytes::copy_from_slice(&[*byte])).unwrap();
            assert!(messages.frames.len() < 10_000 / SMALL + 2 * SMALL_RUN);
        }
        let read: Vec<_> =
            read(bytes.iter().map(|byte| Bytes::copy_from_slice(&[*byte]))).into_iter().collect();
        assert_eq!(read, sent.into_iter().map(Ok).collect::<Vec<_>>());
    }

    #[test]
    fn a_message_in_one_frame_is_not_copied() {
        let frame = Bytes::from(framed(&[vec![9; 100]]));
        let mut messages = of(Arrived(VecDeque::from([frame.clone()])));
        let Poll::Ready(Some(Ok(ReceivedMessage { frames, .. }))) =
            messages.poll_next(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("the message is there")
        };
        assert_eq!(frames[0].as_ptr(), frame[PREFIX..].as_ptr());
    }

    #[test]
    fn messages_are_counted_as_they_arrive_each_on_its_own() {
        let budget = ByteBudget::new(100);
        let bytes = Bytes::from(framed(&[vec![1; 20], vec![2; 30], vec![3; 60]]));
        // Two messages and the beginning of the third, more of it, and what has no room.
        let frames = VecDeque::from([bytes.slice(..65), bytes.slice(65..90), bytes.slice(90..)]);
        let mut messages = Messages::new(Arrived(frames), None, &ClientLimits::default(), &budget);
        let mut context = Context::from_waker(Waker::noop());
        let mut next = || messages.poll_next(&mut context);
        let Poll::Ready(Some(Ok(first))) = next() else { panic!("the message is there") };
        assert_eq!((first.reservation.bytes(), budget.used()), (25, 65));
        drop(first);
        let Poll::Ready(Some(Ok(second))) = next() else { panic!("the message is there") };
        assert_eq!((second.reservation.bytes(), budget.used()), (35, 40));
        let held = budget.reserve(10).unwrap();
        let Poll::Ready(Some(Err(refused))) = next() else { panic!("there is no room") };
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert!(refused.message.contains("no room for 35 more bytes of requests: 75 of 100"), "{refused:?}");
        drop((second, held));
        assert_eq!(budget.used(), 0);
    }

    fn refusal(bytes: &'static [u8]) -> Status {
        read([Bytes::from_static(bytes)]).pop().unwrap().unwrap_err()
    }

    #[test]
    fn a_broken_prefix_or_end_is_refused() {
        assert_eq!(refusal(&[0, 0, 0, 0]).message, "The request ends inside a message");
        assert_eq!(refusal(&[0, 0, 0, 0, 2, 1]).message, "The request ends inside a message");
        assert_eq!(refusal(&[2, 0, 0, 0, 0]).message, "A message begins with the invalid flag 2");
        assert!(refusal(&[1, 0, 0, 0, 0]).message.contains("names no algorithm"));
        let refused = refusal(&[0, 0x80, 0, 0, 0]);
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert_eq!(refused.message, "Received message larger than max (2147483648 vs. 2147483647)");
    }

    #[tokio::test]
    async fn a_message_is_limited_as_it_comes_and_once_it_is_inflated() {
        let only = async |content: Vec<u8>, compressed: bool, limit: usize| {
            let mut message = framed(&[content]);
            message[0] = u8::from(compressed);
            let limits = ClientLimits { max_request_bytes: limit as u64, ..ClientLimits::default() };
            let budget = ByteBudget::new(usize::MAX);
            let body = Arrived(VecDeque::from([message.into()]));
            Messages::new(body, Some(Coding::Gzip), &limits, &budget).only().await.map(|message| {
                let ReceivedMessage { frames, reservation } = message;
                assert!(reservation.bytes() >= frames.iter().map(Bytes::len).sum());
                frames
            })
        };
        assert_eq!(only(vec![1; 1000], false, 1000).await.unwrap().concat(), [1; 1000]);
        let refused = only(vec![1; 1001], false, 1000).await.unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert_eq!(refused.message, "Received message larger than max (1001 vs. 1000)");

        let bomb = vec![0; 8 << 20];
        let deflated = Coding::Gzip.deflate(Bytes::from(bomb.clone()).into(), 9, 0).await.unwrap().unwrap();
        assert_eq!(only(deflated.clone(), true, 8 << 20).await.unwrap().concat(), bomb);
        for limit in [deflated.len(), 1 << 20, (8 << 20) - 1] {
            let refused = only(deflated.clone(), true, limit).await.unwrap_err();
            assert_eq!(refused.code, Code::ResourceExhausted);
            let text = format!("Received message larger than max ({} vs. {limit})", limit + 1);
            assert_eq!(refused.message, text);
        }
        let refused = only(b"garbage".to_vec(), true, 1000).await.unwrap_err();
        assert_eq!((refused.code, &*refused.message), (Code::Internal, "failed to decompress request"));
    }

    #[tokio::test]
    async fn a_unary_call_has_exactly_one_message() {
        let body = |messages: &[Vec<u8>]| Arrived(VecDeque::from([Bytes::from(framed(messages))]));
        assert_eq!(of(body(&[vec![1]])).only().await.unwrap().frames.concat(), [1]);
        assert!(of(body(&[vec![1], vec![2]])).only().await.is_err());
        assert_eq!(of(body(&[])).only().await.unwrap_err(), Status::unparsable());
    }
}
