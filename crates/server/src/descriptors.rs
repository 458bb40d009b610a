//! How many files and sockets the process may have open.
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of open files besides connections: models, libraries, logs, sockets of backends.
const OTHER_FILES: u64 = 256;

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

/// How many of `wanted` connections the system permits. At least one.
pub(crate) fn connections_within_limit(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let permitted = limit.map_or(u64::MAX, |limit| limit.saturating_sub(OTHER_FILES).max(limit / 2).max(1));
    let permitted = usize::try_from(permitted).unwrap_or(usize::MAX);
    if permitted < wanted {
        log::warn!(
            "the system permits {permitted} connections, not {wanted}: see the limit of open files (ulimit -n)"
        );
    }
    wanted.min(permitted)
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
        assert!(connections_within_limit(usize::MAX) <= usize::try_from(current).unwrap());
    }
}
