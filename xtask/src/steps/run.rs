//! A run of steps: starts each, waits for it until its limit, and says at the end what became of all.

use std::fs;
use std::io::stdout;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::files::{file, folder};
use super::lane::Lane;
use super::outcome::StepOutcome;
use super::reports::{self, TestReports};
use super::running_step::{RunningStep, StepStarter};
use super::step::CheckStep;
use super::surroundings::Surroundings;
use crate::console::heading;
use crate::files::{last_lines, make_folder};
use crate::process::descendants;
use crate::process::supervised::PAUSE;
use crate::workspace::target;

/// How many lines of the output of a failed step the summary repeats.
const LAST_LINES: usize = 30;

/// Runs the steps whose name contains a text. Returns whether all passed.
///
/// # Errors
/// No step has such a name, or the run cannot begin.
pub(crate) fn run_only(text: &str, all: &[CheckStep], limit: Duration) -> Result<bool> {
    let wanted = named(text, all)?;
    let mut steps = Steps::new(limit)?;
    steps.run_all(&wanted);
    Ok(steps.summary())
}

/// The steps whose name contains a text.
///
/// # Errors
/// There is none.
pub(crate) fn named(text: &str, all: &[CheckStep]) -> Result<Vec<CheckStep>> {
    let wanted: Vec<_> = all.iter().copied().filter(|step| step.name.contains(text)).collect();
    if wanted.is_empty() {
        let names: Vec<_> = all.iter().map(|step| step.name).collect();
        bail!("no step has '{text}' in its name; there are: {}", names.join(", "));
    }
    Ok(wanted)
}

/// A run of steps. Those of [`run`](Steps::run) are done one after another, and what
/// [`run_beside`](Steps::run_beside) has started runs at the same time.
pub(crate) struct Steps {
    starter: StepStarter,
    before: Surroundings,
    started: Instant,
    lanes: Vec<Lane>,
    after: fn(&str),
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
        let started = Instant::now();
        Ok(Steps {
            starter: StepStarter { temporary, end: started + limit, last_begin: None, program: this_program },
            before,
            started,
            lanes: Vec::new(),
            after: |_| (),
            done: Vec::new(),
            tests: TestReports::default(),
        })
    }

    /// Begins no step later than this after now: it is skipped.
    pub(crate) fn begin_within(&mut self, time: Duration) {
        self.starter.last_begin = Some(Instant::now() + time);
    }

    /// Calls a function with the name of each step that has ended.
    pub(crate) fn call_after_each(&mut self, after: fn(&str)) {
        self.after = after;
    }

    /// Starts a lane: these steps are done one after another, beside those of [`run`](Steps::run) and of other lanes. Their
    /// output is shown when they have ended.
    pub(crate) fn run_beside(&mut self, steps: &[CheckStep]) {
        self.lanes.push(Lane::begin(steps, &self.starter));
    }

    /// Does a step and shows its output.
    pub(crate) fn run(&mut self, step: &CheckStep) {
        let step = self.starter.start(step);
        self.finish(step);
    }

    /// Does steps one after another.
    pub(crate) fn run_all(&mut self, steps: &[CheckStep]) {
        for step in steps {
            self.run(step);
        }
    }

    /// Waits for all lanes.
    pub(crate) fn finish_lanes(&mut self) {
        while self.lanes.iter().any(Lane::is_running) {
            sleep(PAUSE);
            self.lanes.iter_mut().for_each(|lane| lane.advance(&self.starter));
            self.show_ended();
        }
        self.show_ended();
    }

    /// Shows the output of a step until it ends, and then of those that have ended beside it.
    fn finish(&mut self, step: RunningStep) {
        self.follow(step);
        self.show_ended();
    }

    fn show_ended(&mut self) {
        let ended: Vec<_> = self.lanes.iter_mut().flat_map(Lane::take_ended).collect();
        ended.into_iter().for_each(|step| self.follow(step));
    }

    fn follow(&mut self, step: RunningStep) {
        let name = step.name;
        heading(name);
        let (lanes, starter) = (&mut self.lanes, &self.starter);
        let meanwhile = || lanes.iter_mut().for_each(|lane| lane.advance(starter));
        let (mut outcome, time) = step.follow(&mut stdout(), meanwhile);
        match reports::read(&file(name, "xml")) {
            Ok(tests) => self.tests.extend(tests),
            Err(error) => outcome = StepOutcome::of(Err(error)),
        }
        self.done.push(DoneStep { name, outcome, time });
        (self.after)(name);
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
            let removed = fs::remove_dir_all(&self.starter.temporary);
            left.extend(removed.err().map(|error| format!("{}: {error}", self.starter.temporary.display())));
        } else {
            println!("temporary files of the steps: {}", self.starter.temporary.display());
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
        let mut run = Steps::new(limit).unwrap();
        run.starter.program = program;
        run
    }

    fn step(name: &'static str, limit: Duration) -> CheckStep {
        CheckStep { name, limit, action: || Ok(()) }
    }

    fn outcomes(run: &Steps) -> Vec<&str> {
        run.done.iter().map(|step| step.outcome.reason()).collect()
    }

    /// A run with a failed step fails, and keeps its temporary files.
    fn end(run: Steps) {
        let temporary = run.starter.temporary.clone();
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
    fn a_step_for_which_no_time_is_left_is_skipped() {
        let mut run = scripts(LONG);
        run.begin_within(Duration::ZERO);
        run.run(&step("exit 3", LONG));
        assert_eq!((outcomes(&run), run.done[0].has_failed()), (vec!["no time was left to begin it"], false));
        assert!(run.summary());
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
        let first = step("mkfifo $TMPDIR/pipe && echo 1 > $TMPDIR/pipe && exit 5", LONG);
        run.run_beside(&[first, step("exit 6", LONG)]);
        run.run(&step("until test -p $TMPDIR/pipe; do :; done; read x < $TMPDIR/pipe; exit $x", LONG));
        run.finish_lanes();
        let mut reasons = outcomes(&run);
        reasons.sort_unstable();
        assert_eq!(reasons, [1, 5, 6].map(|status| format!("ended with exit status: {status}")));
        end(run);
    }

    #[test]
    fn a_lane_goes_on_while_another_step_runs() {
        let mut run = scripts(LONG);
        run.run_beside(&[step("exit 3", LONG), step("mkfifo $TMPDIR/pipe && echo 4 > $TMPDIR/pipe", LONG)]);
        run.run(&step("until test -p $TMPDIR/pipe; do :; done; read x < $TMPDIR/pipe; exit $x", LONG));
        assert!(outcomes(&run).starts_with(&["ended with exit status: 4", "ended with exit status: 3"]));
        run.finish_lanes();
        end(run);
    }
}
