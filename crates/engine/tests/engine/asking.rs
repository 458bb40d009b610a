//! Tests of what backends report: readiness, memory, and the times of responses.
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release, SeqCst},
        },
        mpsc,
    },
    time::Duration,
};

use engine::{Engine, ReadinessRule};
use inference::{DurationStatistic, ResponseReport, backend::MemoryUsage};
use parking_lot::Mutex;
use vocabulary::{Error, MemoryKind};

use crate::{
    stopping::refusal,
    support::{ECHO, Native, Repository, TIMEOUT, answer, echo, index, serves, start, until, value},
};

#[tokio::test]
async fn a_model_and_a_strict_server_are_ready_if_the_backend_says_so_too() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    for strict_readiness in [true, false] {
        let well = Arc::new(AtomicBool::new(true));
        let backend = echo().ready({
            let well = well.clone();
            move || if well.load(Acquire) { Ok(()) } else { Err(Error::internal("unwell")) }
        });
        let mut options = repository.options();
        options.readiness = if strict_readiness { ReadinessRule::AllModels } else { ReadinessRule::NoModel };
        let engine = start(options, backend).await;
        for is_well in [true, false, true] {
            well.store(is_well, Release);
            let server = is_well || !strict_readiness;
            assert_eq!(engine.demands().ready("m", None).await, is_well);
            assert_eq!(engine.model("m", Some(1)).unwrap().ready_here(), is_well);
            assert_eq!((engine.ready().await, engine.ready_here()), (Ok(server), Ok(server)));
            // Readiness is only a report: the model accepts requests, and the repository sees no difference.
            assert!(serves(&engine, "m").await && engine.all_loaded());
            assert_eq!(index(&engine), ["m 1 READY"]);
        }
    }
}

/// A backend that notifies the test of each readiness call, and waits for the test's answer.
async fn slow() -> (Engine, Repository, mpsc::Receiver<mpsc::Sender<()>>) {
    slow_of(echo()).await
}

async fn slow_of(backend: Native) -> (Engine, Repository, mpsc::Receiver<mpsc::Sender<()>>) {
    let (questions, asking) = mpsc::channel();
    let backend = backend.mobile().ready(move || {
        let (leave, wait) = mpsc::channel();
        let _ = questions.send(leave);
        // Returns at the answer, or at the end of the test.
        let _ = wait.recv_timeout(TIMEOUT);
        Ok(())
    });
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = repository.serve(backend).await;
    (engine, repository, asking)
}

/// The next readiness call. It comes from another thread, so this runtime continues meanwhile.
async fn next(asking: &mpsc::Receiver<mpsc::Sender<()>>) -> mpsc::Sender<()> {
    loop {
        match asking.try_recv() {
            Ok(leave) => return leave,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// The runtime has only one thread.
#[tokio::test]
async fn a_slow_readiness_check_of_a_backend_delays_no_other_request() {
    let (engine, _repository, asking) = slow().await;
    let asker = tokio::spawn({
        let engine = engine.clone();
        async move { engine.demands().ready("m", None).await }
    });
    let leave = next(&asking).await;
    assert!(serves(&engine, "m").await);
    assert_eq!(engine.statistics(Some("m"), None).unwrap()[0].totals.success.count, 1);
    leave.send(()).unwrap();
    assert!(asker.await.unwrap());
}

#[tokio::test]
async fn cancelled_health_checks_do_not_accumulate() {
    let (engine, _repository, asking) = slow().await;
    let mut askers = Vec::new();
    for _ in 0..3 {
        let engine = engine.clone();
        askers.push(tokio::spawn(async move { engine.demands().ready("m", None).await }));
    }
    let first = next(&asking).await;
    let last = askers.pop().unwrap();
    for asker in askers {
        asker.abort();
        assert!(asker.await.is_err());
    }
    assert!(asking.try_recv().is_err(), "asked a second time before it had answered");
    first.send(()).unwrap();
    // Two callers were aborted. One of them had made the first call. The call of the other one is skipped.
    next(&asking).await.send(()).unwrap();
    assert!(last.await.unwrap());
    assert!(asking.try_recv().is_err());
}

#[tokio::test]
async fn a_model_is_closed_after_its_readiness_check() {
    let backend = echo();
    let instances = backend.instances();
    let (engine, _repository, asking) = slow_of(backend).await;
    let asker = tokio::spawn({
        let engine = engine.clone();
        async move { engine.demands().ready("m", None).await }
    });
    let leave = next(&asking).await;
    let stopping = tokio::spawn({
        let engine = engine.clone();
        async move { engine.stop(TIMEOUT).await }
    });
    refusal(&engine).await;
    // The model has nothing else to wait for.
    until("the end of the instances", || instances.load(SeqCst) == 0).await;
    assert!(!stopping.is_finished(), "it was ended while it was asked");
    leave.send(()).unwrap();
    stopping.await.unwrap().unwrap();
    asker.await.unwrap();
    assert!(!engine.demands().ready("m", None).await);
}

#[tokio::test]
async fn statistics_contain_the_memory() {
    let memory = vec![
        MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size: 5 },
        MemoryUsage { kind: MemoryKind::Gpu, id: 1, byte_size: 7 },
    ];
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = repository.serve(echo().memory(memory.clone())).await;
    assert_eq!(engine.statistics(Some("m"), None).unwrap()[0].memory_usage, memory);
}

const WARMED: &str = "model_warmup { name: 'w' batch_size: 1
    inputs { key: 'IN' value { data_type: TYPE_UINT8 dims: 1 zero_data: true } } }";

#[tokio::test]
async fn reported_responses_are_counted_by_their_position_unless_they_were_for_warm_up() {
    let warmed = Arc::new(Mutex::new(0));
    let backend = echo().execute({
        let warmed = warmed.clone();
        move |_, batch| {
            for execution in batch.executions {
                if value(&execution.request) == 0 {
                    *warmed.lock() += 1;
                }
                for index in 0..=u64::from(value(&execution.request)) {
                    let compute_infer = Duration::from_nanos(10);
                    execution.responder.report_response(index, ResponseReport::Empty { compute_infer });
                }
                answer(execution);
            }
        }
    });
    let repository = Repository::new().model("m", &format!("{ECHO} {WARMED}"), &["1"]);
    let engine = repository.serve(backend).await;
    assert_eq!(*warmed.lock(), 1);
    let counted = || {
        let statistics = engine.statistics(Some("m"), None).unwrap().remove(0);
        let each = statistics.responses.into_iter().map(|one| (one.index, one.empty_response));
        each.collect::<Vec<_>>()
    };
    assert_eq!(counted(), []);
    for value in [2, 1] {
        crate::support::ask(&engine, "m", value).only().await.unwrap();
    }
    let times = |count| DurationStatistic { count, ns: 10 * count };
    assert_eq!(counted(), [(0, times(2)), (1, times(2)), (2, times(1))]);
}
