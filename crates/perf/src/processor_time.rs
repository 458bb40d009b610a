//! Processor time used by processes and everything they started, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// `/proc/PID/stat` counts in hundredths of a second on every architecture Linux shows to user programs.
const TICK: Duration = Duration::from_millis(10);

/// What one `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Clone, Copy)]
struct Stat {
    parent: u32,
    /// Own user and system time and that of children already waited for, in ticks.
    ticks: u64,
}

/// User and system time of the processes and their living and ended descendants, since each started.
///
/// # Errors
/// One of the processes does not exist.
pub(crate) fn of_trees(roots: &[u32]) -> Result<Duration> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end between the listing and here.
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

/// Time of this process alone.
pub(crate) fn of_self() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(usage).unwrap_or_default()
}

fn ticks_of_trees(roots: &[u32], all: &BTreeMap<u32, Stat>) -> u64 {
    let belongs = |mut pid: u32| {
        // As many steps as there are processes: a snapshot that is not of one moment might hold a circle.
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
    // The name of the program is in parentheses and may contain anything, parentheses too.
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
    fn descendants_count_and_strangers_do_not() {
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
