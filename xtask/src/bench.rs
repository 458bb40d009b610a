//! `cargo xtask bench`: compares Nereid with Triton and with a bare loop over ONNX Runtime.
//!
//! All contenders of a row take turns within each round, so that other load on the machine affects all of them.

mod adversary;
mod cache;
mod contenders;
mod ensemble;
mod generation;
mod observe;
mod plan;
mod promises;
mod python_models;
mod reload;
mod shared_memory;
mod table;
mod tune;
mod worst_inputs;

use std::borrow::Borrow;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::contenders::{Bare, Contender};
use self::plan::BenchRow;
use self::table::{ComparisonTable, Figures, ResultTable};
use crate::arguments::Arguments;
use crate::console::heading;
use crate::tools::runtime_library;
use crate::workspace::{self, Build, cargo};
use crate::{process, python};

/// What to measure and how long.
#[derive(Clone)]
pub(crate) struct BenchOptions {
    /// The `site-packages` folder with Triton; `None`: Triton is not measured.
    reference: Option<PathBuf>,
    /// An earlier build of Nereid to compare with.
    before: Option<PathBuf>,
    /// The build of Nereid to measure; `None`: one is built.
    server: Option<PathBuf>,
    rounds: usize,
    seconds: u32,
    only: Option<Only>,
    filter: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Only {
    Load,
    Adversary,
    Reload,
    Ensemble,
    Cache,
    Observe,
    SharedMemory,
    Python,
    Tune,
    Promises,
    Micro,
}

impl BenchOptions {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<BenchOptions> {
        let options = BenchOptions {
            reference: arguments.value("--reference")?,
            before: arguments.value("--before")?,
            server: arguments.value("--server")?,
            rounds: arguments.value("--rounds")?.unwrap_or(3).max(1),
            seconds: arguments.value("--seconds")?.unwrap_or(3).max(1),
            only: match arguments.value::<String>("--only")?.as_deref() {
                None => None,
                Some("load") => Some(Only::Load),
                Some("adversary") => Some(Only::Adversary),
                Some("reload") => Some(Only::Reload),
                Some("ensemble") => Some(Only::Ensemble),
                Some("cache") => Some(Only::Cache),
                Some("observe") => Some(Only::Observe),
                Some("shm") => Some(Only::SharedMemory),
                Some("python") => Some(Only::Python),
                Some("tune") => Some(Only::Tune),
                Some("promises") => Some(Only::Promises),
                Some("micro") => Some(Only::Micro),
                Some(other) => {
                    bail!(
                        "--only is load, adversary, reload, ensemble, cache, observe, shm, python, tune, promises or \
                         micro, not '{other}'"
                    )
                }
            },
            filter: arguments.value("--filter")?.unwrap_or_default(),
        };
        arguments.finish()?;
        Ok(options)
    }
}

/// Measures and prints. Returns true if every request of every row was answered.
pub(crate) fn run(options: &BenchOptions) -> Result<bool> {
    let wanted = |part| options.only.is_none_or(|only| only == part);
    let mut good = true;
    if wanted(Only::Load) {
        good = load(options)?;
    }
    if wanted(Only::Adversary) {
        let (folder, server, library) = prepare(options)?;
        good &= worst_inputs::run(options, &server, &folder, &library)?;
        let ours = Contender::ours(&server, &folder, &library, &[])?;
        good &= adversary::run(options, &ours, &folder)?;
    }
    if wanted(Only::Reload) {
        let (folder, server, library) = prepare(options)?;
        let start = || {
            let mut contenders = vec![Contender::ours(&server, &folder, &library, &reload::MODELS)?];
            if let Some(packages) = &options.reference {
                contenders.push(Contender::reference(packages, &server, &folder, &reload::MODELS)?);
            }
            Ok(contenders)
        };
        good &= reload::run(options, start, &folder)?;
    }
    if wanted(Only::Ensemble) {
        let (folder, server, library) = prepare(options)?;
        good &= ensemble::run(options, &folder, &server, &library)?;
    }
    if wanted(Only::Cache) {
        let (folder, server, library) = prepare(options)?;
        good &= cache::run(options, &folder, &server, &library)?;
    }
    if wanted(Only::Observe) {
        let (folder, server, library) = prepare(options)?;
        good &= observe::run(options, &folder, &server, &library)?;
    }
    if wanted(Only::SharedMemory) {
        let (folder, server, library) = prepare(options)?;
        good &= shared_memory::run(options, &folder, &server, &library)?;
    }
    if wanted(Only::Python) {
        let (folder, server, library) = prepare(options)?;
        good &= python_models::run(options, &folder, &server, &library)?;
    }
    if wanted(Only::Tune) {
        let (folder, server, library) = prepare(options)?;
        good &= tune::run(options, &folder, &server, &library)?;
    }
    if wanted(Only::Promises) {
        let folder = bench_folder()?;
        good &= promises::run(options, &folder, &server_of(options)?)?;
    }
    if wanted(Only::Micro) {
        micro()?;
    }
    Ok(good)
}

/// The folder with the models, the server and the library of ONNX Runtime.
fn prepare(options: &BenchOptions) -> Result<(PathBuf, PathBuf, PathBuf)> {
    heading("preparing");
    let folder = bench_folder()?;
    let server = server_of(options)?;
    python::install("demo/requirements.txt")?;
    process::run(python::command().arg("bench/models.py").arg(&folder))?;
    Ok((folder, server, runtime_library::fetch()?))
}

/// Where results and models are.
fn bench_folder() -> Result<PathBuf> {
    let folder = workspace::target().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// The build to measure, which is made unless it was named.
fn server_of(options: &BenchOptions) -> Result<PathBuf> {
    match &options.server {
        Some(binary) => Ok(binary.clone()),
        None => Build::Release.server(),
    }
}

fn load(options: &BenchOptions) -> Result<bool> {
    let rows: Vec<BenchRow> =
        plan::rows().into_iter().filter(|row| row.name.contains(&options.filter)).collect();

    let (folder, server, library) = prepare(options)?;
    let bare = match rows.iter().any(|row| row.bare) {
        true => Some(best_bare(&Bare::build(&folder, &library)?, options)?),
        false => None,
    };
    let ours = Contender::ours(&server, &folder, &library, &[])?;
    let reference = match &options.reference {
        Some(packages) => Some(Contender::reference(packages, &server, &folder, &[])?),
        None => {
            println!("without the reference server: name its site-packages folder with --reference");
            None
        }
    };

    let before = options.before.as_ref().map(|binary| Contender::before(binary, &server, &folder, &library));
    let before = before.transpose()?;

    let mut table = ResultTable::new();
    let mut comparison = ComparisonTable::new("this build : the earlier one");
    for row in &rows {
        heading(&row.name);
        let mut contenders = vec![&ours];
        contenders.extend(before.as_ref());
        contenders.extend(reference.as_ref());
        contenders.extend(bare.as_ref().filter(|_| row.bare));
        let rounds = measure(row, &contenders, options)?;
        if before.is_some() {
            comparison.extend(&row.name, &rounds[0], &rounds[1]);
        }
        let names = contenders.iter().map(|contender| contender.name());
        table.extend(&row.name, names.zip(rounds.iter().map(|rounds| Figures::medians(rounds))).collect());
    }
    let mut good = true;
    if generation::NAME.contains(&options.filter) {
        good = generation::run(options, &ours, &folder, &library)?;
    }
    if rows.is_empty() {
        return Ok(good);
    }
    heading("results");
    print!("{}", table.markdown());
    write(&folder, "results.md", &table.markdown())?;
    write(&folder, "results.csv", &table.csv())?;
    if before.is_some() {
        print!("\n{}", comparison.markdown());
        write(&folder, "comparison.md", &comparison.markdown())?;
    }
    Ok(good && table.errors() == 0.0)
}

/// The figures of all rounds for each contender. The contenders take turns.
fn measure(row: &BenchRow, contenders: &[&Contender], options: &BenchOptions) -> Result<Vec<Vec<Figures>>> {
    measure_with(row, contenders, options, &[])
}

/// The same, with more options of the load generator.
fn measure_with(
    row: &BenchRow,
    contenders: &[impl Borrow<Contender>],
    options: &BenchOptions,
    more: &[String],
) -> Result<Vec<Vec<Figures>>> {
    let mut rounds: Vec<Vec<Figures>> = vec![Vec::new(); contenders.len()];
    for round in 0..options.rounds {
        // Each round begins with another contender, so that the same one is not always measured after a busy one.
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            let contender: &Contender = contenders[index].borrow();
            let figures = contender.measure_with(row, options.seconds, more)?;
            println!("{:<12} {}", contender.name(), figures.line());
            rounds[index].push(figures);
        }
    }
    Ok(rounds)
}

/// The bare loop at the batch size where it is fastest.
fn best_bare(bare: &Bare, options: &BenchOptions) -> Result<Contender> {
    let mut best: Option<(f64, u32)> = None;
    for batch in [1, 2, 4, 8] {
        let rate = bare.inferences_per_second(batch, options.seconds)?;
        println!("bare loop, batch {batch}: {rate:.0} inferences/s");
        if best.is_none_or(|(fastest, _)| rate > fastest) {
            best = Some((rate, batch));
        }
    }
    let (_, batch) = best.context("there are batch sizes")?;
    Ok(Contender::Bare { bare: bare.clone(), batch })
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

/// Runs every criterion bench of the workspace.
fn micro() -> Result<()> {
    for package in workspace::packages()? {
        for target in package["targets"].as_array().into_iter().flatten() {
            let is_bench =
                target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bench"));
            if let (true, Some(package), Some(bench)) =
                (is_bench, package["name"].as_str(), target["name"].as_str())
            {
                heading(&format!("{package}: {bench}"));
                process::run(&mut cargo(&["bench", "--package", package, "--bench", bench]))?;
            }
        }
    }
    Ok(())
}
