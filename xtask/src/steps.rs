//! Steps of a long run: each in a process of its own, with a name, a limit, a log, and an end that leaves nothing behind.
//!
//! A step that fails, stands still or crashes does not stop the others. The process of a step is this program, started
//! with the words `step NAME`.

use std::fmt;
use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};

mod reports;
mod run;
mod surroundings;

pub(crate) use run::Steps;

use crate::descendants;
use crate::workspace;

/// A part of a run.
pub(crate) struct CheckStep {
    /// What it is called in the output, and in the names of its files.
    pub(crate) name: &'static str,
    /// How long it may take on a busy machine.
    pub(crate) limit: Duration,
    pub(crate) action: fn() -> Result<()>,
}

/// The error of a step that a machine of this kind cannot do. The step counts as skipped.
#[derive(Debug)]
pub(crate) struct CannotRun(pub(crate) String);

impl fmt::Display for CannotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotRun {}

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StepOutcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl StepOutcome {
    fn of(result: Result<()>) -> StepOutcome {
        match result {
            Ok(()) => StepOutcome::Passed,
            Err(error) => match error.downcast::<CannotRun>() {
                Ok(CannotRun(reason)) => StepOutcome::Skipped(reason),
                Err(error) => StepOutcome::Failed(format!("{error:#}")),
            },
        }
    }

    fn word(&self) -> &'static str {
        match self {
            StepOutcome::Passed => "passed",
            StepOutcome::Failed(_) => "FAILED",
            StepOutcome::Skipped(_) => "skipped",
        }
    }

    fn reason(&self) -> &str {
        match self {
            StepOutcome::Passed => "",
            StepOutcome::Failed(reason) | StepOutcome::Skipped(reason) => reason,
        }
    }

    fn write(&self, file: &Path) -> Result<()> {
        let text = json!({"outcome": self.word(), "reason": self.reason()}).to_string();
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    fn read(file: &Path) -> Option<StepOutcome> {
        let written: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        let reason = written["reason"].as_str()?.to_owned();
        match written["outcome"].as_str()? {
            "passed" => Some(StepOutcome::Passed),
            "skipped" => Some(StepOutcome::Skipped(reason)),
            _ => Some(StepOutcome::Failed(reason)),
        }
    }
}

/// Where steps write: their logs, outcomes and reports of tests.
pub(crate) fn folder() -> PathBuf {
    workspace::target().join("steps")
}

/// The path of a file of a step.
pub(crate) fn file(step: &str, extension: &str) -> PathBuf {
    folder()
        .join(step.replace(|character: char| !character.is_alphanumeric(), "-"))
        .with_added_extension(extension)
}

/// Does a step in this process, which the run has started for it.
///
/// Returns whether it did not fail.
///
/// # Errors
/// The outcome cannot be written.
pub(crate) fn perform(step: &CheckStep) -> Result<bool> {
    // A run that is killed takes its steps with it; this process then ends what it has started.
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the run to its end")?;
    let mut outcome = StepOutcome::of((step.action)());
    let left = descendants::remaining();
    if !left.is_empty() {
        let lines: String = left.iter().map(|process| format!("\n  {process}")).collect();
        let left = format!("{} processes were left:{lines}", left.len());
        outcome = match outcome {
            StepOutcome::Failed(reason) => StepOutcome::Failed(format!("{reason}\n{left}")),
            StepOutcome::Passed | StepOutcome::Skipped(_) => StepOutcome::Failed(left),
        };
        descendants::end_all(descendants::GRACE);
    }
    match &outcome {
        StepOutcome::Passed => {}
        StepOutcome::Failed(reason) => println!("{reason}"),
        StepOutcome::Skipped(reason) => println!("skipped: {reason}"),
    }
    outcome.write(&file(step.name, "outcome"))?;
    Ok(!matches!(outcome, StepOutcome::Failed(_)))
}

/// Prints a line that is easy to find in the output of other programs.
pub(crate) fn heading(text: &str) {
    if stdout().is_terminal() {
        println!("\n\x1b[1m== {text}\x1b[0m");
    } else {
        println!("\n== {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("outcome");
        let failed = StepOutcome::of(Err(anyhow::anyhow!("broken").context("step")));
        let skipped = StepOutcome::of(Err(CannotRun("not here".into()).into()));
        assert_eq!(failed, StepOutcome::Failed("step: broken".into()));
        assert_eq!(skipped, StepOutcome::Skipped("not here".into()));
        for outcome in [StepOutcome::of(Ok(())), failed, skipped] {
            outcome.write(&file).unwrap();
            assert_eq!(StepOutcome::read(&file), Some(outcome));
        }
        fs::write(&file, "{").unwrap();
        assert_eq!(StepOutcome::read(&file), None);
    }

    #[test]
    fn files_have_the_name_of_the_step() {
        assert!(file("python clients", "log").ends_with("steps/python-clients.log"));
    }
}
