//! What more processors give: the same requests to a server on one processor and to one on all of them.
//!
//! The load generator shares the processors, so what counts is the processor time of a request: if it stays the same, twice as
//! many processors answer twice as many requests.

use anyhow::Result;

use super::results;
use super::row::{BenchProtocol, BenchRow};
use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{ComparisonTable, ResultTable};
use super::turns::measure_in_turns;
use crate::console::heading;

/// Measures, prints and writes the tables. Returns true if every request was answered.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let options = &setup.options;
    let contenders =
        [ServerContender::ours(setup, "all", &[])?, ServerContender::ours_on_one_processor(setup, "one")?];
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
    let mut table = ResultTable::new();
    let mut comparison = ComparisonTable::new("all processors : one");
    for row in rows().into_iter().filter(|row| options.wants(&row.name)) {
        heading(&row.name);
        let rounds = measure_in_turns(options.rounds, &names, |index| {
            contenders[index].measure(&row, options.seconds)
        })?;
        comparison.extend(&row.name, &rounds[0], &rounds[1]);
        table.extend(&row.name, &names, &rounds);
    }
    results::show("processors.md", &format!("{}\n{}", table.markdown(), comparison.markdown()))?;
    Ok(table.errors() == 0.0)
}

fn rows() -> Vec<BenchRow> {
    let protocols = [BenchProtocol::HttpJson, BenchProtocol::Grpc];
    let row = |protocol: BenchProtocol| {
        BenchRow::closed_loop(format!("plugin {} x64", protocol.name()), "plugin", protocol, 64)
    };
    protocols.map(row).into()
}
