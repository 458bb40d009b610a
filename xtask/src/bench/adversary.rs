//! How much longer clients wait while another client takes more than its share: the 99th percentile with it, and without
//! it or beside a client that asks for as much and behaves.
//!
//! Both measurements take turns. The adversary rests between two rounds of what it does, so that the figure tells what the
//! others wait for, rather than how processors are shared.

use anyhow::Result;

use super::adversary_process::AdversaryProcess;
use super::options::BenchOptions;
use super::row::{BenchProtocol, BenchRow};
use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{cells, median, table_head};
use super::turns::turns;
use super::{generation, results};
use crate::console::heading;

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

/// The row of [`readers`] for `--filter`.
const READERS: &str = "63 readers beside one that has stopped";

/// Measures, prints and writes the tables. Returns true if every request of the others was answered.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let ours = ServerContender::ours(setup, "ours", &[])?;
    let others = others(setup, &ours)?;
    let readers = !setup.options.wants(READERS) || readers(setup, &ours)?;
    Ok(others && readers)
}

/// Clients of one model while a client of the same model has stopped to read, compared with one that reads.
fn readers(setup: &BenchSetup, ours: &ServerContender) -> Result<bool> {
    heading(READERS);
    let kinds = ["read", "unread"];
    let mut rates = [Vec::new(), Vec::new()];
    let mut errors = 0.0;
    for round in 0..setup.options.rounds {
        for turn in turns(round, kinds.len()) {
            let other = AdversaryProcess::of_kind(kinds[turn], ours)?;
            let (figures, failed) = generation::in_flight(setup, ours, 63)?;
            drop(other);
            println!("{:<12} {}", kinds[turn], figures.line());
            rates[turn].push(figures.tokens_per_second);
            errors += failed;
        }
    }
    let ratio = median(rates[1].iter().zip(&rates[0]).map(|(unread, read)| unread / read));
    let [read, unread] = rates.map(median);
    let numbers = ["tokens/s beside one more that reads", "tokens/s beside one that has stopped", "ratio"];
    let table = table_head(&["63 readers"], &numbers)
        + &format!("| generation |{}", cells(&[(read, 0), (unread, 0), (ratio, 2)]));
    results::show("readers.md", &table)?;
    Ok(errors == 0.0)
}

fn others(setup: &BenchSetup, ours: &ServerContender) -> Result<bool> {
    let mut rows = Vec::new();
    let mut errors = 0.0;
    for (kind, compared) in KINDS {
        for protocol in [BenchProtocol::HttpJson, BenchProtocol::Grpc] {
            let name = format!("{kind} beside tiny {} x{CALLERS}", protocol.name());
            if setup.options.wants(&name) {
                heading(&name);
                let row = BenchRow::closed_loop(name, "tiny", protocol, CALLERS);
                let (figures, failed) = measure([compared, Some(kind)], row, ours, &setup.options)?;
                rows.push(figures);
                errors += failed;
            }
        }
    }
    if !rows.is_empty() {
        results::show("adversary.md", &table(&rows))?;
    }
    Ok(errors == 0.0)
}

/// The medians of the rounds, and how many requests failed.
fn measure(
    beside: [Option<&'static str>; 2],
    row: BenchRow,
    ours: &ServerContender,
    options: &BenchOptions,
) -> Result<(AdversaryFigures, f64)> {
    let (mut p99_us, mut errors) = ([Vec::new(), Vec::new()], 0.0);
    for round in 0..options.rounds {
        for turn in turns(round, beside.len()) {
            let other = beside[turn].map(|kind| AdversaryProcess::of_kind(kind, ours)).transpose()?;
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

fn table(rows: &[AdversaryFigures]) -> String {
    let numbers = ["p99 us beside that", "p99 us beside it", "times as long"];
    let mut text = table_head(&["adversary", "compared with"], &numbers);
    for AdversaryFigures { name, compared, compared_us, beside_us } in rows {
        let numbers = [(*compared_us, 0), (*beside_us, 0), (beside_us / compared_us, 2)];
        text.push_str(&format!("| {name} | {compared} |{}", cells(&numbers)));
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
    }
}
