//! A step, and the process that does it.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::files::file;
use super::outcome::StepOutcome;
use crate::process::descendants;

/// A part of a run.
#[derive(Clone, Copy)]
pub(crate) struct CheckStep {
    /// What it is called in the output, and in the names of its files.
    pub(crate) name: &'static str,
    /// How long it may take on a busy machine.
    pub(crate) limit: Duration,
    pub(crate) action: fn() -> Result<()>,
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
