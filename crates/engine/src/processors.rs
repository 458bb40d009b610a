//! The number of processors that the process may use, as its affinity mask and its cgroups permit, and sets of
//! processors in the notation of operators and the kernel.
use std::{collections::BTreeSet, fmt, fs, num::NonZeroUsize, path::Path};

use rustix::thread::CpuSet;

/// Processors by number. Has at least one processor, and none beyond the size of an affinity mask (1024).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorSet(BTreeSet<usize>);

impl ProcessorSet {
    /// Reads numbers and ranges such as `0-3,8`, the notation of the kernel's lists. `None` for any other text, for a
    /// range that ends before it begins, and for numbers beyond a mask.
    pub fn parse(text: &str) -> Option<Self> {
        let mut processors = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last >= CpuSet::MAX_CPU {
                return None;
            }
            processors.extend(first..=last);
        }
        Some(Self(processors))
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// The number of processors.
    pub fn count(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.0.len()).expect("a set has at least one processor")
    }

    /// The set as an affinity mask.
    pub(crate) fn mask(&self) -> CpuSet {
        let mut mask = CpuSet::new();
        self.iter().for_each(|processor| mask.set(processor));
        mask
    }
}

/// Writes numbers and ranges in the notation that [`ProcessorSet::parse`] reads.
impl fmt::Display for ProcessorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// The number of processors that this process may keep busy, at least one.
///
/// The smaller of the affinity mask and the CPU quota of the cgroup (version 2 `cpu.max`, version 1
/// `cpu.cfs_quota_us`), rounded up: a container limited to one and a half processors computes on two threads.
pub fn usable() -> NonZeroUsize {
    let affine = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    // The standard library respects both on Linux. It may miss only the quota of a parent cgroup.
    let quota = cgroup_quota(
        Path::new("/sys/fs/cgroup"),
        &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
    );
    quota.map_or(affine, |quota| affine.min(quota))
}

/// The smallest quota on the path from the root of the cgroup file system to this process.
fn cgroup_quota(root: &Path, memberships: &str) -> Option<NonZeroUsize> {
    let own = memberships.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut directory = root.to_path_buf();
    let below = Path::new(own).components().map(|part| {
        directory.push(part);
        directory.clone()
    });
    std::iter::once(root.to_path_buf())
        .chain(below.collect::<Vec<_>>())
        .filter_map(|directory| parse_cpu_max(&fs::read_to_string(directory.join("cpu.max")).ok()?))
        .min()
}

/// Parses `<quota> <period>`, both in microseconds, or `max <period>`.
fn parse_cpu_max(text: &str) -> Option<NonZeroUsize> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    NonZeroUsize::new(quota.div_ceil(period.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_list_of_numbers_and_ranges() {
        let numbers = |text| ProcessorSet::parse(text).map(|set| set.iter().collect::<Vec<_>>());
        assert_eq!(numbers("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers("5,2-3,3\n"), Some(vec![2, 3, 5]));
        assert_eq!(numbers("1023"), Some(vec![1023]));
        for text in ["", "\n", "x", "3-1", "1-", "-1", "1,,2", "1024", "0-99999999999", "0x1", "0-1-2"] {
            assert_eq!(numbers(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_mask_has_the_processors_of_its_set() {
        let mask = ProcessorSet::parse("0,2-3").unwrap().mask();
        assert_eq!((mask.count(), mask.is_set(0), mask.is_set(1), mask.is_set(3)), (3, true, false, true));
    }

    #[test]
    fn a_quota_is_rounded_up_to_whole_processors() {
        assert_eq!(parse_cpu_max("150000 100000\n"), NonZeroUsize::new(2));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("nonsense"), None);
    }

    #[test]
    fn the_smallest_quota_of_all_parent_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("pod/box")).unwrap();
        fs::write(root.path().join("cpu.max"), "max 100000\n").unwrap();
        fs::write(root.path().join("pod/cpu.max"), "300000 100000\n").unwrap();
        fs::write(root.path().join("pod/box/cpu.max"), "800000 100000\n").unwrap();
        assert_eq!(cgroup_quota(root.path(), "0::/pod/box\n"), NonZeroUsize::new(3));
        assert_eq!(cgroup_quota(root.path(), "1:cpu:/old\n"), None);
    }
}
