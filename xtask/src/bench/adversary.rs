//! How much longer clients wait while another client takes more than its share: the 99th percentile with it, and without
//! it or beside a client that asks for as much and behaves.
//!
//! Both measurements take turns. The adversary rests between two rounds of what it does, so that the figure tells what the
//! others wait for, rather than how processors are shared.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::contenders::Contender;
use super::plan::{BenchProtocol, BenchRow};
use super::{BenchOptions, generation, write};
use crate::console::heading;
use crate::python;

/// Adversaries, and the clients that each is compared with, as `bench/adversary.py` names them. Responses are computed
/// whether anybody reads them or not, so a reader that stops is compared with one that reads.
const KINDS: [(&str, Option<&str>); 8] = [
    ("cancelled", None),
    ("stopped", Some("drained")),
    ("repeated", None),
    ("bombs", None),
    ("idle", None),
    ("headers", None),
    ("resets", None),
    ("scrapes", None),
];

/// Callers of the others.
const CALLERS: u32 = 4;

/// What a row of the table shows.
struct AdversaryFigures {
    name: String,
    /// What the others run beside otherwise.
    compared: &'static str,
    compared_us: f64,
    beside_us: f64,
}

/// A client that takes more than its share, ended when dropped.
pub(super) struct Adversary {
    child: Child,
}

impl Adversary {
    /// Starts a program in Python and waits until it has taken its share once.
    pub(super) fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = python::command();
        command.arg(program).args(arguments);
        let child = command.stdout(Stdio::piped()).spawn().context("cannot start Python")?;
        let mut adversary = Self { child };
        let output = adversary.child.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.trim() == "begun", "the adversary {arguments:?} has ended early");
        Ok(adversary)
    }

    /// Starts one of the kinds that `bench/adversary.py` names.
    fn of_kind(kind: &str, against: &Contender) -> Result<Self> {
        let &Contender::Server { http_port, grpc_port, metrics_port, .. } = against else {
            bail!("no server to measure")
        };
        let ports = [http_port, grpc_port, metrics_port].map(|port| port.to_string());
        Self::start("bench/adversary.py", &[kind, &ports[0], &ports[1], &ports[2]])
    }
}

impl Drop for Adversary {
    fn drop(&mut self) {
        // Errors mean that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The row of [`readers`] for `--filter`.
const READERS: &str = "63 readers beside one that has stopped";

/// Measures, prints and writes the tables. Returns true if every request of the others was answered.
pub(super) fn run(options: &BenchOptions, ours: &Contender, folder: &Path) -> Result<bool> {
    let others = others(options, ours, folder)?;
    let readers = !READERS.contains(&options.filter) || readers(options, ours, folder)?;
    Ok(others && readers)
}

/// Clients of one model while a client of the same model has stopped to read, compared with one that reads.
fn readers(options: &BenchOptions, ours: &Contender, folder: &Path) -> Result<bool> {
    heading(READERS);
    let kinds = ["read", "unread"];
    let mut rates = [Vec::new(), Vec::new()];
    let mut errors = 0.0;
    for round in 0..options.rounds {
        for turn in 0..kinds.len() {
            let turn = (round + turn) % kinds.len();
            let other = Adversary::of_kind(kinds[turn], ours)?;
            let (figures, failed) = generation::in_flight(ours, folder, 63, options.seconds)?;
            drop(other);
            println!("{:<12} {}", kinds[turn], figures.line());
            rates[turn].push(figures.tokens_per_second);
            errors += failed;
        }
    }
    let ratios = rates[1].iter().zip(&rates[0]).map(|(unread, read)| unread / read).collect();
    let [read, unread] = rates.map(median);
    let table = format!(
        "| 63 readers | tokens/s beside one more that reads | tokens/s beside one that has stopped | ratio |\n\
         |---|---:|---:|---:|\n| generation | {read:.0} | {unread:.0} | {:.2} |\n",
        median(ratios)
    );
    heading("results");
    print!("{table}");
    write(folder, "readers.md", &table)?;
    Ok(errors == 0.0)
}

fn others(options: &BenchOptions, ours: &Contender, folder: &Path) -> Result<bool> {
    let mut rows = Vec::new();
    let mut errors = 0.0;
    for (kind, compared) in KINDS {
        for protocol in [BenchProtocol::HttpJson, BenchProtocol::Grpc] {
            let name = format!("{kind} beside tiny {} x{CALLERS}", protocol.name());
            if !name.contains(&options.filter) {
                continue;
            }
            heading(&name);
            let row = BenchRow { name, model: "tiny", protocol, callers: CALLERS, rate: None, bare: false };
            let (figures, failed) = measure([compared, Some(kind)], row, ours, options)?;
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
    write(folder, "adversary.md", &table)?;
    Ok(errors == 0.0)
}

/// The medians of the rounds, and how many requests failed.
fn measure(
    beside: [Option<&'static str>; 2],
    row: BenchRow,
    ours: &Contender,
    options: &BenchOptions,
) -> Result<(AdversaryFigures, f64)> {
    let (mut p99_us, mut errors) = ([Vec::new(), Vec::new()], 0.0);
    for round in 0..options.rounds {
        for turn in 0..2 {
            // As for the other rows: each round begins with another one.
            let turn = (round + turn) % 2;
            let other = beside[turn].map(|kind| Adversary::of_kind(kind, ours)).transpose()?;
            let figures = ours.measure(&row, options.seconds)?;
            drop(other);
            println!("{:<12} {}", beside[turn].unwrap_or("alone"), figures.line());
            errors += figures.errors();
            p99_us[turn].push(figures.p99_us()?);
        }
    }
    let [compared_us, beside_us] = p99_us.map(median);
    let compared = beside[0].unwrap_or("alone");
    Ok((AdversaryFigures { name: row.name, compared, compared_us, beside_us }, errors))
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn table(rows: &[AdversaryFigures]) -> String {
    let mut text = String::from(
        "| adversary | compared with | p99 us beside that | p99 us beside it | times as long |\n\
         |---|---|---:|---:|---:|\n",
    );
    for AdversaryFigures { name, compared, compared_us, beside_us } in rows {
        let times = beside_us / compared_us;
        writeln!(text, "| {name} | {compared} | {compared_us:.0} | {beside_us:.0} | {times:.2} |")
            .expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_how_many_times_longer_other_clients_wait() {
        let rows =
            [AdversaryFigures { name: "x".into(), compared: "alone", compared_us: 200.0, beside_us: 300.0 }];
        assert!(table(&rows).ends_with("\n| x | alone | 200 | 300 | 1.50 |\n"));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
