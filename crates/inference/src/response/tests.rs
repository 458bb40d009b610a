//! The corridor from both ends.
use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Wake, Waker},
};

use scheduling::{Meta, Scheduler, Timestamp, Unbatched};

use super::*;

#[derive(Default)]
struct Counter {
    successes: AtomicUsize,
    failures: AtomicUsize,
    cancels: AtomicUsize,
    cancelled: Mutex<Option<EntryId>>,
}

impl Observe for Counter {
    fn ended(&self, _: &Timeline, outcome: Outcome<'_>) {
        match outcome {
            Outcome::Success => self.successes.fetch_add(1, Relaxed),
            Outcome::Failure(_) => self.failures.fetch_add(1, Relaxed),
        };
    }
    fn cancelled(&self, entry: Option<EntryId>) {
        self.cancels.fetch_add(1, Relaxed);
        *self.cancelled.lock() = entry;
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
    let (responder, stream) =
        response_channel(Timeline::new(Timestamp::from_nanos(1), 1), counter.clone(), usize::MAX);
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

/// Keeps what passes.
#[derive(Default)]
struct Detained(Mutex<Vec<InFlightResponse>>);

impl ResponseInterceptor for Detained {
    fn intercept(&self, in_flight: InFlightResponse) {
        self.0.lock().push(in_flight);
    }
}

#[test]
fn an_outlet_sees_everything_before_it_is_visible_and_the_end_after_it_is_counted() {
    let (responder, mut stream, counter) = open();
    let interceptor = Arc::new(Detained::default());
    responder.intercept_with(interceptor.clone());
    responder.send(Response::default());
    responder.send_error(Error::internal("not the last word"));
    responder.finish();
    assert!(poll(&mut stream).is_pending());
    assert_eq!(counter.seen(), [1, 0, 0]);
    let in_flight_responses = std::mem::take(&mut *interceptor.0.lock());
    let words: Vec<_> = in_flight_responses
        .iter()
        .map(|in_flight| (in_flight.result().map(Result::is_ok), in_flight.is_last()))
        .collect();
    assert_eq!(words, [(Some(true), false), (Some(false), false), (None, true)]);
    in_flight_responses.into_iter().for_each(InFlightResponse::deliver);
    assert!(matches!(poll(&mut stream), Poll::Ready(Some(ResponseItem { result: Ok(_), last: false }))));
    assert!(matches!(poll(&mut stream), Poll::Ready(Some(ResponseItem { result: Err(_), last: false }))));
    assert!(matches!(poll(&mut stream), Poll::Ready(None)));
}

#[test]
fn a_forgotten_request_is_answered_with_an_error() {
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
fn a_client_that_goes_cancels_once_and_only_while_the_request_runs() {
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

fn narrow(capacity: usize) -> (Responder, ResponseStream) {
    response_channel(Timeline::new(Timestamp::from_nanos(1), 1), Arc::new(Counter::default()), capacity)
}

/// Sends on another thread. Returns once that thread waits for room.
fn sending(responder: &Responder) -> std::thread::JoinHandle<()> {
    let (channel, sender) = (responder.channel.clone(), responder.clone());
    let sending = std::thread::spawn(move || sender.send(Response::default()));
    while channel.queue.lock().senders_waiting == 0 {
        std::thread::yield_now();
    }
    sending
}

#[test]
fn a_sender_that_waits_for_room_is_freed_when_the_client_goes_after_the_end() {
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
fn a_corridor_without_room_still_lets_one_response_through() {
    let (responder, mut stream) = narrow(0);
    responder.send(Response::default());
    assert!(matches!(poll(&mut stream), Poll::Ready(Some(ResponseItem { last: false, .. }))));
}

#[test]
fn what_nobody_takes_is_not_kept() {
    let (responder, stream, _) = open();
    let shared = bytes::Bytes::from(vec![0; 8]);
    let response = || {
        let shape = [8].as_slice().into();
        Response::of(vec![Tensor::new("OUT".into(), crate::DataType::Uint8, shape, shared.clone())])
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
fn a_sender_that_waits_for_room_is_freed_when_the_client_goes() {
    let (responder, stream) = narrow(1);
    responder.send(Response::default());
    let sender = std::thread::spawn(move || responder.send(Response::default()));
    drop(stream);
    sender.join().unwrap();
}

/// What some request is called in some queue.
fn entry() -> EntryId {
    let mut scheduler = Scheduler::Unbatched(Unbatched::new());
    scheduler.enqueue(Timestamp::from_nanos(1), Meta::default(), ()).expect("it takes everything")
}

#[test]
fn whoever_watches_hears_which_entry_was_cancelled() {
    let (responder, stream, counter) = open();
    let entry = entry();
    assert!(!stream.queued_as(entry));
    assert_eq!(responder.entry(), Some(entry));
    stream.cancel();
    assert_eq!(*counter.cancelled.lock(), Some(entry));
}

#[test]
fn whoever_queues_a_request_that_was_cancelled_before_is_told() {
    let (responder, stream, counter) = open();
    stream.cancel();
    assert_eq!((counter.seen()[2], *counter.cancelled.lock()), (1, None));
    assert!(stream.queued_as(entry()));
    responder.finish();
}
