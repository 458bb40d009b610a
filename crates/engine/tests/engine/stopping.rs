//! Tests of how models and the engine end.
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use engine::{Engine, ModelControl, StartupModels};
use inference::backend::Batch;
use parking_lot::Mutex;
use repository::LoadParameters;
use vocabulary::{Error, ErrorCode};

use crate::support::{
    ECHO, Native, Repository, TIMEOUT, answer, ask, echo, index, request, serves, start, value,
};

const REFUSAL: &str = "[request id: <id_unknown>] Server is stopping, scheduler for model has stopped accepting new inference requests";

/// An echo backend. Each batch, once it has begun, waits for one message from the test.
pub(crate) fn gated() -> (Native, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (begun, beginnings) = mpsc::channel();
    let (go_on, leave) = mpsc::channel();
    let leave = Mutex::new(leave);
    let backend = echo().execute(move |_, batch| {
        begun.send(()).unwrap();
        let _ = leave.lock().recv();
        batch.executions.into_iter().for_each(answer);
    });
    (backend, beginnings, go_on)
}

/// Sends requests until one is refused. Drops, and so cancels, the accepted ones.
pub(crate) async fn refusal(engine: &Engine) -> Error {
    loop {
        match engine.model("m", None).unwrap().infer(request(0)) {
            Ok(accepted) => drop(accepted),
            Err(error) => return error,
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn stopping_finishes_what_was_accepted_and_refuses_the_rest() {
    let (backend, begun, go_on) = gated();
    let engine = Repository::new().model("m", ECHO, &["1"]).serve(backend).await;
    let running = ask(&engine, "m", 1);
    begun.recv().unwrap();
    let waiting = ask(&engine, "m", 2);
    let stopping = tokio::spawn({
        let engine = engine.clone();
        async move { engine.stop(TIMEOUT).await }
    });
    let refused = refusal(&engine).await;
    assert_eq!((refused.code, &refused.message[..]), (ErrorCode::Unavailable, REFUSAL));
    for exiting in [engine.live(), engine.ready().await] {
        let error = exiting.unwrap_err();
        assert_eq!((error.code, &error.message[..]), (ErrorCode::Unavailable, "Server exiting"));
    }
    assert!(!stopping.is_finished());
    (0..2).for_each(|_| go_on.send(()).unwrap());
    for (stream, value) in [running, waiting].into_iter().zip(1..) {
        assert_eq!(stream.only().await.unwrap().outputs[0].host().unwrap().contiguous()[..], [value]);
    }
    stopping.await.unwrap().unwrap();
    assert_eq!(engine.in_flight(), 0);
    assert_eq!(refusal(&engine).await.message, REFUSAL);
}

#[tokio::test]
async fn a_server_whose_stop_is_announced_is_live_and_not_ready_and_serves() {
    let engine = Repository::new().model("m", ECHO, &["1"]).serve(echo()).await;
    assert_eq!((engine.live(), engine.ready().await, engine.ready_here()), (Ok(true), Ok(true), Ok(true)));
    engine.announce_stop();
    assert_eq!((engine.live(), engine.ready().await, engine.ready_here()), (Ok(true), Ok(false), Ok(false)));
    assert!(engine.demands().ready("m", None).await && serves(&engine, "m").await);
    engine.stop(TIMEOUT).await.unwrap();
}

/// One load hangs, another waits for a load thread, and a model serves.
#[tokio::test]
async fn a_stop_may_leave_loads_behind() {
    let (begun, beginnings) = mpsc::channel();
    let (release, hang) = mpsc::channel::<()>();
    let hang = Mutex::new(hang);
    let backend = echo().open(move |source| {
        if &*source.name == "hangs" {
            begun.send(()).unwrap();
            let _ = hang.lock().recv();
        }
        Ok(())
    });
    let repository = ["hangs", "m", "waits"]
        .iter()
        .fold(Repository::new(), |repository, name| repository.model(name, ECHO, &["1"]));
    let mut options = repository.options();
    options.control = ModelControl::Explicit(StartupModels::Named(["m".to_owned()].into()));
    options.load_threads = 1;
    let engine = start(options, backend).await;
    let load = |name| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.repository().load(name, LoadParameters::default()).await })
    };
    let hanging = load("hangs");
    while beginnings.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    let waiting = load("waits");
    assert!(serves(&engine, "m").await);
    assert!(engine.abandon_loads().await);
    for load in [hanging, waiting] {
        let error = load.await.unwrap().unwrap_err();
        assert_eq!((error.code, &error.message[..]), (ErrorCode::Unavailable, "Server exiting"));
    }
    assert!(serves(&engine, "m").await, "requests are accepted until the stop");
    engine.stop(TIMEOUT).await.unwrap();
    assert!(engine.abandon_loads().await, "it still hangs");
    drop(release);
    while engine.abandon_loads().await {
        tokio::task::yield_now().await;
    }
    // The copy that was made after all has ended.
    engine.stop(TIMEOUT).await.unwrap();
    assert!(engine.end_threads(Instant::now() + TIMEOUT));
}

#[tokio::test]
async fn a_stop_waits_for_loads_that_are_not_left_behind() {
    let (begun, beginnings) = mpsc::channel();
    let (release, hang) = mpsc::channel::<()>();
    let hang = Mutex::new(hang);
    let backend = echo().open(move |_| {
        begun.send(()).unwrap();
        let _ = hang.lock().recv();
        Ok(())
    });
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let mut options = repository.options();
    options.control = ModelControl::Explicit(StartupModels::Named(Default::default()));
    let engine = start(options, backend).await;
    let loading = tokio::spawn({
        let engine = engine.clone();
        async move { engine.repository().load("m", LoadParameters::default()).await }
    });
    while beginnings.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    let stopped = engine.stop(Duration::from_millis(20)).await;
    assert_eq!(stopped.unwrap_err().message, "Exit timeout expired. Exiting immediately.");
    assert_eq!(loading.await.unwrap().unwrap_err().message, "Server exiting");
    drop(release);
    engine.stop(TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn a_delayed_batch_runs_when_the_engine_stops() {
    let patient = "dynamic_batching { max_queue_delay_microseconds: 3600000000 }";
    let engine = Repository::new().model("m", &format!("{ECHO} {patient}"), &["1"]).serve(echo()).await;
    let waiting = ask(&engine, "m", 1);
    engine.stop(TIMEOUT).await.unwrap();
    assert!(waiting.only().await.is_ok());
}

#[tokio::test]
async fn an_idle_engine_stops_at_once() {
    let groups = "instance_group { count: 4 }";
    let repository =
        Repository::new().model("m", &format!("{ECHO} {groups}"), &["1"]).model("n", ECHO, &["1"]);
    let engine = repository.serve(echo()).await;
    assert!(serves(&engine, "m").await);
    // It waits for nothing, least of all for the end of its timeout.
    let stopping = engine.stop(Duration::from_secs(3600));
    tokio::time::timeout(TIMEOUT, stopping).await.expect("it stops").unwrap();
}

#[tokio::test]
async fn instances_end_with_the_engine() {
    let ended = Arc::new(AtomicUsize::new(0));
    struct DropCounter(Arc<AtomicUsize>);
    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let witness = Arc::new(DropCounter(ended.clone()));
    let backend = echo().execute(move |_, batch| {
        let _ = &witness;
        batch.executions.into_iter().for_each(answer);
    });
    let engine = repository.serve(backend).await;
    assert!(serves(&engine, "m").await);
    engine.stop(TIMEOUT).await.unwrap();
    // The instances are dropped. The backend itself lives as long as the engine.
    assert_eq!(ended.load(SeqCst), 0);
    drop(engine);
    while ended.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stop_ends_at_its_timeout_if_a_request_is_never_answered() {
    let (backend, begun, go_on) = gated();
    let engine = Repository::new().model("m", ECHO, &["1"]).serve(backend).await;
    let stuck = ask(&engine, "m", 1);
    begun.recv().unwrap();
    let error = engine.stop(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(
        (error.code, &error.message[..]),
        (ErrorCode::Internal, "Exit timeout expired. Exiting immediately.")
    );
    go_on.send(()).unwrap();
    assert!(stuck.only().await.is_ok());
    engine.stop(TIMEOUT).await.unwrap();
}

#[test]
fn a_backend_that_hangs_after_its_response_delays_no_other_model() {
    let (release, hang) = mpsc::channel::<()>();
    let hang = Mutex::new(hang);
    let backend = echo().execute(move |_, batch: Batch| {
        batch.executions.into_iter().for_each(answer);
        let _ = hang.lock().recv();
    });
    let (report, outcome) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stopped = runtime.block_on(async {
            let engine = Repository::new().model("m", ECHO, &["1"]).serve(backend).await;
            assert!(serves(&engine, "m").await);
            engine.stop(Duration::from_millis(20)).await
        });
        // Waits for the threads that still block.
        drop(runtime);
        report.send(stopped).unwrap();
    });
    let stopped = outcome.recv_timeout(TIMEOUT).expect("the runtime has ended");
    assert_eq!(stopped.unwrap_err().message, "Exit timeout expired. Exiting immediately.");
    drop(release);
}

#[tokio::test]
async fn a_panicking_backend_makes_its_version_unavailable_and_no_other() {
    let both = format!("{ECHO} version_policy {{ all {{}} }}");
    for mobile in [false, true] {
        let repository = Repository::new().model("m", &both, &["1", "2"]).model("other", ECHO, &["1"]);
        let native = if mobile { echo().mobile() } else { echo() };
        let backend = native.execute(|_, batch| {
            assert!(value(&batch.executions[0].request) != 13, "unlucky");
            batch.executions.into_iter().for_each(answer);
        });
        let engine = repository.serve(backend).await;
        // Repeated, so that movable instances run on the callers' threads.
        for _ in 0..100 {
            assert!(serves(&engine, "m").await);
        }
        assert_eq!(ask(&engine, "m", 13).only().await.unwrap_err().code, ErrorCode::Internal);
        // The request is answered while the panic unwinds, shortly before the model fails.
        while engine.demands().ready("m", Some(2)).await {
            tokio::task::yield_now().await;
        }
        let fault = "the backend of model 'm' version 2 panicked: unlucky";
        assert_eq!(
            index(&engine),
            [
                "m 1 READY".to_owned(),
                format!("m 2 UNAVAILABLE Internal: {fault}"),
                "other 1 READY".to_owned()
            ]
        );
        let error = engine.model("m", Some(2)).unwrap_err();
        assert_eq!(
            (error.code, &error.message[..]),
            (ErrorCode::Unavailable, "Request for unknown model: 'm' version 2 is not at ready state")
        );
        assert_eq!(engine.model("m", None).unwrap().version(), 1, "the next one takes over");
        assert!(!engine.ready().await.unwrap());
        assert!(serves(&engine, "m").await && serves(&engine, "other").await);
        engine.stop(TIMEOUT).await.unwrap();
    }
}

#[tokio::test]
async fn a_model_that_panics_while_it_stops_does_not_delay_the_stop() {
    let (begun, beginnings) = mpsc::channel();
    let (go_on, leave) = mpsc::channel::<()>();
    let leave = Mutex::new(leave);
    let backend = echo().execute(move |_, _| {
        begun.send(()).unwrap();
        let _ = leave.lock().recv();
        panic!("at the worst of times");
    });
    let engine = Repository::new().model("m", ECHO, &["1"]).serve(backend).await;
    let (running, waiting) = (ask(&engine, "m", 1), ask(&engine, "m", 2));
    beginnings.recv().unwrap();
    let stopping = tokio::spawn({
        let engine = engine.clone();
        async move { engine.stop(TIMEOUT).await }
    });
    refusal(&engine).await;
    go_on.send(()).unwrap();
    assert!(running.only().await.is_err() && waiting.only().await.is_err());
    stopping.await.unwrap().unwrap();
}
