//! Tests of responses that keep the order of their requests.
use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use scheduling::Timestamp;
use vocabulary::Error;

use super::*;
use crate::{Response, ResponseItem, Timeline};

fn send(order: &Arc<ResponseOrder>, flow: UnreadPolicy) -> (Responder, ResponseStream) {
    let timeline = Timeline::new(Timestamp::from_nanos(1), 1);
    let (responder, stream) = response_channel(timeline, Arc::new(Unobserved), flow);
    responder.line_up(order);
    (responder, stream)
}

fn ordered(order: &Arc<ResponseOrder>) -> (Responder, ResponseStream) {
    send(order, UnreadPolicy::unlimited())
}

/// A waker that panics.
struct Faulty;
impl Wake for Faulty {
    fn wake(self: Arc<Self>) {
        panic!("a faulty waker");
    }
}

#[test]
fn a_panic_in_a_waker_does_not_hold_up_the_order() {
    let order = Arc::default();
    let (first, mut first_stream) = ordered(&order);
    let (second, mut second_stream) = ordered(&order);
    second.complete(Response::default());
    let faulty = Waker::from(Arc::new(Faulty));
    assert!(first_stream.poll_item(&mut Context::from_waker(&faulty)).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| first.complete(Response::default()))).is_err());
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(first_stream.poll_item(&mut context), Poll::Ready(Some(_))));
    assert!(matches!(second_stream.poll_item(&mut context), Poll::Ready(Some(_))));
    let (third, mut third_stream) = ordered(&order);
    third.complete(Response::default());
    assert!(matches!(third_stream.poll_item(&mut context), Poll::Ready(Some(_))));
}

#[test]
fn a_panic_in_a_waker_that_waits_for_its_turn_does_not_hold_up_the_order() {
    let order = Arc::default();
    let (first, _first_stream) = ordered(&order);
    let (second, mut second_stream) = ordered(&order);
    let (third, mut third_stream) = ordered(&order);
    let faulty = Waker::from(Arc::new(Faulty));
    assert!(second_stream.poll_item(&mut Context::from_waker(&faulty)).is_pending());
    second.complete(Response::default());
    third.complete(Response::default());
    assert!(catch_unwind(AssertUnwindSafe(|| first.complete(Response::default()))).is_err());
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(second_stream.poll_item(&mut context), Poll::Ready(Some(_))));
    assert!(matches!(third_stream.poll_item(&mut context), Poll::Ready(Some(_))));
}

#[test]
fn responses_that_wait_for_their_turn_count_as_unread_and_are_freed_with_their_request() {
    let (order, budget) = (Arc::default(), UnreadBudget::new(10_000));
    let budgeted = || send(&order, UnreadPolicy { budget: budget.clone(), ..UnreadPolicy::unlimited() });
    let (first, _first_stream) = budgeted();
    let (second, mut second_stream) = budgeted();
    let one = Response::default().byte_size();
    for _ in 0..10_000 / one {
        second.send(Response::default());
    }
    assert_eq!(budget.used(), 10_000 / one * one);
    second.send(Response::default());
    assert!(second.is_cancelled());
    assert!(budget.used() < 10 * one, "{} bytes are still counted", budget.used());
    let mut context = Context::from_waker(Waker::noop());
    assert!(second_stream.poll_item(&mut context).is_pending(), "its turn has not come");
    drop(first);
    let Poll::Ready(Some(item)) = second_stream.poll_item(&mut context) else { panic!("its turn has come") };
    assert!(item.last && item.result.is_err());
}

#[test]
fn an_error_replaces_the_responses_of_a_request_that_has_ended_before_its_turn() {
    let (order, budget) = (Arc::default(), UnreadBudget::new(10_000));
    let budgeted = || send(&order, UnreadPolicy { budget: budget.clone(), ..UnreadPolicy::unlimited() });
    let (first, mut first_stream) = budgeted();
    let (second, mut second_stream) = budgeted();
    let one = Response::default().byte_size();
    (0..9_000 / one).for_each(|_| second.send(Response::default()));
    second.finish();
    (0..2_000 / one).for_each(|_| first.send(Response::default()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(second_stream.poll_item(&mut context).is_pending(), "its turn has not come");
    first.finish();
    while matches!(first_stream.poll_item(&mut context), Poll::Ready(Some(_))) {}
    let Poll::Ready(Some(item)) = second_stream.poll_item(&mut context) else { panic!("its turn has come") };
    assert_eq!((item.last, item.result.unwrap_err().code), (true, vocabulary::ErrorCode::ResourceExhausted));
    assert!(matches!(second_stream.poll_item(&mut context), Poll::Ready(None)));
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_sender_does_not_wait_for_a_client_that_cannot_read_yet() {
    let order = Arc::default();
    let narrow =
        || send(&order, UnreadPolicy { most_unread: NonZeroUsize::new(1), ..UnreadPolicy::unlimited() });
    let (first, _first_stream) = narrow();
    let (second, mut second_stream) = narrow();
    (0..3).for_each(|_| second.send(Response::default()));
    assert!(second.has_capacity(), "its turn has not come");
    first.finish();
    assert!(!second.has_capacity(), "its client reads too slowly");
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(matches!(second_stream.poll_item(&mut context), Poll::Ready(Some(_))));
    }
    assert!(second.has_capacity());
}

#[test]
fn a_request_that_its_client_has_left_keeps_its_turn() {
    let order = Arc::default();
    let (first, first_stream) = ordered(&order);
    let (second, mut second_stream) = ordered(&order);
    second.complete(Response::default());
    drop(first_stream);
    let mut context = Context::from_waker(Waker::noop());
    assert!(second_stream.poll_item(&mut context).is_pending());
    drop(first);
    assert!(matches!(second_stream.poll_item(&mut context), Poll::Ready(Some(_))));
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);
impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A request of a random history, and what must be true of it.
struct OrderedRequest {
    responder: Option<Responder>,
    stream: Option<ResponseStream>,
    wakes: Arc<Wakes>,
    /// How often its waker had been woken when its client found nothing. `None`: the client does not wait.
    waits_since: Option<usize>,
    /// The responses that its client has not read: whether each is a success, and whether it is the last.
    unread: VecDeque<(bool, bool)>,
    has_ended: bool,
}

impl OrderedRequest {
    /// The client reads once. `is_its_turn`: all earlier requests have ended.
    fn read(&mut self, is_its_turn: bool) {
        let Some(stream) = &mut self.stream else { return };
        let waker = Waker::from(self.wakes.clone());
        let found = match stream.poll_item(&mut Context::from_waker(&waker)) {
            Poll::Ready(item) => {
                Poll::Ready(item.map(|ResponseItem { result, last }| (result.is_ok(), last)))
            }
            Poll::Pending => Poll::Pending,
        };
        let expected = match self.unread.front() {
            _ if !is_its_turn => Poll::Pending,
            Some(next) => Poll::Ready(Some(*next)),
            None if self.has_ended => Poll::Ready(None),
            None => Poll::Pending,
        };
        assert_eq!(found, expected);
        if found.is_ready() {
            self.unread.pop_front();
        }
        self.waits_since = found.is_pending().then(|| self.wakes.0.load(SeqCst));
    }

    /// A client that waits and could read is woken.
    fn check_wakes(&self, is_its_turn: bool) {
        if let Some(before) = self.waits_since
            && self.stream.is_some()
            && is_its_turn
            && (self.has_ended || !self.unread.is_empty())
        {
            assert!(self.wakes.0.load(SeqCst) > before, "nobody has woken the client");
        }
    }

    fn respond(&mut self, how: usize) {
        let Some(responder) = self.responder.take() else { return };
        let (is_ok, is_last) = match how {
            0..5 => {
                responder.send(Response::default());
                self.responder = Some(responder);
                (true, false)
            }
            5 => {
                responder.send_error(Error::internal("not the last"));
                self.responder = Some(responder);
                (false, false)
            }
            6 => {
                responder.complete(Response::default());
                (true, true)
            }
            7 => {
                responder.fail(Error::internal("the last"));
                (false, true)
            }
            8 => {
                drop(responder);
                (false, true)
            }
            _ => {
                responder.finish();
                self.has_ended = true;
                return;
            }
        };
        self.has_ended |= is_last;
        if self.stream.is_some() {
            self.unread.push_back((is_ok, is_last));
        }
    }
}

/// Requests come, are answered, read and left in a random order. Each client sees exactly what it may see, as early as
/// it may see it.
fn history(seed: u64, open: &mut dyn FnMut() -> (Responder, ResponseStream)) {
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut requests: Vec<OrderedRequest> = Vec::new();
    for step in 0..200 {
        let chosen = random(requests.len().max(1));
        let turn = requests.iter().position(|request| !request.has_ended).unwrap_or(requests.len());
        match random(10) {
            0 if requests.len() < 12 => {
                let (responder, stream) = open();
                requests.push(OrderedRequest {
                    responder: Some(responder),
                    stream: Some(stream),
                    wakes: Arc::default(),
                    waits_since: None,
                    unread: VecDeque::new(),
                    has_ended: false,
                });
            }
            1..5 if !requests.is_empty() => requests[chosen].respond(random(10)),
            5..9 if !requests.is_empty() => requests[chosen].read(chosen <= turn),
            9 if !requests.is_empty() && random(4) == 0 => {
                requests[chosen].stream = None;
                requests[chosen].unread.clear();
            }
            _ => {}
        }
        let turn = requests.iter().position(|request| !request.has_ended).unwrap_or(requests.len());
        let ok = catch_unwind(AssertUnwindSafe(|| {
            requests.iter().enumerate().for_each(|(index, request)| request.check_wakes(index <= turn));
        }));
        assert!(ok.is_ok(), "seed {seed}, step {step}");
    }
}

#[test]
fn each_client_sees_what_it_may_see_as_early_as_it_may() {
    for seed in 0..2_000 {
        let order = Arc::default();
        history(seed, &mut || ordered(&order));
    }
}
