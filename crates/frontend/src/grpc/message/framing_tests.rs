//! Cuts bodies into messages, whole and where there is no room for them.
use std::{convert::Infallible, task::Waker};

use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use proptest::{collection, prelude::*};

use super::*;

/// A body whose frames have all arrived.
fn arrived(frames: impl IntoIterator<Item = Bytes>) -> impl Body<Data = Bytes> + Unpin {
    let frames: Vec<_> = frames.into_iter().map(|data| Ok::<_, Infallible>(Frame::data(data))).collect();
    StreamBody::new(stream::iter(frames))
}

fn of(body: impl Body<Data = Bytes> + Unpin) -> Messages<impl Body<Data = Bytes> + Unpin> {
    Messages::new(body, None, (&ClientLimits::default(), &Drain::new()), &ByteBudget::new(usize::MAX))
}

/// Cuts bytes into frames of these sizes, again and again.
fn cut_into_frames(mut bytes: Bytes, sizes: &[usize]) -> Vec<Bytes> {
    let mut frames = Vec::new();
    for &size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        frames.push(bytes.split_to(size.min(bytes.len())));
    }
    frames
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
    let mut messages = of(arrived(frames));
    let mut read = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(message)) = messages.poll_next(&mut context) {
        let failed = message.is_err();
        read.push(message.map_err(Status::from).map(|message| {
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
        let frames = cut_into_frames(framed(&sent).into(), &sizes);
        let read: Vec<_> = read(frames).into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(read, sent);
    }
}

#[test]
fn many_tiny_frames_are_joined_and_nothing_is_lost() {
    let sent = vec![(0..=255).cycle().take(10_000).collect::<Vec<u8>>(), vec![1, 2, 3]];
    let bytes = framed(&sent);
    let mut messages = of(arrived([]));
    for byte in &bytes {
        messages.hold(Bytes::copy_from_slice(&[*byte])).unwrap();
        assert!(messages.frames.len() < 10_000 / SMALL + 2 * SMALL_RUN);
    }
    let read: Vec<_> = read(bytes.iter().map(|byte| Bytes::copy_from_slice(&[*byte]))).into_iter().collect();
    assert_eq!(read, sent.into_iter().map(Ok).collect::<Vec<_>>());
}

#[test]
fn a_message_in_one_frame_is_not_copied() {
    let frame = Bytes::from(framed(&[vec![9; 100]]));
    let mut messages = of(arrived([frame.clone()]));
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
    let frames = [bytes.slice(..65), bytes.slice(65..90), bytes.slice(90..)];
    let mut messages =
        Messages::new(arrived(frames), None, (&ClientLimits::default(), &Drain::new()), &budget);
    let mut context = Context::from_waker(Waker::noop());
    let mut next = || messages.poll_next(&mut context);
    let Poll::Ready(Some(Ok(first))) = next() else { panic!("the message is there") };
    assert_eq!((first.reservation.bytes(), budget.used()), (25, 65));
    drop(first);
    let Poll::Ready(Some(Ok(second))) = next() else { panic!("the message is there") };
    assert_eq!((second.reservation.bytes(), budget.used()), (35, 40));
    let held = budget.reserve(10).unwrap();
    let Poll::Ready(Some(Err(MessageError::Refused(refused)))) = next() else { panic!("there is no room") };
    let error = refused.error.message;
    assert!(error.contains("no room for 35 more bytes of requests: 75 of 100"), "{error}");
    assert!(matches!(next(), Poll::Ready(None)));
    drop((second, held));
    assert_eq!(budget.used(), 0);
}

proptest! {
    /// The budget has room for one of the brief messages, and for no long one.
    #[test]
    fn a_message_without_room_is_refused_alone_in_any_cut_into_frames(
        long in collection::vec(any::<bool>(), 0..8),
        sizes in collection::vec(1..1500_usize, 1..8),
    ) {
        const ROOM: usize = 200;
        let sent: Vec<_> = long
            .iter()
            .map(|&long| [&[0x1a, 2, b'i', b'd'][..], &vec![7; if long { ROOM * 5 } else { ROOM / 2 }]].concat())
            .collect();
        let frames = cut_into_frames(framed(&sent).into(), &sizes);
        let budget = ByteBudget::new(ROOM);
        let mut messages = Messages::new(arrived(frames), None, (&ClientLimits::default(), &Drain::new()), &budget);
        let mut context = Context::from_waker(Waker::noop());
        for (long, sent) in long.into_iter().zip(sent) {
            match messages.poll_next(&mut context) {
                Poll::Ready(Some(Ok(message))) => prop_assert!(!long && message.frames.concat() == sent),
                Poll::Ready(Some(Err(MessageError::Refused(RefusedMessage { id, error })))) => {
                    prop_assert!(long && error.message.contains("(--max-inflight-bytes)"));
                    prop_assert!(["", "id"].contains(&&*id), "{}", id);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert!(matches!(messages.poll_next(&mut context), Poll::Ready(None)));
        prop_assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_message_without_room_is_skipped_and_not_kept() {
    let budget = ByteBudget::new(100_000);
    let id = b"\x0a\x05model\x1a\x02id\x2a";
    let bytes = framed(&[[&id[..], &vec![7; 10_000_000]].concat(), vec![1, 2, 3]]);
    let mut messages = Messages::new(arrived([]), None, (&ClientLimits::default(), &Drain::new()), &budget);
    let mut refused = Vec::new();
    for frame in Bytes::from(bytes).chunks(16 << 10) {
        assert!(messages.cut().unwrap().is_none());
        if let Err(error) = messages.hold(Bytes::copy_from_slice(frame)) {
            refused.push(error);
        }
        assert!(messages.held < 100_000 && messages.held <= budget.used());
        assert!(refused.is_empty() || messages.held <= PREFIX + 3, "{}", messages.held);
    }
    assert!(matches!(&refused[..], [MessageError::Refused(RefusedMessage { id, .. })] if &**id == "id"));
    assert_eq!(messages.cut().unwrap().unwrap().0.frames.concat(), [1, 2, 3]);
}

#[test]
fn a_refused_message_must_arrive_as_a_whole() {
    let frame = Bytes::from(framed(&[vec![1; 500]])).slice(..400);
    let body = arrived([frame]);
    let mut messages =
        Messages::new(body, None, (&ClientLimits::default(), &Drain::new()), &ByteBudget::new(100));
    let mut next = || messages.poll_next(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(next(), Poll::Ready(Some(Err(MessageError::Refused(_))))));
    let Poll::Ready(Some(Err(MessageError::End(status)))) = next() else { panic!("the body ends too early") };
    assert_eq!(status.message(), "The request ends inside a message");
    assert!(matches!(next(), Poll::Ready(None)));
}

#[test]
fn a_client_that_gives_up_its_call_has_gone() {
    let frames = [Ok(Frame::data(Bytes::from_static(&[0, 0, 0]))), Err("reset")];
    let mut messages = of(StreamBody::new(stream::iter(frames)));
    let mut next = || messages.poll_next(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Some(Err(error @ MessageError::Gone))) = next() else { panic!("the client has gone") };
    assert_eq!(Status::from(error).code(), Code::Cancelled);
    assert!(matches!(next(), Poll::Ready(None | Some(Err(MessageError::End(_))))));
}

#[tokio::test]
async fn a_message_that_unfolds_beyond_the_room_is_refused_alone() {
    let bomb = Coding::Gzip.deflate(Bytes::from(vec![0; 1 << 20]).into(), 9, 0).await.unwrap().unwrap();
    let mut bytes = framed(&[bomb, vec![5]]);
    bytes[0] = 1;
    let body = arrived([bytes.into()]);
    let budget = ByteBudget::new(100_000);
    let mut messages =
        Messages::new(body, Some(Coding::Gzip), (&ClientLimits::default(), &Drain::new()), &budget);
    let refused = poll_fn(|context| messages.poll_next(context)).await.unwrap().unwrap_err();
    assert!(matches!(refused, MessageError::Refused(RefusedMessage { id, .. }) if id.is_empty()));
    let message = poll_fn(|context| messages.poll_next(context)).await.unwrap().unwrap();
    assert_eq!(message.frames.concat(), [5]);
    drop(message);
    assert_eq!(budget.used(), 0);
}

fn refusal(bytes: &'static [u8]) -> Status {
    read([Bytes::from_static(bytes)]).pop().unwrap().unwrap_err()
}

#[test]
fn a_broken_prefix_or_end_is_refused() {
    assert_eq!(refusal(&[0, 0, 0, 0]).message(), "The request ends inside a message");
    assert_eq!(refusal(&[0, 0, 0, 0, 2, 1]).message(), "The request ends inside a message");
    assert_eq!(refusal(&[2, 0, 0, 0, 0]).message(), "A message begins with the invalid flag 2");
    assert!(refusal(&[1, 0, 0, 0, 0]).message().contains("names no algorithm"));
    let refused = refusal(&[0, 0x80, 0, 0, 0]);
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "Received message larger than max (2147483648 vs. 2147483647)");
}

#[tokio::test]
async fn a_message_is_limited_as_it_comes_and_once_it_is_inflated() {
    let only = async |content: Vec<u8>, compressed: bool, limit: usize| {
        let mut message = framed(&[content]);
        message[0] = u8::from(compressed);
        let limits = ClientLimits { max_request_bytes: limit as u64, ..ClientLimits::default() };
        let budget = ByteBudget::new(usize::MAX);
        let body = arrived([message.into()]);
        Messages::new(body, Some(Coding::Gzip), (&limits, &Drain::new()), &budget).only().await.map(
            |message| {
                let ReceivedMessage { frames, reservation } = message;
                assert!(reservation.bytes() >= frames.iter().map(Bytes::len).sum());
                frames
            },
        )
    };
    assert_eq!(only(vec![1; 1000], false, 1000).await.unwrap().concat(), [1; 1000]);
    let refused = only(vec![1; 1001], false, 1000).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "Received message larger than max (1001 vs. 1000)");

    let bomb = vec![0; 8 << 20];
    let deflated = Coding::Gzip.deflate(Bytes::from(bomb.clone()).into(), 9, 0).await.unwrap().unwrap();
    assert_eq!(only(deflated.clone(), true, 8 << 20).await.unwrap().concat(), bomb);
    for limit in [deflated.len(), 1 << 20, (8 << 20) - 1] {
        let refused = only(deflated.clone(), true, limit).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let text = format!("Received message larger than max ({} vs. {limit})", limit + 1);
        assert_eq!(refused.message(), text);
    }
    let refused = only(b"garbage".to_vec(), true, 1000).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Internal, "failed to decompress request"));
}

#[tokio::test]
async fn a_unary_call_has_exactly_one_message() {
    let body = |messages: &[Vec<u8>]| arrived([Bytes::from(framed(messages))]);
    assert_eq!(of(body(&[vec![1]])).only().await.unwrap().frames.concat(), [1]);
    assert!(of(body(&[vec![1], vec![2]])).only().await.is_err());
    assert_eq!(of(body(&[])).only().await.unwrap_err(), Status::unparsable());
}
