//! `cargo xtask deepcheck`: checks that take too long for every change, or that need tools which not every machine has.
//!
//! A model checker tries every order of threads. Sanitizers of the compiler check the tests of the crates that exchange
//! memory with C. Valgrind checks a program in C. Miri, if it is installed, checks the code that owns memory. Fuzzers
//! search for two hours, campaigns of random faults last an hour, and 60,000 generated cases are compared with a real
//! Triton. A check whose tool is missing is skipped, and the summary names it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::steps::{self, CannotRun, CheckStep};
use crate::tools::runtime_library;
use crate::workspace::cargo;
use crate::{chaos, differential, files, fuzz, memcheck, process, workspace};

/// How many times in one execution the model checker preempts a thread, in a quick run. Two preemptions find nearly all
/// mistakes.
pub(crate) const FEW_SWITCHES: u32 = 2;
/// The same for a long run.
const MANY_SWITCHES: u32 = 4;

/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// The campaigns last an hour, and longer if they look for a small history.
const LIMIT_OF_CHAOS: Duration = Duration::from_secs(2 * 60 * 60);
/// 60,000 cases take two hours on two processors.
const LIMIT_OF_DIFFERENTIAL: Duration = Duration::from_secs(4 * 60 * 60);
/// The fuzzers search for two hours, after a build.
const LIMIT_OF_FUZZING: Duration = Duration::from_secs(3 * 60 * 60);
/// How long all of them may take.
const LIMIT_OF_ALL: Duration = Duration::from_secs(13 * 60 * 60);

const STEPS: [CheckStep; 8] = [
    CheckStep { name: "long model checker", limit: LIMIT, action: || model_checker(MANY_SWITCHES) },
    CheckStep { name: "address sanitizer", limit: LIMIT, action: || ADDRESS.run() },
    CheckStep { name: "thread sanitizer", limit: LIMIT, action: || THREAD.run() },
    CheckStep { name: "valgrind", limit: LIMIT, action: || memcheck::run(None) },
    CheckStep { name: "miri", limit: LIMIT, action: miri },
    CheckStep { name: "long fuzzing", limit: LIMIT_OF_FUZZING, action: fuzz::long },
    CheckStep { name: "long chaos", limit: LIMIT_OF_CHAOS, action: chaos::long },
    CheckStep { name: "long differential", limit: LIMIT_OF_DIFFERENTIAL, action: differential::long },
];

/// All steps.
pub(crate) fn steps() -> impl Iterator<Item = &'static CheckStep> {
    STEPS.iter()
}

/// Runs the steps whose name contains `only`, or all. Returns whether all passed.
///
/// # Errors
/// No step has such a name, or the run cannot begin.
pub(crate) fn run(only: Option<&str>) -> Result<bool> {
    steps::run_only(only.unwrap_or_default(), &STEPS, LIMIT_OF_ALL)
}

/// Checks the response channel, the order of responses, the hand-over of work to threads, and inline wake-ups. The
/// checked code is the real one, with the model checker's locks and atomics.
pub(crate) fn model_checker(switches: u32) -> Result<()> {
    // With the same packages and features both commands share what cargo builds.
    let mut build = vec!["test", "--locked", "--features", "executor/loom,frontend/loom"];
    build.extend(["inference", "executor", "frontend"].iter().flat_map(|name| ["--package", name]));
    for tests in [&["--test", "loom_response"][..], &["--lib", "loom_tests"]] {
        let mut command = cargo(&[&build, tests].concat());
        process::run(command.env("LOOM_MAX_PREEMPTIONS", switches.to_string()))?;
    }
    Ok(())
}

/// One of the compiler's sanitizers, and the tests it checks.
struct Sanitizer {
    /// Its name for `-Zsanitizer`.
    name: &'static str,
    /// The suffix of the runtime library's name.
    runtime: &'static str,
    packages: &'static [&'static str],
    /// The tests, as arguments of cargo.
    tests: &'static [&'static str],
    /// The environment variable with the runtime's options, and its value. Paths in it are relative to the root.
    options: (&'static str, &'static str),
}

const ADDRESS: Sanitizer = Sanitizer {
    name: "address",
    runtime: "asan",
    packages: &["c-api", "in-process", "native-backend", "backend-onnx"],
    tests: &["--lib", "--tests"],
    options: ("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1"),
};

const THREAD: Sanitizer = Sanitizer {
    name: "thread",
    runtime: "tsan",
    packages: &["inference", "host", "executor", "engine"],
    tests: &["--lib"],
    options: ("TSAN_OPTIONS", "halt_on_error=1 suppressions=xtask/thread-sanitizer.txt"),
};

impl Sanitizer {
    /// Whether the toolchain has its runtime.
    fn is_here(&self) -> Result<bool> {
        let folder = process::output(Command::new("rustc").args(["--print", "target-libdir"]))?;
        let ending = format!("_rt.{}.a", self.runtime);
        let files = files::paths_in(Path::new(folder.trim()))?;
        Ok(files.iter().any(|file| file.to_string_lossy().ends_with(&ending)))
    }

    /// Builds and runs the tests in a target folder of its own. The standard library is not instrumented.
    fn run(&self) -> Result<()> {
        if !self.is_here()? {
            bail!(CannotRun(format!("the toolchain lacks the runtime of the {} sanitizer", self.name)));
        }
        // Build scripts are not instrumented if a target is named.
        let target = workspace::host()?;
        let mut command = cargo(&["test", "--locked", "--target", &target]);
        for package in self.packages {
            command.args(["--package", package]);
        }
        let (variable, options) = self.options;
        command
            .args(self.tests)
            // Sanitizers are unstable; this variable allows them.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", format!("-Zsanitizer={} -Cunsafe-allow-abi-mismatch=sanitizer", self.name))
            .env("CARGO_TARGET_DIR", workspace::target().join("sanitizers").join(self.name))
            .env(runtime_library::VARIABLE, runtime_library::fetch()?)
            .env(variable, options.replace("xtask/", &format!("{}/xtask/", workspace::root().display())));
        process::run(&mut command)
    }
}

/// The crates that own memory which C points to, and whose tests need nothing but memory.
fn miri() -> Result<()> {
    if !workspace::has_cargo_command("miri") {
        bail!(CannotRun("miri is not installed (rustup +nightly component add miri)".to_owned()));
    }
    let tests = ["stable_box", "words::parameter", "words::buffer_attributes", "handle"];
    let mut command = cargo(&["miri", "test", "--package", "c-api", "--lib", "--"]);
    process::run(command.args(tests))
}
