//! A step whose process has been started.

use std::fs;
use std::io::{IsTerminal, Write, stdout};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::files::file;
use super::outcome::{CannotRun, StepOutcome};
use super::step::CheckStep;
use crate::process::supervised::{End, Supervised};

/// Starts the steps of a run.
pub(super) struct StepStarter {
    /// Temporary files of all steps.
    pub(super) temporary: PathBuf,
    /// When the last step must have ended.
    pub(super) end: Instant,
    /// After this no step begins.
    pub(super) last_begin: Option<Instant>,
    /// What starts the process of a step.
    pub(super) program: fn(&CheckStep) -> Command,
}

impl StepStarter {
    /// Starts a step. It ends at its limit, or at the end of the run.
    pub(super) fn start(&self, step: &CheckStep) -> RunningStep {
        if self.last_begin.is_some_and(|last| Instant::now() > last) {
            let reason = CannotRun("no time was left to begin it".to_owned());
            return RunningStep { name: step.name, process: Err(reason.into()) };
        }
        for extension in ["log", "outcome", "xml"] {
            // An error means that the step has not run before.
            let _ = fs::remove_file(file(step.name, extension));
        }
        let mut command = (self.program)(step);
        command.env("TMPDIR", &self.temporary);
        if stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always").env("PY_COLORS", "1");
        }
        let limit = step.limit.min(self.end.saturating_duration_since(Instant::now()));
        let process = Supervised::start(&mut command, file(step.name, "log"), limit);
        RunningStep { name: step.name, process }
    }
}

/// A step that runs, or could not be started.
pub(super) struct RunningStep {
    pub(super) name: &'static str,
    process: Result<Supervised>,
}

impl RunningStep {
    /// Whether nothing is to be waited for.
    pub(super) fn is_over(&mut self) -> bool {
        self.process.as_mut().map_or(true, Supervised::is_over)
    }

    /// Shows its output until it ends, and calls `meanwhile` again and again. Returns what became of it, and its time.
    pub(super) fn follow(self, shown: &mut dyn Write, meanwhile: impl FnMut()) -> (StepOutcome, Duration) {
        let mut process = match self.process {
            Ok(process) => process,
            Err(error) => return (StepOutcome::of(Err(error)), Duration::ZERO),
        };
        let outcome = match process.follow(shown, meanwhile) {
            Err(error) => StepOutcome::of(Err(error)),
            Ok(End::AtLimit(limit)) => {
                StepOutcome::Failed(format!("ended at its limit of {} s", limit.as_secs()))
            }
            Ok(End::Exited(status)) => match StepOutcome::read(&file(self.name, "outcome")) {
                Some(outcome) => outcome,
                None => StepOutcome::Failed(match status.signal() {
                    Some(signal) => format!("ended by signal {signal}"),
                    None => format!("ended with {status}"),
                }),
            },
        };
        (outcome, process.time())
    }
}
