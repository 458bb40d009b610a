//! Steps that run one after another, beside those that a run shows.

use std::collections::VecDeque;
use std::mem;

use super::running_step::{RunningStep, StepStarter};
use super::step::CheckStep;

/// A list of steps, of which at most one runs.
pub(super) struct Lane {
    waiting: VecDeque<CheckStep>,
    running: Option<RunningStep>,
    /// Those that have ended, and have not been shown.
    ended: Vec<RunningStep>,
}

impl Lane {
    /// Starts the first step.
    pub(super) fn begin(steps: &[CheckStep], starter: &StepStarter) -> Lane {
        let mut lane = Lane { waiting: steps.iter().copied().collect(), running: None, ended: Vec::new() };
        lane.advance(starter);
        lane
    }

    /// Starts the next step, if the last one has ended.
    pub(super) fn advance(&mut self, starter: &StepStarter) {
        if self.running.as_mut().is_none_or(RunningStep::is_over) {
            self.ended.extend(self.running.take());
            self.running = self.waiting.pop_front().map(|step| starter.start(&step));
        }
    }

    /// The steps that have ended since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<RunningStep> {
        mem::take(&mut self.ended)
    }

    /// Whether a step runs, or its end has not been seen.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }
}
