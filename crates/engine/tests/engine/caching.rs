//! Tests of the response cache: which requests it answers, what it stores, and what is counted.
use std::sync::Arc;

use engine::{Engine, EngineOptions, MetricsOptions, ModelStatistics};
use futures_util::FutureExt;
use inference::{
    DurationStatistic, OutputPlacement, Plugins, Request, RequestInputs, Response, ResponseStream,
    backend::Execution, metrics::MetricsForm,
};
use testing::{Gate, MemoryCache, TestRegion};
use vocabulary::{
    DataType, Error, ErrorCode, FailureReason, ForeignMemory, MemoryKind, Name, Parameter, Tensor,
};

use crate::ensembles::chain;
use crate::support::{ECHO, Native, Repository, TIMEOUT, answer, ask, echo, request, serves, value};

const ENABLED: &str = "response_cache { enable: true }";

/// A model `m` of the backend `echo` that enables the cache.
pub(crate) fn cached(rest: &str) -> Repository {
    Repository::new().model("m", &format!("{ECHO} {ENABLED} {rest}"), &["1"])
}

pub(crate) async fn serve_with(options: EngineOptions, backend: Native, cache: &Arc<MemoryCache>) -> Engine {
    let plugins =
        Plugins { backends: vec![Arc::new(backend)], cache: Some(cache.clone()), ..Plugins::default() };
    Engine::start(options, plugins).await.unwrap()
}

/// An engine with a model `m` and an empty cache.
pub(crate) async fn serve(repository: &Repository, backend: Native) -> (Engine, Arc<MemoryCache>) {
    let cache = Arc::new(MemoryCache::default());
    (serve_with(repository.options(), backend, &cache).await, cache)
}

pub(crate) fn statistics(engine: &Engine) -> ModelStatistics {
    engine.statistics(Some("m"), None).unwrap().remove(0)
}

/// Successes, executions, hits and misses so far.
pub(crate) fn counts(engine: &Engine) -> [u64; 4] {
    let counted = statistics(engine);
    [
        counted.totals.success.count,
        counted.totals.execution_count,
        counted.totals.cache_hit.count,
        counted.totals.cache_miss.count,
    ]
}

/// The backend `echo`, whose batches wait for `gate`.
pub(crate) fn echo_behind(gate: &Arc<Gate>) -> Native {
    let gate = gate.clone();
    echo().execute(move |_, batch| {
        gate.pass();
        batch.executions.into_iter().for_each(answer);
    })
}

pub(crate) fn send(engine: &Engine, request: Request) -> ResponseStream {
    engine.model("m", None).unwrap().infer(request).unwrap()
}

pub(crate) async fn first_byte(stream: ResponseStream) -> u8 {
    stream.only().await.unwrap().outputs[0].host().unwrap().contiguous()[0]
}

#[tokio::test]
async fn the_same_request_is_executed_once() {
    let repository = cached("");
    let (engine, cache) = serve(&repository, echo()).await;
    let named = Request { id: "first".into(), ..request(5) };
    assert_eq!(first_byte(send(&engine, named)).await, 5);
    assert_eq!(counts(&engine), [1, 1, 0, 1]);
    assert_eq!(first_byte(ask(&engine, "m", 5)).await, 5);
    assert_eq!(counts(&engine), [2, 1, 1, 1]);
    assert_eq!(first_byte(ask(&engine, "m", 6)).await, 6);
    assert_eq!(counts(&engine), [3, 2, 1, 2]);

    let counted = statistics(&engine);
    assert_eq!(
        (counted.totals.inference_count, counted.totals.queue.count, counted.totals.compute_infer.count),
        (2, 3, 2)
    );
    let DurationStatistic { ns: hit, .. } = counted.totals.cache_hit;
    assert!(hit > 0 && counted.totals.success.ns > hit + counted.totals.cache_miss.ns, "{counted:?}");
    assert_eq!((cache.lookups(), cache.inserts(), engine.in_flight()), (3, 2, 0));
}

#[tokio::test]
async fn the_model_computes_from_the_bytes_that_the_key_describes() {
    let gate = Gate::shut();
    let held = echo_behind(&gate);
    let (engine, _) = serve(&cached(""), held).await;
    let region = TestRegion::new(&[5]);
    let foreign = || {
        let input = Tensor::new("IN".into(), DataType::Uint8, [1, 1][..].into(), region.memory());
        Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() }
    };
    let first = send(&engine, foreign());
    region.write(&[6]);
    gate.open();
    assert_eq!(first_byte(first).await, 5);
    assert_eq!(first_byte(ask(&engine, "m", 5)).await, 5);
    assert_eq!(counts(&engine), [2, 1, 1, 1]);
    region.write(&[]);
    let refused = engine.model("m", None).unwrap().infer(foreign()).unwrap_err();
    assert_eq!(refused.message, "the region is smaller than it was");
}

#[tokio::test]
async fn a_hit_is_the_whole_answer() {
    let rich = echo().execute(|_, batch| {
        for Execution { responder, .. } in batch.executions {
            let text = Tensor::new("OUT".into(), DataType::Bytes, [1, 1][..].into(), b"\x01\0\0\0x".to_vec());
            let nothing = Tensor::new("NONE".into(), DataType::Fp32, [1, 0][..].into(), Vec::new());
            let parameters = vec![("p".into(), Parameter::Double(0.5))];
            responder.complete(Response { outputs: vec![text, nothing], parameters });
        }
    });
    let (engine, _) = serve(&cached(""), rich).await;
    let mut shown = Vec::new();
    for _ in 0..2 {
        let response = ask(&engine, "m", 1).only().await.unwrap();
        shown.push(format!("{response:?}"));
    }
    assert_eq!(shown[0], shown[1]);
    assert_eq!(counts(&engine), [2, 1, 1, 1]);
}

#[tokio::test]
async fn only_models_that_want_the_cache_use_it() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let (engine, cache) = serve(&repository, echo()).await;
    assert!(serves(&engine, "m").await && serves(&engine, "m").await);
    assert_eq!((counts(&engine), cache.lookups()), ([2, 2, 0, 0], 0));
}

#[tokio::test]
async fn a_model_that_wants_a_cache_works_without_one() {
    let engine = cached("").serve(echo()).await;
    assert!(serves(&engine, "m").await && serves(&engine, "m").await);
    assert_eq!(counts(&engine), [2, 2, 0, 0]);
}

#[tokio::test]
async fn an_error_is_never_cached() {
    let failing = echo().execute(|_, batch| {
        for Execution { responder, .. } in batch.executions {
            responder.fail(Error::internal("no").because(FailureReason::Backend));
        }
    });
    let (engine, cache) = serve(&cached(""), failing).await;
    for _ in 0..2 {
        assert_eq!(ask(&engine, "m", 1).only().await.unwrap_err().message, "no");
    }
    assert_eq!((counts(&engine), cache.inserts()), ([0, 2, 0, 0], 0));
    assert_eq!(statistics(&engine).totals.fail.count, 2);
}

#[tokio::test]
async fn a_response_without_outputs_is_not_cached() {
    let silent = echo().execute(|_, batch| {
        batch.executions.into_iter().for_each(|execution| execution.responder.complete(Response::default()));
    });
    let (engine, cache) = serve(&cached(""), silent).await;
    for _ in 0..2 {
        assert!(ask(&engine, "m", 1).only().await.unwrap().outputs.is_empty());
    }
    assert_eq!((counts(&engine), cache.inserts()), ([2, 2, 0, 2], 0));
}

#[tokio::test]
async fn a_single_response_before_the_end_is_cached_and_several_are_not() {
    let piecewise = echo().execute(|_, batch| {
        for Execution { request, responder, .. } in batch.executions {
            for _ in 0..value(&request) {
                let output = Tensor::new("OUT".into(), DataType::Uint8, [1, 1][..].into(), vec![9]);
                responder.send(Response::of(vec![output]));
            }
            responder.finish();
        }
    });
    let (engine, cache) = serve(&cached(""), piecewise).await;
    for _ in 0..2 {
        assert_eq!(first_byte(ask(&engine, "m", 1)).await, 9);
    }
    assert_eq!((counts(&engine), cache.inserts()), ([2, 1, 1, 1], 1));
    for responses in [2, 0] {
        assert!(ask(&engine, "m", responses).only().await.is_err());
    }
    assert_eq!((counts(&engine), cache.inserts()), ([4, 3, 1, 3], 1));
}

#[tokio::test]
async fn equal_bytes_of_another_shape_are_another_request() {
    let config = format!(
        "backend: 'echo' {ENABLED} input {{ name: 'IN' data_type: TYPE_UINT8 dims: [-1, -1] }}
         output {{ name: 'OUT' data_type: TYPE_UINT8 dims: [-1, -1] }}"
    );
    let (engine, _) = serve(&Repository::new().model("m", &config, &["1"]), echo()).await;
    for shape in [[2, 3], [3, 2], [1, 6]] {
        let input = Tensor::new("IN".into(), DataType::Uint8, shape[..].into(), vec![1; 6]);
        let request = Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() };
        let response = send(&engine, request).only().await.unwrap();
        assert_eq!(response.outputs[0].shape(), shape);
    }
    assert_eq!(counts(&engine), [3, 3, 0, 3]);
}

#[tokio::test]
async fn other_outputs_or_parameters_are_another_request() {
    // Returns the requested outputs. Each has the number of parameters as its content.
    let obedient = echo().execute(|_, batch| {
        for Execution { request, responder, .. } in batch.executions {
            let count = vec![u8::try_from(request.parameters.len()).unwrap()];
            let output =
                |name: &str| Tensor::new(name.into(), DataType::Uint8, [1, 1][..].into(), count.clone());
            let wanted = ["OUT", "MORE"].into_iter().filter(|name| request.wants(name));
            responder.complete(Response::of(wanted.map(output).collect()));
        }
    });
    let more = "output { name: 'MORE' data_type: TYPE_UINT8 dims: -1 }";
    let (engine, _) = serve(&cached(more), obedient).await;
    for outputs in [&["OUT"][..], &["MORE"], &["OUT", "MORE"], &[]] {
        let names = outputs.iter().map(|&name| name.into()).collect();
        let response = send(&engine, Request { outputs: names, ..request(1) }).only().await.unwrap();
        let expected = if outputs.is_empty() { &["OUT", "MORE"] } else { outputs };
        assert!(response.outputs.iter().map(|output| output.name().as_str()).eq(expected.iter().copied()));
    }
    let parameters = vec![("p".into(), Parameter::Int(1))];
    assert_eq!(first_byte(send(&engine, Request { parameters, ..request(1) })).await, 1);
    assert_eq!(counts(&engine), [5, 5, 0, 5]);
}

#[tokio::test]
async fn requests_are_executed_while_the_cache_fails() {
    let (engine, cache) = serve(&cached(""), echo()).await;
    cache.set_broken(true);
    for _ in 0..2 {
        assert_eq!(first_byte(ask(&engine, "m", 3)).await, 3);
    }
    assert_eq!((counts(&engine), cache.inserts()), ([2, 2, 0, 2], 2));
    cache.set_broken(false);
    for _ in 0..2 {
        assert_eq!(first_byte(ask(&engine, "m", 3)).await, 3);
    }
    assert_eq!(counts(&engine), [4, 3, 1, 3]);
}

#[tokio::test]
async fn what_does_not_fit_into_the_cache_is_a_miss_each_time() {
    let repository = cached("");
    let cache = Arc::new(MemoryCache::limited_to(8));
    let engine = serve_with(repository.options(), echo(), &cache).await;
    for _ in 0..2 {
        assert_eq!(first_byte(ask(&engine, "m", 3)).await, 3);
    }
    assert_eq!((counts(&engine), cache.inserts(), cache.keys().len()), ([2, 2, 0, 2], 2, 0));
}

#[tokio::test]
async fn a_damaged_entry_counts_as_a_miss() {
    let (engine, cache) = serve(&cached(""), echo()).await;
    assert!(serves(&engine, "m").await);
    let damages: [fn(&mut Vec<u8>); 3] =
        [|entry| entry.push(0), |entry| entry.truncate(entry.len() - 1), |entry| entry.truncate(9)];
    for (damage, hits) in damages.into_iter().zip([0, 1, 1]) {
        cache.damage(damage);
        assert!(serves(&engine, "m").await);
        assert_eq!(statistics(&engine).totals.cache_hit.count, hits);
    }
    assert_eq!(counts(&engine), [4, 3, 1, 1]);
}

#[tokio::test]
async fn cached_responses_outlive_the_server_but_not_a_change_of_the_model() {
    let cache = Arc::new(MemoryCache::default());
    let hits = async |repository: &Repository| {
        let engine = serve_with(repository.options(), echo(), &cache).await;
        assert!(serves(&engine, "m").await);
        engine.stop(TIMEOUT).await.unwrap();
        statistics(&engine).totals.cache_hit.count
    };
    let repository = cached("").file("m/1/weights", "old");
    assert_eq!(hits(&repository).await, 0);
    assert_eq!(hits(&repository).await, 1, "the same model after a restart");
    assert_eq!(hits(&cached("").file("m/1/weights", "old")).await, 1, "the same model of another server");
    let repository = repository.file("m/1/weights", "new");
    assert_eq!(hits(&repository).await, 0, "another model of the same size");
    let repository = repository.file("m/1/weights", "old");
    assert_eq!(hits(&repository).await, 1, "the old model again");
    let configured = format!("{ECHO} {ENABLED} parameters {{ key: 'k' value {{ string_value: 'v' }} }}");
    assert_eq!(hits(&repository.file("m/config.pbtxt", configured)).await, 0, "the model is told otherwise");
    assert_eq!(cache.keys().len(), 3);
}

#[tokio::test]
async fn cached_responses_of_an_ensemble_outlive_the_server_but_not_a_change_of_a_member() {
    let cache = Arc::new(MemoryCache::default());
    let hits = async |repository: &Repository| {
        let engine = serve_with(repository.options(), echo(), &cache).await;
        engine.load_models().await.unwrap();
        assert!(serves(&engine, "m").await);
        engine.stop(TIMEOUT).await.unwrap();
        statistics(&engine).totals.cache_hit.count
    };
    let repository = |weights: &str| {
        Repository::new()
            .model("m", &chain(&["inner", "direct"], ENABLED), &["1"])
            .model("inner", &chain(&["nested"], ""), &["1"])
            .model("direct", ECHO, &["1"])
            .model("nested", ECHO, &["1"])
            .file("nested/1/weights", weights)
    };
    let first = repository("old");
    assert_eq!(hits(&first).await, 0);
    assert_eq!(hits(&first).await, 1, "the same models after a restart");
    assert_eq!(hits(&repository("old")).await, 1, "the same models of another server");
    assert_eq!(hits(&repository("new")).await, 0, "another member of a member");
    let second = first.model("direct", ECHO, &["2"]);
    assert_eq!(hits(&second).await, 0, "another version of a member");
    let third = second.model("m", &chain(&["direct", "inner"], ENABLED), &["1"]);
    assert_eq!(hits(&third).await, 0, "the ensemble has changed");
    assert_eq!(cache.keys().len(), 4);
}

#[tokio::test]
async fn a_hit_does_not_overtake_earlier_requests_where_order_is_asked_for() {
    let gate = Gate::shut();
    let backend = echo().execute({
        let gate = gate.clone();
        move |_, batch| {
            if batch.executions.iter().any(|execution| value(&execution.request) > 1) {
                gate.pass();
            }
            batch.executions.into_iter().for_each(answer);
        }
    });
    let repository = cached("instance_group { kind: KIND_CPU } dynamic_batching { preserve_ordering: true }");
    let (engine, _) = serve(&repository, backend).await;
    assert_eq!(first_byte(ask(&engine, "m", 1)).await, 1);
    let running = ask(&engine, "m", 2);
    assert!(gate.wait_for(1, TIMEOUT));
    let queued = ask(&engine, "m", 3);
    let mut hit = ask(&engine, "m", 1);
    assert_eq!(counts(&engine), [2, 1, 1, 1]);
    assert!(hit.next().now_or_never().is_none(), "earlier requests have not been answered");
    gate.open();
    assert_eq!(first_byte(hit).await, 1);
    let [running, queued] = [running, queued].map(|stream| stream.only().now_or_never());
    assert!(running.is_some() && queued.is_some(), "a later answer was there before");
}

#[tokio::test]
async fn a_refusal_counts_as_without_a_cache() {
    let gate = Gate::shut();
    let backend = echo_behind(&gate);
    let policy = "default_queue_policy { max_queue_size: 1 }";
    let repository = cached(&format!("instance_group {{ kind: KIND_CPU }} dynamic_batching {{ {policy} }}"));
    let (engine, _) = serve(&repository, backend).await;
    let running = ask(&engine, "m", 1);
    assert!(gate.wait_for(1, TIMEOUT));
    let waiting = ask(&engine, "m", 2);
    let refused = engine.model("m", None).unwrap().infer(request(3)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    gate.open();
    assert_eq!((first_byte(running).await, first_byte(waiting).await), (1, 2));
    assert_eq!((counts(&engine), statistics(&engine).totals.fail.count), ([2, 2, 0, 2], 0));
}

#[tokio::test]
async fn a_stopped_model_refuses_requests_whose_responses_are_cached() {
    let (engine, cache) = serve(&cached(""), echo()).await;
    let model = engine.model("m", None).unwrap();
    assert!(serves(&engine, "m").await);
    engine.stop(TIMEOUT).await.unwrap();
    let refused = model.infer(request(42)).unwrap_err();
    assert!(refused.message.contains("stopped accepting new inference requests"), "{refused}");
    assert_eq!(cache.lookups(), 1);
}

#[tokio::test]
async fn metrics_of_the_cache_are_of_models_that_want_it() {
    let repository = cached("").model("plain", ECHO, &["1"]);
    for counter_latencies in [true, false] {
        let mut options = repository.options();
        options.metrics = MetricsOptions { counter_latencies, host: false, ..MetricsOptions::default() };
        let engine = serve_with(options, echo(), &Arc::default()).await;
        for value in [1, 1, 1, 2] {
            assert_eq!(first_byte(ask(&engine, "m", value)).await, value);
        }
        let text = engine.metrics(MetricsForm::Prometheus);
        let of_cache: Vec<_> = text.lines().filter(|line| line.contains("nv_cache_")).collect();
        let counted = statistics(&engine);
        let families = [
            (true, "num_hits", "Number of cache hits per model", 2),
            (
                counter_latencies,
                "hit_duration",
                "Total cache hit duration per model, in microseconds",
                counted.totals.cache_hit.ns / 1000,
            ),
            (true, "num_misses", "Number of cache misses per model", 2),
            (
                counter_latencies,
                "miss_duration",
                "Total cache miss (insert+lookup) duration per model, in microseconds",
                counted.totals.cache_miss.ns / 1000,
            ),
        ];
        let expected: Vec<_> = families
            .iter()
            .filter(|(shown, ..)| *shown)
            .flat_map(|(_, name, help, value)| {
                let name = format!("nv_cache_{name}_per_model");
                [
                    format!("# HELP {name} {help}"),
                    format!("# TYPE {name} counter"),
                    format!("{name}{{model=\"m\",version=\"1\"}} {value}"),
                ]
            })
            .collect();
        assert_eq!(of_cache, expected);
    }
}

#[tokio::test]
async fn a_slow_cache_delays_only_its_own_requests_and_for_a_limited_time() {
    let repository = cached("").model("plain", ECHO, &["1"]);
    let (engine, cache) = serve(&repository, echo()).await;
    let answer = cache.hold_look_ups();
    let held = ask(&engine, "m", 3);
    assert!(serves(&engine, "plain").await, "a model without a cache goes on");
    assert_eq!(engine.in_flight(), 1);
    answer.notify_one();
    assert_eq!(first_byte(held).await, 3);
    // The cache does not answer this time, and the request stops waiting for it.
    assert_eq!(first_byte(ask(&engine, "m", 4)).await, 4);
    assert_eq!((cache.lookups(), engine.in_flight()), (2, 0));
}

/// Offers memory for every output.
#[derive(Debug)]
struct Offer(ForeignMemory);

impl OutputPlacement for Offer {
    fn placement(
        &self,
        _: Option<&Name>,
        _: Option<usize>,
        preferred: (MemoryKind, i64),
    ) -> Result<(MemoryKind, i64), Error> {
        Ok(preferred)
    }

    fn memory(&self, _: &Name) -> Option<ForeignMemory> {
        Some(self.0.clone())
    }

    fn offers_memory(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn an_answer_that_is_cached_is_not_written_to_memory_of_its_client() {
    let told = |repository: Repository| async move {
        let backend = echo().execute(|_, batch| {
            for Execution { request, responder, .. } in batch.executions {
                let is_offered = u8::from(request.output_memory(&"OUT".into()).is_some());
                let out = Tensor::new("OUT".into(), DataType::Uint8, [1, 1][..].into(), vec![is_offered]);
                responder.complete(Response::of(vec![out]));
            }
        });
        let (engine, _) = serve(&repository, backend).await;
        let memory = ForeignMemory::zeroed(1).unwrap();
        let offering = Request { output_placement: Some(Arc::new(Offer(memory))), ..request(0) };
        first_byte(send(&engine, offering)).await
    };
    assert_eq!(told(cached("")).await, 0);
    assert_eq!(told(Repository::new().model("m", ECHO, &["1"])).await, 1);
}
