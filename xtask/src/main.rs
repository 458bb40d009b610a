//! Tasks of the workspace: `cargo xtask test | integrations | deepcheck | memcheck | chaos | differential | fuzz | gates | docs | pictures |
//! header | setup | demo | dist | bench`.
//!
//! This program does everything that needs more than cargo: the checks of a change, the Python environment, the
//! download of ONNX Runtime, the demo, the benchmarks. It writes everything below `target`, makes each thing once and
//! reuses it.
//!
//! Each command is in the file of its name, and `header` in `abi`. They share long runs (`steps`), what a machine may lack
//! (`tools`, `python`), other programs (`process`, `build`, `c_compiler`, `test_runners`, `loopback`), and `files`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "chores talk to the person who started them")]

mod abi;
mod arguments;
mod bench;
mod build;
mod c_compiler;
mod changes;
mod chaos;
mod console;
mod deepcheck;
mod demo;
mod dependencies;
mod differential;
mod dist;
mod docs;
mod files;
mod fuzz;
mod gates;
mod integrations;
mod loopback;
mod memcheck;
mod pictures;
mod process;
mod python;
mod repository_files;
mod seeds;
mod setup;
mod steps;
mod test;
mod test_runners;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::differential::DifferentialOptions;
use crate::gates::Upkeep;
use crate::integrations::IntegrationOptions;
use crate::process::descendants;
use crate::steps::CheckStep;
use crate::test::Selection;

const HELP: &str = "\
Chores of the workspace.

cargo xtask test [--quick] [--only TEXT]
    Everything that must be good before a change is, and needs no large foreign package: formatting, lints, gates, tests,
    documentation, Python clients, packages and the demo. Fetches what is missing first. --quick leaves out documentation,
    Python clients, packages and the demo, and takes only the tests of packages that have changed since the last commit
    and of those that depend on them. --only takes the steps whose name contains TEXT.
    Each step has a limit, and ends with a list of what it left. Logs are in target/steps.

cargo xtask integrations [--only TEXT] [--discard] [--begin-within SECONDS]
    The tests that need large foreign packages, in groups: object stores, Triton's plug-ins, NVIDIA's programs, a browser,
    Prometheus's tools, clients and proxies of others, Ray Serve, the larger recipes of the documentation, the Helm chart,
    the rules for dependencies, and known faults in them.
    --only takes the groups whose name contains TEXT. --discard removes the packages of large groups once these have ended.
    --begin-within begins no group later than that; the summary names those that were left out.

cargo xtask deepcheck [--only TEXT]
    What takes too long for every change: a model checker over the code that threads meet in, the tests of the crates that
    meet C under the compiler's address and thread sanitizers, memcheck, miri, two hours of fuzzing, an hour of campaigns
    of random faults, and 60,000 cases of comparison with a real Triton.
    --only takes the steps whose name contains TEXT.

cargo xtask memcheck [--requests N]
    Sends N requests [default: 200], and ten times as many, to each test plug-in of the C interfaces, watched by the
    compiler's sanitizers and by valgrind: no wrong use of memory, none lost, and none that grows with requests.

cargo xtask chaos [--seconds N | --count N | --scale-downs N | --stops N | --requests N] [--seed N] [--kinds A,B]
                  [--steps N,N] [--load all|sequences] [--wrong MODEL] [--shrink-seconds N] [--dev]
    A campaign of random faults: models of all kinds under a load in which each answer is judged, while models, instances,
    workers, clients, the log, the store of the cache and the server itself are changed, killed, stopped and paused. Lasts
    N seconds [default: 30], N steps, or until so many updates have removed instances, the server has been stopped so
    often, or so many requests of sequences went through ensembles. --kinds takes only these kinds of actions, --steps only
    these steps of the history that follows from the seed [default: 1]. --load sequences has only callers of sequences.
    --wrong lets a network answer wrongly now and then, to see that it is found. A broken promise prints the smallest
    history found that breaks it, for which it looks at most so many seconds [default: 300]. Builds for release; --dev uses
    a debug build.

cargo xtask differential [--seed N] [--cases N | --seconds N] [--only AREA] [--case N] [--dev]
    Generated cases that a real Triton, from a wheel of PyPI, and Nereid must answer alike: inference (over HTTP), grpc,
    calls (all other calls), scheduling, config and commands, or only one of these areas. N cases [default: 1000], or N
    seconds. Each kind of difference that tests/differential/explanations.toml does not explain is printed with the
    smallest case found. --case repeats the case of a number. Builds for release; --dev uses a debug build.

cargo xtask fuzz [--target NAME] [--seconds N]
    libFuzzer over the parsers of bytes from outside, each for N seconds [default: 60]: an input that makes one panic, that
    takes more memory than its bound allows, or more work than in proportion to the input, is written to a file. Goes on
    from what earlier runs have found, below target/fuzz. --target takes only that one.

cargo xtask gates [--write]
    Only the rules of our own: which crate may use which, the shape of files and types, the life of a request, the C
    interfaces. --write first removes exceptions that nothing needs, lowers limits, and renews the table of the life of a
    request.

cargo xtask docs [--write]
    Makes a book of the pages in docs, in target/docs, and checks all links. --write renews the pages that the server
    writes itself, docs/options.md and docs/configuration-reference.md.

cargo xtask pictures
    Draws the pictures in docs/pictures anew: terminals, the status page, a report of `nereid tune` and a plot of `nereid
    perf`, with the models of the demo. Takes four minutes. They show measurements, so nothing else should run meanwhile.
    target/pictures has the terminals without colours.

cargo xtask header
    Writes include/nereid.h from the tables of the C interfaces and the sources of the functions.

cargo xtask setup [--all]
    Makes target/venv with the Python packages of the tests, fetches what `cargo xtask test` needs (ONNX Runtime, and
    redis-server, shells and allocators of Debian's packages, unless the system has them), all below target, and prints
    the environment variables that let the tests find it. --all also fetches what `cargo xtask integrations` needs.

cargo xtask demo [--port-base N] [--once] [--dev]
    Trains a classifier of handwritten digits, serves it, classifies digits over HTTP and gRPC, shows the result and
    keeps serving. HTTP, gRPC and metrics listen on N, N+1, N+2 [default: 8000]. --once ends after the result.
    --dev uses a debug build.

cargo xtask dist [--dev] [--only wheel|deb|tar|image|chart] [--image-repository NAME]
    Makes packages in target/dist: a Python wheel, a Debian package, an archive, and a container image, with licences and
    lists of all parts; and a Helm chart, which names the image of --image-repository [default: nereid]. --dev packs a
    debug build, for tests of the packages.

cargo xtask bench [--reference DIR] [--before BINARY] [--limit] [--rounds N] [--seconds S] [--server BINARY] [--filter TEXT]
                  [--only load|adversary|reload|ensemble|cache|observe|shm|python|tune|promises|growth|replicas
                         |peers|frameworks|processors|instructions|micro]
    Builds for release and measures: our server, a bare loop over ONNX Runtime, and, with --reference, the reference
    server of the nvidia-pytriton wheel installed in the site-packages folder DIR. Medians of N rounds [default: 3]
    of S seconds [default: 3] in alternation, then how much longer clients of our server wait while another one takes
    more than its share, then requests/s and p99 while a model is reloaded, then what an ensemble costs (beside a program
    without a server and a client that calls the members itself, per step, and in memory), then what the response cache
    costs and saves, then what observing and encrypting, tensors in shared memory and models in Python cost, then whether
    nereid tune finds what a full sweep finds, then each time and size that the documents promise beside the measured one,
    then what twice as many of something cost, then what replicas cost behind HAProxy, Envoy and Ray Serve, then the
    same model behind other servers, then forests, OpenVINO and PyTorch beside their bare libraries, then what a second
    processor gives, then the instructions and allocations of a request, then the criterion benches.
    Results also in target/bench.
    --server measures this build of our server instead of building one.
    --before measures an earlier build of the server beside this one and shows the ratios.
    --limit measures bare hyper beside the servers, which gives their answers again: the least that a server can do.
    --filter takes only rows whose name contains TEXT.
";

fn main() -> ExitCode {
    match descendants::end_with_this_program().and_then(|()| run()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all steps passed.
fn run() -> Result<bool> {
    let mut arguments = Arguments::new(std::env::args().skip(1));
    let chore = arguments.word().unwrap_or_else(|| "help".into());
    match chore.as_str() {
        "test" => {
            let quick = arguments.flag("--quick");
            let only = arguments.value("--only")?;
            arguments.finish()?;
            test::run(&match only {
                Some(_) if quick => bail!("--quick and --only exclude each other"),
                Some(text) => Selection::Only(text),
                None if quick => Selection::Quick,
                None => Selection::All,
            })
        }
        "integrations" => integrations::run(&IntegrationOptions::parse(arguments)?),
        // What the steps of a run are started with.
        "step" => {
            let name = arguments.word().unwrap_or_default();
            arguments.finish()?;
            steps::perform(step_named(&name)?)
        }
        "memcheck" => {
            let requests = arguments.value("--requests")?;
            arguments.finish()?;
            memcheck::run(requests).map(|()| true)
        }
        "chaos" => chaos::run(&chaos::ChaosOptions::parse(arguments)?).map(|()| true),
        "differential" => differential::run(&DifferentialOptions::parse(arguments)?).map(|()| true),
        "fuzz" => fuzz::run(&fuzz::FuzzOptions::parse(arguments)?).map(|()| true),
        "deepcheck" => {
            let only: Option<String> = arguments.value("--only")?;
            arguments.finish()?;
            deepcheck::run(only.as_deref())
        }
        "gates" => {
            let upkeep = if arguments.flag("--write") { Upkeep::Write } else { Upkeep::Report };
            arguments.finish()?;
            gates::run(upkeep)
        }
        "docs" => {
            let renew = arguments.flag("--write");
            arguments.finish()?;
            if renew { docs::write() } else { docs::make() }.map(|()| true)
        }
        "pictures" => {
            arguments.finish()?;
            pictures::draw().map(|()| true)
        }
        "header" => {
            arguments.finish()?;
            abi::write_header(&workspace::root()).map(|()| true)
        }
        "setup" => {
            let all = arguments.flag("--all");
            arguments.finish()?;
            setup::run(all).map(|()| true)
        }
        "demo" => demo::run(&demo::DemoOptions::parse(arguments)?),
        "dist" => dist::run(&dist::DistOptions::parse(arguments)?),
        "bench" => bench::run(&bench::BenchOptions::parse(arguments)?),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(true)
        }
        other => bail!("there is no chore '{other}'; see `cargo xtask help`"),
    }
}

fn step_named(name: &str) -> Result<&'static CheckStep> {
    steps().find(|step| step.name == name).with_context(|| format!("there is no step '{name}'"))
}

/// The steps of all commands.
fn steps() -> impl Iterator<Item = &'static CheckStep> {
    test::steps().chain(integrations::steps()).chain(deepcheck::steps())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_step_has_a_name_of_its_own() {
        let names: Vec<_> = steps().map(|step| steps::file(step.name, "log")).collect();
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }
}
