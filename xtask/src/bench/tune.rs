//! Whether `nereid tune` finds what a full sweep finds: both over the same grid, and their choices measured again in turns.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use super::results;
use super::row::{BenchProtocol, BenchRow};
use super::server_contender::ServerContender;
use super::setup::BenchSetup;
use super::table::{Figures, cells, median, table_head};
use super::turns::measure_in_turns;
use crate::console::heading;
use crate::tools::runtime_library;
use crate::{files, process, python};

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

/// What a run of `nereid tune` has done.
struct TuneRun {
    seconds: f64,
    rounds: usize,
    /// The directory with the configuration and the report.
    output: PathBuf,
}

/// Measures, prints and writes the table. Returns true if every choice of `nereid tune` was as good as that of the sweep.
pub(super) fn run(setup: &BenchSetup) -> Result<bool> {
    let setup = BenchSetup { folder: setup.folder.join("tune"), ..setup.clone() };
    files::make_folder(&setup.folder)?;
    process::run(python::command().arg("bench/tune_models.py").arg(setup.folder.join("models")))?;
    let numbers = ["tune: rounds", "s", "sweep: rounds", "s", "tuned req/s", "swept req/s", "tuned : swept"];
    let mut table = table_head(&[&format!("model, {CALLERS} callers")], &numbers);
    let mut is_good = true;
    for model in MODELS.into_iter().filter(|model| setup.options.wants(model)) {
        heading(model);
        let tuned = tune(&setup, model, "tuned", &[format!("--time={TUNE_SECS}")])?;
        let swept = tune(&setup, model, "swept", &["--exhaustive".to_owned()])?;
        let ratio = compare(&setup, model, &tuned, &swept, &mut table)?;
        is_good &= ratio >= 1.0 - ALLOWED && tuned.seconds <= f64::from(TUNE_SECS);
    }
    results::show("tune.md", &table)?;
    Ok(is_good)
}

/// The options of the server that depend on this machine.
fn server_options() -> [String; 2] {
    [
        "--backend-config=python,implementation=built-in".to_owned(),
        format!("--backend-config=python,python-executable={}", python::interpreter().display()),
    ]
}

fn tune(setup: &BenchSetup, model: &str, name: &str, more: &[String]) -> Result<TuneRun> {
    let output = setup.folder.join(name).join(model);
    let mut command = Command::new(&setup.server);
    command.env(runtime_library::VARIABLE, &setup.library).arg("tune").arg(model);
    command.arg("--model-repository").arg(setup.folder.join("models")).arg("--output").arg(&output);
    command.arg(format!("--concurrency={CALLERS}")).arg(format!("--latency-ms={LATENCY_MS}"));
    command.args(more).arg("--").args(server_options());
    let begun = Instant::now();
    process::run(&mut command)?;
    let seconds = begun.elapsed().as_secs_f64();
    let csv = fs::read_to_string(output.join("measurements.csv"))?;
    Ok(TuneRun { seconds, rounds: csv.lines().count().saturating_sub(1), output })
}

/// Serves both choices, and measures them in turns. Returns the median of the ratios of the rounds.
fn compare(
    setup: &BenchSetup,
    model: &'static str,
    tuned: &TuneRun,
    swept: &TuneRun,
    table: &mut String,
) -> Result<f64> {
    let contenders = [serve(setup, "tuned", model, tuned)?, serve(setup, "swept", model, swept)?];
    let row = BenchRow::closed_loop(model.to_owned(), model, BenchProtocol::HttpBinary, CALLERS);
    // Both send what the tuning has sent.
    let more = ["--input-data=zero".to_owned()];
    let measure = |index: usize| contenders[index].measure_with(&row, setup.options.seconds, &more);
    let rounds = measure_in_turns(setup.options.rounds.max(ROUNDS), &["tuned", "swept"], measure)?;
    let rates = |rounds: &[Figures]| -> Result<Vec<f64>> {
        rounds.iter().map(Figures::requests_per_second).collect()
    };
    let (of_tuned, of_swept) = (rates(&rounds[0])?, rates(&rounds[1])?);
    let ratio = median(of_tuned.iter().zip(&of_swept).map(|(tuned, swept)| tuned / swept));
    #[expect(clippy::cast_precision_loss, reason = "few rounds")]
    let counts = [tuned, swept].map(|run| run.rounds as f64);
    let numbers = [
        (counts[0], 0),
        (tuned.seconds, 0),
        (counts[1], 0),
        (swept.seconds, 0),
        (median(of_tuned), 0),
        (median(of_swept), 0),
        (ratio, 3),
    ];
    table.push_str(&format!("| {model} |{}", cells(&numbers)));
    Ok(ratio)
}

/// Starts a server with the model and the configuration of a run.
fn serve(setup: &BenchSetup, name: &'static str, model: &str, run: &TuneRun) -> Result<ServerContender> {
    let served = BenchSetup { folder: setup.folder.join("served").join(name), ..setup.clone() };
    let target = served.folder.join("ours");
    files::make_empty(&target)?;
    let mut copy = Command::new("cp");
    process::run(copy.arg("-r").arg(setup.folder.join("models").join(model)).arg(&target))?;
    fs::copy(run.output.join("config.pbtxt"), target.join(model).join("config.pbtxt"))?;
    ServerContender::ours(&served, name, &server_options())
}
