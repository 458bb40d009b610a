//! `instance_group`: the number of instances of a model, their devices, and the resources that each instance needs.
use std::num::{NonZeroU32, NonZeroUsize};

use vocabulary::Name;

/// One entry of `instance_group`, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceGroup {
    /// Not empty.
    pub name: Name,
    /// The device kind of its instances.
    pub kind: InstanceKind,
    /// Instances for each device.
    pub count: NonZeroUsize,
    /// The server builds the instances, but neither warms them up nor gives them requests.
    pub passive: bool,
    /// The name of the host settings (`--host-policy`) for its instances. If the configuration names none, the kind
    /// decides: `cpu` or `model`. A name without settings is legal.
    pub host_policy: Name,
    /// For the backend, in the order of the configuration. Only TensorRT models have any.
    pub profiles: Vec<String>,
    /// For the backend, in the order of the configuration.
    pub secondary_devices: Vec<SecondaryDevice>,
    /// The needs and priority for the rate limiter, if the server runs one.
    pub rate_limiter: RateLimits,
}

/// The device kind of instances. `KIND_AUTO` has been resolved. `KIND_GPU` is refused if no GPU is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceKind {
    /// Host processors.
    Cpu,
    /// The model decides.
    Model,
}

impl InstanceKind {
    /// The default host policy of a group of this kind.
    pub const fn usual_host_policy(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Model => "model",
        }
    }
}

/// One entry of `secondary_devices`: a further device. Only the backend knows how to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondaryDevice {
    /// The name in the configuration: `KIND_NVDLA`.
    pub kind: Name,
    /// Number of the device among those of its kind.
    pub device_id: i64,
}

/// `rate_limiter` of a group: the resources that each of its instances needs to run a batch, and its priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimits {
    /// In the order of the configuration. A name may appear more than once.
    pub resources: Vec<ResourceNeed>,
    /// A larger number means fewer executions under contention: an instance of priority 2 runs half as often as one
    /// of priority 1.
    pub priority: NonZeroU32,
}

/// A number of units of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceNeed {
    /// Name of the resource.
    pub name: Name,
    /// Whether the whole server shares the resource. Otherwise each device has its own units.
    pub global: bool,
    /// Units that a batch holds while it runs.
    pub count: u32,
}

impl Default for RateLimits {
    /// No resources, and priority 1.
    fn default() -> Self {
        Self { resources: Vec::new(), priority: NonZeroU32::MIN }
    }
}
