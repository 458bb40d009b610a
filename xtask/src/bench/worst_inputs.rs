//! What the inputs that cost a server most do to its memory and to other clients, over HTTP and gRPC.
//!
//! The others send 1,000 requests a second. Their 99th percentile alone and beside the adversary, in turns, and the memory
//! of the server at its most, compared with that of an idle server and with `--max-inflight-bytes`.

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::adversary::{Adversary, median};
use super::contenders::Contender;
use super::plan::{BenchProtocol, BenchRow};
use super::{BenchOptions, write};
use crate::console::heading;
use crate::process::tree::TreeMemory;

/// What the server may hold of requests and of responses that are being sent, in MiB.
const INFLIGHT_MIB: f64 = 256.0;

/// The kinds that `bench/worst_inputs.py` names.
const KINDS: [&str; 12] = [
    "unknown",
    "numbers",
    "shapes",
    "ids",
    "tiny_inputs",
    "resting",
    "schemas",
    "settings",
    "names",
    "heads",
    "answers",
    "ranked",
];

/// The requests of the others, in each second.
const RATE: u32 = 1000;

/// How often the memory is looked at.
const SAMPLE: Duration = Duration::from_millis(20);

/// A row of the table.
struct WorstFigures {
    kind: &'static str,
    protocol: BenchProtocol,
    alone_us: f64,
    beside_us: f64,
    /// The most memory beside the adversary, without that of the idle server.
    above_idle_mib: f64,
}

/// Measures, prints and writes the table. Returns true if every request of the others was answered.
pub(super) fn run(options: &BenchOptions, server: &Path, folder: &Path, library: &Path) -> Result<bool> {
    let limit = format!("--max-inflight-bytes={}", (INFLIGHT_MIB as u64) << 20);
    let more = [limit, "--allow-client-shm=true".to_owned()];
    let (mut rows, mut errors) = (Vec::new(), 0.0);
    for kind in KINDS {
        for protocol in [BenchProtocol::HttpJson, BenchProtocol::Grpc] {
            let name = format!("{kind} over {}", protocol.name());
            if !name.contains(&options.filter) {
                continue;
            }
            heading(&name);
            // Memory that an earlier adversary has left would count for a later one.
            let start = || Contender::ours_with("ours", server, folder, library, &more);
            // A connection of the earlier adversary may still have a port that was free.
            let ours = start().or_else(|_| start())?;
            let (figures, failed) = measure(kind, protocol, &ours, options)?;
            rows.push(figures);
            errors += failed;
        }
    }
    if rows.is_empty() {
        return Ok(true);
    }
    heading("results");
    let table = table(&rows);
    print!("{table}");
    write(folder, "worst-inputs.md", &table)?;
    Ok(errors == 0.0)
}

fn measure(
    kind: &'static str,
    protocol: BenchProtocol,
    ours: &Contender,
    options: &BenchOptions,
) -> Result<(WorstFigures, f64)> {
    let &Contender::Server { ref server, http_port, grpc_port, .. } = ours else {
        bail!("no server to measure")
    };
    let ports = [http_port, grpc_port].map(|port| port.to_string());
    let word = if protocol == BenchProtocol::Grpc { "grpc" } else { "http" };
    let arguments = [kind, word, &ports[0], &ports[1]];
    let row = BenchRow {
        name: kind.to_owned(),
        model: "tiny",
        protocol,
        callers: 16,
        rate: Some(RATE),
        bare: false,
    };
    let mut p99_us = [Vec::new(), Vec::new()];
    let (mut errors, mut most_mib) = (0.0, 0.0_f64);
    // The first requests need memory that is kept.
    ours.measure(&row, 1)?;
    let idle_mib = TreeMemory::of(server.pid())?.proportional_mib;
    for round in 0..options.rounds {
        for turn in 0..2 {
            let beside = (round + turn) % 2 == 1;
            let (figures, mib) = with_memory(server.pid(), || {
                let other =
                    beside.then(|| Adversary::start("bench/worst_inputs.py", &arguments)).transpose()?;
                let figures = ours.measure(&row, options.seconds)?;
                drop(other);
                Ok(figures)
            })?;
            println!("{:<8} {} {mib:.0} MiB", if beside { "beside" } else { "alone" }, figures.line());
            errors += figures.errors();
            p99_us[usize::from(beside)].push(figures.p99_us()?);
            most_mib = most_mib.max(mib);
        }
    }
    let [alone_us, beside_us] = p99_us.map(median);
    Ok((WorstFigures { kind, protocol, alone_us, beside_us, above_idle_mib: most_mib - idle_mib }, errors))
}

/// The result of `work`, and the most memory of a process and its children meanwhile, in MiB.
fn with_memory<T>(process: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0.0_f64;
            while !over.load(Relaxed) {
                most = most.max(TreeMemory::of(process)?.proportional_mib);
                thread::sleep(SAMPLE);
            }
            anyhow::Ok(most)
        });
        let result = work();
        over.store(true, Relaxed);
        let most = sampler.join().ok().context("the sampler of the memory has panicked")??;
        Ok((result?, most.max(TreeMemory::of(process)?.proportional_mib)))
    })
}

fn table(rows: &[WorstFigures]) -> String {
    let mut text = String::from(
        "| input | over | p99 us of others alone | beside it | times as long | MiB above idle | of the budget |\n\
         |---|---|---:|---:|---:|---:|---:|\n",
    );
    for WorstFigures { kind, protocol, alone_us, beside_us, above_idle_mib } in rows {
        let (protocol, times) = (protocol.name(), beside_us / alone_us);
        let share = above_idle_mib / INFLIGHT_MIB;
        writeln!(
            text,
            "| {kind} | {protocol} | {alone_us:.0} | {beside_us:.0} | {times:.2} | {above_idle_mib:.0} | {share:.2} |"
        )
        .expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_how_much_longer_others_wait_and_the_share_of_the_budget() {
        let rows = [WorstFigures {
            kind: "numbers",
            protocol: BenchProtocol::Grpc,
            alone_us: 200.0,
            beside_us: 300.0,
            above_idle_mib: 64.0,
        }];
        assert!(table(&rows).ends_with("\n| numbers | grpc | 200 | 300 | 1.50 | 64 | 0.25 |\n"));
    }

    #[test]
    fn the_memory_of_work_is_seen() {
        let (taken, mib) =
            with_memory(std::process::id(), || Ok(std::hint::black_box(vec![1_u8; 64 << 20]))).unwrap();
        assert!(mib >= 64.0, "{mib} MiB with {} bytes", taken.len());
    }
}
