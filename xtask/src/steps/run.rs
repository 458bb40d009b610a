//! A run of steps: starts each, waits for it until its limit, and says at the end what became of all.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::files::{file, folder};
use super::outcome::StepOutcome;
use super::reports::{self, TestReports};
use super::step::CheckStep;
use super::surroundings::Surroundings;
use crate::console::heading;
use crate::files::{last_lines, make_folder};
use crate::process::descendants;
use crate::process::supervised::{End, Supervised};
use crate::workspace::target;

/// How many lines of the output of a failed step the summary repeats.
const LAST_LINES: usize = 30;

/// Runs the steps whose name contains a text. Returns whether all passed.
///
/// # Errors
/// No step has such a name, or the run cannot begin.
pub(crate) fn run_only(text: &str, all: &[&CheckStep], limit: Duration) -> Result<bool> {
    run_and_then(text, all, limit, |_| ())
}

/// As [`run_only`], and calls `after` with the name of each step that has ended.
///
/// # Errors
/// As [`run_only`].
pub(crate) fn run_and_then(text: &str, all: &[&CheckStep], limit: Duration, after: fn(&str)) -> Result<bool> {
    let wanted: Vec<_> = all.iter().filter(|step| step.name.contains(text)).collect();
    if wanted.is_empty() {
        let names: Vec<_> = all.iter().map(|step| step.name).collect();
        bail!("no step has '{text}' in its name; there are: {}", names.join(", "));
    }
    let mut steps = Steps::new(limit)?;
    for step in wanted {
        steps.run(step);
        after(step.name);
    }
    Ok(steps.summary())
}

/// A run of steps.
pub(crate) struct Steps {
    /// Temporary files of all steps.
    temporary: PathBuf,
    before: Surroundings,
    started: Instant,
    limit: Duration,
    /// What starts the process of a step.
    program: fn(&CheckStep) -> Command,
    done: Vec<DoneStep>,
    tests: TestReports,
}

struct DoneStep {
    name: &'static str,
    outcome: StepOutcome,
    time: Duration,
}

impl DoneStep {
    fn has_failed(&self) -> bool {
        matches!(self.outcome, StepOutcome::Failed(_))
    }

    /// How its output ended, for who reads only the end of a long log.
    fn last_lines(&self) -> String {
        let end = last_lines(&file(self.name, "log"), LAST_LINES);
        format!("the output of '{}' ends:\n  {}", self.name, end.replace('\n', "\n  "))
    }
}

/// A step that runs beside others.
pub(crate) struct RunningStep {
    name: &'static str,
    process: Result<Supervised>,
}

impl Steps {
    /// Begins a run that ends within this time.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub(crate) fn new(limit: Duration) -> Result<Steps> {
        make_folder(&folder())?;
        // The name is short because the paths of unix sockets are.
        let temporary = tempfile::Builder::new().prefix("nereid-").rand_bytes(4).tempdir();
        let temporary = temporary.context("cannot make a temporary folder")?.keep();
        let before = Surroundings::now()?;
        let tests = TestReports::default();
        let started = Instant::now();
        Ok(Steps { temporary, before, started, limit, program: this_program, done: Vec::new(), tests })
    }

    /// Does a step and shows its output.
    pub(crate) fn run(&mut self, step: &CheckStep) {
        let started = self.start(step);
        self.finish(started);
    }

    /// Starts a step beside others. Its output is shown when it is finished.
    pub(crate) fn start(&self, step: &CheckStep) -> RunningStep {
        for extension in ["log", "outcome", "xml"] {
            // An error means that the step has not run before.
            let _ = fs::remove_file(file(step.name, extension));
        }
        let mut command = (self.program)(step);
        command.env("TMPDIR", &self.temporary);
        if stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always").env("PY_COLORS", "1");
        }
        let limit = step.limit.min(self.limit.saturating_sub(self.started.elapsed()));
        let process = Supervised::start(&mut command, file(step.name, "log"), limit);
        RunningStep { name: step.name, process }
    }

    /// Shows the output of a step until it ends.
    pub(crate) fn finish(&mut self, started: RunningStep) {
        let RunningStep { name, process } = started;
        heading(name);
        let (outcome, time) = match process {
            Ok(mut process) => (self.follow(name, &mut process), process.time()),
            Err(error) => (StepOutcome::of(Err(error)), Duration::ZERO),
        };
        self.done.push(DoneStep { name, outcome, time });
    }

    fn follow(&mut self, name: &str, process: &mut Supervised) -> StepOutcome {
        let end = process.follow(&mut stdout());
        let reports = file(name, "xml");
        if reports.is_file() {
            match reports::read(&reports) {
                Ok(tests) => self.tests.extend(tests),
                Err(error) => return StepOutcome::of(Err(error)),
            }
        }
        match end {
            Err(error) => StepOutcome::of(Err(error)),
            Ok(End::AtLimit(limit)) => {
                StepOutcome::Failed(format!("ended at its limit of {} s", limit.as_secs()))
            }
            Ok(End::Exited(status)) => match StepOutcome::read(&file(name, "outcome")) {
                Some(outcome) => outcome,
                None => StepOutcome::Failed(match status.signal() {
                    Some(signal) => format!("ended by signal {signal}"),
                    None => format!("ended with {status}"),
                }),
            },
        }
    }

    /// Prints the result of each step and the lists of tests, and cleans up. Returns whether no step failed and nothing
    /// was left behind.
    pub(crate) fn summary(mut self) -> bool {
        heading("summary");
        for DoneStep { name, outcome, time } in &self.done {
            let line = format!(
                "{name:<18} {:<8} {:>7.1} s  {}",
                outcome.word(),
                time.as_secs_f64(),
                outcome.reason()
            );
            println!("{}", line.trim_end());
        }
        for line in self.tests.lines() {
            println!("{line}");
        }
        let failed: Vec<_> = self.done.iter().filter(|step| step.has_failed()).collect();
        for step in &failed {
            println!("{}", step.last_lines());
        }
        let failed = failed.len();
        let clean = self.clean_up(failed == 0);
        print_free_space();
        let minutes = self.started.elapsed().as_secs_f64() / 60.0;
        match failed {
            0 => println!("all steps passed in {minutes:.1} minutes"),
            count => println!("{count} of {} steps failed in {minutes:.1} minutes", self.done.len()),
        }
        failed == 0 && clean
    }

    /// Lists what the steps left: processes, files in the repository and in shared memory, and temporary files, which are
    /// removed if all was well.
    fn clean_up(&mut self, passed: bool) -> bool {
        let mut left: Vec<String> = descendants::remaining().iter().map(ToString::to_string).collect();
        descendants::end_all(descendants::GRACE);
        match Surroundings::now() {
            Ok(now) => left.extend(now.new_since(&self.before).map(|file| format!("file {file}"))),
            Err(error) => left.push(format!("{error:#}")),
        }
        if passed {
            let removed = fs::remove_dir_all(&self.temporary);
            left.extend(removed.err().map(|error| format!("{}: {error}", self.temporary.display())));
        } else {
            println!("temporary files of the steps: {}", self.temporary.display());
        }
        match left.len() {
            0 => println!("left behind: nothing"),
            count => println!("left behind, {count} FAILED:\n  {}", left.join("\n  ")),
        }
        left.is_empty()
    }
}

/// A full disk fails programs in many ways, and few of them say so.
fn print_free_space() {
    let Ok(disk) = rustix::fs::statvfs(target()) else { return };
    let bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
    println!("free space: {:.1} GiB on the disk of the target folder", bytes as f64 / f64::from(1 << 30));
}

/// This program, also after cargo has built it again, does a step.
fn this_program(step: &CheckStep) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["step", step.name]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A run whose steps are scripts of the shell: their names.
    fn scripts(limit: Duration) -> Steps {
        descendants::end_with_this_program().unwrap();
        let program = |step: &CheckStep| {
            let mut command = Command::new("sh");
            command.args(["-c", step.name]);
            command
        };
        Steps { program, ..Steps::new(limit).unwrap() }
    }

    fn step(name: &'static str, limit: Duration) -> CheckStep {
        CheckStep { name, limit, action: || Ok(()) }
    }

    fn outcomes(run: &Steps) -> Vec<&str> {
        run.done.iter().map(|step| step.outcome.reason()).collect()
    }

    /// A run with a failed step fails, and keeps its temporary files.
    fn end(run: Steps) {
        let temporary = run.temporary.clone();
        assert!(!run.summary());
        fs::remove_dir_all(temporary).unwrap();
    }

    #[test]
    fn a_step_that_stands_still_is_ended_and_the_next_one_runs() {
        let mut run = scripts(LONG);
        run.run(&step("echo begun && sleep 600", Duration::from_millis(300)));
        run.run(&step("echo second && echo last && exit 3", LONG));
        let reasons = outcomes(&run);
        assert_eq!(reasons, ["ended at its limit of 0 s", "ended with exit status: 3"]);
        assert_eq!(
            run.done[1].last_lines(),
            "the output of 'echo second && echo last && exit 3' ends:\n  second\n  last"
        );
        end(run);
    }

    #[test]
    fn no_step_outlives_the_limit_of_the_run() {
        let mut run = scripts(Duration::ZERO);
        run.run(&step("sleep 600", LONG));
        assert!(outcomes(&run)[0].starts_with("ended at its limit of 0 s"));
        end(run);
    }

    #[test]
    fn a_step_that_crashes_is_told_with_its_signal() {
        let mut run = scripts(LONG);
        run.run(&step("kill -KILL $$", LONG));
        assert!(outcomes(&run)[0].starts_with("ended by signal 9"), "{:?}", outcomes(&run));
        end(run);
    }

    #[test]
    fn steps_run_beside_each_other() {
        let mut run = scripts(LONG);
        // Each waits for the other.
        let first = run.start(&step("mkfifo $TMPDIR/pipe && echo 1 > $TMPDIR/pipe && exit 5", LONG));
        run.run(&step("until test -p $TMPDIR/pipe; do :; done; read x < $TMPDIR/pipe; exit $x", LONG));
        run.finish(first);
        let reasons = outcomes(&run);
        assert!(reasons[0].starts_with("ended with exit status: 1"), "{reasons:?}");
        assert!(reasons[1].starts_with("ended with exit status: 5"), "{reasons:?}");
        end(run);
    }
}
