//! What tests build executors of.
use std::sync::Arc;

use config::ModelConfig;
use host::now;
use inference::{
    ModelRunner, ReadableMemory, Request, RequestInputs, RequestValidator, ResponseStream, RunThread,
    Timeline, Unobserved, UnreadPolicy, WarmupFiles,
    backend::{BackendModel, Execution, InstanceSpec},
    response_channel,
};
use scheduling::SchedulingAttributes;
use testing::model_parts::placed;
use vocabulary::{DataType, Tensor};

use super::{Executor, ExecutorParts, engine_threads::EngineThreads};

impl ExecutorParts {
    /// The parts of version 1 of a model that loads no files, without limits.
    pub(super) fn for_test(
        config: ModelConfig,
        backend: impl BackendModel + 'static,
        instances: Vec<InstanceSpec>,
    ) -> Self {
        Self {
            version: 1,
            validator: Arc::new(RequestValidator::new(&config, ReadableMemory::default())),
            config: Arc::new(config),
            counters: Arc::default(),
            warmup_files: WarmupFiles::new(|file| panic!("no sample names {file}")),
            backend: Box::new(backend),
            instances: instances.into_iter().map(placed).collect(),
            strategy: None,
            threads: EngineThreads::start().unwrap(),
            limiter: None,
            faults: Arc::default(),
        }
    }
}

/// Enqueues a request of one byte.
pub(super) fn ask(executor: &Arc<Executor>) -> ResponseStream {
    let input = Tensor::new("IN".into(), DataType::Uint8, [1, 1][..].into(), vec![1]);
    let request = Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() };
    let (responder, stream) =
        response_channel(Timeline::new(now(), 1), Arc::new(Unobserved), UnreadPolicy::unlimited());
    let execution = Box::new(Execution::new(request, responder));
    executor
        .clone()
        .enqueue(SchedulingAttributes::default(), execution, now(), RunThread::CallersMay)
        .unwrap();
    stream
}
