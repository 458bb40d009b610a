//! The protections of a sandbox, and those that the log has named as missing.
use std::{collections::BTreeSet, fmt};

use inference::lock::Mutex;

/// A part of a sandbox that a kernel may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protection {
    /// Files are read-only.
    Files,
    /// Files cannot be truncated.
    Truncation,
    /// Devices cannot be controlled.
    Devices,
    /// Other processes cannot be signalled.
    Signals,
    /// There is no network.
    Network,
    /// There are no capabilities, and no program gives any.
    Privileges,
    /// The process has a user of its own.
    User,
    /// There is a limit on processes.
    Processes,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "read-only files (Landlock, Linux 5.13)",
            Self::Truncation => "no truncation of files (Landlock 3, Linux 6.2)",
            Self::Devices => "no control of devices (Landlock 5, Linux 6.10)",
            Self::Signals => "no signals to other processes (Landlock 6, Linux 6.12)",
            Self::Network => "no network (seccomp filters)",
            Self::Privileges => "no privileges",
            Self::User => "the user of sandbox-user (the server may not change its user)",
            Self::Processes => {
                "a limit on processes (the superuser has none: name another user by sandbox-user)"
            }
        })
    }
}

/// The protections that the log has named as missing, for all models of a backend.
#[derive(Debug, Default)]
pub(crate) struct ReportedProtections(Mutex<BTreeSet<Protection>>);

impl ReportedProtections {
    /// Those of `missing` that the log has not named yet. From now on it has.
    pub(super) fn add(&self, missing: &BTreeSet<Protection>) -> Vec<Protection> {
        let mut told = self.0.lock();
        missing.iter().copied().filter(|protection| told.insert(*protection)).collect()
    }
}
