//! A model with one input and one output of bytes, and its instances, as tests of what executes models need them.
use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
};

use config::{
    InputSpec, InstanceGroup, InstanceKind, ModelConfig, OutputSpec, RateLimits, Scheduling, VersionPolicy,
};
use host::InstancePlan;
use inference::backend::{InstanceDevice, InstanceSpec};
use vocabulary::{DataType, NameIndex};

/// A model with one input and one output of any number of bytes.
pub fn config(scheduling: Scheduling) -> ModelConfig {
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
        input_index: NameIndex::default(),
        output_index: NameIndex::default(),
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
        memory: config::MemoryRank::default(),
        response_cache: None,
        warmups: vec![],
    }
}

/// An instance on the CPU.
pub fn instance(name: &str) -> InstanceSpec {
    InstanceSpec {
        name: name.into(),
        device: InstanceDevice::Cpu,
        threads: NonZeroUsize::MIN,
        passive: false,
    }
}

/// An instance without a policy.
pub fn placed(spec: InstanceSpec) -> InstancePlan {
    let kind = InstanceKind::Cpu;
    let group = InstanceGroup {
        name: "group".into(),
        kind,
        count: NonZeroUsize::MIN,
        passive: spec.passive,
        host_policy: kind.usual_host_policy().into(),
        profiles: vec![],
        secondary_devices: vec![],
        rate_limiter: RateLimits::default(),
    };
    InstancePlan { spec, policy: None, group: Arc::new(group) }
}
