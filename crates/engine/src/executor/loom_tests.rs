//! Tests of the work slot and of the order of responses under every interleaving of their threads.
use std::sync::Arc;

use inference::{Flow, InFlightResponse, Response, ResponsePath, ResponseStream, Timeline, response_channel};
use loom::{future::block_on, model::Builder, thread};

use super::instance::{WorkSlot, WorkerMessage};
use crate::{clock::now, order::Order};

/// Tries every interleaving with at most so many preemptions. `LOOM_MAX_PREEMPTIONS` sets another limit.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

#[test]
fn loom_finds_no_lost_work_between_threads() {
    check(|| {
        let work_slot = Arc::new(WorkSlot::default());
        let done = Arc::new(WorkSlot::default());
        let worker = thread::spawn({
            let (work_slot, done) = (work_slot.clone(), done.clone());
            move || {
                for _ in 0..2 {
                    assert!(matches!(work_slot.take(), WorkerMessage::Shutdown(None)));
                    done.put(WorkerMessage::Shutdown(None));
                }
            }
        });
        for _ in 0..2 {
            work_slot.put(WorkerMessage::Shutdown(None));
            assert!(matches!(done.take(), WorkerMessage::Shutdown(None)));
        }
        worker.join().unwrap();
    });
}

struct InOrder(Order);

impl ResponsePath for InOrder {
    fn respond(&self, response: InFlightResponse) {
        self.0.release(response);
    }
}

/// A request whose response keeps its place in the order.
fn in_order(path: &Arc<InOrder>) -> (inference::Responder, ResponseStream) {
    let (responder, stream) = response_channel(Timeline::new(now(), 1), path.clone(), Flow::unlimited());
    responder.set_place(path.0.next_place(0));
    (responder, stream)
}

#[test]
fn loom_finds_no_response_out_of_order_or_left_behind() {
    check(|| {
        let order = Arc::new(InOrder(Order::default()));
        let (first, mut first_answer) = in_order(&order);
        let (second, mut second_answer) = in_order(&order);
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
