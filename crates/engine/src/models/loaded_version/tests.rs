//! Tests of a model from start to close, with a backend whose executions end when the test allows it.
use std::{
    num::NonZeroUsize,
    sync::{LazyLock, mpsc},
    thread::{self, ThreadId},
};

use config::{ModelConfig, Scheduling};
use executor::EngineThreads;
use inference::{
    Request, RequestInputs, Response, ResponseItem, ResponseStream, UnreadBudget,
    backend::{BackendInstance, Batch, BuiltInstance, Execution, InstanceSpec},
};
use scheduling::{DynamicBatching, QueuePolicy, TimeoutAction};
use tokio::runtime::Runtime;
use vocabulary::{ByteBudget, DataType, ErrorCode, FailureReason, Tensor};

use super::*;

pub(crate) use testing::model_parts::{config, instance, placed};

/// What an instance reports to the test when it begins a batch, and the permission that it then waits for.
pub(crate) struct Begun {
    instance: String,
    requests: usize,
    pub(crate) go_on: mpsc::Sender<GateAnswer>,
}

pub(crate) enum GateAnswer {
    Echo,
    Panic,
}

/// Echoes `IN` as `OUT`. Reports each batch on `begun`, if there is a receiver, and waits for the test's permission.
struct Gated {
    begun: Option<mpsc::Sender<Begun>>,
    movable: bool,
}

struct GatedInstance {
    name: String,
    begun: Option<mpsc::Sender<Begun>>,
}

impl BackendModel for Gated {
    fn instance(&self, _: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        if spec.name.contains("broken") {
            return Err(Error::internal("cannot build"));
        }
        let instance = GatedInstance { name: spec.name.to_string(), begun: self.begun.clone() };
        Ok(if self.movable {
            BuiltInstance::Movable(Box::new(instance))
        } else {
            BuiltInstance::ThreadBound(Box::new(instance))
        })
    }
}

impl BackendInstance for GatedInstance {
    fn execute(&mut self, batch: Batch) {
        if let Some(begun) = &self.begun {
            let (go_on, verdict) = mpsc::channel();
            let instance = self.name.clone();
            begun.send(Begun { instance, requests: batch.executions.len(), go_on }).unwrap();
            if let Ok(GateAnswer::Panic) = verdict.recv() {
                panic!("as told");
            }
        }
        for Execution { request, responder, .. } in batch.executions {
            let input = request.input("IN").unwrap();
            let output =
                Tensor::new("OUT".into(), input.datatype(), input.shape().into(), input.memory().clone());
            responder.complete(Response::of(vec![output]));
        }
    }
}

fn dynamic() -> DynamicBatching {
    DynamicBatching { max_batch_size: 8, preferred_batch_sizes: [8].into(), ..DynamicBatching::default() }
}

/// Some tests have no runtime of their own.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

impl VersionParts {
    /// The parts of version 1 of a model that loads no files, without cache and limits.
    pub(crate) fn for_test(
        config: ModelConfig,
        backend: impl BackendModel + 'static,
        instances: Vec<InstanceSpec>,
    ) -> Self {
        Self {
            namespace: None,
            version: 1,
            config: ResolvedConfig { typed: config, shown: proto::ModelConfig::default(), warnings: vec![] },
            warmup_files: WarmupFiles::new(|file| panic!("no sample names {file}")),
            backend: Box::new(backend),
            instances: instances.into_iter().map(placed).collect(),
            strategy: None,
            limiter: None,
            cached: None,
            fingerprint: None,
            since: now(),
            server: Arc::new(ServerParts {
                threads: EngineThreads::start().unwrap(),
                inflight: ByteBudget::new(usize::MAX),
                unread: UnreadBudget::unlimited(),
                inferer: None,
                stop_announced: Arc::default(),
                faults: Arc::default(),
                metrics: Arc::default(),
                runtime: RUNTIME.handle().clone(),
            }),
        }
    }
}

fn start(
    scheduling: Scheduling,
    backend: impl BackendModel + 'static,
    instances: &[&str],
) -> Result<Arc<LoadedVersion>, Error> {
    let instances: Vec<_> = instances.iter().map(|name| instance(name)).collect();
    LoadedVersion::start(VersionParts::for_test(config(scheduling), backend, instances))
}

/// A model of thread-bound instances that report each batch.
pub(crate) fn gated(
    scheduling: Scheduling,
    instances: &[&str],
) -> (Arc<LoadedVersion>, mpsc::Receiver<Begun>) {
    let (begun, reports) = mpsc::channel();
    (start(scheduling, Gated { begun: Some(begun), movable: false }, instances).unwrap(), reports)
}

pub(crate) fn request(value: u8) -> Request {
    let input = Tensor::new("IN".into(), DataType::Uint8, [1, 1][..].into(), vec![value]);
    Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() }
}

pub(crate) fn ask(model: &Arc<LoadedVersion>, value: u8) -> ResponseStream {
    model.model().infer(request(value)).unwrap()
}

pub(crate) async fn echoed(stream: ResponseStream) -> u8 {
    stream.only().await.unwrap().outputs[0].host().unwrap().contiguous()[0]
}

#[tokio::test]
async fn requests_that_wait_for_a_busy_instance_run_together() {
    let (model, begun) = gated(Scheduling::Dynamic(dynamic()), &["m_0"]);
    let first = ask(&model, 1);
    let busy = begun.recv().unwrap();
    let waiting: Vec<_> = (2..5).map(|value| ask(&model, value)).collect();
    assert_eq!(model.work().workload().requests, 3);
    busy.go_on.send(GateAnswer::Echo).unwrap();
    let together = begun.recv().unwrap();
    assert_eq!((busy.requests, together.requests), (1, 3));
    together.go_on.send(GateAnswer::Echo).unwrap();
    assert_eq!(echoed(first).await, 1);
    for (stream, value) in waiting.into_iter().zip(2..) {
        assert_eq!(echoed(stream).await, value);
    }
    let counted = model.statistics();
    assert_eq!(
        (counted.totals.success.count, counted.totals.inference_count, counted.totals.execution_count),
        (4, 4, 2)
    );
    assert_eq!(counted.totals.batches.iter().map(|batch| batch.batch_size).collect::<Vec<_>>(), [1, 3]);
}

#[tokio::test]
async fn a_batch_waits_for_its_delay_and_no_longer() {
    let delay = Duration::from_millis(3);
    let (model, begun) =
        gated(Scheduling::Dynamic(DynamicBatching { max_queue_delay: delay, ..dynamic() }), &["m_0"]);
    let asked = now();
    let alone = ask(&model, 1);
    let batch = begun.recv().unwrap();
    assert!(now() - asked >= delay);
    assert_eq!(batch.requests, 1);
    // These two wait for the instance, and so for each other.
    let both = [ask(&model, 2), ask(&model, 3)];
    batch.go_on.send(GateAnswer::Echo).unwrap();
    assert_eq!(echoed(alone).await, 1);
    let batch = begun.recv().unwrap();
    assert_eq!(batch.requests, 2);
    batch.go_on.send(GateAnswer::Echo).unwrap();
    for (stream, value) in both.into_iter().zip(2..) {
        assert_eq!(echoed(stream).await, value);
    }
}

/// Tells on which thread it executes.
struct ReportsThread {
    sender: mpsc::Sender<ThreadId>,
    is_brief: Option<bool>,
}
impl BackendModel for ReportsThread {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::Movable(Box::new(Self { sender: self.sender.clone(), is_brief: self.is_brief })))
    }
}
impl BackendInstance for ReportsThread {
    fn execute(&mut self, batch: Batch) {
        self.sender.send(thread::current().id()).unwrap();
        batch.executions.into_iter().for_each(|execution| execution.responder.complete(Response::default()));
    }

    fn is_brief(&self) -> Option<bool> {
        self.is_brief
    }
}

/// How many of so many executions, one after the other, run on the thread of their caller.
async fn executions_here(count: u32, is_brief: Option<bool>) -> usize {
    let (sender, threads) = mpsc::channel();
    let model = start(Scheduling::Unbatched, ReportsThread { sender, is_brief }, &["m_0"]).unwrap();
    for _ in 0..count {
        ask(&model, 1).only().await.unwrap();
    }
    threads.try_iter().filter(|&thread| thread == thread::current().id()).count()
}

#[tokio::test]
async fn brief_executions_run_where_their_request_arrives() {
    // A thousand executions take about a microsecond each. All but the first few are brief, whatever the load of the
    // machine is.
    assert!(executions_here(1000, None).await > 0, "no execution ran on the caller's thread");
}

#[tokio::test]
async fn an_instance_may_say_itself_whether_its_executions_are_brief() {
    // The first one is always due at once. A later one may come before the instance is idle again.
    assert!(executions_here(1000, Some(true)).await > 0);
    assert_eq!(executions_here(1, Some(true)).await, 1);
    assert_eq!(executions_here(1000, Some(false)).await, 0);
}

/// Panics on the thread of its caller, and tells the thread that drops it.
struct PanicsHere(mpsc::Sender<ThreadId>);
impl BackendModel for PanicsHere {
    fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(BuiltInstance::Movable(Box::new(PanickingInstance(self.0.clone()))))
    }
}

struct PanickingInstance(mpsc::Sender<ThreadId>);
impl BackendInstance for PanickingInstance {
    fn execute(&mut self, _: Batch) {
        panic!("as told");
    }

    fn is_brief(&self) -> Option<bool> {
        Some(true)
    }
}
impl Drop for PanickingInstance {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

#[tokio::test]
async fn an_instance_that_panics_on_the_thread_of_a_caller_is_dropped_by_another() {
    let (dropped, threads) = mpsc::channel();
    let model = start(Scheduling::Unbatched, PanicsHere(dropped), &["m_0"]).unwrap();
    ask(&model, 1).only().await.unwrap_err();
    assert_ne!(threads.recv().unwrap(), thread::current().id(), "the end of an instance may take long");
    model.close();
}

#[tokio::test]
async fn a_full_queue_refuses_and_counts_the_refusal_as_a_metric() {
    let policy = QueuePolicy { max_queue_size: NonZeroUsize::new(1), ..QueuePolicy::default() };
    let (model, begun) =
        gated(Scheduling::Dynamic(DynamicBatching { default_queue_policy: policy, ..dynamic() }), &["m_0"]);
    let running = ask(&model, 1);
    let busy = begun.recv().unwrap();
    let waiting = ask(&model, 2);
    let refused = model.model().infer(Request { id: "r7".into(), ..request(3) }).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert_eq!(refused.message, "[request id: r7] Exceeds maximum queue size");
    assert_eq!(model.record().failures(FailureReason::Rejected), 1);
    assert_eq!(model.statistics().totals.fail.count, 0);
    assert_eq!(model.in_flight(), 2);
    busy.go_on.send(GateAnswer::Echo).unwrap();
    begun.recv().unwrap().go_on.send(GateAnswer::Echo).unwrap();
    assert_eq!((echoed(running).await, echoed(waiting).await), (1, 2));
}

#[tokio::test]
async fn a_request_that_waited_too_long_is_refused_while_the_instance_is_busy() {
    let policy = QueuePolicy {
        default_timeout: Some(Duration::from_millis(2)),
        timeout_action: TimeoutAction::Reject,
        ..QueuePolicy::default()
    };
    let (model, begun) =
        gated(Scheduling::Dynamic(DynamicBatching { default_queue_policy: policy, ..dynamic() }), &["m_0"]);
    let running = ask(&model, 1);
    let busy = begun.recv().unwrap();
    let late = ask(&model, 2).only().await.unwrap_err();
    assert_eq!((late.code, &late.message[..]), (ErrorCode::Unavailable, "Request timeout expired"));
    assert_eq!(model.statistics().totals.fail.count, 1);
    busy.go_on.send(GateAnswer::Echo).unwrap();
    assert_eq!(echoed(running).await, 1);
}

#[tokio::test]
async fn a_cancelled_request_leaves_the_queue_at_once() {
    let (model, begun) = gated(Scheduling::Unbatched, &["m_0"]);
    let running = ask(&model, 1);
    let busy = begun.recv().unwrap();
    let mut given_up = ask(&model, 2);
    given_up.cancel();
    let Some(ResponseItem { result: Err(error), last: true }) = given_up.next().await else {
        panic!("an error ends it")
    };
    assert_eq!(error.code, ErrorCode::Cancelled);
    assert_eq!((model.work().workload().requests, model.record().failures(FailureReason::Cancelled)), (0, 1));
    busy.go_on.send(GateAnswer::Echo).unwrap();
    assert_eq!(echoed(running).await, 1);
}

#[tokio::test]
async fn a_panicking_backend_ends_the_model_and_fails_every_request() {
    let (model, begun) = gated(Scheduling::Unbatched, &["m_0"]);
    let running = ask(&model, 1);
    let busy = begun.recv().unwrap();
    let waiting = ask(&model, 2);
    busy.go_on.send(GateAnswer::Panic).unwrap();
    assert_eq!(running.only().await.unwrap_err().code, ErrorCode::Internal);
    let error = waiting.only().await.unwrap_err();
    assert_eq!(error.message, "the backend of model 'm' version 1 panicked: as told");
    assert_eq!(model.model().infer(request(3)).unwrap_err().code, ErrorCode::Unavailable);
    assert_eq!(model.in_flight(), 0);
    model.close();
}

#[tokio::test]
async fn a_panicking_instance_fails_the_requests_that_it_holds() {
    #[derive(Default)]
    struct KeepsExecutions(Vec<Execution>);
    impl BackendModel for KeepsExecutions {
        fn instance(&self, _: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
            Ok(BuiltInstance::ThreadBound(Box::new(Self::default())))
        }
    }
    impl BackendInstance for KeepsExecutions {
        fn execute(&mut self, batch: Batch) {
            assert!(self.0.is_empty(), "one is enough");
            self.0.extend(batch.executions);
        }
    }
    let model = start(Scheduling::Unbatched, KeepsExecutions::default(), &["m_0"]).unwrap();
    let (kept, fatal) = (ask(&model, 1), ask(&model, 2));
    assert_eq!(fatal.only().await.unwrap_err().code, ErrorCode::Internal);
    assert_eq!(kept.only().await.unwrap_err().code, ErrorCode::Internal);
    model.close();
}

#[tokio::test]
async fn order_is_kept_across_instances_where_asked_for() {
    let one_each = DynamicBatching {
        max_batch_size: 1,
        preferred_batch_sizes: [1].into(),
        preserve_ordering: true,
        ..dynamic()
    };
    let (model, begun) = gated(Scheduling::Dynamic(one_each), &["m_0", "m_1"]);
    let (first, mut second) = (ask(&model, 1), ask(&model, 2));
    let mut running: Vec<_> = [begun.recv().unwrap(), begun.recv().unwrap()].into();
    running.sort_by(|one, other| one.instance.cmp(&other.instance));
    // Instance 0 got the first request. The second request is answered first and must wait.
    let [slow, fast] = &running[..] else { unreachable!() };
    fast.go_on.send(GateAnswer::Echo).unwrap();
    while model.statistics().totals.success.count < 1 {
        tokio::task::yield_now().await;
    }
    let early = tokio::select! { biased; item = second.next() => item, () = std::future::ready(()) => None };
    assert!(early.is_none(), "the second answer overtook the first");
    slow.go_on.send(GateAnswer::Echo).unwrap();
    assert_eq!((echoed(first).await, echoed(second).await), (1, 2));
}

#[tokio::test]
async fn closing_finishes_what_was_accepted_and_refuses_the_rest() {
    let (model, begun) = gated(Scheduling::Unbatched, &["m_0"]);
    let running = ask(&model, 1);
    let busy = begun.recv().unwrap();
    let waiting = ask(&model, 2);
    let closing = thread::spawn({
        let model = model.clone();
        move || model.close()
    });
    let refused = loop {
        match model.model().infer(request(3)) {
            // The model did not drain yet: it accepted this request, and must finish it too.
            Ok(accepted) => drop(accepted),
            Err(error) => break error,
        }
        thread::yield_now();
    };
    assert!(refused.message.contains("stopped accepting new inference requests"));
    busy.go_on.send(GateAnswer::Echo).unwrap();
    begun.recv().unwrap().go_on.send(GateAnswer::Echo).unwrap();
    assert_eq!((echoed(running).await, echoed(waiting).await), (1, 2));
    closing.join().unwrap();
}

#[test]
fn an_instance_that_cannot_be_built_fails_the_load_and_leaves_no_thread() {
    let failed = start(Scheduling::Unbatched, Gated { begun: None, movable: true }, &["m_0", "broken_1"]);
    assert_eq!(failed.err().unwrap().to_string(), "cannot build");
}
