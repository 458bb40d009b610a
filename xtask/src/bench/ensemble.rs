//! What an ensemble costs: beside a program without a server and beside a client that calls the members itself, for each
//! step, and in memory.

mod memory;
mod pipeline;
mod step;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::contenders::Contender;
use super::{BenchOptions, write};
use crate::console::heading;
use crate::{process, python};

/// What all parts need.
struct EnsembleBench<'a> {
    options: &'a BenchOptions,
    /// The folder with the repositories `ours` and `reference`.
    folder: PathBuf,
    server: &'a Path,
    library: &'a Path,
}

/// A table, and how many requests failed.
struct PartResult {
    table: String,
    failed: f64,
}

/// Measures, prints and writes the tables. Returns true if every request to ours was answered.
pub(super) fn run(options: &BenchOptions, folder: &Path, server: &Path, library: &Path) -> Result<bool> {
    let bench = EnsembleBench { options, folder: folder.join("ensembles"), server, library };
    fs::create_dir_all(&bench.folder).with_context(|| format!("cannot make {}", bench.folder.display()))?;
    process::run(python::command().arg("bench/ensembles.py").arg(&bench.folder))?;
    let (mut tables, mut failed) = (Vec::new(), 0.0);
    for part in [pipeline::run, step::run, memory::run] {
        if let Some(result) = part(&bench)? {
            tables.push(result.table);
            failed += result.failed;
        }
    }
    if tables.is_empty() {
        return Ok(true);
    }
    heading("results");
    let text = tables.join("\n");
    print!("{text}");
    write(folder, "ensemble.md", &text)?;
    Ok(failed == 0.0)
}

impl EnsembleBench<'_> {
    fn wants(&self, row: &str) -> bool {
        row.contains(&self.options.filter)
    }

    /// Our server with all models.
    fn ours(&self) -> Result<Contender> {
        Contender::ours(self.server, &self.folder, self.library, &[])
    }
}

/// What the executions of a model have taken since it was loaded, by the server's statistics.
#[derive(Clone, Copy)]
struct ExecutedTime {
    executions: f64,
    /// From the begin of the preparation of inputs to the end of that of outputs.
    microseconds: f64,
}

impl ExecutedTime {
    fn of(contender: &Contender, model: &str) -> Result<ExecutedTime> {
        let &Contender::Server { http_port, .. } = contender else { bail!("no server to ask") };
        let (status, body) = crate::loopback::http_get(http_port, &format!("/v2/models/{model}/stats"))?;
        ensure!(status == 200, "the statistics of {model} were answered with {status}: {body}");
        ExecutedTime::from_json(&body).with_context(|| format!("statistics of {model}: {body}"))
    }

    fn from_json(body: &str) -> Option<ExecutedTime> {
        let statistics: Value = serde_json::from_str(body).ok()?;
        let model = &statistics["model_stats"][0];
        let nanoseconds = |part: &str| model["inference_stats"][part]["ns"].as_f64();
        let all =
            nanoseconds("compute_input")? + nanoseconds("compute_infer")? + nanoseconds("compute_output")?;
        Some(ExecutedTime { executions: model["execution_count"].as_f64()?, microseconds: all / 1e3 })
    }

    /// Microseconds of an execution since then. No execution is an error.
    fn each_since(self, before: ExecutedTime) -> Result<f64> {
        let executions = self.executions - before.executions;
        ensure!(executions > 0.0, "the model has not been executed");
        Ok((self.microseconds - before.microseconds) / executions)
    }
}

pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The first two lines of a table whose first columns hold texts and whose other columns hold numbers.
pub(super) fn table_head(texts: &[&str], numbers: &[&str]) -> String {
    let headings = [texts, numbers].concat().join(" | ");
    format!("| {headings} |\n|{}{}\n", "---|".repeat(texts.len()), "---:|".repeat(numbers.len()))
}

/// The cells of a line of a table, after its texts: each a number with so many digits, `-` for none.
pub(super) fn cells(numbers: &[(f64, usize)]) -> String {
    let mut text = String::new();
    for &(number, digits) in numbers {
        match number.is_nan() {
            true => text.push_str(" - |"),
            false => write!(text, " {number:.digits$} |").expect("a string takes all"),
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATISTICS: &str = r#"{"model_stats":[{"execution_count":4,"inference_stats":{"success":{"ns":9000000},
        "compute_input":{"ns":1000},"compute_infer":{"ns":6000},"compute_output":{"ns":1000}}}]}"#;

    #[test]
    fn the_time_of_an_execution_is_that_of_the_executions_since_then() {
        let now = ExecutedTime::from_json(STATISTICS).unwrap();
        let before = ExecutedTime { executions: 2.0, microseconds: 5.0 };
        assert_eq!(now.each_since(before).unwrap(), 1.5);
        assert!(now.each_since(now).is_err());
        assert!(ExecutedTime::from_json("{}").is_none());
    }

    #[test]
    fn a_missing_number_has_an_empty_cell() {
        assert_eq!(cells(&[(1.234, 1), (f64::NAN, 2), (7.0, 0)]), " 1.2 | - | 7 |\n");
        assert!(median(std::iter::empty()).is_nan());
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(table_head(&["a"], &["b", "c"]), "| a | b | c |\n|---|---:|---:|\n");
    }
}
