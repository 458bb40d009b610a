//! `cargo xtask chaos`: campaigns of random faults against a server whose every answer is judged.
//!
//! `tests/chaos` has the models, the callers and the faults, because it uses the clients and servers of the client tests.

use std::time::Duration;

use anyhow::Result;

use crate::arguments::Arguments;
use crate::build::Build;
use crate::{process, python, seeds, tools, workspace};

/// The campaign that a change must pass. An even seed has a store for the cache.
const SEED_OF_CHANGES: u64 = 2;
const SECONDS_OF_CHANGES: u64 = 30;
/// The long one: so many seeds, and how long each of them lasts.
const SEEDS: u64 = 10;
const SECONDS_OF_SEED: u64 = 360;
/// How long a campaign may look for the smallest history that breaks something.
const SHRINKING: Duration = Duration::from_secs(300);

/// The options of `tests/chaos`, each with a value.
const OPTIONS: [&str; 11] = [
    "--seconds",
    "--count",
    "--scale-downs",
    "--stops",
    "--requests",
    "--load",
    "--seed",
    "--kinds",
    "--steps",
    "--shrink-seconds",
    "--wrong",
];

/// How a campaign is run.
pub(crate) struct ChaosOptions {
    pub(crate) build: Build,
    /// The arguments of `tests/chaos`.
    pub(crate) arguments: Vec<String>,
}

impl ChaosOptions {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<ChaosOptions> {
        let build = if arguments.flag("--dev") { Build::DevWorkspace } else { Build::Release };
        let mut passed = Vec::new();
        for name in OPTIONS {
            if let Some(value) = arguments.value::<String>(name)? {
                passed.push(format!("{name}={value}"));
            }
        }
        arguments.finish()?;
        Ok(ChaosOptions { build, arguments: passed })
    }

    fn of_seed(build: Build, seed: u64, seconds: u64) -> ChaosOptions {
        let shrinking = SHRINKING.as_secs();
        let arguments = [
            format!("--seed={seed}"),
            format!("--seconds={seconds}"),
            format!("--shrink-seconds={shrinking}"),
        ];
        ChaosOptions { build, arguments: arguments.into() }
    }
}

/// Runs a campaign. It prints its history while it runs.
///
/// # Errors
/// A promise is broken, or the campaign cannot begin.
pub(crate) fn run(options: &ChaosOptions) -> Result<()> {
    let server = options.build.server()?;
    python::install("tests/requirements.txt")?;
    let mut command = python::command();
    command
        .args(["-m", "chaos"])
        .args(&options.arguments)
        .env("PYTHONPATH", "tests:tests/clients")
        .env("NEREID_BINARY", server)
        .envs(tools::fetch(tools::OF_TESTS)?)
        .current_dir(workspace::root());
    process::run(&mut command)
}

/// The short campaign of `cargo xtask test`.
///
/// # Errors
/// As [`run`].
pub(crate) fn of_changes() -> Result<()> {
    run(&ChaosOptions::of_seed(Build::DevWorkspace, SEED_OF_CHANGES, SECONDS_OF_CHANGES))
}

/// The long campaign of `cargo xtask deepcheck`: an hour. All seeds are run, whatever the others break.
///
/// # Errors
/// As [`run`].
pub(crate) fn long() -> Result<()> {
    seeds::each("campaign", SEEDS, |seed| run(&ChaosOptions::of_seed(Build::Release, seed, SECONDS_OF_SEED)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ChaosOptions> {
        ChaosOptions::parse(Arguments::new(line.split_whitespace().map(str::to_owned)))
    }

    #[test]
    fn options_of_the_campaign_are_passed_on() {
        let options = parse("--seed 7 --kinds=stop,look --dev").unwrap();
        assert_eq!(options.arguments, ["--seed=7", "--kinds=stop,look"]);
        assert!(options.build == Build::DevWorkspace);
        assert!(parse("").unwrap().build == Build::Release);
    }

    #[test]
    fn others_are_refused() {
        assert!(parse("--sead 7").is_err());
        assert!(parse("--seed").is_err());
    }
}
