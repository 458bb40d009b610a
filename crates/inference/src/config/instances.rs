//! `instance_group`: how many instances a model has, where they live, and what each of them needs to run.
use std::num::{NonZeroU32, NonZeroUsize};

use crate::Name;

/// One entry of `instance_group`, defaults in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceGroup {
    /// Not empty.
    pub name: Name,
    /// Where its instances live.
    pub kind: InstanceKind,
    /// Instances per device.
    pub count: NonZeroUsize,
    /// Its instances exist, and are neither warmed up nor given requests.
    pub passive: bool,
    /// Which settings of the host (`--host-policy`) its instances get: `cpu` or `model` by their kind, if the
    /// configuration names none. A name without settings is legal.
    pub host_policy: Name,
    /// For the backend, in the order of the configuration. Only TensorRT models have any.
    pub profiles: Vec<String>,
    /// For the backend, in the order of the configuration.
    pub secondary_devices: Vec<SecondaryDevice>,
    /// What the rate limiter is told, where the server runs one.
    pub rate_limiter: RateLimits,
}

/// Where instances live. `KIND_AUTO` has been decided; `KIND_GPU` is refused where no GPU is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceKind {
    /// Host processors.
    Cpu,
    /// The model decides.
    Model,
}

impl InstanceKind {
    /// The host policy of a group of this kind that names none.
    pub const fn usual_host_policy(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Model => "model",
        }
    }
}

/// One entry of `secondary_devices`: a further device, of which only the backend knows what to do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondaryDevice {
    /// As the configuration calls it: `KIND_NVDLA`.
    pub kind: Name,
    /// Number of the device among those of its kind.
    pub device_id: i64,
}

/// `rate_limiter` of a group: what each of its instances needs in order to run a batch, and how often it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimits {
    /// In the order of the configuration. A name may come up more than once.
    pub resources: Vec<ResourceNeed>,
    /// The larger, the less often under contention: an instance of 2 runs half as often as one of 1.
    pub priority: NonZeroU32,
}

/// A number of units of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceNeed {
    /// Name of the resource.
    pub name: Name,
    /// Whether the whole server shares it; otherwise each device has its own.
    pub global: bool,
    /// Units that a batch holds while it runs.
    pub count: u32,
}

impl Default for RateLimits {
    /// No resources, and the first priority.
    fn default() -> Self {
        Self { resources: Vec::new(), priority: NonZeroU32::MIN }
    }
}
