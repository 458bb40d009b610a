//! Tests of equal requests at the same time: they run once, and each still has its own end.
use std::{
    sync::Arc,
    task::{Context, Wake},
    time::Duration,
};

use engine::Engine;
use futures_util::StreamExt;
use inference::{Request, Response, ResponseStream, backend::Execution, cache::CacheStatus};
use parking_lot::Mutex;
use testing::{Gate, MemoryCache};
use vocabulary::{Error, ErrorCode, FailureReason};

use crate::{
    caching::{cached, counts, echo_behind, first_byte, send, serve_with, statistics},
    support::{Native, TIMEOUT, answer, ask, echo, request},
};

const QUEUE: &str = "dynamic_batching { default_queue_policy { default_timeout_microseconds: 60000000
    allow_timeout_override: true } }";

fn hurried(value: u8) -> Request {
    Request { timeout: Some(Duration::from_micros(1)), ..request(value) }
}

/// Caches whose look-ups are done at once, and those that may wait.
fn caches() -> [Arc<MemoryCache>; 2] {
    [MemoryCache::default(), MemoryCache::that_never_waits()].map(Arc::new)
}

/// A backend that fails, and whose batches wait for `gate`.
fn failing_behind(gate: &Arc<Gate>) -> Native {
    let gate = gate.clone();
    echo().execute(move |_, batch| {
        gate.pass();
        for Execution { responder, .. } in batch.executions {
            responder.fail(Error::internal("no").because(FailureReason::Backend));
        }
    })
}

#[tokio::test]
async fn equal_requests_at_the_same_time_run_once() {
    for cache in caches() {
        let gate = Gate::shut();
        let repository = cached("instance_group { count: 2 kind: KIND_CPU }");
        let engine = serve_with(repository.options(), echo_behind(&gate), &cache).await;
        let mut equal: Vec<_> = (0..64).map(|_| ask(&engine, "m", 7)).collect();
        let other = ask(&engine, "m", 8);
        assert!(gate.wait_for(2, TIMEOUT));
        assert_eq!(engine.in_flight(), 65);
        gate.open();
        equal.push(other);
        let mut statuses = Vec::new();
        for stream in equal {
            let canceller = stream.canceller();
            statuses.push(stream.timeline().cache_status());
            assert!([7, 8].contains(&first_byte(stream).await));
            drop(canceller);
        }
        assert_eq!(counts(&engine), [65, 2, 63, 2]);
        assert_eq!((cache.inserts(), engine.in_flight()), (2, 0));
        assert_eq!(statuses[0], Some(CacheStatus::Miss));
    }
}

#[tokio::test]
async fn those_that_wait_are_told_whose_answer_they_got() {
    let gate = Gate::shut();
    let cache = Arc::new(MemoryCache::default());
    let engine = serve_with(cached("").options(), echo_behind(&gate), &cache).await;
    let first = ask(&engine, "m", 7);
    let mut second = ask(&engine, "m", 7);
    gate.open();
    first_byte(first).await;
    let item = second.next().await.unwrap();
    assert!(item.result.is_ok() && item.last);
    assert_eq!(second.timeline().cache_status(), Some(CacheStatus::Collapsed));
    let third = ask(&engine, "m", 7);
    assert_eq!(third.timeline().cache_status(), Some(CacheStatus::Hit(None)));
}

#[tokio::test]
async fn another_request_leads_when_the_client_of_the_leader_goes() {
    for cache in caches() {
        let gate = Gate::shut();
        let engine = serve_with(cached("").options(), echo_behind(&gate), &cache).await;
        let busy = ask(&engine, "m", 1);
        assert!(gate.wait_for(1, TIMEOUT));
        let leader = ask(&engine, "m", 7);
        let (next, gone, last) = (ask(&engine, "m", 7), ask(&engine, "m", 7), ask(&engine, "m", 7));
        drop((leader, gone));
        assert_eq!(engine.in_flight(), 3);
        gate.open();
        for (stream, expected) in [(busy, 1), (next, 7), (last, 7)] {
            assert_eq!(first_byte(stream).await, expected);
        }
        assert_eq!((counts(&engine), engine.in_flight()), ([3, 2, 1, 2], 0));
    }
}

#[tokio::test]
async fn a_failure_is_told_to_all_and_kept_for_none() {
    for cache in caches() {
        let gate = Gate::shut();
        let failing = failing_behind(&gate);
        let engine = serve_with(cached("").options(), failing, &cache).await;
        let all: Vec<_> = (0..5).map(|_| ask(&engine, "m", 7)).collect();
        assert!(gate.wait_for(1, TIMEOUT));
        gate.open();
        for stream in all {
            assert_eq!(stream.only().await.unwrap_err().message, "no");
        }
        assert_eq!((statistics(&engine).totals.fail.count, counts(&engine)), (5, [0, 1, 0, 0]));
        assert_eq!(ask(&engine, "m", 7).only().await.unwrap_err().message, "no");
        assert_eq!((counts(&engine), cache.inserts()), ([0, 2, 0, 0], 0));
    }
}

/// A client that asks again on the thread that wakes it.
struct AskingAgain {
    engine: Engine,
    second: Mutex<Option<ResponseStream>>,
}

impl Wake for AskingAgain {
    fn wake(self: Arc<Self>) {
        *self.second.lock() = Some(ask(&self.engine, "m", 7));
    }
}

#[tokio::test]
async fn who_asks_again_after_a_failure_asks_the_model() {
    for cache in caches() {
        let gate = Gate::shut();
        let engine = serve_with(cached("").options(), failing_behind(&gate), &cache).await;
        let mut first = ask(&engine, "m", 7);
        let asking = Arc::new(AskingAgain { engine: engine.clone(), second: Mutex::default() });
        let waker = asking.clone().into();
        assert!(first.poll_next_unpin(&mut Context::from_waker(&waker)).is_pending());
        gate.open();
        assert!(gate.wait_for(2, TIMEOUT), "the second request is executed");
        let second = asking.second.lock().take().unwrap();
        for stream in [first, second] {
            assert_eq!(stream.only().await.unwrap_err().message, "no");
        }
        assert_eq!((counts(&engine), engine.in_flight()), ([0, 2, 0, 0], 0));
    }
}

#[tokio::test]
async fn a_request_that_waits_has_its_own_deadline() {
    let gate = Gate::shut();
    let cache = Arc::new(MemoryCache::that_never_waits());
    let engine = serve_with(cached(QUEUE).options(), echo_behind(&gate), &cache).await;
    let leader = ask(&engine, "m", 7);
    assert!(gate.wait_for(1, TIMEOUT));
    let (late, patient) = (send(&engine, hurried(7)), ask(&engine, "m", 7));
    let error = late.only().await.unwrap_err();
    assert_eq!((error.code, &error.message[..]), (ErrorCode::Unavailable, "Request timeout expired"));
    assert_eq!(engine.in_flight(), 2, "only that one has ended");
    gate.open();
    assert_eq!((first_byte(leader).await, first_byte(patient).await), (7, 7));
}

#[tokio::test]
async fn the_deadline_of_the_leader_is_not_that_of_the_others() {
    let gate = Gate::shut();
    let cache = Arc::new(MemoryCache::default());
    let engine = serve_with(cached(QUEUE).options(), echo_behind(&gate), &cache).await;
    let busy = ask(&engine, "m", 1);
    assert!(gate.wait_for(1, TIMEOUT));
    let (leader, next) = (send(&engine, hurried(7)), ask(&engine, "m", 7));
    assert_eq!(leader.only().await.unwrap_err().message, "Request timeout expired");
    gate.open();
    assert_eq!((first_byte(busy).await, first_byte(next).await), (1, 7));
    assert_eq!(counts(&engine), [2, 2, 0, 2]);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_into_the_cache_is_given_to_those_that_wait() {
    let gate = Gate::shut();
    let cache = Arc::new(MemoryCache::limited_to(1));
    let engine = serve_with(cached("").options(), echo_behind(&gate), &cache).await;
    let all = [ask(&engine, "m", 7), ask(&engine, "m", 7)];
    gate.open();
    for stream in all {
        assert_eq!(first_byte(stream).await, 7);
    }
    assert_eq!(counts(&engine), [2, 1, 1, 1]);
    assert_eq!((first_byte(ask(&engine, "m", 7)).await, counts(&engine)), (7, [3, 2, 1, 2]));
}

#[tokio::test]
async fn each_request_runs_if_the_answer_cannot_be_shared() {
    let gate = Gate::shut();
    let behind = gate.clone();
    let empty = echo().execute(move |_, batch| {
        behind.pass();
        for Execution { responder, .. } in batch.executions {
            responder.complete(Response::default());
        }
    });
    let cache = Arc::new(MemoryCache::default());
    let engine = serve_with(cached("").options(), empty, &cache).await;
    let all: Vec<_> = (0..4).map(|_| ask(&engine, "m", 7)).collect();
    gate.open();
    for stream in all {
        assert!(stream.only().await.unwrap().outputs.is_empty());
    }
    assert_eq!((counts(&engine), cache.inserts()), ([4, 4, 0, 4], 0));
}

#[tokio::test]
async fn equal_requests_to_a_model_that_stops_all_end() {
    let gate = Gate::shut();
    let cache = Arc::new(MemoryCache::default());
    let engine = serve_with(cached("").options(), echo_behind(&gate), &cache).await;
    let all: Vec<_> = (0..4).map(|_| ask(&engine, "m", 7)).collect();
    assert!(gate.wait_for(1, TIMEOUT));
    let stopping = tokio::spawn(async move {
        engine.stop(TIMEOUT).await.unwrap();
        engine
    });
    gate.open();
    for stream in all {
        assert_eq!(first_byte(stream).await, 7);
    }
    assert_eq!(stopping.await.unwrap().in_flight(), 0);
}

#[tokio::test]
async fn a_full_queue_refuses_all_that_wait() {
    let gate = Gate::shut();
    let full = "dynamic_batching { default_queue_policy { max_queue_size: 1 default_timeout_microseconds: 60000000 } }";
    let cache = Arc::new(MemoryCache::default());
    let engine = serve_with(cached(full).options(), echo_behind(&gate), &cache).await;
    let busy = ask(&engine, "m", 1);
    assert!(gate.wait_for(1, TIMEOUT));
    let queued = ask(&engine, "m", 2);
    let answer = cache.hold_look_ups();
    // So many that they may not refuse each other in turn.
    let named = |number: usize| Request { id: number.to_string().as_str().into(), ..request(7) };
    let all: Vec<_> = (0..20_000).map(|number| send(&engine, named(number))).collect();
    answer.notify_one();
    for (number, stream) in all.into_iter().enumerate() {
        let expected = format!("[request id: {number}] Exceeds maximum queue size");
        assert_eq!(stream.only().await.unwrap_err().message, expected);
    }
    gate.open();
    assert_eq!((first_byte(busy).await, first_byte(queued).await), (1, 2));
}

#[tokio::test]
async fn a_backend_that_panics_leaves_nobody_waiting() {
    let gate = Gate::shut();
    let behind = gate.clone();
    let panicking = echo().execute(move |_, batch| {
        behind.pass();
        let [Execution { .. }] = &batch.executions[..] else {
            return batch.executions.into_iter().for_each(answer);
        };
        panic!("as the test wants");
    });
    let cache = Arc::new(MemoryCache::default());
    let engine = serve_with(cached("").options(), panicking, &cache).await;
    let all: Vec<_> = (0..4).map(|_| ask(&engine, "m", 7)).collect();
    assert!(gate.wait_for(1, TIMEOUT));
    gate.open();
    for stream in all {
        assert!(stream.only().await.is_err());
    }
    assert_eq!(engine.in_flight(), 0);
}

/// Levels 1 and 2, 2 by default.
const LEVELS: &str =
    "dynamic_batching { priority_levels: 2 default_priority_level: 2 max_queue_delay_microseconds: 0 }";

fn urgent(value: u8) -> Request {
    Request { priority: 1, ..request(value) }
}

#[tokio::test]
async fn an_urgent_request_does_not_wait_behind_a_leader_that_is_less_urgent() {
    for cache in caches() {
        let gate = Gate::shut();
        let order = Arc::new(Mutex::new(Vec::new()));
        let (passed, seen) = (gate.clone(), order.clone());
        let backend = echo().execute(move |_, batch| {
            passed.pass();
            for execution in batch.executions {
                seen.lock().push(crate::support::value(&execution.request));
                answer(execution);
            }
        });
        let engine = serve_with(cached(LEVELS).options(), backend, &cache).await;
        let busy = ask(&engine, "m", 1);
        assert!(gate.wait_for(1, TIMEOUT));
        // They wait in the queue, the second one as the leader of its equals.
        let (other, leader) = (ask(&engine, "m", 8), ask(&engine, "m", 7));
        let urgent = send(&engine, urgent(7));
        gate.open();
        for (stream, expected) in [(urgent, 7), (busy, 1), (leader, 7), (other, 8)] {
            assert_eq!(first_byte(stream).await, expected);
        }
        assert_eq!(order.lock()[..2], [1, 7], "the urgent one was the next");
    }
}

#[tokio::test]
async fn a_refusal_of_the_leader_concerns_no_other() {
    for cache in caches() {
        let gate = Gate::shut();
        let passed = gate.clone();
        let refusals = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = refusals.clone();
        // The first two executions are refused, as if their clients read too slowly.
        let backend = echo().execute(move |_, batch| {
            passed.pass();
            for execution in batch.executions {
                if counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2 {
                    let error = Error::new(ErrorCode::ResourceExhausted, "the client reads too slowly");
                    execution.responder.fail(error.because(FailureReason::Rejected));
                } else {
                    answer(execution);
                }
            }
        });
        let engine = serve_with(cached("").options(), backend, &cache).await;
        let equal: Vec<_> = (0..5).map(|_| ask(&engine, "m", 7)).collect();
        assert!(gate.wait_for(1, TIMEOUT));
        gate.open();
        let mut results = Vec::new();
        for stream in equal {
            results.push(stream.only().await.map(drop).map_err(|error| error.code));
        }
        let refused = Err(ErrorCode::ResourceExhausted);
        assert_eq!(results, [refused, refused, Ok(()), Ok(()), Ok(())]);
    }
}

/// Each refusal used to be nested in the one before.
#[tokio::test]
async fn a_long_chain_of_refusals_ends_without_a_deep_stack() {
    const EQUAL: usize = 50_000;
    let cache = Arc::new(MemoryCache::that_never_waits());
    let gate = Gate::shut();
    let passed = gate.clone();
    let backend = echo().execute(move |_, batch| {
        passed.pass();
        for Execution { responder, .. } in batch.executions {
            responder.fail(Error::unavailable("not now").because(FailureReason::Rejected));
        }
    });
    let config = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }";
    let engine = serve_with(cached(config).options(), backend, &cache).await;
    let leader = ask(&engine, "m", 7);
    assert!(gate.wait_for(1, TIMEOUT));
    let equal: Vec<_> = (0..EQUAL).map(|_| ask(&engine, "m", 7)).collect();
    // The queue is full: whoever leads next is refused at once.
    let waiting = ask(&engine, "m", 1);
    gate.open();
    for stream in equal.into_iter().chain([leader, waiting]) {
        assert_eq!(stream.only().await.unwrap_err().code, ErrorCode::Unavailable);
    }
    assert_eq!(engine.in_flight(), 0);
}

#[tokio::test]
async fn a_request_that_leads_later_is_not_executed_on_the_thread_that_ends_the_leader() {
    for cache in caches() {
        let (tell, held) = std::sync::mpsc::channel();
        let tell = Mutex::new(Some(tell));
        let threads = Arc::new(Mutex::new(Vec::new()));
        let seen = threads.clone();
        // Executions are brief, and any thread may do them. The first request of value 7 is answered later.
        let backend = echo().brief().execute(move |_, batch| {
            for execution in batch.executions {
                let value = crate::support::value(&execution.request);
                match tell.lock().take_if(|_| value == 7) {
                    Some(tell) => tell.send(execution).unwrap(),
                    None => {
                        seen.lock().push((value, std::thread::current().id()));
                        answer(execution);
                    }
                }
            }
        });
        let engine = serve_with(cached("").options(), backend, &cache).await;
        let here = std::thread::current().id();
        first_byte(ask(&engine, "m", 1)).await;
        assert_eq!(threads.lock()[..], [(1, here)], "brief executions are done at once");
        let (leader, next) = (ask(&engine, "m", 7), ask(&engine, "m", 7));
        let leading: Execution = held.recv_timeout(TIMEOUT).unwrap();
        leading.responder.fail(Error::unavailable("not now").because(FailureReason::Rejected));
        assert!(leader.only().await.is_err());
        assert_eq!(first_byte(next).await, 7);
        let (value, thread) = *threads.lock().last().unwrap();
        assert!(value == 7 && thread != here);
    }
}
