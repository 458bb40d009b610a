//! The processor time of processes and of all their descendants, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Linux reports times in `/proc/PID/stat` in hundredths of a second on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// The content of one `/proc/PID/stat`.
#[derive(Debug, PartialEq, Clone, Copy)]
struct Stat {
    parent: u32,
    /// The user and system time of the process and of the children that it has waited for, in ticks.
    ticks: u64,
}

/// The user and system time of the processes and of their living and ended descendants, since the start of each.
///
/// # Errors
/// One of the processes does not exist.
pub(crate) fn of_trees(roots: &[u32]) -> Result<Duration> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // The process may end between the listing and this read.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(stat) = parse(&text) {
            all.insert(pid, stat);
        }
    }
    if let Some(missing) = roots.iter().find(|pid| !all.contains_key(pid)) {
        anyhow::bail!("there is no process {missing} (--server-pid)");
    }
    Ok(TICK * u32::try_from(ticks_of_trees(roots, &all)).unwrap_or(u32::MAX))
}

/// The processor time of this process alone.
pub(crate) fn of_self() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(usage).unwrap_or_default()
}

fn ticks_of_trees(roots: &[u32], all: &BTreeMap<u32, Stat>) -> u64 {
    let belongs = |mut pid: u32| {
        // The number of steps is at most the number of processes. The entries are not read at the same moment, so they
        // may contain a cycle.
        for _ in 0..all.len() {
            if roots.contains(&pid) {
                return true;
            }
            match all.get(&pid) {
                Some(stat) => pid = stat.parent,
                None => return false,
            }
        }
        false
    };
    all.iter().filter(|(pid, _)| belongs(**pid)).map(|(_, stat)| stat.ticks).sum()
}

fn parse(stat: &str) -> Option<Stat> {
    // The name of the program stands in parentheses and may contain any character, parentheses included.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime
    let times = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok());
    Some(Stat { parent: fields.get(1)?.parse().ok()?, ticks: times.sum::<Option<u64>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let text = "12 (a) b (c) S 7 12 12 0 -1 4194304 100 200 0 0 10 20 3 4 20 0 1 0 5 6 7";
        assert_eq!(parse(text), Some(Stat { parent: 7, ticks: 37 }));
        assert_eq!(parse("12 (x) S 7"), None);
    }

    #[test]
    fn child_processes_count_and_other_processes_do_not() {
        let process = |parent, ticks| Stat { parent, ticks };
        let all = [
            (1, process(0, 1000)),
            (10, process(1, 1)),
            (11, process(10, 2)),
            (12, process(11, 4)),
            (20, process(1, 8)),
        ];
        assert_eq!(ticks_of_trees(&[10], &all.into()), 7);
        assert_eq!(ticks_of_trees(&[11, 20], &all.into()), 14);
        assert_eq!(ticks_of_trees(&[10, 11], &all.into()), 7, "nothing is counted twice");
    }

    #[test]
    fn a_missing_process_is_an_error() {
        let error = of_trees(&[u32::MAX]).unwrap_err();
        assert!(error.to_string().contains("4294967295"));
        assert!(of_trees(&[std::process::id()]).is_ok());
    }
}
