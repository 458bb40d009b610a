//! What claimants need and what there is: the words in which a rate limiter is told about resources.
use std::collections::BTreeMap;

/// Where an instance lives. Resources that are not global are those of this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// Host processors.
    Cpu,
    /// The GPU of this number.
    Gpu(u32),
    /// The model itself knows. Its resources are those of the host.
    Model,
}

impl Device {
    /// The number by which [`Capacity::device`] means it. The host goes by 0 as GPU 0 does, and yet each of the
    /// two has units of its own.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Cpu | Self::Model => 0,
            Self::Gpu(number) => number,
        }
    }
}

/// A number of units of a resource, to hold while a batch runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Name of the resource, compared exactly.
    pub name: String,
    /// Whether the whole server shares it; otherwise each device has its own.
    pub global: bool,
    /// Units.
    pub count: u32,
}

/// All that one instance needs to run a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    /// In any order. Of several with the same name and reach the last counts.
    pub needs: Vec<Need>,
    /// Where the instance lives.
    pub device: Device,
}

/// One `--rate-limit-resource`: how much there is of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Name of the resource, compared exactly.
    pub name: String,
    /// Units.
    pub count: u32,
    /// The device that has them, `None` for each device. Global resources do not look at it.
    pub device: Option<u32>,
}

/// How much there is of each resource, if the operator has said so.
///
/// Without any entry there is of each as much as its neediest claimant asks for. With entries there is nothing
/// of what they do not name. Of repeated entries the smallest counts.
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
    /// Units of a resource, or `None` if that is left to the claimants.
    pub(super) fn limit(&self, name: &str, scope: Scope) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        let counts = |device: &Option<u32>| match scope {
            Scope::Global => true,
            Scope::Device(own) => device.is_none_or(|device| device == own.number()),
        };
        let matching = self.entries.iter().filter(|((entry, device), _)| entry == name && counts(device));
        Some(matching.map(|(_, &count)| count).max().unwrap_or(0))
    }
}

/// Who shares a resource. Names of resources mean something within a scope only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    Global,
    Device(Device),
}

impl Scope {
    pub(super) fn of(need: &Need, device: Device) -> Self {
        match device {
            _ if need.global => Self::Global,
            Device::Gpu(number) => Self::Device(Device::Gpu(number)),
            Device::Cpu | Device::Model => Self::Device(Device::Cpu),
        }
    }

    pub(super) fn is_global(self) -> bool {
        self == Self::Global
    }
}

/// Why a claimant can not be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortage {
    /// There will never be enough for it.
    Limited {
        /// Name of the resource.
        resource: String,
        /// Units there are.
        limit: u32,
        /// Units there must be.
        required: u32,
    },
    /// A resource is global for one claimant and a device's own for another, or both for the same.
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
        assert_eq!(Capacities::default().limit("r", Scope::Global), None);
    }

    #[test]
    fn what_no_entry_names_does_not_exist() {
        let capacities = capacities(&[("r", 4, None)]);
        assert_eq!(capacities.limit("R", Scope::Global), Some(0));
        assert_eq!(capacities.limit("s", Scope::Device(Device::Cpu)), Some(0));
    }

    #[test]
    fn the_smallest_of_repeated_entries_counts() {
        let capacities = capacities(&[("r", 4, None), ("r", 2, None), ("r", 3, None)]);
        assert_eq!(capacities.limit("r", Scope::Device(Device::Gpu(1))), Some(2));
    }

    #[test]
    fn a_device_has_the_larger_of_its_own_entry_and_that_for_each_device() {
        let capacities = capacities(&[("r", 4, None), ("r", 6, Some(1)), ("r", 2, Some(2))]);
        let on = |device| capacities.limit("r", Scope::Device(device));
        assert_eq!([on(Device::Gpu(0)), on(Device::Gpu(1)), on(Device::Gpu(2))], [Some(4), Some(6), Some(4)]);
    }

    #[test]
    fn a_global_resource_has_the_largest_entry_of_any_device() {
        let capacities = capacities(&[("r", 4, None), ("r", 6, Some(1)), ("s", 9, None)]);
        assert_eq!(capacities.limit("r", Scope::Global), Some(6));
    }

    #[test]
    fn device_0_means_the_host_as_well() {
        let capacities = capacities(&[("r", 4, Some(0))]);
        let on = |device| capacities.limit("r", Scope::Device(device));
        assert_eq!([on(Device::Cpu), on(Device::Gpu(0)), on(Device::Gpu(1))], [Some(4), Some(4), Some(0)]);
    }
}
