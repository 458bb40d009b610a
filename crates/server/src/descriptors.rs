//! How many files and sockets the process may have open.
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of open files besides connections: models, libraries, logs, sockets of backends.
const OTHER_FILES: u64 = 256;

/// The files that are open now. Without /proc, what they usually are.
fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(OTHER_FILES, |files| files.count() as u64)
}

/// Raises the limit on open files so that it suffices for this many connections, as far as the system permits. Never
/// lowers the limit.
pub fn make_room(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = (connections as u64).saturating_add(OTHER_FILES);
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return };
    let reachable = limit.maximum.map_or(wanted, |most| wanted.min(most)).max(current);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), ..limit }) {
        log::warn!("failed to raise the limit of open files from {current} to {reachable}: {error}");
    }
}

/// How many of `wanted` connections the system permits beside the files that are open now, those of the models among them. At
/// least one. A part of what is left is for other files.
pub(crate) fn connections_within_limit(wanted: usize) -> usize {
    let open = open_files();
    make_room(wanted.saturating_add(usize::try_from(open).unwrap_or(usize::MAX)));
    let Some(limit) = getrlimit(Resource::Nofile).current else { return wanted };
    let permitted = usize::try_from(permitted(limit.saturating_sub(open))).unwrap_or(usize::MAX);
    if permitted < wanted {
        log::warn!(
            "the system permits {permitted} connections, not {wanted}: it permits {limit} open files, of which the \
             server and its models have {open} (ulimit -n)"
        );
    }
    wanted.min(permitted)
}

/// How many connections there may be if so many descriptors are free.
fn permitted(free: u64) -> u64 {
    free.saturating_sub(OTHER_FILES).max(free / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_raised_as_far_as_the_system_permits() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        make_room(1000);
        let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(current >= most.min(1000 + OTHER_FILES), "{current}");
        make_room(10);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), current, "never lowered");
        assert_eq!(connections_within_limit(10), 10);
        let permitted = connections_within_limit(usize::MAX) as u64;
        let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(permitted < current, "{permitted} and {current}");
    }

    #[test]
    fn connections_leave_descriptors_to_others() {
        assert_eq!([0, 1, 15, 500, 600, 10_000].map(permitted), [1, 1, 7, 250, 344, 9_744]);
    }
}
