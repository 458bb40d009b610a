//! A list of steps with names, times and a summary.

use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;

/// Runs steps one after the other and stores their results. After a failed step the next one still runs.
pub(crate) struct Steps {
    done: Vec<(String, StepOutcome, Duration)>,
}

enum StepOutcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Steps {
    pub(crate) fn new() -> Steps {
        Steps { done: Vec::new() }
    }

    /// Runs one step and shows its output.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        heading(name);
        let start = Instant::now();
        let outcome = match step() {
            Ok(()) => StepOutcome::Passed,
            Err(error) => {
                println!("{error:#}");
                StepOutcome::Failed(format!("{error:#}"))
            }
        };
        self.done.push((name.to_owned(), outcome, start.elapsed()));
    }

    /// Runs a step that not every machine can do. If it fails, it counts as skipped.
    pub(crate) fn attempt(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        self.run(name, step);
        if let Some((_, outcome, _)) = self.done.last_mut()
            && let StepOutcome::Failed(reason) = outcome
        {
            *outcome = StepOutcome::Skipped(reason.lines().next().unwrap_or_default().to_owned());
        }
    }

    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        self.done.push((name.to_owned(), StepOutcome::Skipped(reason.to_owned()), Duration::ZERO));
    }

    /// Prints the result of each step. Returns whether none failed.
    pub(crate) fn summary(&self) -> bool {
        heading("summary");
        for (name, outcome, time) in &self.done {
            let (word, reason) = match outcome {
                StepOutcome::Passed => ("ok", ""),
                StepOutcome::Failed(reason) => ("FAILED", reason.as_str()),
                StepOutcome::Skipped(reason) => ("skipped", reason.as_str()),
            };
            println!(
                "{}",
                format!("{name:<16} {word:<8} {:>7.1} s  {reason}", time.as_secs_f64()).trim_end()
            );
        }
        let failed =
            self.done.iter().filter(|(_, outcome, _)| matches!(outcome, StepOutcome::Failed(_))).count();
        match failed {
            0 => println!("all steps passed"),
            count => println!("{count} of {} steps failed", self.done.len()),
        }
        failed == 0
    }
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
    fn one_failure_fails_the_run_but_not_the_other_steps() {
        let mut steps = Steps::new();
        let mut ran = 0;
        steps.run("good", || Ok(()));
        assert!(steps.summary());
        steps.run("bad", || anyhow::bail!("broken"));
        steps.run("after", || {
            ran += 1;
            Ok(())
        });
        assert!(!steps.summary());
        assert_eq!(ran, 1);
    }

    #[test]
    fn a_skipped_step_is_no_failure() {
        let mut steps = Steps::new();
        steps.skip("deny", "cargo-deny is not installed");
        steps.attempt("plug-ins", || anyhow::bail!("there is no wheel to be had"));
        assert!(steps.summary());
    }
}
