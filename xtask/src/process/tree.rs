//! A process and all processes that it has started, from `/proc`: which run, and what memory they hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A process that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunningProcess {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// The words of its command line.
    pub(crate) line: String,
}

impl std::fmt::Display for RunningProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {}: {}", self.pid, self.line)
    }
}

/// The descendants of a process that run.
///
/// # Errors
/// The system has no `/proc`.
pub(crate) fn running_below(root: u32) -> Result<Vec<RunningProcess>> {
    let parents = parents()?;
    let descendants = members(root, &parents).into_iter().skip(1).filter(|pid| is_running(*pid));
    Ok(descendants
        .map(|pid| RunningProcess { pid, parent: parents[&pid], line: command_line(pid) })
        .collect())
}

/// Whether the process exists. A process that has ended and was not waited for does not run.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

/// Whether a process has opened or mapped a file.
pub(crate) fn is_used(file: &Path) -> bool {
    let mut processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let end = format!(" {}", file.display());
    processes.any(|process| {
        let opened = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut opened = opened.map(|descriptor| fs::read_link(descriptor.path()));
        let mapped = fs::read_to_string(process.join("maps")).unwrap_or_default();
        opened.any(|target| target.is_ok_and(|target| target == file))
            || mapped.lines().any(|line| line.ends_with(&end))
    })
}

fn command_line(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect::<Vec<_>>();
    words.join(" ").trim_end().to_owned()
}

/// What the processes of a tree hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TreeMemory {
    pub(crate) processes: usize,
    /// The proportional set size: memory that several processes map counts once in their sum.
    pub(crate) proportional_mib: f64,
}

impl TreeMemory {
    /// The memory of a process and its descendants now.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn of(root: u32) -> Result<TreeMemory> {
        let members = members(root, &parents()?);
        let mut proportional_mib = 0.0;
        let mut processes = 0;
        for pid in members {
            match pss_mib(pid) {
                Ok(mib) => {
                    proportional_mib += mib;
                    processes += 1;
                }
                Err(error) if pid == root => return Err(error),
                // It has ended since then.
                Err(_) => {}
            }
        }
        Ok(TreeMemory { processes, proportional_mib })
    }
}

fn pss_mib(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    kib_of(&text, "Pss").map(|kib| kib / 1024.0).with_context(|| format!("{path} has no Pss"))
}

/// The value in KiB of a line of a process's status, or of the summary of its mappings.
pub(crate) fn kib_of(status: &str, name: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The parent of each process.
fn parents() -> Result<BTreeMap<u32, u32>> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // The process may end between the listing and this read.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses may have any character. The state and the parent follow it.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, fields)| fields.split_whitespace().nth(1)?.parse::<u32>().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    Ok(parents)
}

/// The root and its descendants.
fn members(root: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut members = vec![root];
    let mut next = 0;
    while let Some(&parent) = members.get(next) {
        let children =
            parents.iter().filter(|(pid, of)| **of == parent && **pid != parent).map(|(pid, _)| *pid);
        let new: Vec<u32> = children.filter(|child| !members.contains(child)).collect();
        members.extend(new);
        next += 1;
    }
    members
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_belong_to_a_tree_and_others_do_not() {
        let parents = [(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)].into();
        assert_eq!(members(10, &parents), [10, 11, 12]);
        assert_eq!(members(20, &parents), [20]);
    }

    #[test]
    fn memory_is_read_by_its_whole_name() {
        let status = "Name:\tnereid\nVmHWMark:\t1 kB\nVmHWM:\t   2048 kB\nPss_Dirty: 1 kB\nPss:    1024 kB\n";
        assert_eq!((kib_of(status, "VmHWM"), kib_of(status, "Pss")), (Some(2048.0), Some(1024.0)));
        assert_eq!(kib_of(status, "VmSwap"), None);
    }

    #[test]
    fn a_file_is_used_while_a_process_maps_it_or_has_opened_it() {
        assert!(is_used(&std::env::current_exe().unwrap()), "it is mapped");
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        assert!(is_used(&path));
        let _removed = file.into_temp_path();
        assert!(!is_used(&path));
    }

    #[test]
    fn a_child_counts() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let alone = TreeMemory::of(child.id()).unwrap();
        let both = TreeMemory::of(std::process::id()).unwrap();
        assert!(alone.processes == 1 && both.processes >= 2, "{alone:?} {both:?}");
        assert!(both.proportional_mib > alone.proportional_mib);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
