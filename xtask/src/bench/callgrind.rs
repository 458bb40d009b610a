//! Runs a server under callgrind, and reads what callgrind has counted: instructions and calls of the allocator.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::loopback;
use crate::process::ServerProcess;
use crate::tools::debian_program::VALGRIND;

/// What a server has done from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ServerCounts {
    pub(super) instructions: u64,
    /// Calls that allocate or move memory, of the server's allocator and of C's.
    pub(super) allocations: u64,
}

/// A server that is counted until it ends.
pub(super) struct CountedServer {
    process: ServerProcess,
    profile: PathBuf,
}

impl CountedServer {
    /// Starts `server` with these arguments and waits until it is ready. Its log and its counts go to `folder`.
    ///
    /// # Errors
    /// Valgrind cannot be had, or the server does not start.
    pub(super) fn start(server: &Path, arguments: &[String], folder: &Path) -> Result<Self> {
        let profile = folder.join("callgrind.out");
        let mut command = Command::new(VALGRIND.fetch()?);
        // Threads take turns in order, so that they meet nearly alike in each run.
        command.args(["--tool=callgrind", "--fair-sched=yes"]);
        command.arg(format!("--callgrind-out-file={}", profile.display()));
        command.arg(server).args(arguments);
        // Nobody listens there: questions to the server would count. Its log says when it is ready.
        let [no_port] = loopback::free_ports()?;
        let process = ServerProcess::start(&mut command, folder.join("callgrind.log"), no_port)?;
        Ok(Self { process, profile })
    }

    /// Ends the server.
    ///
    /// # Errors
    /// Callgrind has written no counts.
    pub(super) fn finish(self) -> Result<ServerCounts> {
        drop(self.process);
        let text = fs::read_to_string(&self.profile)
            .with_context(|| format!("callgrind wrote no {}", self.profile.display()))?;
        read(&text).with_context(|| format!("in {}", self.profile.display()))
    }
}

/// Reads a profile. A function has a number and a name where it first occurs, and then only its number.
fn read(profile: &str) -> Result<ServerCounts> {
    let mut roles: HashMap<&str, MemoryRole> = HashMap::new();
    let (mut caller, mut callee) = (MemoryRole::Other, MemoryRole::Other);
    let (mut instructions, mut allocations) = (None, 0);
    for line in profile.lines() {
        let Some((key, value)) = line.split_once(['=', ':']) else { continue };
        match key {
            "fn" => caller = role_in(&mut roles, value),
            "cfn" => callee = role_in(&mut roles, value),
            // What the allocator calls of itself is a part of one call.
            "calls" if callee == MemoryRole::Allocates && caller == MemoryRole::Other => {
                let count = value.split(' ').next().unwrap_or_default();
                allocations += count.parse::<u64>().with_context(|| format!("not a count: {line}"))?;
            }
            "totals" => instructions = value.trim().parse().ok(),
            _ => {}
        }
    }
    Ok(ServerCounts { instructions: instructions.context("no totals")?, allocations })
}

/// The role of a function, which is remembered by its number.
fn role_in<'p>(roles: &mut HashMap<&'p str, MemoryRole>, function: &'p str) -> MemoryRole {
    match function.split_once(' ') {
        Some((number, name)) => *roles.entry(number).or_insert_with(|| MemoryRole::of(name)),
        None => roles.get(function).copied().unwrap_or(MemoryRole::Other),
    }
}

/// What a function has to do with memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MemoryRole {
    /// Programs call it to get memory.
    Allocates,
    /// It is another part of the allocator.
    ServesAllocator,
    Other,
}

impl MemoryRole {
    fn of(name: &str) -> Self {
        let common = name.strip_prefix("mi_").unwrap_or(name);
        let common = common.strip_suffix("_aligned").unwrap_or(common);
        match common {
            "malloc" | "zalloc" | "calloc" | "realloc" | "aligned_alloc" | "memalign" | "posix_memalign" => {
                Self::Allocates
            }
            _ if name.starts_with("mi_") || name.starts_with("_mi_") => Self::ServesAllocator,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "version: 1\nevents: Ir\n\nfl=(1) a.rs\nfn=(1) engine::f\n10 5\n\
                           cfn=(2) mi_malloc_aligned\ncalls=3 12\n10 90\ncfn=(3) engine::g\ncalls=7 1\n10 1\n\
                           fn=(2)\n1 4\ncfn=(4) mi_malloc\ncalls=3 1\n1 20\n\
                           fn=(3)\n1 1\ncfn=(5) malloc\ncalls=4 1\n1 9\ncfn=(2)\ncalls=2 1\n1 6\n\
                           totals: 12345\n";

    #[test]
    fn instructions_and_calls_of_the_allocator_are_counted() {
        assert_eq!(read(PROFILE).unwrap(), ServerCounts { instructions: 12345, allocations: 9 });
        assert!(read("events: Ir\n").is_err());
    }

    #[test]
    fn the_parts_of_the_allocator_are_no_callers() {
        for name in ["malloc", "mi_malloc", "mi_zalloc_aligned", "posix_memalign", "realloc"] {
            assert_eq!(MemoryRole::of(name), MemoryRole::Allocates, "{name}");
        }
        assert_eq!(MemoryRole::of("_mi_malloc_generic"), MemoryRole::ServesAllocator);
        assert_eq!(
            (MemoryRole::of("free"), MemoryRole::of("engine::malloc_trim")),
            (MemoryRole::Other, MemoryRole::Other)
        );
    }
}
