//! Requests of a sequence that are in an ensemble at the same time: each step gets them in the order of their arrival,
//! whichever of them leaves the step before first.
use std::{
    num::NonZeroU64,
    sync::{Arc, Mutex, mpsc},
};

use engine::Engine;
use inference::{ResponseStream, SequenceId, SequencePosition, backend::Execution};
use vocabulary::Error;

use crate::{
    ensembles::chain,
    support::{ECHO, Native, Repository, TIMEOUT, answer, echo, request, value},
};

pub(crate) const SEQUENCE: &str =
    "sequence_batching { control_input { name: 'START' control { kind: CONTROL_SEQUENCE_START
    int32_false_true: [ 0, 1 ] } } }";

/// What the sequence models have executed: the values of their requests, in order.
pub(crate) type Seen = Arc<Mutex<Vec<u8>>>;

/// A backend whose models `late` and `later` answer when the test says so, in any order, and whose other models note what
/// they execute.
pub(crate) fn backend() -> (Native, mpsc::Receiver<Execution>, Seen) {
    let (tell, held) = mpsc::channel();
    let tell = Mutex::new(tell);
    let seen = Seen::default();
    let noted = seen.clone();
    let backend = echo().execute(move |model, batch| {
        for execution in batch.executions {
            if model.starts_with("late") {
                tell.lock().unwrap().send(execution).unwrap();
            } else {
                noted.lock().unwrap().push(value(&execution.request));
                answer(execution);
            }
        }
    });
    (backend, held, seen)
}

/// Sends a request of a sequence whose value is its place, from 0 on.
fn ask(engine: &Engine, model: &str, sequence: u64, place: u8) -> ResponseStream {
    let id = NonZeroU64::new(sequence).map(SequenceId::Number);
    let sequence = SequencePosition { id, start: place == 0, end: false };
    let request = inference::Request { sequence, ..request(place) };
    engine.model(model, None).unwrap().infer(request).unwrap()
}

async fn all(repository: &Repository, backend: Native) -> Engine {
    let engine = repository.serve(backend).await;
    engine.load_models().await.unwrap();
    engine
}

fn repository() -> Repository {
    Repository::new()
        .model("late", &format!("{ECHO} instance_group {{ count: 2 }}"), &["1"])
        .model("sequence", &format!("{ECHO} {SEQUENCE}"), &["1"])
        .model("e", &chain(&["late", "sequence"], ""), &["1"])
        .model("outer", &chain(&["late", "e"], ""), &["1"])
}

/// The held executions, by their values.
fn take(held: &mpsc::Receiver<Execution>, count: usize) -> Vec<Execution> {
    let mut taken: Vec<_> = (0..count).map(|_| held.recv_timeout(TIMEOUT).unwrap()).collect();
    taken.sort_by_key(|execution| value(&execution.request));
    taken
}

pub(crate) async fn result(stream: ResponseStream) -> Result<u8, Error> {
    let response = stream.only().await?;
    Ok(response.output("OUT").unwrap().host().unwrap().contiguous()[0])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_gets_the_requests_of_a_sequence_in_their_order() {
    let (backend, held, seen) = backend();
    let engine = all(&repository(), backend).await;
    let streams: Vec<_> = (0..6).map(|place| ask(&engine, "e", 7, place)).collect();
    // The last one leaves the first step first.
    take(&held, 6).into_iter().rev().for_each(answer);
    for (place, stream) in (0..).zip(streams) {
        assert_eq!(result(stream).await, Ok(place));
    }
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_in_an_ensemble_keeps_the_order_too() {
    let (backend, held, seen) = backend();
    let engine = all(&repository(), backend).await;
    let streams: Vec<_> = (0..4).map(|place| ask(&engine, "outer", 7, place)).collect();
    for _ in 0..2 {
        take(&held, 4).into_iter().rev().for_each(answer);
    }
    for (place, stream) in (0..).zip(streams) {
        assert_eq!(result(stream).await, Ok(place));
    }
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_fail_or_are_cancelled_before_the_step_hold_no_other_up() {
    let (backend, held, seen) = backend();
    let engine = all(&repository(), backend).await;
    let mut streams: Vec<_> = (0..5).map(|place| ask(&engine, "e", 7, place)).collect();
    let mut executions = take(&held, 5);
    answer(executions.pop().unwrap());
    answer(executions.pop().unwrap());
    streams[1].cancel();
    assert!(result(streams.remove(1)).await.is_err());
    executions.remove(2).responder.fail(Error::internal("no"));
    assert!(result(streams.remove(1)).await.is_err());
    answer(executions.remove(0));
    for (place, stream) in [0, 3, 4].into_iter().zip(streams) {
        assert_eq!(result(stream).await, Ok(place));
    }
    assert_eq!(*seen.lock().unwrap(), [0, 3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_of_an_ensemble_runs_as_long_as_its_requests_or_its_members_have_it() {
    let (backend, held, _seen) = backend();
    let engine = all(&repository(), backend).await;
    let outer = engine.model("outer", None).unwrap();
    let id = || NonZeroU64::new(7).map(SequenceId::Number);
    let next = inference::Request {
        sequence: SequencePosition { id: id(), start: false, end: false },
        ..request(1)
    };
    assert!(!outer.has_sequence_of(&next));
    let first = ask(&engine, "outer", 7, 0);
    // The request has not come to the model that has sequences.
    assert!(outer.has_sequence_of(&next));
    answer(held.recv_timeout(TIMEOUT).unwrap());
    answer(held.recv_timeout(TIMEOUT).unwrap());
    assert_eq!(result(first).await, Ok(0));
    assert!(outer.has_sequence_of(&next));
    let end =
        inference::Request { sequence: SequencePosition { id: id(), start: false, end: true }, ..request(1) };
    let last = outer.infer(end).unwrap();
    answer(held.recv_timeout(TIMEOUT).unwrap());
    answer(held.recv_timeout(TIMEOUT).unwrap());
    assert_eq!(result(last).await, Ok(1));
    assert!(!outer.has_sequence_of(&next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_do_not_wait_for_each_other() {
    let (backend, held, seen) = backend();
    let engine = all(&repository(), backend).await;
    let slow = ask(&engine, "e", 7, 0);
    let waiting = held.recv_timeout(TIMEOUT).unwrap();
    let quick = ask(&engine, "e", 8, 0);
    answer(held.recv_timeout(TIMEOUT).unwrap());
    assert_eq!(result(quick).await, Ok(0));
    assert_eq!(seen.lock().unwrap().len(), 1);
    answer(waiting);
    assert_eq!(result(slow).await, Ok(0));
}
