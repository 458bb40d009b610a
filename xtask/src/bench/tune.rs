//! Whether `nereid tune` finds what a full sweep finds: both over the same grid, and their choices measured again in turns.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::contenders::Contender;
use super::ensemble::median;
use super::plan::{BenchProtocol, BenchRow};
use super::table::Figures;
use super::{BenchOptions, measure_with, write};
use crate::console::heading;
use crate::tools::runtime_library;
use crate::{process, python};

/// The models of `bench/tune_models.py`.
const MODELS: [&str; 3] = ["mlp", "conv", "scorer"];

/// The callers of each point. They keep the server busy.
const CALLERS: u32 = 32;

/// A latency that every point keeps, so that throughput alone counts.
const LATENCY_MS: u32 = 60_000;

/// The seconds that `nereid tune` may take.
const TUNE_SECS: u32 = 180;

/// The rounds that compare the two choices, at least.
const ROUNDS: usize = 5;

/// The choice is worse than that of the sweep by at most this share.
const ALLOWED: f64 = 0.05;

/// What all models need.
struct TuneBench<'a> {
    options: &'a BenchOptions,
    folder: PathBuf,
    server: &'a Path,
    library: &'a Path,
}

/// What a run of `nereid tune` has done.
struct TuneRun {
    seconds: f64,
    rounds: usize,
    /// The directory with the configuration and the report.
    output: PathBuf,
}

/// Measures, prints and writes the table. Returns true if every choice of `nereid tune` was as good as that of the sweep.
pub(super) fn run(options: &BenchOptions, folder: &Path, server: &Path, library: &Path) -> Result<bool> {
    let bench = TuneBench { options, folder: folder.join("tune"), server, library };
    fs::create_dir_all(&bench.folder).with_context(|| format!("cannot make {}", bench.folder.display()))?;
    process::run(python::command().arg("bench/tune_models.py").arg(bench.folder.join("models")))?;
    let mut table = format!(
        "| model, {CALLERS} callers | tune: rounds | s | sweep: rounds | s | tuned req/s | swept req/s | tuned : swept |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    let mut is_good = true;
    for model in MODELS.into_iter().filter(|model| model.contains(&options.filter)) {
        heading(model);
        let tuned = bench.tune(model, "tuned", &[format!("--time={TUNE_SECS}")])?;
        let swept = bench.tune(model, "swept", &["--exhaustive".to_owned()])?;
        let ratio = bench.compare(model, &tuned, &swept, &mut table)?;
        is_good &= ratio >= 1.0 - ALLOWED && tuned.seconds <= f64::from(TUNE_SECS);
    }
    heading("results");
    print!("{table}");
    write(folder, "tune.md", &table)?;
    Ok(is_good)
}

impl TuneBench<'_> {
    /// The options of the server that depend on this machine.
    fn server_options(&self) -> [String; 2] {
        [
            "--backend-config=python,implementation=built-in".to_owned(),
            format!("--backend-config=python,python-executable={}", python::interpreter().display()),
        ]
    }

    fn tune(&self, model: &str, name: &str, more: &[String]) -> Result<TuneRun> {
        let output = self.folder.join(name).join(model);
        let mut command = Command::new(self.server);
        command.env(runtime_library::VARIABLE, self.library).arg("tune").arg(model);
        command.arg("--model-repository").arg(self.folder.join("models")).arg("--output").arg(&output);
        command.arg(format!("--concurrency={CALLERS}")).arg(format!("--latency-ms={LATENCY_MS}"));
        command.args(more).arg("--").args(self.server_options());
        let begun = Instant::now();
        process::run(&mut command)?;
        let seconds = begun.elapsed().as_secs_f64();
        let csv = fs::read_to_string(output.join("measurements.csv"))?;
        Ok(TuneRun { seconds, rounds: csv.lines().count().saturating_sub(1), output })
    }

    /// Serves both choices, and measures them in turns. Returns the median of the ratios of the rounds.
    fn compare(
        &self,
        model: &'static str,
        tuned: &TuneRun,
        swept: &TuneRun,
        table: &mut String,
    ) -> Result<f64> {
        let contenders = [self.serve("tuned", model, tuned)?, self.serve("swept", model, swept)?];
        let row = BenchRow {
            name: model.to_owned(),
            model,
            protocol: BenchProtocol::HttpBinary,
            callers: CALLERS,
            rate: None,
            bare: false,
        };
        let options = BenchOptions { rounds: self.options.rounds.max(ROUNDS), ..self.options.clone() };
        // Both send what the tuning has sent.
        let rounds = measure_with(&row, &contenders, &options, &["--input-data=zero".to_owned()])?;
        let rates = |rounds: &[Figures]| -> Result<Vec<f64>> {
            rounds.iter().map(Figures::requests_per_second).collect()
        };
        let (of_tuned, of_swept) = (rates(&rounds[0])?, rates(&rounds[1])?);
        let ratio = median(of_tuned.iter().zip(&of_swept).map(|(tuned, swept)| tuned / swept));
        let (of_tuned, of_swept) = (median(of_tuned.into_iter()), median(of_swept.into_iter()));
        writeln!(
            table,
            "| {model} | {} | {:.0} | {} | {:.0} | {of_tuned:.0} | {of_swept:.0} | {ratio:.3} |",
            tuned.rounds, tuned.seconds, swept.rounds, swept.seconds
        )?;
        Ok(ratio)
    }

    /// Starts a server with the model and the configuration of a run.
    fn serve(&self, name: &'static str, model: &str, run: &TuneRun) -> Result<Contender> {
        let folder = self.folder.join("served").join(name);
        let target = folder.join("ours");
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        fs::create_dir_all(&target)?;
        let mut copy = Command::new("cp");
        process::run(copy.arg("-r").arg(self.folder.join("models").join(model)).arg(&target))?;
        fs::copy(run.output.join("config.pbtxt"), target.join(model).join("config.pbtxt"))?;
        Contender::ours_with(name, self.server, &folder, self.library, &self.server_options())
    }
}
