//! Tests the response channel of a request under every order of its threads' steps.
//!
//! Needs the feature `loom`: run `cargo xtask deepcheck`.
#![cfg(feature = "loom")]

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use inference::{
    EntryId, PassingResponse, Responder, Response, ResponseObserver, ResponseOrder, ResponseStream, Timeline,
    UnreadPolicy, response_channel,
};
use loom::{future::block_on, model::Builder, thread};
use scheduling::Timestamp;
use vocabulary::Error;

/// Counts ends and cancellations, with counters of the standard library, which the model checker does not track.
#[derive(Default)]
struct Counter {
    ended: AtomicUsize,
    cancelled: AtomicUsize,
}

impl ResponseObserver for Counter {
    fn responding(&self, response: &PassingResponse<'_>) {
        if response.outcome().is_some() {
            self.ended.fetch_add(1, Relaxed);
        }
    }

    fn cancelled(&self, _: Option<EntryId>) {
        self.cancelled.fetch_add(1, Relaxed);
    }
}

fn open(capacity: usize) -> (Responder, ResponseStream, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    let flow = UnreadPolicy { most_unread: NonZeroUsize::new(capacity), ..UnreadPolicy::unlimited() };
    let (responder, stream) =
        response_channel(Timeline::new(Timestamp::from_nanos(1), 1), counter.clone(), flow);
    (responder, stream, counter)
}

/// Tries every order with at most two preemptive thread switches. `LOOM_MAX_PREEMPTIONS` allows more.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

#[test]
fn one_of_two_ends_wins_and_is_counted_before_it_is_seen() {
    check(|| {
        let (responder, mut stream, counter) = open(1);
        let other = responder.clone();
        let completes = thread::spawn(move || responder.complete(Response::default()));
        let fails = thread::spawn(move || other.fail(Error::internal("no")));
        let answers = block_on(async {
            let mut answers = 0;
            while let Some(item) = stream.next().await {
                assert!(item.last);
                assert_eq!(counter.ended.load(Relaxed), 1);
                answers += 1;
            }
            answers
        });
        assert_eq!(answers, 1);
        completes.join().unwrap();
        fails.join().unwrap();
        assert_eq!(counter.ended.load(Relaxed), 1);
    });
}

#[test]
fn a_request_that_both_sides_drop_ends_once() {
    check(|| {
        let (responder, mut stream, counter) = open(1);
        let other = responder.clone();
        let threads = [thread::spawn(move || drop(responder)), thread::spawn(move || drop(other))];
        let first = block_on(stream.next()).expect("an error");
        assert!(first.last && first.result.is_err());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(counter.ended.load(Relaxed), 1);
    });
}

#[test]
fn a_waiting_sender_continues_after_each_response_that_is_read() {
    check(|| {
        let (responder, mut stream, _) = open(1);
        let sender = thread::spawn(move || {
            responder.send(Response::default());
            responder.send(Response::default());
            responder.finish();
        });
        let mut count = 0;
        block_on(async {
            while stream.next().await.is_some() {
                count += 1;
            }
        });
        assert_eq!(count, 2);
        sender.join().unwrap();
    });
}

#[test]
fn a_waiting_sender_continues_when_its_stream_is_dropped() {
    check(|| {
        let (responder, stream, counter) = open(1);
        let sender = thread::spawn(move || {
            responder.send(Response::default());
            responder.send(Response::default());
            responder.finish();
        });
        drop(stream);
        sender.join().unwrap();
        assert_eq!(counter.ended.load(Relaxed), 1);
        assert!(counter.cancelled.load(Relaxed) <= 1);
    });
}

#[test]
fn a_waiting_sender_continues_when_another_thread_ends_the_request() {
    check(|| {
        let (responder, stream, counter) = open(1);
        let other = responder.clone();
        responder.send(Response::default());
        let sender = thread::spawn(move || other.send(Response::default()));
        responder.finish();
        sender.join().unwrap();
        drop(stream);
        assert_eq!((counter.ended.load(Relaxed), counter.cancelled.load(Relaxed)), (1, 0));
    });
}

/// A request whose responses keep an order, and the counter of its ends.
fn in_order(order: &Arc<ResponseOrder>, capacity: usize) -> (Responder, ResponseStream) {
    let (responder, stream, _) = open(capacity);
    responder.line_up(order);
    (responder, stream)
}

#[test]
fn no_response_is_out_of_order_or_left_behind() {
    check(|| {
        let order = Arc::default();
        let (first, mut first_answer) = in_order(&order, 1);
        let (second, mut second_answer) = in_order(&order, 1);
        let one = thread::spawn(move || first.complete(Response::default()));
        let two = thread::spawn(move || second.complete(Response::default()));
        assert!(block_on(second_answer.next()).is_some());
        // The first response must be ready without any other event.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(first_answer.poll_item(&mut context).is_ready(), "the second answer has overtaken the first");
        one.join().unwrap();
        two.join().unwrap();
    });
}

#[test]
fn a_request_that_comes_while_gates_open_does_not_pass_those_before_it() {
    check(|| {
        let order = Arc::default();
        let (first, _first_answer) = in_order(&order, 1);
        let (second, mut second_answer) = in_order(&order, 1);
        let one = thread::spawn(move || first.complete(Response::default()));
        let two = thread::spawn(move || second.complete(Response::default()));
        let (third, mut third_answer) = in_order(&order, 1);
        third.complete(Response::default());
        assert!(block_on(third_answer.next()).is_some());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(
            second_answer.poll_item(&mut context).is_ready(),
            "the third answer has overtaken the second"
        );
        one.join().unwrap();
        two.join().unwrap();
    });
}

#[test]
fn a_sender_behind_a_closed_gate_does_not_wait_for_its_client() {
    check(|| {
        let order = Arc::default();
        let (first, _first_answer) = in_order(&order, 1);
        let (second, mut second_answer) = in_order(&order, 1);
        let one = thread::spawn(move || {
            // Nobody reads before the thread has ended: it would wait for ever.
            second.send(Response::default());
            second.send(Response::default());
            first.finish();
            second.finish();
        });
        one.join().unwrap();
        assert!(block_on(second_answer.next()).is_some());
    });
}

#[test]
fn a_turn_that_comes_beside_the_first_look_hides_the_response() {
    check(|| {
        let order = Arc::default();
        let (first, _first_answer) = in_order(&order, 1);
        let (second, mut second_answer, _) = open(1);
        let one = thread::spawn(move || {
            second.line_up(&order);
            second.complete(Response::default());
        });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(
            second_answer.poll_item(&mut context).is_pending(),
            "the second answer has overtaken the first"
        );
        one.join().unwrap();
        first.complete(Response::default());
        assert!(block_on(second_answer.next()).is_some());
    });
}
