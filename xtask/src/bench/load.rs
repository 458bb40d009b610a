//! The load that servers sustain: Nereid, an earlier build of it, Triton, and a bare loop over ONNX Runtime.

use anyhow::{Context, Result};

use super::bare_loop::BareLoopProgram;
use super::row::{BenchProtocol, BenchRow};
use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{ComparisonTable, Figures, ResultTable};
use super::turns::measure_in_turns;
use super::{bare_loop, generation, results};
use crate::console::heading;

/// The model that computes. A bare loop over it is a contender.
const COMPUTING: &str = "conv";

/// The bare loop at a batch size.
struct BareContender {
    name: String,
    program: BareLoopProgram,
    batch: u32,
}

/// Measures, prints and writes the tables. Returns true if every request was answered.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let options = &setup.options;
    let rows: Vec<BenchRow> = rows().into_iter().filter(|row| options.wants(&row.name)).collect();
    let bare = match rows.iter().any(|row| row.model == COMPUTING) {
        true => Some(BareContender::fastest(setup)?),
        false => None,
    };
    let mut servers = vec![ServerContender::ours(setup, "ours", &[])?];
    servers.extend(ServerContender::before(setup)?);
    servers.extend(ServerContender::limit(setup, &servers[0])?);
    servers.extend(ServerContender::reference(setup, "reference", &[])?);
    if options.reference.is_none() {
        println!("without the reference server: name its site-packages folder with --reference");
    }

    let is_compared = options.before.is_some();
    let mut table = ResultTable::new();
    let mut comparison = ComparisonTable::new("this build : the earlier one");
    for row in &rows {
        heading(&row.name);
        let mut names: Vec<&str> = servers.iter().map(|server| server.name).collect();
        let bare = bare.as_ref().filter(|_| row.model == COMPUTING);
        names.extend(bare.map(|bare| bare.name.as_str()));
        let rounds = measure_in_turns(options.rounds, &names, |index| match (servers.get(index), bare) {
            (None, Some(bare)) => bare.measure(options.seconds),
            (server, _) => server.context("each name has a contender")?.measure(row, options.seconds),
        })?;
        if is_compared {
            comparison.extend(&row.name, &rounds[0], &rounds[1]);
        }
        table.extend(&row.name, &names, &rounds);
    }
    let mut good = true;
    if options.wants(generation::NAME) {
        good = generation::run(setup, &servers[0])?;
    }
    if rows.is_empty() {
        return Ok(good);
    }
    results::show("results.md", &table.markdown())?;
    results::write("results.csv", &table.csv())?;
    if is_compared {
        print!("\n{}", comparison.markdown());
        results::write("comparison.md", &comparison.markdown())?;
    }
    Ok(good && table.errors() == 0.0)
}

impl BareContender {
    /// The bare loop at the batch size where it is fastest.
    fn fastest(setup: &BenchSetup) -> Result<BareContender> {
        let program = BareLoopProgram::build(setup)?;
        let rates = [1, 2, 4, 8].map(|batch| {
            let rate = program.inferences_per_second(batch, setup.options.seconds)?;
            println!("bare loop, batch {batch}: {rate:.0} inferences/s");
            anyhow::Ok((batch, rate))
        });
        let (batch, _) = bare_loop::fastest(rates.into_iter().collect::<Result<_>>()?)?;
        Ok(BareContender { name: format!("bare b{batch}"), program, batch })
    }

    fn measure(&self, seconds: u32) -> Result<Figures> {
        Ok(Figures::of_bare_loop(self.program.inferences_per_second(self.batch, seconds)?))
    }
}

/// Tiny requests, for the cost of the server; a model that computes, for the cost of batching; and large tensors, for
/// the cost of copies.
fn rows() -> Vec<BenchRow> {
    use BenchProtocol::{Grpc, HttpBinary, HttpJson};
    let of = |model: &'static str, protocols: &[BenchProtocol], counts: &[u32]| {
        let mut rows = Vec::new();
        for &protocol in protocols {
            for &callers in counts {
                let name = format!("{model} {} x{callers}", protocol.name());
                rows.push(BenchRow::closed_loop(name, model, protocol, callers));
            }
        }
        rows
    };
    let mut rows = of("tiny", &[HttpJson, Grpc], &[1, 16, 64]);
    rows.extend(of("plugin", &[HttpJson, Grpc], &[1, 16, 64]));
    rows.extend(of("tiny_sequence", &[HttpJson, Grpc], &[16, 64]));
    rows.extend(of("conv", &[HttpBinary, Grpc], &[16, 32]));
    rows.extend(of("large4", &[HttpBinary, Grpc], &[1, 4]));
    rows.extend(of("large16", &[HttpBinary, Grpc], &[1, 4]));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let rows = rows();
        let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), rows.len());
        assert!(names.contains(&"tiny http-json x16"));
    }
}
