//! Whether each time and size that the documents promise is kept: the promised figure beside the measured one.
//!
//! `bench/promises.py` measures, because it starts servers and clients as the client tests do. No test compares a time with
//! a bound, so this table is where a promise that is no longer kept shows.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::options::BenchOptions;
use super::results;
use super::table::median;
use crate::console::heading;
use crate::tools::debian_program::REDIS;
use crate::tools::runtime_library;
use crate::{process, python};

/// One promise, and what was measured.
#[derive(Debug, PartialEq)]
struct PromiseRow {
    name: String,
    /// The page and its place; `None` if no page has the figure.
    document: Option<String>,
    promised: String,
    unit: String,
    /// The bounds of the figure, in `unit`.
    least: f64,
    most: f64,
    judged: JudgedRound,
    outcome: PromiseOutcome,
}

/// Which of the rounds is compared with the bounds.
#[derive(Debug, PartialEq)]
enum JudgedRound {
    Worst,
    Median,
}

#[derive(Debug, PartialEq)]
enum PromiseOutcome {
    /// The figure of each round.
    Measured(Vec<f64>),
    /// Why there is no figure.
    Failed(String),
}

impl PromiseRow {
    /// Reads a line of `bench/promises.py`.
    fn from_json(line: &str) -> Result<PromiseRow> {
        let object: Value =
            serde_json::from_str(line).with_context(|| format!("not a line of JSON: {line}"))?;
        let text = |key: &str| {
            object[key].as_str().map(str::to_owned).with_context(|| format!("no text '{key}' in {line}"))
        };
        let number = |key: &str| object[key].as_f64().with_context(|| format!("no number '{key}' in {line}"));
        let outcome = match object["figures"].as_array() {
            Some(figures) => {
                let rounds: Option<Vec<f64>> = figures.iter().map(Value::as_f64).collect();
                let rounds = rounds.filter(|rounds| !rounds.is_empty());
                PromiseOutcome::Measured(rounds.with_context(|| format!("figures are no numbers in {line}"))?)
            }
            None => PromiseOutcome::Failed(text("reason")?),
        };
        Ok(PromiseRow {
            name: text("name")?,
            document: object["document"].as_str().map(str::to_owned),
            promised: text("promised")?,
            unit: text("unit")?,
            least: number("least")?,
            most: number("most")?,
            judged: match text("judged")?.as_str() {
                "worst" => JudgedRound::Worst,
                "median" => JudgedRound::Median,
                other => bail!("a figure is judged by '{other}' in {line}"),
            },
            outcome,
        })
    }

    fn keeps(&self, figure: f64) -> bool {
        (self.least..=self.most).contains(&figure)
    }

    /// The round that is worst for the promise: the longest, unless one is shorter than promised.
    fn worst(&self, rounds: &[f64]) -> f64 {
        let longest = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shortest = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        if shortest < self.least && self.keeps(longest) { shortest } else { longest }
    }

    /// The row of the table; `None` if there is no figure.
    fn markdown(&self) -> Option<String> {
        let PromiseOutcome::Measured(rounds) = &self.outcome else { return None };
        let (median, worst) = (median(rounds.iter().copied()), self.worst(rounds));
        let judged = match self.judged {
            JudgedRound::Worst => worst,
            JudgedRound::Median => median,
        };
        let kept = if self.keeps(judged) { "yes" } else { "NO" };
        let PromiseRow { name, document, promised, unit, .. } = self;
        let document = document.as_deref().unwrap_or("-");
        Some(format!(
            "| {name} | {document} | {promised} | {}, {} {unit} | {kept} |\n",
            short(median),
            short(worst)
        ))
    }
}

/// Three digits, or as many as a whole number has.
fn short(figure: f64) -> String {
    match figure {
        _ if figure.fract() == 0.0 || figure >= 100.0 => format!("{figure:.0}"),
        _ if figure >= 10.0 => format!("{figure:.1}"),
        _ if figure >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

/// Measures, prints and writes the table. Returns true if all could be measured, whether it is as promised or not.
pub(super) fn run(options: &BenchOptions) -> Result<bool> {
    let rows = measure(options, &options.server()?)?;
    if !rows.is_empty() {
        results::show("promises.md", &table(&rows))?;
    }
    Ok(rows.iter().all(|row| matches!(row.outcome, PromiseOutcome::Measured(_))))
}

fn measure(options: &BenchOptions, server: &Path) -> Result<Vec<PromiseRow>> {
    heading("promises");
    python::install("tests/requirements.txt")?;
    let mut command = python::command();
    command.arg("bench/promises.py").arg(format!("--rounds={}", options.rounds));
    command.arg(format!("--filter={}", options.filter));
    command.env("NEREID_BINARY", server).env(runtime_library::VARIABLE, runtime_library::fetch()?);
    match REDIS.fetch() {
        Ok(program) => {
            command.env("NEREID_TEST_REDIS_SERVER", program);
        }
        // The rows that need it say so, too.
        Err(error) => println!("redis-server cannot be had: {error:#}"),
    }
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start Python")?;
    let output = child.stdout.take().context("its output is a pipe")?;
    let mut rows = Vec::new();
    for line in BufReader::new(output).lines() {
        let row = PromiseRow::from_json(&line?)?;
        match &row.outcome {
            PromiseOutcome::Measured(rounds) => {
                let rounds: Vec<String> = rounds.iter().copied().map(short).collect();
                println!("{}: {} {}", row.name, rounds.join(", "), row.unit);
            }
            PromiseOutcome::Failed(reason) => println!("{}: {reason}", row.name),
        }
        rows.push(row);
    }
    let status = child.wait()?;
    ensure!(status.success(), "{} ended with {status}", process::line(&command));
    Ok(rows)
}

/// Promises of documents come first, then the figures that no document has. What has no figure stands below.
fn table(rows: &[PromiseRow]) -> String {
    let mut text = String::from(
        "| promise | document | promised | measured (median, worst of rounds) | kept |\n|---|---|---|---:|---|\n",
    );
    for is_documented in [true, false] {
        let rows = rows.iter().filter(|row| row.document.is_some() == is_documented);
        text.extend(rows.filter_map(PromiseRow::markdown));
    }
    for row in rows {
        if let PromiseOutcome::Failed(reason) = &row.outcome {
            write!(text, "\nnot measured: {}: {reason}\n", row.name).expect("a string takes all");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bounds: (f64, f64), judged: &str, figures: &str) -> PromiseRow {
        let (least, most) = bounds;
        PromiseRow::from_json(&format!(
            r#"{{"name": "end", "document": "a.md, b", "promised": "1 s", "unit": "s", "most": {most},
                "least": {least}, "judged": "{judged}", "figures": {figures}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn a_promise_of_each_time_is_judged_by_the_worst_round() {
        let line = |least, figures| row((least, 1.5), "worst", figures).markdown().unwrap();
        assert_eq!(line(1.0, "[1.01, 1.2, 1]"), "| end | a.md, b | 1 s | 1.01, 1.20 s | yes |\n");
        assert_eq!(line(1.0, "[1.01, 1.6, 1]"), "| end | a.md, b | 1 s | 1.01, 1.60 s | NO |\n");
        assert_eq!(line(1.0, "[1.01, 1.2, 0.9]"), "| end | a.md, b | 1 s | 1.01, 0.900 s | NO |\n");
        assert_eq!(line(0.0, "[0, 0, 0]"), "| end | a.md, b | 1 s | 0, 0 s | yes |\n");
    }

    #[test]
    fn a_promise_of_a_median_is_judged_by_the_median() {
        let line = |figures| row((0.0, 20.0), "median", figures).markdown().unwrap();
        assert!(line("[10.25, 250.4, 19]").ends_with("| 19, 250 s | yes |\n"));
        assert!(line("[30, 21, 19]").ends_with("| 21, 30 s | NO |\n"));
    }

    #[test]
    fn documents_come_first_and_what_was_not_measured_is_named_with_its_reason() {
        let line = |name: &str, outcome: &str| {
            let text = format!(
                r#"{{"name": "{name}", "document": null, "promised": "2 s", "unit": "s", "most": 2, "least": 0,
                    "judged": "worst", {outcome}}}"#
            );
            PromiseRow::from_json(&text).unwrap()
        };
        let rows = [
            line("check", r#""figures": [0.5]"#),
            line("redis", r#""reason": "there is no redis-server""#),
            row((0.0, 1.0), "worst", "[1]"),
        ];
        let table = table(&rows);
        let rest = table.split_once("|---|\n").unwrap().1;
        assert_eq!(
            rest,
            "| end | a.md, b | 1 s | 1, 1 s | yes |\n| check | - | 2 s | 0.500, 0.500 s | yes |\n\n\
             not measured: redis: there is no redis-server\n"
        );
    }

    #[test]
    fn a_line_without_a_figure_or_a_reason_is_an_error() {
        for line in ["", "{}", r#"{"name": "x", "figures": []}"#, r#"{"name": "x", "figures": ["1"]}"#] {
            assert!(PromiseRow::from_json(line).is_err(), "{line}");
        }
    }
}
