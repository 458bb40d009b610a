//! Tokens per second of a model that generates. In Nereid, requests join running batches at each step. The comparison
//! runs the same model in whole batches, which run until the longest of their requests is done.
//!
//! Of eight requests seven want 10 tokens and one wants 200. Both sides get the same requests in the same order from
//! the same number of callers, and compute with the same number of threads. Nereid answers over gRPC streams. A whole
//! batch runs without a server. So the cost of the server counts against Nereid.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{csv_fields, median, table_head};
use super::turns::turns;
use super::{bare_programs, results};
use crate::console::heading;
use crate::tools::runtime_library;
use crate::{process, python};

/// The name of this row for `--filter`.
pub(super) const NAME: &str = "generation grpc-stream x64";
const CALLERS: u32 = 64;
/// How many texts are compared.
const TEXTS: &str = "64";

/// The columns of a row.
#[derive(Clone, Copy)]
pub(super) struct GenerationFigures {
    pub(super) tokens_per_second: f64,
    first_p50_us: f64,
    first_p99_us: f64,
}

/// The server's model in whole batches, without the server.
struct Whole<'a> {
    binary: PathBuf,
    setup: &'a BenchSetup,
}

/// Measures, prints and writes the table. Returns true if every request was answered, with the same texts on both
/// sides.
pub(super) fn run(setup: &BenchSetup, ours: &ServerContender) -> Result<bool> {
    let whole = Whole { binary: bare_programs::build("backend-onnx", "whole_batch")?, setup };

    heading(NAME);
    let mut rounds = Vec::new();
    let mut errors = 0.0;
    for round in 0..setup.options.rounds {
        let measure = |turn: usize| match turn {
            0 => in_flight(setup, ours, CALLERS),
            1 => whole.measure(false).map(|figures| (figures, 0.0)),
            _ => whole.measure(true).map(|figures| (figures, 0.0)),
        };
        let mut taken = [None; KINDS.len()];
        for turn in turns(round, KINDS.len()) {
            let (figures, failed) = measure(turn)?;
            println!("{:<28} {}", KINDS[turn], figures.line());
            taken[turn] = Some(figures);
            errors += failed;
        }
        if let [Some(first), Some(second), Some(third)] = taken {
            rounds.push([first, second, third]);
        }
    }
    let same = same_texts(ours, &whole)?;
    results::show("generation.md", &table(&rounds))?;
    Ok(same && errors == 0.0)
}

const KINDS: [&str; 3] = ["in flight", "whole batches", "whole batches that shrink"];

type Round = [GenerationFigures; KINDS.len()];

/// Measures the server. Also returns the number of requests that failed.
pub(super) fn in_flight(
    setup: &BenchSetup,
    ours: &ServerContender,
    callers: u32,
) -> Result<(GenerationFigures, f64)> {
    let mut command = ours.load_generator();
    command.args(["--model=generation", "--protocol=grpc", "--streaming", "--warm-up=1"]);
    command.arg("--input-data").arg(setup.folder.join("generation.json"));
    command.arg(format!("--url=127.0.0.1:{}", ours.grpc_port)).arg(format!("--concurrency={callers}"));
    command.arg(format!("--duration={}", setup.options.seconds));
    let csv = ours.csv_of(&mut command)?;
    let fields = csv_fields(&csv)?;
    let number = |name: &str| {
        let field = fields.get(name).and_then(|field| field.parse().ok());
        field.with_context(|| format!("there is no figure {name}"))
    };
    let figures = GenerationFigures {
        tokens_per_second: number("responses_per_second")?,
        first_p50_us: number("first_p50_us")?,
        first_p99_us: number("first_p99_us")?,
    };
    Ok((figures, number("errors")?))
}

impl Whole<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env(runtime_library::VARIABLE, &self.setup.library);
        command.arg("--model").arg(self.setup.folder.join("ours/generation"));
        command.arg("--requests").arg(self.setup.folder.join("generation.json"));
        // The same number of threads as the server gives the model's only instance.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        command.args(["--threads", &threads.to_string()]);
        command
    }

    fn measure(&self, shrink: bool) -> Result<GenerationFigures> {
        let mut command = self.command();
        command.args([
            "--callers",
            &CALLERS.to_string(),
            "--seconds",
            &self.setup.options.seconds.to_string(),
        ]);
        let printed = process::output(command.args(["--shrink", if shrink { "1" } else { "0" }]))?;
        let number = |name: &str| bare_programs::figure(&printed, name);
        Ok(GenerationFigures {
            tokens_per_second: number("tokens_per_second")?,
            first_p50_us: number("first_p50_us")?,
            first_p99_us: number("first_p99_us")?,
        })
    }
}

/// Whether a request has the same text in any batch.
fn same_texts(ours: &ServerContender, whole: &Whole<'_>) -> Result<bool> {
    let folder = &whole.setup.folder;
    let texts = folder.join("texts.json");
    fs::write(&texts, process::output(whole.command().args(["--texts", TEXTS]))?)?;
    let mut compare = python::command();
    compare.arg("bench/same_texts.py").arg(ours.http_port.to_string());
    compare.arg(folder.join("generation.json")).arg(&texts);
    Ok(compare.status().context("cannot start Python")?.success())
}

impl GenerationFigures {
    pub(super) fn line(&self) -> String {
        let GenerationFigures { tokens_per_second, first_p50_us, first_p99_us } = self;
        let (p50, p99) = (first_p50_us / 1e3, first_p99_us / 1e3);
        format!("tokens/s {tokens_per_second:.0}, first token p50 {p50:.1} ms, p99 {p99:.1} ms")
    }
}

/// The medians. The last column is the median of the rounds' ratios of tokens per second.
fn table(rounds: &[Round]) -> String {
    let numbers = ["tokens/s", "first token p50 ms", "first token p99 ms", "in flight gives"];
    let mut text = table_head(&["generation"], &numbers);
    for (kind, name) in KINDS.iter().enumerate() {
        let of =
            |value: fn(&GenerationFigures) -> f64| median(rounds.iter().map(|round| value(&round[kind])));
        let rate = of(|figures| figures.tokens_per_second);
        let p50 = of(|figures| figures.first_p50_us) / 1e3;
        let p99 = of(|figures| figures.first_p99_us) / 1e3;
        let ratios = rounds.iter().map(|round| round[0].tokens_per_second / round[kind].tokens_per_second);
        let ratio = median(ratios);
        text.push_str(&format!("| {name} | {rate:.0} | {p50:.1} | {p99:.1} | {ratio:.2} times |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_rounds() {
        let of = |tokens_per_second| GenerationFigures {
            tokens_per_second,
            first_p50_us: 2000.0,
            first_p99_us: 9000.0,
        };
        // The machine was half as fast in the second round, and busy in the third.
        let rounds = [[800.0, 200.0, 400.0], [400.0, 100.0, 200.0], [100.0, 100.0, 200.0]];
        let table = table(&rounds.map(|round| round.map(of)));
        assert!(table.contains("| in flight | 400 | 2.0 | 9.0 | 1.00 times |"), "{table}");
        assert!(table.contains("| whole batches | 100 | 2.0 | 9.0 | 4.00 times |"), "{table}");
    }
}
