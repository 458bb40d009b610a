//! How much memory an ensemble takes whose first step is much faster than its second one, and whether the second one always
//! has something to do.
//!
//! Without a bound, all open requests would have their tensor between the steps at the same time.

use std::fs;

use anyhow::{Context, Result};

use super::executed_time::ExecutedTime;
use super::part_result::PartResult;
use crate::bench::row::BenchProtocol;
use crate::bench::server_contender::{ServerContender, explicit};
use crate::bench::setup::BenchSetup;
use crate::bench::table::{cells, median, table_head};
use crate::console::heading;
use crate::process::tree::kib_of;

/// Bounds of the tensors between the steps.
const BOUNDS_MIB: [u32; 2] = [256, 64];
/// The ensemble and its members. A request has a tensor of 1 MiB between them.
const ENSEMBLE: &str = "flood";
const CONSUMER: &str = "consumer";
const MEMBERS: [&str; 2] = ["producer", CONSUMER];
/// More than there are tensors within any of the bounds.
const CALLERS: u32 = 512;
const REQUESTS: u32 = 10_000;
/// What the server may take beside the bound.
const ALLOWANCE_MIB: f64 = 64.0;
/// The least share of the time in which the second step is executed.
const BUSY_GOAL: f64 = 0.95;

/// One run of a server.
#[derive(Clone, Copy)]
struct MemoryRound {
    /// Resident memory after the members have been used alone.
    before_mib: f64,
    /// The most resident memory of the whole run.
    peak_mib: f64,
    requests_per_second: f64,
    /// The time of an execution of the second step.
    execution_us: f64,
    failed: f64,
}

impl MemoryRound {
    fn growth_mib(&self) -> f64 {
        self.peak_mib - self.before_mib
    }

    /// The share of the time in which the only instance of the second step executes.
    fn busy(&self) -> f64 {
        self.requests_per_second * self.execution_us / 1e6
    }
}

pub(super) fn run(setup: &BenchSetup) -> Result<Option<PartResult>> {
    let name = |bound: u32| format!("ensemble memory {bound} MiB");
    let bounds: Vec<u32> =
        BOUNDS_MIB.into_iter().filter(|&bound| setup.options.wants(&name(bound))).collect();
    if bounds.is_empty() {
        return Ok(None);
    }
    let (mut table, mut failed) = (head(), 0.0);
    for bound in bounds {
        heading(&name(bound));
        let mut rounds = Vec::new();
        for _ in 0..setup.options.rounds {
            rounds.push(measure(setup, bound)?);
        }
        failed += rounds.iter().map(|round| round.failed).sum::<f64>();
        table.push_str(&line(&name(bound), bound, &rounds));
    }
    Ok(Some(PartResult { table, failed }))
}

/// Starts a server, uses both members alone, then the ensemble.
fn measure(setup: &BenchSetup, bound_mib: u32) -> Result<MemoryRound> {
    let bytes = u64::from(bound_mib) << 20;
    let mut more = explicit(&[MEMBERS[0], MEMBERS[1], ENSEMBLE]);
    more.push(format!("--max-intermediate-bytes={bytes}"));
    let ours = ServerContender::ours(setup, "ours", &more)?;
    let server = ours.server.pid();
    let protocol = BenchProtocol::HttpBinary;

    // One caller waits while the other one is served, so that the only instance is never idle.
    let warm_up = ["--warm-up=0", "--duration=1", "--concurrency=2"].map(str::to_owned);
    let mut failed = 0.0;
    for member in MEMBERS {
        failed += ours.generate_load(member, protocol, &warm_up)?.errors();
    }
    let before_mib = memory_mib(server, "VmRSS")?;
    let executed = ExecutedTime::of(&ours, CONSUMER)?;

    let options =
        [format!("--concurrency={CALLERS}"), format!("--request-count={REQUESTS}"), "--warm-up=0".into()];
    let figures = ours.generate_load(ENSEMBLE, protocol, &options)?;
    let execution_us = ExecutedTime::of(&ours, CONSUMER)?.each_since(executed)?;
    let round = MemoryRound {
        before_mib,
        peak_mib: memory_mib(server, "VmHWM")?,
        requests_per_second: figures.requests_per_second()?,
        execution_us,
        failed: failed + figures.errors(),
    };
    println!("{before_mib:.0} MiB before, {:.0} MiB at most, {}", round.peak_mib, figures.line());
    Ok(round)
}

/// A line of the process's status, in MiB.
fn memory_mib(pid: u32, name: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    kib_of(&status, name).map(|kib| kib / 1024.0).with_context(|| format!("{path} has no {name}"))
}

fn head() -> String {
    let numbers = [
        "MiB before",
        "MiB at most",
        "growth MiB",
        "allowed MiB",
        "req/s",
        "second step alone req/s",
        "busy",
        "goal",
        "failed",
    ];
    table_head(&["row"], &numbers)
}

/// The round that took the most memory, and the medians of the rates.
fn line(row: &str, bound_mib: u32, rounds: &[MemoryRound]) -> String {
    let largest = rounds.iter().max_by(|one, other| one.growth_mib().total_cmp(&other.growth_mib()));
    let [before, peak, growth] =
        largest.map_or([f64::NAN; 3], |round| [round.before_mib, round.peak_mib, round.growth_mib()]);
    let of = |value: fn(&MemoryRound) -> f64| median(rounds.iter().map(value));
    let numbers = [
        (before, 0),
        (peak, 0),
        (growth, 0),
        (f64::from(bound_mib) + ALLOWANCE_MIB, 0),
        (of(|round| round.requests_per_second), 0),
        (of(|round| 1e6 / round.execution_us), 0),
        (of(MemoryRound::busy), 2),
        (BUSY_GOAL, 2),
        (rounds.iter().map(|round| round.failed).sum(), 0),
    ];
    format!("| {row} |{}", cells(&numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_growth_counts_and_the_medians_of_rates() {
        let round = |peak_mib, requests_per_second| MemoryRound {
            before_mib: 50.0,
            peak_mib,
            requests_per_second,
            execution_us: 1000.0,
            failed: 1.0,
        };
        let rounds = [round(100.0, 900.0), round(300.0, 970.0), round(200.0, 980.0)];
        assert_eq!(line("x", 256, &rounds), "| x | 50 | 300 | 250 | 320 | 970 | 1000 | 0.97 | 0.95 | 3 |\n");
        let columns = |text: &str| text.lines().map(|line| line.matches('|').count()).collect::<Vec<_>>();
        assert_eq!(columns(&head()), [columns(&line("x", 256, &rounds))[0]; 2]);
    }

    #[test]
    fn the_memory_of_this_process_is_read() {
        assert!(memory_mib(std::process::id(), "VmRSS").unwrap() > 1.0);
    }
}
