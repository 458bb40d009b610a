//! How many processors the process may use: what its affinity mask and its cgroups leave it.
use std::{fs, num::NonZeroUsize, path::Path};

/// Processors this process may keep busy, at least one.
///
/// The smaller of the affinity mask and the CPU quota of its cgroup (version 2 `cpu.max`, version 1
/// `cpu.cfs_quota_us`), rounded up: a container limited to one and a half processors computes on two threads.
pub fn usable() -> NonZeroUsize {
    let affine = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    // The standard library has looked at both on Linux; the quota of a parent cgroup is what it may have missed.
    let quota = cgroup_quota(
        Path::new("/sys/fs/cgroup"),
        &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
    );
    quota.map_or(affine, |quota| affine.min(quota))
}

/// The tightest quota on the way from the root of the cgroup file system to this process.
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

/// `<quota> <period>`, both in microseconds, or `max <period>`.
fn parse_cpu_max(text: &str) -> Option<NonZeroUsize> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    NonZeroUsize::new(quota.div_ceil(period.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_rounded_up_to_whole_processors() {
        assert_eq!(parse_cpu_max("150000 100000\n"), NonZeroUsize::new(2));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("nonsense"), None);
    }

    #[test]
    fn the_tightest_quota_on_the_way_counts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("pod/box")).unwrap();
        fs::write(root.path().join("cpu.max"), "max 100000\n").unwrap();
        fs::write(root.path().join("pod/cpu.max"), "300000 100000\n").unwrap();
        fs::write(root.path().join("pod/box/cpu.max"), "800000 100000\n").unwrap();
        assert_eq!(cgroup_quota(root.path(), "0::/pod/box\n"), NonZeroUsize::new(3));
        assert_eq!(cgroup_quota(root.path(), "1:cpu:/old\n"), None);
    }
}
