//! The limits of processors and memory that the control groups of this process set, of versions 1 and 2.
//!
//! Each group on the path from the process's own group up to the root of a mounted hierarchy limits the process. systemd
//! sets the limits of a service (`MemoryMax=`, `CPUQuota=`) in the service's own group, which is not the root. A container
//! may see its own group as the root, or see the path that its host knows. `/proc/self/mountinfo` tells which is the case.
//! Source: `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1` of the kernel, and proc(5).
use std::{
    fs,
    num::NonZeroUsize,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use inference::{Timestamp, lock::Mutex};

use crate::now;

/// How long limits that have been read stand for those of the kernel. They change only when somebody sets them.
const FRESH: Duration = Duration::from_secs(1);

/// What the control groups of a process permit. `None`: no group has such a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ControlGroupLimits {
    /// The processor time, as processors that are always busy. Part of a processor counts as a whole one.
    pub(crate) processors: Option<NonZeroUsize>,
    /// The memory, in bytes.
    pub(crate) memory: Option<usize>,
}

impl ControlGroupLimits {
    /// The limits of this process, as they were at most a second ago: there may be a hundred files to read, and many
    /// models may ask. Files that are missing or have another form set no limit.
    pub(crate) fn of_process() -> Self {
        static LATEST: Mutex<Option<(Timestamp, ControlGroupLimits)>> = Mutex::new(None);
        let mut latest = LATEST.lock();
        match *latest {
            Some((at, limits)) if now() - at < FRESH => limits,
            _ => {
                let limits = Self::read(Path::new("/"));
                *latest = Some((now(), limits));
                limits
            }
        }
    }

    /// Reads the limits below `root`, which is `/` except in tests.
    fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (mounts, memberships) = (text("proc/self/mountinfo"), text("proc/self/cgroup"));
        let mut limits = Self::default();
        for hierarchy in mounts.lines().filter_map(MountedHierarchy::parse) {
            for directory in hierarchy.directories(&memberships) {
                limits.tighten(hierarchy.limits_in(&root.join(directory)));
            }
        }
        limits
    }

    /// Takes the smaller limit of each kind.
    fn tighten(&mut self, other: Self) {
        self.processors = self.processors.into_iter().chain(other.processors).min();
        self.memory = self.memory.into_iter().chain(other.memory).min();
    }
}

/// A hierarchy of control groups, and where it is mounted.
struct MountedHierarchy<'a> {
    /// The group that is visible at the mount point.
    group: &'a str,
    /// The directory, without the first slash.
    mount_point: &'a str,
    controllers: Controllers<'a>,
}

/// What a hierarchy controls.
enum Controllers<'a> {
    /// Version 2: the one hierarchy of all controllers.
    Unified,
    /// Version 1: the options of the mount, which contain the names of the controllers.
    Named(&'a str),
}

impl<'a> MountedHierarchy<'a> {
    /// Parses a line of `mountinfo`. `None` if it is no hierarchy of control groups.
    ///
    /// A line is `36 35 98:0 <group> <mount point> <options> [<field>...] - <type> <source> <options>`.
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (group, mount_point) = (place.next()?, place.next()?.strip_prefix('/')?);
        let mut kind = kind.split(' ');
        let controllers = match kind.next()? {
            "cgroup2" => Controllers::Unified,
            "cgroup" => Controllers::Named(kind.nth(1)?),
            _ => return None,
        };
        Some(Self { group, mount_point, controllers })
    }

    /// The directories of all groups that contain the process, without the first slash. Empty if the hierarchy does not
    /// contain the process, or if the mount shows only other groups.
    fn directories(&self, memberships: &str) -> Vec<PathBuf> {
        let own = memberships.lines().find_map(|line| self.membership(line));
        let Some(below) = own.and_then(|own| Path::new(own).strip_prefix(self.group).ok()) else {
            return Vec::new();
        };
        let mut directory = PathBuf::from(self.mount_point);
        let mut directories = vec![directory.clone()];
        for part in below.components() {
            // `..` is a group outside of what the process can see.
            let Component::Normal(part) = part else { break };
            directory.push(part);
            directories.push(directory.clone());
        }
        directories
    }

    /// The process's group, if the line of `/proc/self/cgroup` is that of this hierarchy: `<id>:<controllers>:<group>`.
    fn membership<'m>(&self, line: &'m str) -> Option<&'m str> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let is_own = match self.controllers {
            Controllers::Unified => controllers.is_empty(),
            Controllers::Named(_) => controllers.split(',').any(|controller| self.controls(controller)),
        };
        is_own.then_some(group)
    }

    fn controls(&self, controller: &str) -> bool {
        match self.controllers {
            Controllers::Unified => true,
            Controllers::Named(options) => options.split(',').any(|option| option == controller),
        }
    }

    fn limits_in(&self, directory: &Path) -> ControlGroupLimits {
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let (processors, memory) = match self.controllers {
            Controllers::Unified => {
                let quota = read("cpu.max");
                (
                    quota.as_deref().and_then(|text| text.trim().split_once(' ')).and_then(processors),
                    "memory.max",
                )
            }
            Controllers::Named(_) => {
                let quota = read("cpu.cfs_quota_us").zip(read("cpu.cfs_period_us"));
                (quota.and_then(|(quota, period)| processors((&quota, &period))), "memory.limit_in_bytes")
            }
        };
        ControlGroupLimits { processors, memory: read(memory).and_then(|text| text.trim().parse().ok()) }
    }
}

/// The processors of a quota and its period, which are texts of microseconds. `max` and -1 are no quota.
fn processors((quota, period): (&str, &str)) -> Option<NonZeroUsize> {
    let (quota, period): (usize, usize) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0).then(|| quota.div_ceil(period.max(1))).and_then(NonZeroUsize::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;
    const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    /// The limits in a tree of files.
    fn limits(mounts: &str, memberships: &str, files: &[(&str, &str)]) -> ControlGroupLimits {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, content: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put("proc/self/mountinfo", &format!("24 1 8:1 / / rw - ext4 /dev/sda1 rw\n{mounts}"));
        put("proc/self/cgroup", memberships);
        files.iter().for_each(|(name, content)| put(&format!("sys/fs/cgroup/{name}"), content));
        ControlGroupLimits::read(root.path())
    }

    fn of(processors: usize, memory: usize) -> ControlGroupLimits {
        ControlGroupLimits {
            processors: NonZeroUsize::new(processors),
            memory: Some(memory).filter(|memory| *memory > 0),
        }
    }

    #[test]
    fn the_limits_of_a_service_of_systemd_count() {
        let files = [
            ("memory.stat", ""),
            ("system.slice/memory.max", "max\n"),
            ("system.slice/cpu.max", "max 100000\n"),
            ("system.slice/nereid.service/memory.max", "4294967296\n"),
            ("system.slice/nereid.service/cpu.max", "150000 100000\n"),
        ];
        assert_eq!(limits(V2, "0::/system.slice/nereid.service\n", &files), of(2, 4 * GIB));
    }

    #[test]
    fn the_smallest_limit_of_all_groups_above_counts() {
        let files = [
            ("pod/memory.max", "1073741824"),
            ("pod/cpu.max", "300000 100000"),
            ("pod/box/memory.max", "2147483648"),
            ("pod/box/cpu.max", "800000 100000"),
            ("other/memory.max", "1"),
        ];
        assert_eq!(limits(V2, "0::/pod/box\n", &files), of(3, GIB));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let files = [("memory.max", "1073741824"), ("cpu.max", "50000 100000")];
        assert_eq!(limits(V2, "0::/\n", &files), of(1, GIB));
        // The host's path, with the group itself mounted.
        let mount = V2.replace("0:26 / ", "0:26 /docker/box ");
        let files = [&files[..], &[("inner/memory.max", "4096")]].concat();
        assert_eq!(limits(&mount, "0::/docker/box\n", &files), of(1, GIB));
        assert_eq!(limits(&mount, "0::/docker/box/inner\n", &files), of(1, 4096));
        // Another group is mounted, whose limits are not those of the process.
        assert_eq!(limits(&mount, "0::/docker/boxes\n", &files), of(0, 0));
    }

    #[test]
    fn a_path_that_leaves_what_the_process_sees_ends_there() {
        let files = [("memory.max", "8192"), ("other/memory.max", "1"), ("../memory.max", "1")];
        assert_eq!(limits(V2, "0::/../other\n", &files), of(0, 8192));
    }

    #[test]
    fn each_controller_of_version_1_has_its_own_path() {
        let mounts = "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";
        let memberships = "9:memory:/box\n8:cpu,cpuacct:/a/b\n1:name=systemd:/x\n0::/x\n";
        let files = [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/box/memory.limit_in_bytes", "1073741824\n"),
            ("cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n"),
            ("cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(limits(mounts, memberships, &files), of(3, GIB));
    }

    #[test]
    fn both_versions_can_be_mounted_together() {
        let mounts = "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let files = [
            ("memory/box/memory.limit_in_bytes", "8192"),
            ("unified/box/cpu.max", "100000 100000"),
            ("unified/box/memory.max", "16384"),
        ];
        assert_eq!(limits(mounts, "9:memory:/box\n0::/box\n", &files), of(1, 8192));
    }

    #[test]
    fn what_is_missing_or_unreadable_is_no_limit() {
        assert_eq!(ControlGroupLimits::read(Path::new("/nonexistent")), of(0, 0));
        let files = [("memory.max", "max\n"), ("cpu.max", "max 100000\n")];
        assert_eq!(limits(V2, "0::/\n", &files), of(0, 0));
        for (memory, quota) in
            [("", ""), ("x", "x"), ("-1", "-1 100000"), ("99999999999999999999", "0 100000")]
        {
            assert_eq!(limits(V2, "0::/\n", &[("memory.max", memory), ("cpu.max", quota)]), of(0, 0));
        }
        assert_eq!(limits(V2, "nonsense\n", &[("memory.max", "1")]), of(0, 0));
        assert_eq!(limits("nonsense - cgroup2\n", "0::/\n", &[("memory.max", "1")]), of(0, 0));
        assert_eq!(limits(V2, "0::/\n", &[("cpu.max", "100000 0")]), of(100_000, 0));
    }
}
