//! `cargo xtask differential`: generated cases that a real Triton and Nereid must answer alike.
//!
//! `tests/differential` has the generators and the comparison, because it uses the servers and models of the client tests.

use anyhow::Result;

use crate::arguments::Arguments;
use crate::build::Build;
use crate::{process, python, seeds, tools, workspace};

/// The comparison of `cargo xtask deepcheck`: so many seeds, and how many cases each of them has.
const SEEDS: u64 = 3;
const CASES_OF_SEED: u64 = 20_000;

/// The comparison of `cargo xtask integrations`: about a minute and a half. The cases are always the same.
const CASES_OF_INTEGRATIONS: u64 = 600;

/// The options of `tests/differential`, each with a value.
const OPTIONS: [&str; 5] = ["--seed", "--cases", "--seconds", "--only", "--case"];

/// How cases are compared.
pub(crate) struct DifferentialOptions {
    build: Build,
    /// The arguments of `tests/differential`.
    arguments: Vec<String>,
}

impl DifferentialOptions {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<DifferentialOptions> {
        let build = if arguments.flag("--dev") { Build::DevWorkspace } else { Build::Release };
        let mut passed = Vec::new();
        for name in OPTIONS {
            if let Some(value) = arguments.value::<String>(name)? {
                passed.push(format!("{name}={value}"));
            }
        }
        arguments.finish()?;
        Ok(DifferentialOptions { build, arguments: passed })
    }

    fn of_seed(build: Build, seed: u64, cases: u64) -> DifferentialOptions {
        DifferentialOptions { build, arguments: vec![format!("--seed={seed}"), format!("--cases={cases}")] }
    }
}

/// Compares cases, and prints each kind of difference that nothing explains.
///
/// # Errors
/// There is such a difference, or the comparison cannot begin.
pub(crate) fn run(options: &DifferentialOptions) -> Result<()> {
    let server = options.build.server()?;
    python::install("tests/requirements.txt")?;
    let mut command = python::command();
    command
        .args(["-m", "differential"])
        .args(&options.arguments)
        .env("PYTHONPATH", "tests:tests/clients")
        .env("NEREID_BINARY", server)
        .envs(tools::fetch(tools::OF_TESTS)?)
        .envs(tools::fetch(tools::PLUGINS)?)
        .current_dir(workspace::root());
    process::run(&mut command)
}

/// The comparison of `cargo xtask integrations`.
///
/// # Errors
/// As [`run`].
pub(crate) fn short() -> Result<()> {
    run(&DifferentialOptions::of_seed(Build::DevWorkspace, 1, CASES_OF_INTEGRATIONS))
}

/// The comparison of `cargo xtask deepcheck`. All seeds are run, whatever the others show.
///
/// # Errors
/// As [`run`].
pub(crate) fn long() -> Result<()> {
    seeds::each("comparison", SEEDS, |seed| {
        run(&DifferentialOptions::of_seed(Build::Release, seed, CASES_OF_SEED))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<DifferentialOptions> {
        DifferentialOptions::parse(Arguments::new(line.split_whitespace().map(str::to_owned)))
    }

    #[test]
    fn options_of_the_comparison_are_passed_on() {
        let options = parse("--seed 7 --only=grpc --case 12 --dev").unwrap();
        assert_eq!(options.arguments, ["--seed=7", "--only=grpc", "--case=12"]);
        assert!(options.build == Build::DevWorkspace);
        assert!(parse("").unwrap().build == Build::Release);
    }

    #[test]
    fn others_are_refused() {
        assert!(parse("--sead 7").is_err());
        assert!(parse("--cases").is_err());
    }
}
