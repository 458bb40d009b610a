//! What tests build executors of.
use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
};

use inference::{
    DataType, Flow, ModelRunner, ReadableMemory, Request, RequestInputs, RequestValidator, ResponseStream,
    RunThread, Tensor, Timeline, Unobserved, WarmupFiles,
    backend::{BackendModel, Execution, InstanceDevice, InstanceSpec},
    config::{
        InputSpec, InstanceGroup, InstanceKind, ModelConfig, OutputSpec, RateLimits, Scheduling,
        VersionPolicy,
    },
    response_channel,
};
use scheduling::SchedulingAttributes;

use super::{Executor, ExecutorParts};
use crate::{clock::now, engine_threads::EngineThreads};

/// A model with one input and one output of any number of bytes.
pub(crate) fn config(scheduling: Scheduling) -> ModelConfig {
    let dims = [-1_i64];
    ModelConfig {
        name: "m".into(),
        platform: String::new(),
        backend: "gated".into(),
        max_batch_size: NonZeroU32::new(8),
        max_request_rows: None,
        inputs: vec![InputSpec {
            name: "IN".into(),
            datatype: DataType::Uint8,
            dims: dims[..].into(),
            reshape: None,
            optional: false,
            allow_ragged_batch: false,
            is_shape_tensor: false,
        }],
        outputs: vec![OutputSpec {
            name: "OUT".into(),
            datatype: DataType::Uint8,
            dims: dims[..].into(),
            reshape: None,
            label_filename: None,
            labels: Arc::default(),
            is_shape_tensor: false,
        }],
        batch_inputs: vec![],
        batch_outputs: vec![],
        scheduling,
        instance_groups: vec![InstanceGroup {
            name: "m".into(),
            kind: InstanceKind::Cpu,
            count: NonZeroUsize::MIN,
            passive: false,
            host_policy: "cpu".into(),
            profiles: vec![],
            secondary_devices: vec![],
            rate_limiter: RateLimits::default(),
        }],
        version_policy: VersionPolicy::Latest(1),
        default_model_filename: String::new(),
        parameters: BTreeMap::new(),
        metric_tags: BTreeMap::new(),
        histogram_buckets: BTreeMap::new(),
        graph_level: None,
        low_priority: false,
        cpu_accelerators: vec![],
        op_library_filenames: vec![],
        decoupled: false,
        has_sequences: false,
        most_unread_responses: None,
        response_cache: None,
        warmups: vec![],
    }
}

/// An instance on the CPU.
pub(crate) fn instance(name: &str) -> InstanceSpec {
    InstanceSpec {
        name: name.into(),
        device: InstanceDevice::Cpu,
        threads: NonZeroUsize::MIN,
        passive: false,
    }
}

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
            instances: instances.into_iter().map(Into::into).collect(),
            strategy: None,
            threads: EngineThreads::start().unwrap(),
            limiter: None,
        }
    }
}

/// Enqueues a request of one byte.
pub(super) fn ask(executor: &Arc<Executor>) -> ResponseStream {
    let input = Tensor::new("IN".into(), DataType::Uint8, [1, 1][..].into(), vec![1]);
    let request = Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() };
    let (responder, stream) =
        response_channel(Timeline::new(now(), 1), Arc::new(Unobserved), Flow::unlimited());
    let execution = Box::new(Execution::new(request, responder));
    executor
        .clone()
        .enqueue(SchedulingAttributes::default(), execution, now(), RunThread::CallersMay)
        .unwrap();
    stream
}
