//! What claimants need and what capacities exist: the types that describe resources to a rate limiter.
use std::collections::BTreeMap;

/// The device of an instance. Resources that are not global belong to this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceDevice {
    /// Host processors.
    Cpu,
    /// The GPU with this number.
    Gpu(u32),
    /// The model chooses its device itself. Its resources are those of the host.
    Model,
}

impl InstanceDevice {
    /// The device number that [`Capacity::device`] uses. The host has number 0, as GPU 0 has. Each of the two still
    /// has its own units.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Cpu | Self::Model => 0,
            Self::Gpu(number) => number,
        }
    }
}

/// A number of units of a resource that a claimant holds while a batch runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Name of the resource, compared exactly.
    pub name: String,
    /// Whether the whole server shares the resource. Otherwise each device has its own units.
    pub global: bool,
    /// Number of units.
    pub count: u32,
}

/// All that one instance needs to run a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    /// In any order. If several needs have the same name and scope, the last one counts.
    pub needs: Vec<Need>,
    /// The device of the instance.
    pub device: InstanceDevice,
}

/// One `--rate-limit-resource` option: the capacity of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Name of the resource, compared exactly.
    pub name: String,
    /// Number of units.
    pub count: u32,
    /// The device with these units. `None` means each device. The limiter ignores it for global resources.
    pub device: Option<u32>,
}

/// The capacity of each resource, as the operator configured it.
///
/// Without any entry, the capacity of each resource is the largest need of a claimant. With entries, a resource that
/// they do not name has capacity zero. If entries repeat, the smallest one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacities {
    entries: BTreeMap<(String, Option<u32>), u32>,
}

impl FromIterator<Capacity> for Capacities {
    fn from_iter<I: IntoIterator<Item = Capacity>>(capacities: I) -> Self {
        let mut entries = BTreeMap::new();
        for Capacity { name, count, device } in capacities {
            let smallest = entries.entry((name, device)).or_insert(count);
            *smallest = count.min(*smallest);
        }
        Self { entries }
    }
}

impl Capacities {
    /// Units of a resource, or `None` if the claimants' needs decide.
    pub(super) fn limit(&self, name: &str, scope: ResourceScope) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        let counts = |device: &Option<u32>| match scope {
            ResourceScope::Global => true,
            ResourceScope::Device(own) => device.is_none_or(|device| device == own.number()),
        };
        let matching = self.entries.iter().filter(|((entry, device), _)| entry == name && counts(device));
        Some(matching.map(|(_, &count)| count).max().unwrap_or(0))
    }
}

/// The scope in which a resource is shared. A resource name is unique only within a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ResourceScope {
    Global,
    Device(InstanceDevice),
}

impl ResourceScope {
    pub(super) fn of(need: &Need, device: InstanceDevice) -> Self {
        match device {
            _ if need.global => Self::Global,
            InstanceDevice::Gpu(number) => Self::Device(InstanceDevice::Gpu(number)),
            InstanceDevice::Cpu | InstanceDevice::Model => Self::Device(InstanceDevice::Cpu),
        }
    }

    pub(super) fn is_global(self) -> bool {
        self.device().is_none()
    }

    /// `None` for what the whole server shares.
    pub(super) fn device(self) -> Option<InstanceDevice> {
        match self {
            Self::Global => None,
            Self::Device(device) => Some(device),
        }
    }
}

/// Why a claimant cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortage {
    /// There will never be enough units for the claimant.
    Limited {
        /// Name of the resource.
        resource: String,
        /// Units that exist.
        limit: u32,
        /// Units that the claimant needs.
        required: u32,
    },
    /// One claimant uses the resource as global and another as a device's own, or one claimant does both.
    Conflict {
        /// Name of the resource.
        resource: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacities(entries: &[(&str, u32, Option<u32>)]) -> Capacities {
        let entry = |&(name, count, device): &(&str, _, _)| Capacity { name: name.to_owned(), count, device };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn without_entries_nothing_is_limited() {
        assert_eq!(Capacities::default().limit("r", ResourceScope::Global), None);
    }

    #[test]
    fn what_no_entry_names_does_not_exist() {
        let capacities = capacities(&[("r", 4, None)]);
        assert_eq!(capacities.limit("R", ResourceScope::Global), Some(0));
        assert_eq!(capacities.limit("s", ResourceScope::Device(InstanceDevice::Cpu)), Some(0));
    }

    #[test]
    fn the_smallest_of_repeated_entries_counts() {
        let capacities = capacities(&[("r", 4, None), ("r", 2, None), ("r", 3, None)]);
        assert_eq!(capacities.limit("r", ResourceScope::Device(InstanceDevice::Gpu(1))), Some(2));
    }

    #[test]
    fn a_device_has_the_larger_of_its_own_entry_and_that_for_each_device() {
        let capacities = capacities(&[("r", 4, None), ("r", 6, Some(1)), ("r", 2, Some(2))]);
        let on = |device| capacities.limit("r", ResourceScope::Device(device));
        assert_eq!(
            [on(InstanceDevice::Gpu(0)), on(InstanceDevice::Gpu(1)), on(InstanceDevice::Gpu(2))],
            [Some(4), Some(6), Some(4)]
        );
    }

    #[test]
    fn a_global_resource_has_the_largest_entry_of_any_device() {
        let capacities = capacities(&[("r", 4, None), ("r", 6, Some(1)), ("s", 9, None)]);
        assert_eq!(capacities.limit("r", ResourceScope::Global), Some(6));
    }

    #[test]
    fn device_0_means_the_host_as_well() {
        let capacities = capacities(&[("r", 4, Some(0))]);
        let on = |device| capacities.limit("r", ResourceScope::Device(device));
        assert_eq!(
            [on(InstanceDevice::Cpu), on(InstanceDevice::Gpu(0)), on(InstanceDevice::Gpu(1))],
            [Some(4), Some(4), Some(0)]
        );
    }
}
