//! What the inputs that cost a server most do to its memory and to other clients, over HTTP and gRPC.
//!
//! The others send 1,000 requests a second. Their 99th percentile alone and beside the adversary, in turns, and the memory
//! of the server at its most, compared with that of an idle server and with `--max-inflight-bytes`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::adversary_process::AdversaryProcess;
use super::options::BenchOptions;
use super::results;
use super::row::{BenchProtocol, BenchRow};
use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{cells, median, table_head};
use super::turns::turns;
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

/// The same, over HTTP only: the flow control of gRPC ends an upload that nobody reads.
const UPLOADS: [&str; 2] = ["refused", "endless"];

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
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let limit = format!("--max-inflight-bytes={}", (INFLIGHT_MIB as u64) << 20);
    let more = [limit, "--allow-client-shm=true".to_owned()];
    let (mut rows, mut errors) = (Vec::new(), 0.0);
    let both = [BenchProtocol::HttpJson, BenchProtocol::Grpc];
    let inputs = KINDS.iter().flat_map(|kind| both.map(|protocol| (*kind, protocol)));
    for (kind, protocol) in inputs.chain(UPLOADS.map(|kind| (kind, BenchProtocol::HttpJson))) {
        let name = format!("{kind} over {}", protocol.name());
        if !setup.options.wants(&name) {
            continue;
        }
        heading(&name);
        // Memory that an earlier adversary has left would count for a later one.
        let start = || ServerContender::ours(setup, "ours", &more);
        // A connection of the earlier adversary may still have a port that was free.
        let ours = start().or_else(|_| start())?;
        let (figures, failed) = measure(kind, protocol, &ours, &setup.options)?;
        rows.push(figures);
        errors += failed;
    }
    if !rows.is_empty() {
        results::show("worst-inputs.md", &table(&rows))?;
    }
    Ok(errors == 0.0)
}

fn measure(
    kind: &'static str,
    protocol: BenchProtocol,
    ours: &ServerContender,
    options: &BenchOptions,
) -> Result<(WorstFigures, f64)> {
    let server = ours.server.pid();
    let ports = [ours.http_port, ours.grpc_port].map(|port| port.to_string());
    let word = if protocol == BenchProtocol::Grpc { "grpc" } else { "http" };
    let arguments = [kind, word, &ports[0], &ports[1]];
    let row = BenchRow::closed_loop(kind.to_owned(), "tiny", protocol, 16);
    let row = BenchRow { rate: Some(RATE), ..row };
    let mut p99_us = [Vec::new(), Vec::new()];
    let (mut errors, mut most_mib) = (0.0, 0.0_f64);
    // The first requests need memory that is kept.
    ours.measure(&row, 1)?;
    let idle_mib = TreeMemory::of(server)?.proportional_mib;
    for round in 0..options.rounds {
        for turn in turns(round, 2) {
            let beside = turn == 1;
            let (figures, mib) = with_memory(server, || {
                let other = beside
                    .then(|| AdversaryProcess::start("bench/worst_inputs.py", &arguments))
                    .transpose()?;
                let figures = ours.measure(&row, options.seconds)?;
                drop(other);
                Ok(figures)
            })?;
            println!("{:<8} {} {mib:.0} MiB", if beside { "beside" } else { "alone" }, figures.line());
            errors += figures.errors();
            p99_us[turn].push(figures.p99_us()?);
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
    let numbers = ["p99 us of others alone", "beside it", "times as long", "MiB above idle", "of the budget"];
    let mut text = table_head(&["input", "over"], &numbers);
    for WorstFigures { kind, protocol, alone_us, beside_us, above_idle_mib } in rows {
        let numbers = [
            (*alone_us, 0),
            (*beside_us, 0),
            (beside_us / alone_us, 2),
            (*above_idle_mib, 0),
            (above_idle_mib / INFLIGHT_MIB, 2),
        ];
        text.push_str(&format!("| {kind} | {} |{}", protocol.name(), cells(&numbers)));
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
