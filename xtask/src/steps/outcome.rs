//! What became of a step. Its process writes the outcome into a file, and the run reads it.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

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
pub(super) enum StepOutcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl StepOutcome {
    pub(super) fn of(result: Result<()>) -> StepOutcome {
        match result {
            Ok(()) => StepOutcome::Passed,
            Err(error) => match error.downcast::<CannotRun>() {
                Ok(CannotRun(reason)) => StepOutcome::Skipped(reason),
                Err(error) => StepOutcome::Failed(format!("{error:#}")),
            },
        }
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            StepOutcome::Passed => "passed",
            StepOutcome::Failed(_) => "FAILED",
            StepOutcome::Skipped(_) => "skipped",
        }
    }

    pub(super) fn reason(&self) -> &str {
        match self {
            StepOutcome::Passed => "",
            StepOutcome::Failed(reason) | StepOutcome::Skipped(reason) => reason,
        }
    }

    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let text = json!({"outcome": self.word(), "reason": self.reason()}).to_string();
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    pub(super) fn read(file: &Path) -> Option<StepOutcome> {
        let written: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        let reason = written["reason"].as_str()?.to_owned();
        match written["outcome"].as_str()? {
            "passed" => Some(StepOutcome::Passed),
            "skipped" => Some(StepOutcome::Skipped(reason)),
            _ => Some(StepOutcome::Failed(reason)),
        }
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
}
