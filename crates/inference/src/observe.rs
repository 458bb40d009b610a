//! Who counts and cares for requests while they are under way, and what backends report to them.
use std::{fmt, sync::Arc};

use scheduling::{EntryId, Timestamp};

use crate::{Error, ExecutionTimes, ReportedTimes, ResponseReport, Timeline};

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// Well.
    Success,
    /// With that error as its last word.
    Failure(&'a Error),
}

/// Whoever counts and cares for requests while they are under way.
pub trait Observe: Send + Sync {
    /// The request has ended. Called exactly once, before its last word is visible to the asking side. Must not block.
    fn ended(&self, timeline: &Timeline, outcome: Outcome<'_>);

    /// Nobody waits for the request any more. Called at most once; it may come while [`Observe::ended`] runs on another
    /// thread, or just after. Must not block. `entry` is what the request is called in its queue, if
    /// [`ResponseStream::queued_as`](crate::ResponseStream::queued_as) has said so already.
    fn cancelled(&self, entry: Option<EntryId>);

    /// The backend has told when a request passed its doors, after the request was counted (`counted`) without knowing.
    fn reported(&self, timeline: &Timeline, counted: Timestamp, times: ReportedTimes) {
        let _ = (timeline, counted, times);
    }

    /// The same for an execution as a whole.
    fn batch_reported(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        let _ = (execution_times, counted, times);
    }

    /// The backend has told how it made the response of that index, from 0, of a decoupled request.
    fn response_reported(&self, index: u64, report: ResponseReport) {
        let _ = (index, report);
    }
}

/// Tells the times of one execution to whoever counts.
#[derive(Clone)]
pub struct BatchReporter {
    execution_times: Arc<ExecutionTimes>,
    observer: Arc<dyn Observe>,
}

impl fmt::Debug for BatchReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchReporter")
            .field("execution_times", &self.execution_times)
            .finish_non_exhaustive()
    }
}

impl BatchReporter {
    pub(crate) fn new(execution_times: Arc<ExecutionTimes>, observer: Arc<dyn Observe>) -> Self {
        Self { execution_times, observer }
    }

    /// The execution has passed its doors at these times. Only the first report counts.
    pub fn report(&self, times: ReportedTimes) {
        if let Some(counted) = self.execution_times.report(times) {
            self.observer.batch_reported(&self.execution_times, counted, times);
        }
    }
}
