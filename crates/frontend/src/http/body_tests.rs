//! Bodies that arrive in pieces, and answers that are sent in pieces.
use futures_util::stream;
use http_body_util::StreamBody;
use vocabulary::ErrorCode;

use super::*;

/// A body that arrives in these pieces, without a stated length.
fn chunked(pieces: Vec<Bytes>) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
    StreamBody::new(stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece)))))
}

async fn read(pieces: Vec<Bytes>, len: u64) -> Result<TensorData, BodyFailure> {
    let mut body = chunked(pieces);
    let budget = &ByteBudget::new(usize::MAX);
    let bounds = BodyLimits { len, pace: None, drain: &Drain::new(), budget };
    let body = collect(&mut body, bounds, |len| Error::invalid(format!("{len} bytes"))).await?;
    assert_eq!(body.reservation.bytes(), body.bytes.len());
    Ok(body.bytes)
}

#[tokio::test]
async fn small_pieces_are_joined_and_large_ones_shared() {
    let large = Bytes::from(vec![b'L'; SMALL]);
    let pieces = vec![Bytes::from("head"), "a".into(), "b".into(), large.clone(), "c".into()];
    let body = read(pieces, u64::MAX).await.unwrap();
    let lens: Vec<usize> = body.pieces().iter().map(Bytes::len).collect();
    assert_eq!(lens, [4, 2, SMALL, 1]);
    assert_eq!(body.pieces()[2].as_ptr(), large.as_ptr());
}

#[tokio::test]
async fn pieces_are_copied_together_when_more_than_half_of_the_budget_is_used() {
    let budget = ByteBudget::new(10 * SMALL);
    let drain = Drain::new();
    let bounds = BodyLimits { len: u64::MAX, pace: None, drain: &drain, budget: &budget };
    let pieces = vec![Bytes::from(vec![b'p'; SMALL]); 8];
    let body = collect(&mut chunked(pieces), bounds, |len| too_large(len, 0)).await.unwrap();
    let lens: Vec<usize> = body.bytes.pieces().iter().map(Bytes::len).collect();
    assert_eq!(lens, [SMALL, SMALL, SMALL, SMALL, SMALL, 3 * SMALL]);
}

#[tokio::test]
async fn a_body_is_refused_as_soon_as_it_is_too_long() {
    let error = read(vec!["abc".into(), "def".into(), "ghi".into()], 5).await.unwrap_err();
    assert!(matches!(error, BodyFailure::Refused(error) if error.message == "6 bytes"));
    let mut announced = ResponseBody::from("abcdef");
    let bounds =
        BodyLimits { len: 5, pace: None, drain: &Drain::new(), budget: &ByteBudget::new(usize::MAX) };
    let error = collect(&mut announced, bounds, |len| Error::invalid(format!("{len} told")));
    assert!(matches!(error.await.unwrap_err(), BodyFailure::Refused(error) if error.message == "6 told"));
    assert_eq!(announced.len(), 6, "nothing was read");
}

#[tokio::test]
async fn a_body_is_counted_while_it_arrives_and_refused_beyond_the_budget() {
    let budget = ByteBudget::new(10);
    let drain = Drain::new();
    let bounds = BodyLimits { len: 100, pace: None, drain: &drain, budget: &budget };
    let receive =
        async |pieces: Vec<Bytes>| collect(&mut chunked(pieces), bounds, |len| too_large(len, 100)).await;
    let held = receive(vec!["abc".into(), "def".into()]).await.unwrap();
    assert_eq!(budget.used(), 6);
    let BodyFailure::Refused(error) = receive(vec!["abc".into(), "de".into()]).await.unwrap_err() else {
        panic!("the client is told")
    };
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert!(error.message.contains("no room for 2 more bytes of requests: 9 of 10"), "{error}");
    assert_eq!(budget.used(), 6);
    drop(held);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn too_many_tiny_chunks_are_refused() {
    assert!(read(vec!["x".into(); MAX_CHUNKS], u64::MAX).await.is_ok());
    let error = read(vec!["x".into(); MAX_CHUNKS + 1], u64::MAX).await.unwrap_err();
    assert!(matches!(error, BodyFailure::Broken(StatusCode::BAD_REQUEST, _)));
}

async fn reads_rest<B: Body<Data = Bytes> + Unpin>(mut body: B, waits: bool) -> bool {
    read_rest(&mut body, waits, None, &Drain::new()).await
}

#[tokio::test]
async fn a_small_rest_is_read_to_its_end() {
    let bytes = |len: usize| Bytes::from(vec![0; len]);
    assert!(reads_rest(ResponseBody::from(""), false).await);
    assert!(reads_rest(ResponseBody::from(bytes(SMALL_REST)), false).await);
    let mut long = ResponseBody::from(bytes(SMALL_REST + 1));
    assert!(!read_rest(&mut long, false, None, &Drain::new()).await);
    assert_eq!(long.len(), SMALL_REST as u64 + 1, "the client has told the length: nothing was read");
    let half = UNSTATED_REST / 2;
    assert!(reads_rest(chunked(vec![bytes(half), bytes(half)]), false).await);
    assert!(!reads_rest(chunked(vec![bytes(half), bytes(half), bytes(1)]), false).await);
}

#[tokio::test]
async fn a_client_that_waits_for_the_word_of_the_server_is_not_asked_for_its_body() {
    let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    assert!(!reads_rest(never, true).await);
    assert!(!reads_rest(ResponseBody::from("body"), true).await);
    assert!(reads_rest(ResponseBody::from(""), true).await);
    assert!(reads_rest(chunked(vec![]), true).await, "it was read, and only its end is left");
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_does_not_come_is_not_waited_for() {
    let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    let pace = BodyPace { period: std::time::Duration::from_secs(1), min_bytes: 1 };
    assert!(!read_rest(&mut { never }, false, Some(pace), &Drain::new()).await);
}

#[tokio::test]
async fn a_response_is_sent_piece_by_piece() {
    let mut body = ResponseBody::new(Bytes::from("head"), [Bytes::new(), "tensor".into()].into_iter());
    assert_eq!(body.size_hint().exact(), Some(10));
    assert_eq!(next(&mut body, &mut BodyProgress::new(None, &Drain::new())).await.unwrap().unwrap(), "head");
    assert_eq!(body.size_hint().exact(), Some(6));
    assert_eq!(
        next(&mut body, &mut BodyProgress::new(None, &Drain::new())).await.unwrap().unwrap(),
        "tensor"
    );
    assert!(body.is_end_stream());
    assert!(ResponseBody::from("").is_end_stream());
}

#[tokio::test]
async fn a_chunked_response_ends_only_behind_its_last_piece() {
    let mut body = ResponseBody::chunked(Bytes::from("whole"));
    assert_eq!(body.size_hint().exact(), None);
    assert_eq!(next(&mut body, &mut BodyProgress::new(None, &Drain::new())).await.unwrap().unwrap(), "whole");
    assert!(!body.is_end_stream());
    assert_eq!(next(&mut body, &mut BodyProgress::new(None, &Drain::new())).await.unwrap(), None);
    assert!(body.is_end_stream());
    assert!(!ResponseBody::chunked(Bytes::new()).is_end_stream());
}
