//! `cargo xtask fuzz`: libFuzzer over the parsers of bytes from outside, which are the targets of the package `fuzz`.
//!
//! The compiler puts counters into all code, so that libFuzzer sees which input does something new. Flags that need no
//! other toolchain do that; the build has a target folder of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::arguments::Arguments;
use crate::steps::CannotRun;
use crate::workspace::{self, cargo};
use crate::{files, process};

/// How long each target is run without `--seconds`.
const SECONDS: u64 = 60;
/// The long run of `cargo xtask deepcheck`: so long altogether.
const SECONDS_OF_ALL: u64 = 2 * 60 * 60;
/// What libFuzzer may need beyond its time: it finishes an input, and writes what it has found.
const GRACE: Duration = Duration::from_secs(120);

/// The longest input, in bytes: long enough for what grows faster than the input to be seen.
const LONGEST_INPUT: u32 = 16 << 10;
/// An input that takes longer is a finding, in seconds. A millisecond is usual.
const SLOWEST_INPUT: u32 = 20;
/// More resident memory is a finding, in MiB.
const MOST_MEMORY: u32 = 2048;

/// Counters for the edges of all code, and notes of what is compared with what.
const COUNTERS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// How targets are run.
pub(crate) struct FuzzOptions {
    /// The only target to run.
    target: Option<String>,
    /// How long each target is run.
    seconds: u64,
}

impl FuzzOptions {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<FuzzOptions> {
        let target = arguments.value("--target")?;
        let seconds = arguments.value("--seconds")?.unwrap_or(SECONDS);
        arguments.finish()?;
        ensure!(seconds > 0, "--seconds is at least 1");
        Ok(FuzzOptions { target, seconds })
    }
}

/// Runs the wanted targets one after the other. All are run, whatever the others find.
///
/// # Errors
/// An input breaks a promise: the error names its file. Or the program cannot be built.
pub(crate) fn run(options: &FuzzOptions) -> Result<()> {
    let all = targets()?;
    let wanted: Vec<_> =
        all.iter().filter(|name| options.target.as_ref().is_none_or(|target| target == *name)).collect();
    if wanted.is_empty() {
        bail!(
            "there is no target '{}'; there are: {}",
            options.target.as_deref().unwrap_or_default(),
            all.join(", ")
        );
    }
    let program = build()?;
    let mut found = Vec::new();
    for name in wanted {
        if let Err(error) = search(&program, name, options.seconds) {
            found.push(format!("{name}: {error:#}"));
        }
    }
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// The long run of `cargo xtask deepcheck`.
///
/// # Errors
/// As [`run`].
pub(crate) fn long() -> Result<()> {
    if !process::starts("g++") {
        bail!(CannotRun("libFuzzer needs g++ (on Debian: apt-get install g++)".to_owned()));
    }
    let count = u64::try_from(targets()?.len()).context("there are many targets")?;
    run(&FuzzOptions { target: None, seconds: SECONDS_OF_ALL / count.max(1) })
}

/// The names of the targets: each has a folder of seeds.
fn targets() -> Result<Vec<String>> {
    let folders = files::paths_in(&workspace::root().join("fuzz/corpus"))?;
    Ok(folders.iter().map(|folder| files::file_name(folder).display().to_string()).collect())
}

fn folder() -> PathBuf {
    workspace::target().join("fuzz")
}

/// Builds libFuzzer with all targets, and returns the program.
fn build() -> Result<PathBuf> {
    // With a target of its own, the compiler gives no counters to build scripts.
    let host = workspace::host()?;
    let mut command = cargo(&["build", "--locked", "--package", "fuzz", "--bin", "fuzz"]);
    command
        .args(["--features", "libfuzzer", "--profile", "fuzz", "--target", &host])
        .env("RUSTFLAGS", COUNTERS.join(" "))
        .env("CARGO_TARGET_DIR", folder());
    process::run(&mut command)?;
    Ok(folder().join(host).join("fuzz").join("fuzz"))
}

/// Searches for inputs of a target that break a promise. What does something new is kept in a folder below `target`, so
/// that a later run goes on from there.
fn search(program: &Path, target: &str, seconds: u64) -> Result<()> {
    let sources = workspace::root().join("fuzz");
    let (known, found) = (folder().join("corpus").join(target), folder().join("found").join(target));
    for folder in [&known, &found] {
        files::make_folder(folder)?;
    }
    let mut command = std::process::Command::new(program);
    command
        .env("NEREID_FUZZ_TARGET", target)
        .arg(&known)
        .arg(sources.join("corpus").join(target))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={LONGEST_INPUT}"))
        .arg(format!("-timeout={SLOWEST_INPUT}"))
        .arg(format!("-rss_limit_mb={MOST_MEMORY}"))
        .args(["-print_final_stats=1", "-verbosity=1"])
        .current_dir(workspace::root());
    let regressions = sources.join("regressions").join(target);
    if regressions.is_dir() {
        command.arg(&regressions);
    }
    process::run_within(&mut command, Duration::from_secs(seconds) + GRACE).with_context(|| {
        format!(
            "the input is in {}; when its fault is mended, it belongs into {}",
            found.display(),
            regressions.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<FuzzOptions> {
        FuzzOptions::parse(Arguments::new(line.split_whitespace().map(str::to_owned)))
    }

    #[test]
    fn options_have_defaults_and_bounds() {
        let options = parse("").unwrap();
        assert_eq!((options.target, options.seconds), (None, SECONDS));
        let options = parse("--target config-text --seconds=5").unwrap();
        assert_eq!((options.target.as_deref(), options.seconds), (Some("config-text"), 5));
        assert!(parse("--seconds 0").is_err() && parse("--minutes 1").is_err());
    }

    #[test]
    fn an_unknown_target_is_answered_with_all_names_before_anything_is_built() {
        let error = run(&FuzzOptions { target: Some("bogus".into()), seconds: 1 }).unwrap_err().to_string();
        assert!(error.contains("'bogus'") && error.contains("config-text"), "{error}");
    }
}
