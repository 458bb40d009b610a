//! What models in Python cost: the same `model.py` on the built-in backend and on Triton with its Python backend. The
//! processor time and the memory are those of the server and of the processes that run the models.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::contenders::Contender;
use super::ensemble::{cells, median, table_head};
use super::plan::{BenchProtocol, BenchRow};
use super::table::{ComparisonTable, Figures, ResultTable};
use super::{BenchOptions, measure_with, write};
use crate::console::heading;
use crate::process::tree::TreeMemory;
use crate::{process, python};

/// The name of the part that starts four models, for `--filter`.
const START: &str = "four models";

/// What all parts need.
struct PythonBench<'a> {
    options: &'a BenchOptions,
    folder: PathBuf,
    server: &'a Path,
    library: &'a Path,
}

/// One start of a server with four models.
struct StartRound {
    ready_after: Duration,
    memory: TreeMemory,
}

/// Measures, prints and writes the tables. Returns true if every request to ours was answered.
pub(super) fn run(options: &BenchOptions, folder: &Path, server: &Path, library: &Path) -> Result<bool> {
    let bench = PythonBench { options, folder: folder.join("python"), server, library };
    fs::create_dir_all(&bench.folder).with_context(|| format!("cannot make {}", bench.folder.display()))?;
    process::run(python::command().arg("bench/python_models.py").arg(&bench.folder))?;
    let mut tables = Vec::new();
    let failed = bench.load(&mut tables)?;
    if START.contains(&options.filter) {
        tables.push(bench.starts()?);
    }
    heading("results");
    let text = tables.join("\n");
    print!("{text}");
    write(folder, "python.md", &text)?;
    Ok(failed == 0.0)
}

impl PythonBench<'_> {
    /// The servers with the models of this folder.
    fn contenders(&self, folder: &Path) -> Result<Vec<Contender>> {
        // All run the models with the same interpreter and the same NumPy.
        let interpreter = match &self.options.reference {
            Some(packages) => {
                let prefix =
                    packages.ancestors().nth(3).context("--reference: not a site-packages folder")?;
                prefix.join("bin/python3")
            }
            None => python::interpreter(),
        };
        let more = [
            "--backend-config=python,implementation=built-in".to_owned(),
            format!("--backend-config=python,python-executable={}", interpreter.display()),
        ];
        let mut contenders = vec![Contender::ours_with("ours", self.server, folder, self.library, &more)?];
        if let Some(before) = &self.options.before {
            contenders.push(Contender::ours_with("before", before, folder, self.library, &more)?);
        }
        if let Some(packages) = &self.options.reference {
            contenders.push(Contender::reference_with("reference", packages, self.server, folder, &[])?);
        }
        Ok(contenders)
    }

    /// Sends requests, and adds the tables. Returns how many requests to ours failed.
    fn load(&self, tables: &mut Vec<String>) -> Result<f64> {
        let rows: Vec<BenchRow> =
            rows().into_iter().filter(|row| row.name.contains(&self.options.filter)).collect();
        if rows.is_empty() {
            return Ok(0.0);
        }
        let contenders = self.contenders(&self.folder)?;
        let mut failed = 0.0;
        let mut table = ResultTable::new();
        let mut others: Vec<ComparisonTable> = contenders[1..]
            .iter()
            .map(|contender| match contender.name().as_str() {
                "before" => ComparisonTable::new("this build : the earlier one"),
                _ => ComparisonTable::new("ours : reference"),
            })
            .collect();
        for row in &rows {
            heading(&row.name);
            let rounds = measure_with(row, &contenders, self.options, &self.more(row))?;
            failed += rounds[0].iter().map(Figures::errors).sum::<f64>();
            for (comparison, other) in others.iter_mut().zip(&rounds[1..]) {
                comparison.extend(&row.name, &rounds[0], other);
            }
            let names = contenders.iter().map(Contender::name);
            let medians = rounds.iter().map(|rounds| Figures::medians(rounds));
            table.extend(&row.name, names.zip(medians).collect());
        }
        tables.push(table.markdown());
        tables.extend(others.iter().map(ComparisonTable::markdown));
        Ok(failed)
    }

    /// The options of the load generator for a row.
    fn more(&self, row: &BenchRow) -> Vec<String> {
        match row.model {
            "count" => {
                let requests = self.folder.join("count.json");
                vec!["--streaming".into(), format!("--input-data={}", requests.display())]
            }
            _ => Vec::new(),
        }
    }

    /// The table of the times until four models are ready, and of the memory that they then hold.
    fn starts(&self) -> Result<String> {
        heading(START);
        let folder = self.folder.join("four");
        let mut rounds: Vec<(String, Vec<StartRound>)> = Vec::new();
        for _ in 0..self.options.rounds {
            for contender in self.contenders(&folder)? {
                let name = contender.name();
                let Contender::Server { server, .. } = &contender else { bail!("no server to measure") };
                let round =
                    StartRound { ready_after: server.ready_after(), memory: TreeMemory::of(server.pid())? };
                println!(
                    "{name:<12} ready after {:.2} s, {:.0} MiB in {} processes",
                    round.ready_after.as_secs_f64(),
                    round.memory.proportional_mib,
                    round.memory.processes
                );
                match rounds.iter_mut().find(|(of, _)| *of == name) {
                    Some((_, rounds)) => rounds.push(round),
                    None => rounds.push((name, vec![round])),
                }
            }
        }
        let mut table = table_head(&["row", "contender"], &["ready s", "PSS MiB", "processes"]);
        for (name, rounds) in &rounds {
            table.push_str(&start_line(name, rounds));
        }
        Ok(table)
    }
}

/// The medians.
fn start_line(contender: &str, rounds: &[StartRound]) -> String {
    let of = |value: fn(&StartRound) -> f64| median(rounds.iter().map(value));
    let numbers = [
        (of(|round| round.ready_after.as_secs_f64()), 2),
        (of(|round| round.memory.proportional_mib), 0),
        (of(|round| f64::from(u32::try_from(round.memory.processes).unwrap_or(u32::MAX))), 0),
    ];
    format!("| {START} | {contender} |{}", cells(&numbers))
}

fn rows() -> Vec<BenchRow> {
    use BenchProtocol::{Grpc, HttpBinary};
    let both: &[BenchProtocol] = &[HttpBinary, Grpc];
    let plan: [(&'static str, &[BenchProtocol], &[u32]); 7] = [
        ("identity", both, &[1, 16, 64]),
        ("identity4m", both, &[1, 4]),
        ("identity16m", both, &[1, 4]),
        ("double4m", both, &[1]),
        ("bls_chain", &[HttpBinary], &[1, 16]),
        ("ensemble_chain", &[HttpBinary], &[1, 16]),
        ("count", &[Grpc], &[1]),
    ];
    let mut rows = Vec::new();
    for (model, protocols, counts) in plan {
        for &protocol in protocols {
            for &callers in counts {
                let name = format!("python {model} {} x{callers}", protocol.name());
                rows.push(BenchRow { name, model, protocol, callers, rate: None, bare: false });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let mut names: Vec<String> = rows().into_iter().map(|row| row.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.contains(&"python count grpc x1".to_owned()));
    }

    #[test]
    fn a_line_has_the_medians_of_the_starts() {
        let round = |milliseconds, proportional_mib| StartRound {
            ready_after: Duration::from_millis(milliseconds),
            memory: TreeMemory { processes: 5, proportional_mib },
        };
        let rounds = [round(900, 100.0), round(400, 120.0), round(500, 110.0)];
        assert_eq!(start_line("ours", &rounds), "| four models | ours | 0.50 | 110 | 5 |\n");
    }
}
