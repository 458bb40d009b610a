//! Tests of the response channel, from the responder and from the stream.
use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};

use scheduling::{EntryId, Timestamp};
use vocabulary::{ByteBudget, Error, ErrorCode, Tensor};

use super::*;
use crate::{ClientId, Response, ResponseItem, Timeline};

#[derive(Default)]
struct Counter {
    successes: AtomicUsize,
    failures: AtomicUsize,
    cancels: AtomicUsize,
}

impl ResponseObserver for Counter {
    fn responding(&self, response: &PassingResponse<'_>) {
        match response.outcome() {
            Some(Ok(())) => self.successes.fetch_add(1, Relaxed),
            Some(Err(_)) => self.failures.fetch_add(1, Relaxed),
            None => 0,
        };
    }
    fn cancelled(&self, _: Option<EntryId>) {
        self.cancels.fetch_add(1, Relaxed);
    }
}

impl Counter {
    fn seen(&self) -> [usize; 3] {
        [self.successes.load(Relaxed), self.failures.load(Relaxed), self.cancels.load(Relaxed)]
    }
}

struct Idle;
impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

fn open() -> (Responder, ResponseStream, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    let (responder, stream) = response_channel(
        Timeline::new(Timestamp::from_nanos(1), 1),
        counter.clone(),
        UnreadPolicy::unlimited(),
    );
    (responder, stream, counter)
}

fn poll(stream: &mut ResponseStream) -> Poll<Option<ResponseItem>> {
    stream.poll_item(&mut Context::from_waker(&Waker::from(Arc::new(Idle))))
}

#[test]
fn a_single_response_is_counted_before_it_is_seen() {
    let (responder, mut stream, counter) = open();
    assert!(poll(&mut stream).is_pending());
    responder.complete(Response::default());
    assert_eq!(counter.seen(), [1, 0, 0]);
    let Poll::Ready(Some(item)) = poll(&mut stream) else { panic!("the response is there") };
    assert!(item.last && item.result.is_ok());
    assert!(matches!(poll(&mut stream), Poll::Ready(None)));
}

/// Reads as the client would at each event. Records how many responses the client has read, and whether it has read the
/// end.
#[derive(Default)]
struct ReadingObserver {
    stream: Mutex<Option<ResponseStream>>,
    read: AtomicUsize,
    events: Mutex<Vec<(usize, bool, String)>>,
}

impl ReadingObserver {
    fn record(&self, event: String) {
        let mut stream = self.stream.lock().unwrap();
        let mut found = poll(stream.as_mut().unwrap());
        while let Poll::Ready(Some(_)) = found {
            self.read.fetch_add(1, Relaxed);
            found = poll(stream.as_mut().unwrap());
        }
        self.events.lock().unwrap().push((self.read.load(Relaxed), found.is_ready(), event));
    }
}

impl ResponseObserver for ReadingObserver {
    fn responding(&self, response: &PassingResponse<'_>) {
        let result = response.result().map(Result::is_ok);
        self.record(format!("{result:?}, ends: {}", response.outcome().is_some()));
    }
    fn ended(&self) {
        self.record("ended".to_owned());
    }
}

#[test]
fn the_observer_sees_every_response_before_the_client_does() {
    let observer = Arc::new(ReadingObserver::default());
    let (responder, stream) = response_channel(timeline(), observer.clone(), UnreadPolicy::unlimited());
    *observer.stream.lock().unwrap() = Some(stream);
    responder.send(Response::default());
    responder.send_error(Error::internal("not the last"));
    responder.finish();
    let events = std::mem::take(&mut *observer.events.lock().unwrap());
    let events: Vec<_> =
        events.iter().map(|(read, is_over, event)| (*read, *is_over, event.as_str())).collect();
    assert_eq!(
        events,
        [
            (0, false, "Some(true), ends: false"),
            (1, false, "Some(false), ends: false"),
            (2, false, "None, ends: true"),
            (2, true, "ended")
        ]
    );
    drop(observer.stream.lock().unwrap().take());
}

#[test]
fn the_observer_sees_the_end_even_if_the_waker_of_the_client_panics() {
    struct Faulty;
    impl Wake for Faulty {
        fn wake(self: Arc<Self>) {
            panic!("a faulty waker");
        }
    }
    #[derive(Default)]
    struct Ended(AtomicUsize);
    impl ResponseObserver for Ended {
        fn ended(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let observer = Arc::new(Ended::default());
    let (responder, mut stream) = response_channel(timeline(), observer.clone(), UnreadPolicy::unlimited());
    let faulty = Waker::from(Arc::new(Faulty));
    assert!(stream.poll_item(&mut Context::from_waker(&faulty)).is_pending());
    let end = std::panic::AssertUnwindSafe(|| responder.finish());
    assert!(std::panic::catch_unwind(end).is_err());
    assert_eq!(observer.0.load(Relaxed), 1);
}

#[test]
fn a_dropped_request_gets_an_error() {
    let (responder, mut stream, counter) = open();
    let kept = responder.clone();
    drop(responder);
    assert!(poll(&mut stream).is_pending());
    drop(kept);
    let Poll::Ready(Some(item)) = poll(&mut stream) else { panic!("the error is there") };
    assert_eq!(item.result.unwrap_err().to_string(), "the backend dropped the request without an answer");
    assert_eq!(counter.seen(), [0, 1, 0]);
}

#[test]
fn what_comes_after_the_end_is_ignored() {
    let (responder, mut stream, counter) = open();
    let late = responder.clone();
    responder.send(Response::default());
    responder.finish();
    late.send(Response::default());
    late.fail(Error::internal("too late"));
    assert!(matches!(poll(&mut stream), Poll::Ready(Some(ResponseItem { last: false, .. }))));
    assert!(matches!(poll(&mut stream), Poll::Ready(None)));
    assert_eq!(counter.seen(), [1, 0, 0]);
}

#[test]
fn a_dropped_stream_cancels_once_and_only_while_the_request_runs() {
    let (responder, stream, counter) = open();
    stream.cancel();
    drop(stream);
    assert!(responder.is_cancelled());
    responder.finish();
    assert_eq!(counter.seen(), [1, 0, 1]);

    let (responder, stream, counter) = open();
    responder.finish();
    drop(stream);
    assert_eq!(counter.seen(), [1, 0, 0]);
}

#[test]
fn the_bytes_of_an_ended_request_are_free_when_its_reader_goes() {
    let budget = ByteBudget::new(10);
    let open = || {
        let flow =
            UnreadPolicy { reservation: Some(budget.reserve(6).unwrap()), ..UnreadPolicy::unlimited() };
        response_channel(timeline(), Arc::new(Counter::default()), flow)
    };
    let (responder, stream) = open();
    let late = responder.clone();
    responder.complete(Response::default());
    assert_eq!(budget.used(), 6);
    drop(stream);
    assert_eq!(budget.used(), 0, "the backend still has a responder");
    drop(late);

    let (responder, stream) = open();
    drop(stream);
    assert_eq!(budget.used(), 6, "the request still runs");
    responder.complete(Response::default());
    assert_eq!(budget.used(), 0);
}

fn timeline() -> Timeline {
    Timeline::new(Timestamp::from_nanos(1), 1)
}

fn narrow(most_unread: usize) -> (Responder, ResponseStream) {
    let flow = UnreadPolicy { most_unread: NonZeroUsize::new(most_unread), ..UnreadPolicy::unlimited() };
    response_channel(timeline(), Arc::new(Counter::default()), flow)
}

/// Sends on another thread. Returns when that thread waits for capacity.
fn sending(responder: &Responder) -> std::thread::JoinHandle<()> {
    let (channel, sender) = (responder.channel.clone(), responder.clone());
    let sending = std::thread::spawn(move || sender.send(Response::default()));
    while channel.senders_waiting() == 0 {
        std::thread::yield_now();
    }
    sending
}

#[test]
fn a_waiting_sender_continues_when_the_stream_is_dropped_after_the_end() {
    let (responder, stream) = narrow(1);
    responder.send(Response::default());
    let sender = sending(&responder);
    responder.finish();
    drop(stream);
    sender.join().unwrap();
}

#[test]
fn a_sender_that_waited_past_the_end_adds_nothing() {
    let (responder, mut stream) = narrow(1);
    responder.send(Response::default());
    let sender = sending(&responder);
    responder.complete(Response::default());
    sender.join().unwrap();
    let taken = [(); 3].map(|()| match poll(&mut stream) {
        Poll::Ready(item) => item.map(|item| item.last),
        Poll::Pending => panic!("the request has ended"),
    });
    assert_eq!(taken, [Some(false), Some(true), None]);
}

#[test]
fn responses_without_a_receiver_are_dropped() {
    let (responder, stream, _) = open();
    let shared = bytes::Bytes::from(vec![0; 8]);
    let response = || {
        let shape = [8].as_slice().into();
        Response::of(vec![Tensor::new("OUT".into(), vocabulary::DataType::Uint8, shape, shared.clone())])
    };
    responder.send(response());
    stream.cancel();
    responder.send(response());
    assert!(!shared.is_unique());
    drop(stream);
    responder.send(response());
    assert!(shared.is_unique());
}

#[test]
fn a_waiting_sender_continues_when_the_stream_is_dropped() {
    let (responder, stream) = narrow(1);
    responder.send(Response::default());
    let sender = std::thread::spawn(move || responder.send(Response::default()));
    drop(stream);
    sender.join().unwrap();
}

/// A response of approximately this many bytes.
fn sized(bytes: usize) -> Response {
    let data = vec![0; bytes];
    Response::of(vec![Tensor::new("OUT".into(), vocabulary::DataType::Uint8, [1][..].into(), data)])
}

fn budgeted(
    budget: &Arc<UnreadBudget>,
    client: Option<ClientId>,
) -> (Responder, ResponseStream, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    let flow = UnreadPolicy { budget: budget.clone(), client, ..UnreadPolicy::unlimited() };
    let (responder, stream) = response_channel(timeline(), counter.clone(), flow);
    (responder, stream, counter)
}

#[test]
fn the_request_whose_client_is_furthest_behind_ends_and_no_other() {
    let budget = UnreadBudget::new(100_000);
    let (slow, mut slow_stream, slow_counter) = budgeted(&budget, None);
    let (quick, mut quick_stream, quick_counter) = budgeted(&budget, None);
    for _ in 0..1_000 {
        slow.send(sized(1_000));
        quick.send(sized(1_000));
        quick.send(sized(1_000));
        for _ in 0..2 {
            assert!(matches!(poll(&mut quick_stream), Poll::Ready(Some(ResponseItem { result: Ok(_), .. }))));
        }
        assert!(budget.used() < 110_000);
    }
    assert!(slow.is_cancelled() && !quick.is_cancelled());
    assert_eq!((slow_counter.seen(), quick_counter.seen()), ([0, 1, 1], [0, 0, 0]));
    let Poll::Ready(Some(item)) = poll(&mut slow_stream) else { panic!("the client is told") };
    assert_eq!((item.last, item.result.unwrap_err().code), (true, ErrorCode::ResourceExhausted));
    assert!(matches!(poll(&mut slow_stream), Poll::Ready(None)));
    quick.finish();
    assert!(matches!(poll(&mut quick_stream), Poll::Ready(None)));
    drop((slow, slow_stream, quick_stream));
    assert_eq!(budget.used(), 0);
}

#[test]
fn requests_of_one_client_are_behind_together() {
    let budget = UnreadBudget::new(100_000);
    let client = Some(ClientId::unique());
    // Each of these requests has one unread response, like the requests of a stream whose client does not read.
    let many: Vec<_> = (0..90).map(|_| budgeted(&budget, client)).collect();
    let mut answered = Vec::new();
    for (responder, stream, _) in many {
        responder.complete(sized(1_000));
        answered.push(stream);
    }
    let (other, mut other_stream, _) = budgeted(&budget, None);
    other.send(sized(5_000));
    other.send(sized(5_000));
    assert!(!other.is_cancelled());
    assert!(matches!(poll(&mut other_stream), Poll::Ready(Some(ResponseItem { result: Ok(_), .. }))));
    let replaced = answered.iter_mut().filter_map(|stream| match poll(stream) {
        Poll::Ready(Some(item)) => item.result.err(),
        _ => panic!("each request has been answered"),
    });
    assert!(replaced.count() > 0);
    drop((other, other_stream, answered));
    assert_eq!(budget.used(), 0);
}

#[test]
fn one_response_may_be_larger_than_the_budget() {
    let budget = UnreadBudget::new(1_000);
    let (responder, mut stream, counter) = budgeted(&budget, None);
    responder.complete(sized(10_000));
    assert!(matches!(poll(&mut stream), Poll::Ready(Some(ResponseItem { result: Ok(_), last: true }))));
    assert_eq!((counter.seen(), budget.used()), ([1, 0, 0], 0));
}

#[test]
fn an_end_without_a_response_ends_no_other_request() {
    let budget = UnreadBudget::new(1_000);
    let (large, mut large_stream, _) = budgeted(&budget, None);
    large.send(sized(10_000));
    let (empty, mut empty_stream, _) = budgeted(&budget, None);
    empty.finish();
    assert!(matches!(poll(&mut empty_stream), Poll::Ready(None)));
    assert!(!large.is_cancelled());
    assert!(matches!(
        poll(&mut large_stream),
        Poll::Ready(Some(ResponseItem { result: Ok(_), last: false }))
    ));
}

#[test]
fn responses_without_a_receiver_are_not_counted() {
    let budget = UnreadBudget::new(100_000);
    let (responder, stream, _) = budgeted(&budget, None);
    responder.send(sized(10));
    drop(stream);
    responder.send(sized(10));
    assert_eq!(budget.used(), 0);
    let order = Arc::default();
    let (first, _first_stream) = open_in(&order, &budget);
    let (second, second_stream) = open_in(&order, &budget);
    second.send(sized(10));
    assert!(budget.used() > 0, "a response that waits for its turn counts");
    drop((second, second_stream));
    assert_eq!(budget.used(), 0);
    drop(first);
}

fn open_in(order: &Arc<ResponseOrder>, budget: &Arc<UnreadBudget>) -> (Responder, ResponseStream) {
    let (responder, stream, _) = budgeted(budget, None);
    responder.line_up(order);
    (responder, stream)
}
