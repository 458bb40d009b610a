//! `cargo xtask deepcheck`: what takes too long for every change, or needs what not every machine has.
//!
//! A model checker tries every order in which threads may run; sanitizers of the compiler watch the tests of the crates that
//! exchange memory with C; valgrind watches a program in C; miri, where it is installed, watches what owns memory. What the
//! machine lacks is skipped, and the summary says what that is.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::steps::Steps;
use crate::workspace::cargo;
use crate::{memcheck, process, runtime_library, workspace};

/// How many times in one execution the model checker takes the processor from a thread that could go on, in a quick run.
/// Nearly all mistakes show with two.
pub(crate) const FEW_SWITCHES: u32 = 2;
/// The same where there is time.
const MANY_SWITCHES: u32 = 4;

/// Runs all steps, or those whose name contains `only`, prints how they went, and gives whether all passed.
pub(crate) fn run(only: Option<&str>) -> Result<bool> {
    let mut steps = Steps::new();
    let wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    if wanted("model checker") {
        steps.run("model checker", || model_checker(MANY_SWITCHES));
    }
    for sanitizer in SANITIZERS {
        let name = format!("{} sanitizer", sanitizer.name);
        if wanted(&name) {
            match sanitizer.cannot_run()? {
                None => steps.run(&name, || sanitizer.run()),
                Some(reason) => steps.skip(&name, &reason),
            }
        }
    }
    if wanted("valgrind") {
        match memcheck::cannot_be() {
            None => steps.run("valgrind", || memcheck::run(None).map(drop)),
            Some(reason) => steps.skip("valgrind", reason),
        }
    }
    if wanted("miri") {
        if workspace::has_cargo_command("miri") {
            steps.run("miri", miri);
        } else {
            steps.skip("miri", "miri is not installed (rustup +nightly component add miri)");
        }
    }
    Ok(steps.summary())
}

/// Checks the channel of responses, their order, the hand-over of work and inline wake-ups. The code is the real one, with
/// the model checker's locks and atomics.
pub(crate) fn model_checker(switches: u32) -> Result<()> {
    let response = ["test", "--package", "nereid-inference", "--features", "loom", "--test", "loom_response"];
    let others = ["test", "--package", "nereid-engine", "--package", "nereid-frontend", "--lib"];
    let features = ["--features", "nereid-engine/loom,nereid-frontend/loom", "--locked", "loom_tests"];
    for arguments in [[&response[..], &["--locked"]], [&others, &features]] {
        let mut command = cargo(&arguments.concat());
        process::run(command.env("LOOM_MAX_PREEMPTIONS", switches.to_string()))?;
    }
    Ok(())
}

/// One of the compiler's sanitizers, and what it watches.
struct Sanitizer {
    /// As `-Zsanitizer` has it.
    name: &'static str,
    /// The runtime library's ending.
    runtime: &'static str,
    packages: &'static [&'static str],
    /// Which tests: arguments of cargo.
    tests: &'static [&'static str],
    /// Environment variable with the runtime's options, and its value below the root.
    options: (&'static str, &'static str),
}

const SANITIZERS: [Sanitizer; 2] = [
    Sanitizer {
        name: "address",
        runtime: "asan",
        packages: &["nereid-c-api", "nereid-in-process", "nereid-backend-onnx"],
        tests: &["--lib", "--tests"],
        options: ("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1"),
    },
    Sanitizer {
        name: "thread",
        runtime: "tsan",
        packages: &["nereid-inference", "nereid-engine"],
        tests: &["--lib"],
        options: ("TSAN_OPTIONS", "halt_on_error=1 suppressions=xtask/thread-sanitizer.txt"),
    },
];

impl Sanitizer {
    /// Why it cannot run here, if so.
    fn cannot_run(&self) -> Result<Option<String>> {
        let folder = process::output(Command::new("rustc").args(["--print", "target-libdir"]))?;
        let files = std::fs::read_dir(folder.trim()).with_context(|| format!("cannot read {folder}"))?;
        let ending = format!("_rt.{}.a", self.runtime);
        let has =
            files.filter_map(Result::ok).any(|file| file.file_name().to_string_lossy().ends_with(&ending));
        Ok((!has).then(|| format!("the toolchain lacks the runtime of the {} sanitizer", self.name)))
    }

    /// Builds and runs the tests below a target folder of its own. The standard library is as it comes, not watched.
    fn run(&self) -> Result<()> {
        let target = host()?;
        let mut command = cargo(&["test", "--locked", "--target", &target]);
        for package in self.packages {
            command.args(["--package", package]);
        }
        let (variable, options) = self.options;
        command
            .args(self.tests)
            // Sanitizers are not stable; the switch says that we know.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", format!("-Zsanitizer={} -Cunsafe-allow-abi-mismatch=sanitizer", self.name))
            .env("CARGO_TARGET_DIR", workspace::target().join("sanitizers").join(self.name))
            .env(runtime_library::VARIABLE, runtime_library::fetch()?)
            .env(variable, options.replace("xtask/", &format!("{}/xtask/", workspace::root().display())));
        process::run(&mut command)
    }
}

/// The machine's own target, which sanitizers need to be told, so that build scripts go without them.
fn host() -> Result<String> {
    let about = process::output(Command::new("rustc").arg("-vV").stderr(Stdio::inherit()))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what it runs on")
}

/// What owns memory that C points to, and what needs nothing but memory.
fn miri() -> Result<()> {
    let tests = ["stable_box", "words::parameter", "words::buffer_attributes", "handle"];
    let mut command = cargo(&["miri", "test", "--package", "nereid-c-api", "--lib", "--"]);
    process::run(command.args(tests))
}
