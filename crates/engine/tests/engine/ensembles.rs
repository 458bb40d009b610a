//! Ensembles: requests pass through the members, and end once whatever these do.
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::Poll,
    time::Duration,
};

use engine::{Engine, EngineOptions, ModelControl, Polling, StartupModels};
use host::MemoryLimits;
use inference::{
    Request, Response, ResponseStream,
    backend::{Batch, Execution},
};
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use repository::LoadParameters;
use vocabulary::{Error, ErrorCode, FailureReason, Parameter, Tensor, TensorData};

use crate::support::{
    Begun, ECHO, Native, Repository, TIMEOUT, answer, ask, echo, held, index, options, request, start, until,
    value,
};

/// A step from one tensor to another.
fn step(model: &str, from: &str, to: &str) -> String {
    format!(
        "step {{ model_name: '{model}' model_version: -1 input_map {{ key: 'IN' value: '{from}' }}
         output_map {{ key: 'OUT' value: '{to}' }} }}"
    )
}

/// An ensemble from `IN` to `OUT`.
fn ensemble(steps: &[String], rest: &str) -> String {
    format!(
        "platform: 'ensemble' max_batch_size: 8 {rest}
         input {{ name: 'IN' data_type: TYPE_UINT8 dims: -1 }} output {{ name: 'OUT' data_type: TYPE_UINT8 dims: -1 }}
         ensemble_scheduling {{ {} }}",
        steps.join(" ")
    )
}

pub(crate) fn chain(models: &[&str], rest: &str) -> String {
    let tensor = |index: usize| match index {
        0 => "IN".to_owned(),
        last if last == models.len() => "OUT".to_owned(),
        index => format!("t{index}"),
    };
    let steps: Vec<_> = models
        .iter()
        .enumerate()
        .map(|(index, model)| step(model, &tensor(index), &tensor(index + 1)))
        .collect();
    ensemble(&steps, rest)
}

/// Adds one to each byte.
fn add_one(Execution { request, responder, .. }: Execution) {
    let bytes: Vec<u8> = request
        .input("IN")
        .unwrap()
        .host()
        .unwrap()
        .contiguous()
        .iter()
        .map(|byte| byte.wrapping_add(1))
        .collect();
    let shape = request.input("IN").unwrap().shape().into();
    responder.complete(Response::of(vec![Tensor::new(
        "OUT".into(),
        vocabulary::DataType::Uint8,
        shape,
        bytes,
    )]));
}

fn adding() -> Native {
    echo().execute(|_, batch| batch.executions.into_iter().for_each(add_one))
}

async fn result(stream: ResponseStream) -> Result<Vec<u8>, Error> {
    let response = stream.only().await?;
    Ok(response.output("OUT").unwrap().host().unwrap().contiguous().to_vec())
}

async fn explicit(repository: &Repository, names: &[&str], backend: Native) -> Engine {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let control = ModelControl::Explicit(StartupModels::Named(names));
    let engine = start(engine::EngineOptions { control, ..repository.options() }, backend).await;
    engine.load_models().await.unwrap();
    engine
}

async fn all(repository: &Repository, backend: Native) -> Engine {
    let engine = repository.serve(backend).await;
    engine.load_models().await.unwrap();
    engine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_passes_through_all_members_and_through_ensembles_of_ensembles() {
    let repository = Repository::new()
        .model("add", ECHO, &["1"])
        .model("two", &chain(&["add", "add"], ""), &["1"])
        .model("five", &chain(&["two", "add", "two"], ""), &["1"]);
    for backend in [adding(), adding().mobile()] {
        let engine = all(&repository, backend).await;
        assert_eq!(result(ask(&engine, "two", 5)).await.unwrap(), [7]);
        assert_eq!(result(ask(&engine, "five", 5)).await.unwrap(), [10]);
        let statistics = engine.statistics(Some("add"), None).unwrap();
        assert_eq!(statistics[0].totals.success.count, 7);
        let five = &engine.statistics(Some("five"), None).unwrap()[0];
        assert_eq!(
            (five.totals.success.count, five.totals.execution_count, five.totals.fail.count),
            (1, 1, 0)
        );
        assert!(five.totals.compute_infer.ns > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_a_member_is_told_once_with_a_prefix_for_each_ensemble() {
    let failing = echo().execute(|model, batch| {
        for execution in batch.executions {
            match model {
                "bad" => execution.responder.fail(Error::unavailable("no").because(FailureReason::Backend)),
                _ => answer(execution),
            }
        }
    });
    let repository = Repository::new()
        .model("good", ECHO, &["1"])
        .model("bad", ECHO, &["1"])
        .model("inner", &chain(&["good", "bad", "good"], ""), &["1"])
        .model("outer", &chain(&["inner", "good"], ""), &["1"]);
    let engine = all(&repository, failing).await;
    let error = result(ask(&engine, "outer", 5)).await.unwrap_err();
    assert_eq!(
        (error.code, &*error.message),
        (ErrorCode::Unavailable, "in ensemble 'outer', in ensemble 'inner', no")
    );
    for (model, counts) in [("outer", (0, 1)), ("inner", (0, 1)), ("bad", (0, 1)), ("good", (1, 0))] {
        let read = &engine.statistics(Some(model), None).unwrap()[0];
        assert_eq!((read.totals.success.count, read.totals.fail.count), counts, "{model}");
        assert_eq!(read.totals.execution_count, u64::from(model == "good" || model == "bad"), "{model}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_cancels_the_members_that_wait() {
    let (backend, begun) = held(echo(), <[Execution]>::len, answer);
    let repository = Repository::new().model("m", ECHO, &["1"]).model("e", &chain(&["m", "m"], ""), &["1"]);
    let engine = all(&repository, backend).await;
    let first = ask(&engine, "m", 1);
    let running = begun.recv_timeout(TIMEOUT).unwrap();
    let (abandoned, cancelled) = (ask(&engine, "e", 2), ask(&engine, "e", 3));
    drop(abandoned);
    cancelled.cancel();
    let error = result(cancelled).await.unwrap_err();
    assert_eq!((error.code, error.reason), (ErrorCode::Cancelled, FailureReason::Cancelled));
    // Otherwise the member of the abandoned request could begin before it is cancelled.
    until("the end of the abandoned request", || engine.in_flight() == 1).await;
    running.end();
    assert_eq!(result(first).await.unwrap(), [1]);
    until("the end of all requests", || engine.in_flight() == 0).await;
    let read = &engine.statistics(Some("m"), None).unwrap()[0];
    assert_eq!((read.totals.success.count, read.totals.execution_count, read.totals.fail.count), (1, 1, 2));
    assert_eq!(engine.statistics(Some("e"), None).unwrap()[0].totals.fail.count, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_have_begun_keep_their_members_while_these_are_replaced_or_unloaded() {
    let (backend, begun) = held(adding(), |_| (), add_one);
    let repository = Repository::new().model("m", ECHO, &["1"]).model("e", &chain(&["m", "m"], ""), &["1"]);
    let engine = explicit(&repository, &["e"], backend).await;
    let stream = ask(&engine, "e", 5);
    let first = begun.recv_timeout(TIMEOUT).unwrap();
    engine.repository().unload("m").await.unwrap();
    assert!(engine.model("m", None).is_err() && engine.model("e", None).is_err());
    first.end();
    begun.recv_timeout(TIMEOUT).unwrap().end();
    assert_eq!(result(stream).await.unwrap(), [7]);
    engine.repository().load("m", LoadParameters::default()).await.unwrap();
    while engine.model("e", None).is_err() {
        tokio::task::yield_now().await;
    }
    let stream = ask(&engine, "e", 6);
    for _ in 0..2 {
        begun.recv_timeout(TIMEOUT).unwrap().end();
    }
    assert_eq!(result(stream).await.unwrap(), [8]);
}

#[tokio::test]
async fn an_unload_of_a_member_waits_for_the_load_of_its_ensemble() {
    let (begun, beginnings) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let backend = adding().open(move |_| {
        begun.send(()).unwrap();
        let _ = held.lock().recv();
        Ok(())
    });
    let repository = Repository::new().model("m", ECHO, &["1"]).model("e", &chain(&["m"], ""), &["1"]);
    let engine = explicit(&repository, &[], backend).await;
    let load = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.repository().load("e", LoadParameters::default()).await })
    };
    while beginnings.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    let mut unload = std::pin::pin!(engine.repository().unload("m"));
    // The engine has the command when the call has been polled once.
    let is_open = std::future::poll_fn(|context| Poll::Ready(unload.as_mut().poll(context).is_pending()));
    assert!(is_open.await);
    drop(release);
    unload.await.unwrap();
    load.await.unwrap().unwrap();
    let unloaded = ["e 1 UNAVAILABLE unloaded", "m 1 UNAVAILABLE unloaded"];
    until("both are unloaded", || index(&engine) == unloaded).await;
}

/// One repository has the ensemble and its member, another one has a member of the same name.
#[tokio::test]
async fn a_member_that_disappears_is_replaced_by_the_one_of_another_repository() {
    let member = || Repository::new().model("m", ECHO, &["1"]);
    let (own, other) = (member().model("e", &chain(&["m"], ""), &["1"]), member());
    let polling = Polling { period: Duration::from_millis(2), settle: Duration::from_millis(1) };
    let paths = [&own, &other].map(|repository| repository.path().to_path_buf()).into();
    let options = EngineOptions { namespacing: true, control: ModelControl::Poll(polling), ..options(paths) };
    let engine = start(options, adding()).await;
    engine.load_models().await.unwrap();
    assert_eq!(index(&engine), ["e 1 READY", "m 1 READY", "m 1 READY"]);
    fs::remove_dir_all(own.path().join("m")).unwrap();
    until("the ensemble's own member has gone", || index(&engine).len() < 3).await;
    assert_eq!(index(&engine), ["e 1 READY", "m 1 READY"]);
    assert_eq!(result(ask(&engine, "e", 5)).await.unwrap(), [6]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_accepted_requests_pass_through_all_members() {
    let (backend, begun) = held(adding(), |_| (), add_one);
    let repository = Repository::new()
        .model("m", ECHO, &["1"])
        .model("e", &chain(&["m", "m"], ""), &["1"])
        .model("outer", &chain(&["e", "e"], ""), &["1"]);
    let engine = all(&repository, backend).await;
    let stream = ask(&engine, "outer", 5);
    let first = begun.recv_timeout(TIMEOUT).unwrap();
    let outer = engine.model("outer", None).unwrap();
    let stopping = tokio::spawn({
        let engine = engine.clone();
        async move { engine.stop(Duration::from_secs(20)).await }
    });
    while outer.infer(request(1)).is_ok() {
        tokio::task::yield_now().await;
    }
    first.end();
    // Requests that were accepted before the stop may come in between.
    while !stopping.is_finished() {
        match begun.try_recv() {
            Ok(begun) => drop(begun.end()),
            Err(_) => tokio::task::yield_now().await,
        }
    }
    stopping.await.unwrap().unwrap();
    assert_eq!(result(stream).await.unwrap(), [9]);
}

/// How many requests of a model run, and how many have at most.
#[derive(Default)]
struct RunningRequests {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl RunningRequests {
    fn begin(self: &Arc<Self>) -> Arc<Self> {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        self.clone()
    }
}

/// Lets so many requests run at the same time, and then ends them.
fn run_together(begun: &mpsc::Receiver<Begun<Arc<RunningRequests>>>, count: usize) {
    let together: Vec<_> = (0..count).map(|_| begun.recv_timeout(TIMEOUT).unwrap()).collect();
    for begun in together {
        begun.seen.now.fetch_sub(1, SeqCst);
        begun.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_has_at_most_as_many_requests_in_flight_as_the_configuration_allows() {
    let running = Arc::new(RunningRequests::default());
    let told = running.clone();
    let (backend, begun) = held(echo(), move |_| told.begin(), answer);
    let config =
        chain(&["m"], "").replace("ensemble_scheduling {", "ensemble_scheduling { max_inflight_requests: 2");
    let member = format!("{ECHO} instance_group {{ count: 4 }}");
    let repository = Repository::new().model("m", &member, &["1"]).model("e", &config, &["1"]);
    let engine = all(&repository, backend).await;
    let mut streams: Vec<_> = (0..10).map(|value| ask(&engine, "e", value)).collect();
    // One that waits for its turn goes away.
    drop(streams.remove(5));
    let answering = std::thread::spawn(move || [2, 2, 2, 1, 1, 1].map(|count| run_together(&begun, count)));
    for (stream, wanted) in streams.into_iter().zip([0, 1, 2, 3, 4, 6, 7, 8, 9]) {
        assert_eq!(result(stream).await.unwrap(), [wanted]);
    }
    answering.join().unwrap();
    assert_eq!(running.most.load(SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_while_the_ensemble_holds_as_many_bytes_as_it_may() {
    let running = Arc::new(RunningRequests::default());
    let told = running.clone();
    let (backend, begun) = held(echo(), move |_| told.begin(), answer);
    let member = format!("{ECHO} instance_group {{ count: 8 }}");
    let repository =
        Repository::new().model("m", &member, &["1"]).model("e", &chain(&["m", "m"], ""), &["1"]);
    let limits = MemoryLimits { intermediate_bytes: 3, ..MemoryLimits::default() };
    let engine = start(engine::EngineOptions { limits, ..repository.options() }, backend).await;
    engine.load_models().await.unwrap();
    let streams: Vec<_> = (0..20).map(|value| ask(&engine, "e", value)).collect();
    let late = {
        let timeout = Some(Duration::from_millis(1));
        engine.model("e", None).unwrap().infer(Request { timeout, ..request(9) }).unwrap()
    };
    let error = result(late).await.unwrap_err();
    assert_eq!((error.code, &*error.message), (ErrorCode::Unavailable, "Request timeout expired"));
    let answering = std::thread::spawn(move || {
        // The first request shows how many bytes a request holds.
        run_together(&begun, 1);
        run_together(&begun, 1);
        run_together(&begun, 3);
        (0..35).for_each(|_| run_together(&begun, 1));
    });
    for (wanted, stream) in streams.into_iter().enumerate() {
        assert_eq!(result(stream).await.unwrap(), [u8::try_from(wanted).unwrap()]);
    }
    answering.join().unwrap();
    // Three bytes: three requests of one byte.
    assert_eq!(running.most.load(SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decoupled_member_waits_for_a_client_that_limits_its_unread_responses() {
    let ended = Arc::new(AtomicUsize::new(0));
    let told = ended.clone();
    let backend = echo().execute(move |_, batch| {
        for execution in batch.executions {
            for count in 0..100_u8 {
                let output =
                    Tensor::new("OUT".into(), vocabulary::DataType::Uint8, [1, 1][..].into(), vec![count]);
                execution.responder.send(Response::of(vec![output]));
            }
            execution.responder.finish();
            told.fetch_add(1, SeqCst);
        }
    });
    let member = format!("{ECHO} model_transaction_policy {{ decoupled: true }}");
    let repository = Repository::new()
        .model("m", &member, &["1"])
        .model("e", &chain(&["m"], ""), &["1"])
        .model("outer", &chain(&["e"], ""), &["1"]);
    let engine = all(&repository, backend).await;
    let most_unread = std::num::NonZeroUsize::new(2);
    for name in ["e", "outer"] {
        let sent = Request { most_unread, ..request(5) };
        let mut stream = engine.model(name, None).unwrap().infer(sent).unwrap();
        let before = ended.load(SeqCst);
        let mut seen = Vec::new();
        while let Some(item) = stream.next().await {
            if seen.is_empty() {
                assert_eq!(ended.load(SeqCst), before, "the member cannot have sent all of them");
            }
            seen.push(item.result.unwrap().output("OUT").unwrap().host().unwrap().contiguous()[0]);
        }
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        // A client that goes away does not leave the member waiting.
        let sent = Request { most_unread, ..request(5) };
        let mut stream = engine.model(name, None).unwrap().infer(sent).unwrap();
        assert!(stream.next().await.is_some(), "the member has begun");
        drop(stream);
        while ended.load(SeqCst) < before + 2 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_get_the_id_the_parameters_the_priority_and_what_is_left_of_the_timeout() {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let told = seen.clone();
    let backend = echo().execute(move |_, batch: Batch| {
        for execution in batch.executions {
            let Request { id, parameters, priority, timeout, .. } = &execution.request;
            told.lock().push((id.clone(), parameters.clone(), *priority, *timeout));
            answer(execution);
        }
    });
    let repository = Repository::new().model("m", ECHO, &["1"]).model("e", &chain(&["m", "m"], ""), &["1"]);
    let engine = all(&repository, backend).await;
    let sent = Request {
        id: "seven".into(),
        parameters: vec![("hello".into(), Parameter::Int(3))],
        priority: 2,
        timeout: Some(Duration::from_secs(1000)),
        ..request(5)
    };
    let response = engine.model("e", None).unwrap().infer(sent).unwrap().only().await.unwrap();
    let names: Vec<_> = response.parameters.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["sequence_id", "sequence_start", "sequence_end"]);
    let seen = seen.lock();
    assert_eq!(seen.len(), 2);
    for (id, parameters, priority, timeout) in &*seen {
        assert_eq!((&**id, *priority), ("seven", 2));
        assert_eq!(*parameters, [("hello".into(), Parameter::Int(3))]);
        let left = timeout.unwrap();
        assert!(left > Duration::from_secs(900) && left < Duration::from_secs(1000), "{left:?}");
    }
    assert!(seen[1].3 < seen[0].3);
}

/// Bytes of a tensor that is still held.
struct HeldTensor {
    bytes: Vec<u8>,
    live: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for HeldTensor {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldTensor {
    fn drop(&mut self) {
        self.live.fetch_sub(1, SeqCst);
    }
}

/// Echoes a copy of `IN` that is counted while it is held.
fn answer_counted(Execution { request, responder, .. }: Execution, live: &Arc<AtomicUsize>) {
    let input = request.input("IN").unwrap();
    let bytes = input.host().unwrap().contiguous().to_vec();
    live.fetch_add(1, SeqCst);
    let bytes = bytes::Bytes::from_owner(HeldTensor { bytes, live: live.clone() });
    let data = TensorData::from_pieces([bytes]);
    let output = Tensor::new("OUT".into(), input.datatype(), input.shape().into(), data);
    responder.complete(Response::of(vec![output]));
}

/// Members that fail, forget requests and answer late.
fn unreliable(live: &Arc<AtomicUsize>) -> Native {
    let counted = live.clone();
    echo().execute(move |model, batch| {
        for execution in batch.executions {
            match (model, value(&execution.request) % 16) {
                ("a", 0) => execution.responder.fail(Error::internal("a fails")),
                ("b", 1) => drop(execution),
                ("b", 2) => execution.responder.finish(),
                ("c", 3) => {
                    // Another thread answers.
                    let live = counted.clone();
                    std::thread::spawn(move || answer_counted(execution, &live));
                }
                _ => answer_counted(execution, &counted),
            }
        }
    })
}

/// A diamond of three models and one that joins two branches, and an ensemble of that and another model.
fn diamonds() -> Repository {
    let join = "step { model_name: 'join' model_version: -1 input_map { key: 'IN' value: 'y' }
         input_map { key: 'MORE' value: 'z' } output_map { key: 'OUT' value: 'OUT' } }";
    let steps = [step("a", "IN", "x"), step("b", "x", "y"), step("c", "x", "z"), join.to_owned()];
    let joining = format!("{ECHO} input {{ name: 'MORE' data_type: TYPE_UINT8 dims: -1 }}");
    let batching = format!("{ECHO} dynamic_batching {{}} instance_group {{ count: 2 }}");
    Repository::new()
        .model("a", &batching, &["1"])
        .model("b", &batching, &["1"])
        .model("c", &batching, &["1"])
        .model("join", &joining, &["1"])
        .model("diamond", &ensemble(&steps, ""), &["1"])
        .model("outer", &chain(&["diamond", "a"], ""), &["1"])
}

/// Each request is answered once, whatever its members do, also while one of them is unloaded. Nothing is held afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_members_do_each_request_ends_once_and_nothing_is_held() {
    let requests: usize = if std::env::var_os("NEREID_CHAOS_FULL").is_some() { 100_000 } else { 5_000 };
    let live = Arc::new(AtomicUsize::new(0));
    let repository = diamonds();
    let engine = explicit(&repository, &["outer", "diamond"], unreliable(&live)).await;
    let mut random = StdRng::seed_from_u64(1);
    let mut open = Vec::new();
    let (mut good, mut bad) = (0, 0);
    for count in 0..requests {
        if count % 500 == 250 {
            engine.repository().unload("c").await.unwrap();
            engine.repository().load("c", LoadParameters::default()).await.unwrap();
            // The ensembles come back by themselves.
            while engine.model("outer", None).is_err() {
                tokio::task::yield_now().await;
            }
        }
        let name = if random.random() { "outer" } else { "diamond" };
        let byte: u8 = random.random();
        match engine.model(name, None).and_then(|model| model.infer(request(byte))) {
            Ok(stream) if random.random_ratio(1, 16) => drop(stream),
            Ok(stream) => open.push((byte, stream)),
            Err(_) => bad += 1,
        }
        if open.len() == 64 || count + 1 == requests {
            for (byte, stream) in open.drain(..) {
                match result(stream).await {
                    Ok(bytes) => {
                        assert_eq!(bytes, [byte]);
                        good += 1;
                    }
                    Err(_) => bad += 1,
                }
            }
        }
    }
    assert!(good > requests / 4 && bad > requests / 16, "{good} good, {bad} bad");
    while engine.in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    // Instances that have just answered still drop their batches.
    while live.load(SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    for name in ["diamond", "outer"] {
        if let Ok(statistics) = engine.statistics(Some(name), None) {
            assert!(statistics[0].totals.success.count > 0, "{name}");
        }
    }
}
