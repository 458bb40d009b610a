//! What models in Python cost: the same `model.py` on the built-in backend and on Triton with its Python backend. The
//! processor time and the memory are those of the server and of the processes that run the models.

use std::time::Duration;

use anyhow::Result;

use super::results;
use super::row::{BenchProtocol, BenchRow};
use super::server_contender::{ServerContender, python_prefix};
use super::setup::BenchSetup;
use super::table::{ComparisonTable, Figures, ResultTable, cells, median, table_head};
use super::turns::measure_in_turns;
use crate::console::heading;
use crate::process::tree::TreeMemory;
use crate::python;

/// The name of the part that starts four models, for `--filter`.
const START: &str = "four models";

/// One start of a server with four models.
struct StartRound {
    ready_after: Duration,
    memory: TreeMemory,
}

/// Measures, prints and writes the tables. Returns true if every request to ours was answered.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let setup = setup.with_models("python", "bench/python_models.py")?;
    let mut tables = Vec::new();
    let failed = load(&setup, &mut tables)?;
    if setup.options.wants(START) {
        tables.push(starts(&setup)?);
    }
    results::show("python.md", &tables.join("\n"))?;
    Ok(failed == 0.0)
}

/// The servers with the models of the setup.
fn contenders(setup: &BenchSetup) -> Result<Vec<ServerContender>> {
    // All run the models with the same interpreter and the same NumPy.
    let interpreter = match &setup.options.reference {
        Some(packages) => python_prefix(packages)?.join("bin/python3"),
        None => python::interpreter(),
    };
    let more = [
        "--backend-config=python,implementation=built-in".to_owned(),
        format!("--backend-config=python,python-executable={}", interpreter.display()),
    ];
    let mut contenders = vec![ServerContender::ours(setup, "ours", &more)?];
    if let Some(before) = &setup.options.before {
        let before = BenchSetup { server: before.clone(), ..setup.clone() };
        contenders.push(ServerContender::ours(&before, "before", &more)?);
    }
    contenders.extend(ServerContender::reference(setup, "reference", &[])?);
    Ok(contenders)
}

/// Sends requests, and adds the tables. Returns how many requests to ours failed.
fn load(setup: &BenchSetup, tables: &mut Vec<String>) -> Result<f64> {
    let options = &setup.options;
    let rows: Vec<BenchRow> = rows().into_iter().filter(|row| options.wants(&row.name)).collect();
    if rows.is_empty() {
        return Ok(0.0);
    }
    let contenders = contenders(setup)?;
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
    let mut failed = 0.0;
    let mut table = ResultTable::new();
    let mut others: Vec<ComparisonTable> = names[1..]
        .iter()
        .map(|name| match *name {
            "before" => ComparisonTable::new("this build : the earlier one"),
            _ => ComparisonTable::new("ours : reference"),
        })
        .collect();
    for row in &rows {
        heading(&row.name);
        let more = load_options(setup, row);
        let measure = |index: usize| contenders[index].measure_with(row, options.seconds, &more);
        let rounds = measure_in_turns(options.rounds, &names, measure)?;
        failed += rounds[0].iter().map(Figures::errors).sum::<f64>();
        for (comparison, other) in others.iter_mut().zip(&rounds[1..]) {
            comparison.extend(&row.name, &rounds[0], other);
        }
        table.extend(&row.name, &names, &rounds);
    }
    tables.push(table.markdown());
    tables.extend(others.iter().map(ComparisonTable::markdown));
    Ok(failed)
}

/// The options of the load generator for a row.
fn load_options(setup: &BenchSetup, row: &BenchRow) -> Vec<String> {
    match row.model {
        "count" => {
            let requests = setup.folder.join("count.json");
            vec!["--streaming".into(), format!("--input-data={}", requests.display())]
        }
        _ => Vec::new(),
    }
}

/// The table of the times until four models are ready, and of the memory that they then hold.
fn starts(setup: &BenchSetup) -> Result<String> {
    heading(START);
    let setup = BenchSetup { folder: setup.folder.join("four"), ..setup.clone() };
    let mut rounds: Vec<(&str, Vec<StartRound>)> = Vec::new();
    for _ in 0..setup.options.rounds {
        for ServerContender { name, server, .. } in contenders(&setup)? {
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
                rows.push(BenchRow::closed_loop(name, model, protocol, callers));
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
