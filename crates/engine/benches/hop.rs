//! Measures the overhead of a model: the request, its check, the queue and the instance, and the response. The model
//! computes nothing.
//!
//! `uncounted` is `inline` without the histograms. `scrape` writes the metrics of a thousand models that have served.
//!
//! `inline` is an instance that any thread may run, `thread` one that stays on its own thread. One caller, and 64 at
//! the same time.
use std::{
    fs,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use config::ModelConfig;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::{Engine, EngineOptions, MetricsOptions, Model, ServerMetadata};
use inference::{
    Request, RequestInputs, Response,
    backend::{Backend, BackendInstance, BackendModel, Batch, BuiltInstance, InstanceSpec, ModelSource},
    metrics::MetricsForm,
};
use tokio::runtime::Runtime;
use vocabulary::{DataType, Error, Tensor};

const CONFIG: &str = "backend: 'empty' max_batch_size: 8 instance_group { count: 1 }
    input { name: 'IN' data_type: TYPE_FP32 dims: 16 } output { name: 'OUT' data_type: TYPE_FP32 dims: 16 }";
const CALLERS: u64 = 64;

/// Answers without outputs, on the thread that the model's name selects.
struct Empty;

impl Backend for Empty {
    fn name(&self) -> &str {
        "empty"
    }

    fn open(&self, _: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        Ok(Box::new(Self))
    }
}

impl BackendModel for Empty {
    fn instance(&self, config: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        Ok(match config.name.as_str() {
            "thread" => BuiltInstance::ThreadBound(Box::new(Self)),
            _ => BuiltInstance::Movable(Box::new(Self)),
        })
    }
}

impl BackendInstance for Empty {
    fn execute(&mut self, batch: Batch) {
        for execution in batch.executions {
            execution.responder.complete(Response::default());
        }
    }
}

async fn start(models: &[String], metrics: MetricsOptions) -> Engine {
    let repository = tempfile::tempdir().expect("a temporary directory");
    for model in models {
        fs::create_dir_all(repository.path().join(model).join("1")).expect("the directory is ours");
        fs::write(repository.path().join(model).join("config.pbtxt"), CONFIG).expect("the directory is ours");
    }
    let options = EngineOptions {
        control: engine::ModelControl::None,
        namespacing: false,
        sequence_limit: std::time::Duration::from_secs(60),
        server: ServerMetadata::default(),
        repositories: vec![repository.path().to_path_buf()],
        readiness: Default::default(),
        load_threads: 1,
        load_retries: 0,
        auto_complete: true,
        config_name: None,
        agent_directory: "/agents".into(),
        backend_settings: Vec::new(),
        on_demand: None,
        limits: host::MemoryLimits::default(),
        metrics,
        hold_until_queued: 0,
        hold_until_backlogged: 0,
        rate_limit: None,
        host_policies: Default::default(),
        load_policy: Default::default(),
    };
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Empty)];
    Engine::start(options, backends).await.expect("the repository is good")
}

async fn ask(model: &Arc<Model>, times: u64) {
    for _ in 0..times {
        let input = Tensor::new("IN".into(), DataType::Fp32, [1, 16][..].into(), vec![0; 64]);
        let request = Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() };
        let stream = model.infer(request).expect("the request fits");
        black_box(stream.only().await.expect("the model answers"));
    }
}

/// The time for so many requests from 64 concurrent tasks.
async fn ask_together(model: &Arc<Model>, times: u64) -> Duration {
    let each = times.div_ceil(CALLERS);
    let begin = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let model = model.clone();
            tokio::spawn(async move { ask(&model, each).await })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no caller panics");
    }
    begin.elapsed().mul_f64(times as f64 / (each * CALLERS) as f64)
}

fn hops(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let names = ["inline", "thread"].map(str::to_owned);
    let engine = runtime.block_on(start(&names, MetricsOptions::default()));
    let mut group = criterion.benchmark_group("hop");
    group.throughput(Throughput::Elements(1));
    for name in ["inline", "thread"] {
        let model = engine.model(name, None).expect("the model is loaded");
        group.bench_function(format!("{name}/1"), |bencher| {
            bencher.iter(|| runtime.block_on(ask(&model, 1)));
        });
        group.bench_function(format!("{name}/{CALLERS}"), |bencher| {
            bencher.iter_custom(|times| runtime.block_on(ask_together(&model, times)));
        });
    }
    runtime.block_on(engine.stop(Duration::from_secs(10))).expect("nothing is under way");
    let uncounted = runtime.block_on(start(&["uncounted".to_owned()], MetricsOptions::none()));
    let model = uncounted.model("uncounted", None).expect("the model is loaded");
    group.bench_function("uncounted/1", |bencher| {
        bencher.iter(|| runtime.block_on(ask(&model, 1)));
    });
    group.finish();
    runtime.block_on(uncounted.stop(Duration::from_secs(10))).expect("nothing is under way");
}

fn scrapes(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let names: Vec<_> = (0..1000).map(|number| format!("m{number}")).collect();
    let engine = runtime.block_on(start(&names, MetricsOptions::default()));
    for name in &names {
        let model = engine.model(name, None).expect("the model is loaded");
        runtime.block_on(ask(&model, 1));
    }
    criterion.bench_function("scrape/1000", |bencher| {
        bencher.iter(|| black_box(engine.metrics(MetricsForm::Prometheus)));
    });
    runtime.block_on(engine.stop(Duration::from_secs(10))).expect("nothing is under way");
}

criterion_group!(benches, hops, scrapes);
criterion_main!(benches);
