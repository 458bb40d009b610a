//! Host policies: on which processors the threads of instances run.
//!
//! The engine applies a policy to an instance's thread before it builds the instance. The threads and the memory that
//! the backend then allocates follow the policy: threads inherit the mask, and the kernel allocates memory on the node
//! of the processor that touches it first. An instance with a policy runs only on its own thread, never on a caller's
//! thread.
//!
//! `numa-node` binds processors, not memory. Binding memory takes a system call (`set_mempolicy`) without a safe Rust
//! binding. If the node has free memory, the first touch allocates the memory there anyway.
use std::{collections::BTreeMap, fs, io, num::NonZeroUsize, path::Path, sync::Arc};

use config::InstanceGroup;
use inference::backend::InstanceSpec;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use vocabulary::{Error, Name};

use crate::processors::ProcessorSet;

/// The settings of one policy (`--host-policy`). A policy without settings changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPolicy {
    /// Instances run on the processors of this node, unless `cpu_cores` is set. The node must exist even then.
    pub numa_node: Option<u32>,
    /// Instances run on these processors.
    pub cpu_cores: Option<ProcessorSet>,
}

impl HostPolicy {
    /// The settings in the form of the command line.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let node = self.numa_node.map(|node| ("numa-node".to_owned(), node.to_string()));
        let cores = self.cpu_cores.as_ref().map(|cores| ("cpu-cores".to_owned(), cores.to_string()));
        node.into_iter().chain(cores).collect()
    }

    /// The processors of the policy; `None` for a policy without settings.
    fn processors(&self, nodes: &Path) -> Result<Option<ProcessorSet>, String> {
        let of_node = self.numa_node.map(|node| processors_of(node, nodes)).transpose()?;
        Ok(self.cpu_cores.clone().or(of_node))
    }
}

fn processors_of(node: u32, nodes: &Path) -> Result<ProcessorSet, String> {
    let list = nodes.join(format!("node{node}/cpulist"));
    let text = match fs::read_to_string(&list) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!("this host has no NUMA node {node}"));
        }
        Err(error) => return Err(format!("failed to read {}: {error}", list.display())),
    };
    if text.trim().is_empty() {
        return Err(format!("NUMA node {node} has no processors"));
    }
    ProcessorSet::parse(&text)
        .ok_or_else(|| format!("{} is no list of usable processors: {}", list.display(), text.trim()))
}

/// The directory where the kernel describes NUMA nodes.
const NODES: &str = "/sys/devices/system/node";

/// A policy with settings, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorBinding {
    name: Name,
    policy: HostPolicy,
}

impl ProcessorBinding {
    /// The policy with that name. `None` for an unknown name or a policy without settings.
    pub fn of(name: &Name, policies: &BTreeMap<String, HostPolicy>) -> Option<Self> {
        let policy = policies.get(name.as_str()).filter(|policy| **policy != HostPolicy::default())?;
        Some(Self { name: name.clone(), policy: policy.clone() })
    }
}

/// An instance to be built, and the policy that binds it.
#[derive(Debug, Clone)]
pub struct InstancePlan {
    /// What is to be built.
    pub spec: InstanceSpec,
    /// What binds its thread. `None`: it may run on all processors.
    pub policy: Option<ProcessorBinding>,
    /// The instance's group without its name and its count: instances of equal groups can stand for each other.
    pub group: Arc<InstanceGroup>,
}

impl InstancePlan {
    /// Whether the instance must stay on its own thread.
    pub fn is_bound(&self) -> bool {
        self.policy.is_some()
    }

    /// Binds the calling thread, which must be the instance's own. Returns the instance's specification, with at most
    /// as many threads as the thread may use processors.
    ///
    /// # Errors
    /// INVALID_ARG: a node that this host does not have, or processors none of which the process may use.
    pub fn bind_this_thread(&self) -> Result<InstanceSpec, Error> {
        let mut spec = self.spec.clone();
        if let Some(ProcessorBinding { name, policy }) = &self.policy {
            let bound = policy.processors(Path::new(NODES)).and_then(|wanted| match wanted {
                Some(wanted) => bind(&wanted, &spec.name, name),
                None => Ok(spec.threads),
            });
            let refusal = |reason| {
                Error::invalid(format!(
                    "failed to apply host policy '{name}' to instance '{}': {reason}",
                    spec.name
                ))
            };
            spec.threads = spec.threads.min(bound.map_err(refusal)?);
        }
        Ok(spec)
    }
}

/// Binds the calling thread. Returns the number of processors that it may run on.
fn bind(wanted: &ProcessorSet, instance: &str, policy: &str) -> Result<NonZeroUsize, String> {
    let refused = |error: rustix::io::Errno| format!("the processors it names cannot be used: {error}");
    sched_setaffinity(None, &wanted.mask()).map_err(refused)?;
    // The kernel ignores processors that do not exist or that the process may not use. It reports no error for them.
    let got = sched_getaffinity(None).map_err(refused)?.count() as usize;
    if got < wanted.count().get() {
        let named = wanted.count();
        log::warn!(
            "host policy '{policy}' names {named} processors, of which instance '{instance}' gets {got}"
        );
    }
    Ok(NonZeroUsize::new(got).unwrap_or(NonZeroUsize::MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Node 0 has processors 0 to 2 and 5. Node 1 has only memory.
    fn nodes() -> tempfile::TempDir {
        let nodes = tempfile::tempdir().unwrap();
        for (node, processors) in [("node0", "0-2,5\n"), ("node1", "\n"), ("node2", "?\n")] {
            fs::create_dir(nodes.path().join(node)).unwrap();
            fs::write(nodes.path().join(node).join("cpulist"), processors).unwrap();
        }
        nodes
    }

    fn policy(numa_node: Option<u32>, cpu_cores: Option<&str>) -> HostPolicy {
        HostPolicy { numa_node, cpu_cores: cpu_cores.map(|text| ProcessorSet::parse(text).unwrap()) }
    }

    #[test]
    fn a_node_stands_for_its_processors() {
        let processors = policy(Some(0), None).processors(nodes().path());
        assert_eq!(processors, Ok(ProcessorSet::parse("0-2,5")));
    }

    #[test]
    fn processors_that_are_named_come_before_those_of_the_node() {
        let nodes = nodes();
        assert_eq!(policy(Some(0), Some("7")).processors(nodes.path()), Ok(ProcessorSet::parse("7")));
        assert!(policy(Some(3), Some("7")).processors(nodes.path()).is_err());
    }

    #[test]
    fn a_node_that_cannot_be_used_is_named() {
        let nodes = nodes();
        let refusal = |node| policy(Some(node), None).processors(nodes.path()).unwrap_err();
        assert_eq!(refusal(1), "NUMA node 1 has no processors");
        assert!(refusal(2).ends_with("node2/cpulist is no list of usable processors: ?"));
        assert_eq!(refusal(3), "this host has no NUMA node 3");
    }

    #[test]
    fn only_a_known_policy_with_settings_binds() {
        let policies = BTreeMap::from([
            ("settled".to_owned(), policy(None, Some("0"))),
            ("empty".to_owned(), HostPolicy::default()),
        ]);
        let bound = |name: &str| ProcessorBinding::of(&name.into(), &policies).map(|binding| binding.policy);
        assert_eq!(bound("settled"), Some(policy(None, Some("0"))));
        assert_eq!((bound("empty"), bound("unknown")), (None, None));
    }
}
