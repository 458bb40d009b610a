//! How many executions of an instance wait for its worker ahead of time. Pure.
//!
//! A worker that executes one small request after the other sleeps between them, because each comes in a message of its
//! own. So the instance of a model without batching accepts more executions than one, while they are brief. They wait
//! in the server, and go to the worker together when it has ended the last message.
use std::time::Duration;

/// Executions that wait ahead of time take no longer than this together.
const WORK_AHEAD: Duration = Duration::from_millis(2);

const MOST_AHEAD: usize = 128;

/// The answer to such an execution is worth waiting for: waking another thread for it takes a good part of this time.
const SOON: Duration = Duration::from_micros(250);

/// An instance that works ahead has one caller at a time after so many executions that were alone.
const ALONE: u32 = 16;

/// Between an answer and the next request of the same caller lies more time than this.
const AT_ONCE: Duration = Duration::from_micros(10);

/// The capacity of an instance, from the durations of its executions.
#[derive(Debug, Clone)]
pub(crate) struct ExecutionPace {
    /// The moving average; `None` before the first execution, or if the instance executes nothing ahead of time.
    average: Option<Duration>,
    works_ahead: bool,
    concurrent: usize,
    /// So many executions in a row had the worker for themselves.
    alone: u32,
}

impl ExecutionPace {
    /// The pace of an instance that may execute so many batches at the same time.
    pub(crate) fn new(works_ahead: bool, concurrent: usize) -> Self {
        Self {
            average: None,
            works_ahead: works_ahead && concurrent == 1,
            concurrent: concurrent.max(1),
            alone: 0,
        }
    }

    /// How many executions the worker may have before it has answered one.
    pub(crate) fn concurrent(&self) -> usize {
        self.concurrent
    }

    /// How many executions the instance accepts before one has ended.
    pub(crate) fn capacity(&self) -> usize {
        let Some(average) = self.average.filter(|_| self.works_ahead) else { return self.concurrent };
        let fit = WORK_AHEAD.as_nanos() / average.as_nanos().max(1);
        usize::try_from(fit).unwrap_or(MOST_AHEAD).clamp(1, MOST_AHEAD)
    }

    /// Whether the thread that sends an execution should wait for the answer. `idle`: the time since a thread has read
    /// an answer so.
    ///
    /// While it waits, the instance accepts no further execution. So an instance that works ahead has such a thread only
    /// while there is one caller.
    pub(crate) fn answers_soon(&mut self, idle: Duration) -> bool {
        if self.works_ahead && idle < AT_ONCE {
            // This execution has waited for the last one.
            self.alone = 0;
        }
        self.concurrent == 1
            && self.average.is_some_and(|average| average <= SOON)
            && (!self.works_ahead || self.alone >= ALONE)
    }

    /// So many executions have taken this time together. `is_alone`: it was one, and no other waits.
    pub(crate) fn ended(&mut self, count: usize, taken: Duration, is_alone: bool) {
        self.alone = if is_alone { self.alone.saturating_add(1) } else { 0 };
        let each = taken / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        self.average = Some(match self.average {
            // A slow execution counts at once, and brief ones step by step: their times depend on what else the system does.
            Some(average) if each < WORK_AHEAD => (average * 7 + each) / 8,
            Some(_) | None => each,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brief_executions_wait_ahead_and_long_ones_do_not() {
        let mut pace = ExecutionPace::new(true, 1);
        assert_eq!(pace.capacity(), 1);
        pace.ended(1, Duration::from_micros(100), false);
        assert_eq!(pace.capacity(), 20);
        pace.ended(10, Duration::from_millis(30), false);
        assert_eq!(pace.capacity(), 1);
        for _ in 0..100 {
            pace.ended(10, Duration::from_micros(50), false);
        }
        assert_eq!(pace.capacity(), MOST_AHEAD);
    }

    #[test]
    fn a_batching_model_and_a_concurrent_one_have_a_fixed_capacity() {
        for (mut pace, capacity) in [(ExecutionPace::new(false, 1), 1), (ExecutionPace::new(true, 8), 8)] {
            pace.ended(1, Duration::from_micros(1), false);
            assert_eq!(pace.capacity(), capacity);
        }
    }

    #[test]
    fn a_thread_waits_for_the_answer_only_while_there_is_one_caller() {
        let (pause, none) = (Duration::from_micros(50), Duration::from_micros(1));
        let mut pace = ExecutionPace::new(true, 1);
        for _ in 0..ALONE {
            assert!(!pace.answers_soon(pause));
            pace.ended(1, Duration::from_micros(40), true);
        }
        assert!(pace.answers_soon(pause));
        assert!(!pace.answers_soon(none), "another caller's execution has waited");
        assert!(!pace.answers_soon(pause));
        for _ in 0..ALONE {
            pace.ended(1, Duration::from_micros(40), true);
        }
        assert!(pace.answers_soon(pause));
        pace.ended(1, Duration::from_millis(2), true);
        assert!(!pace.answers_soon(pause), "the last execution was long");
    }

    #[test]
    fn a_batching_model_waits_for_brief_answers_and_a_concurrent_one_never() {
        for (mut pace, waits) in [(ExecutionPace::new(false, 1), true), (ExecutionPace::new(true, 8), false)]
        {
            assert!(!pace.answers_soon(Duration::ZERO));
            pace.ended(2, Duration::from_micros(100), false);
            assert_eq!(pace.answers_soon(Duration::ZERO), waits);
        }
    }
}
