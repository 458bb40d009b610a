//! Tasks of the workspace: `cargo xtask test | deepcheck | memcheck | gates | docs | header | setup | demo | dist | bench`.
//!
//! This program does everything that needs more than cargo: the checks of a change, the Python environment, the
//! download of ONNX Runtime, the demo, the benchmarks. It writes everything below `target`, makes each thing once and
//! reuses it.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "chores talk to the person who started them")]

mod abi;
mod allocators;
mod arguments;
mod bench;
mod children;
mod debian;
mod debian_program;
mod deepcheck;
mod demo;
mod dist;
mod docs;
mod gates;
mod memcheck;
mod npm_package;
mod plugins;
mod process;
mod process_tree;
mod python;
mod runtime_library;
mod setup;
mod steps;
mod store_servers;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::arguments::Arguments;

const HELP: &str = "\
Chores of the workspace.

cargo xtask test [--quick]
    Everything that must be good before a change is: formatting, lints, gates, tests, documentation, Python clients
    and the demo. Makes what is missing first (see setup). --quick leaves out documentation, Python and the demo.

cargo xtask deepcheck [--only TEXT]
    What takes too long for every change: a model checker over the code that threads meet in, the tests of the crates that
    meet C under the compiler's address and thread sanitizers, memcheck, and miri. What the machine lacks is skipped.
    --only takes the steps whose name contains TEXT.

cargo xtask memcheck [--requests N]
    Sends N requests [default: 200], and ten times as many, to each test plug-in of the C interfaces, watched by the
    compiler's sanitizers and by valgrind: no wrong use of memory, none lost, and none that grows with requests.
    Skipped without valgrind.

cargo xtask gates
    Only the rules of our own: which crate may use which, the shape of files, and the C interfaces.

cargo xtask docs [--write]
    Makes a book of the pages in docs, in target/docs, and checks all links. --write renews the pages that the server
    writes itself, docs/options.md and docs/configuration-reference.md.

cargo xtask header
    Writes include/nereid.h from the tables of the C interfaces and the sources of the functions.

cargo xtask setup
    Makes target/venv with the Python packages of the tests and fetches ONNX Runtime into target/onnxruntime
    and, where they can be had, Triton's Python backend and local cache into target/plugins, azurite, which stands
    for Azure in tests, and axe-core into target/node, and redis-server, unless the system has it, into target/redis-server.
    Prints the environment variables that let the tests find them.

cargo xtask demo [--port-base N] [--once] [--dev]
    Trains a classifier of handwritten digits, serves it, classifies digits over HTTP and gRPC, shows the result and
    keeps serving. HTTP, gRPC and metrics listen on N, N+1, N+2 [default: 8000]. --once ends after the result.
    --dev uses a debug build.

cargo xtask dist [--dev] [--only wheel|deb|tar|image]
    Makes packages in target/dist: a Python wheel, a Debian package, an archive, and a container image. With licences
    and lists of all parts. --dev packs a debug build, for tests of the packages.

cargo xtask bench [--reference DIR] [--before BINARY] [--rounds N] [--seconds S] [--server BINARY]
                  [--only load|adversary|reload|ensemble|cache|micro] [--filter TEXT]
    Builds for release and measures: our server, a bare loop over ONNX Runtime, and, with --reference, the reference
    server of the nvidia-pytriton wheel installed in the site-packages folder DIR. Medians of N rounds [default: 3]
    of S seconds [default: 3] in alternation, then how much longer clients of our server wait while another one takes
    more than its share, then requests/s and p99 while a model is reloaded, then what an ensemble costs (beside a program
    without a server and a client that calls the members itself, per step, and in memory), then what the response cache
    costs and saves, then the criterion benches.
    Results also in target/bench.
    --server measures this build of our server instead of building one.
    --before measures an earlier build of the server beside this one and shows the ratios.
    --filter takes only rows whose name contains TEXT.
";

fn main() -> ExitCode {
    match run() {
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
            arguments.finish()?;
            test::run(quick)
        }
        "memcheck" => {
            let requests = arguments.value("--requests")?;
            arguments.finish()?;
            memcheck::run(requests)
        }
        "deepcheck" => {
            let only: Option<String> = arguments.value("--only")?;
            arguments.finish()?;
            deepcheck::run(only.as_deref())
        }
        "gates" => {
            arguments.finish()?;
            gates::run()
        }
        "docs" => {
            let renew = arguments.flag("--write");
            arguments.finish()?;
            if renew {
                docs::write()?;
            } else {
                docs::make()?;
            }
            Ok(true)
        }
        "header" => {
            arguments.finish()?;
            abi::write_header(&workspace::root())?;
            Ok(true)
        }
        "setup" => {
            arguments.finish()?;
            setup::run()?;
            Ok(true)
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
