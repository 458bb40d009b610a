//! Who sees what happens to a request between its backend and its client.
use std::{fmt, sync::Arc};

use scheduling::{EntryId, Timestamp};
use vocabulary::Error;

use crate::{ExecutionTimes, ReportedTimes, Response, ResponseItem, ResponseReport, Timeline};

/// Sees each response of a request once, before its client can read it. Therefore the observer is the one place where
/// responses are counted, cached and traced. No function may block.
pub trait ResponseObserver: Send + Sync {
    /// A response has come, or the end of the request without another response. The client cannot see it yet. For each
    /// request, exactly one response has an [outcome](PassingResponse::outcome).
    fn responding(&self, response: &PassingResponse<'_>) {
        let _ = response;
    }

    /// The response with the outcome is in the channel: its client sees it, or sees it as soon as its turn comes.
    fn ended(&self) {}

    /// The client does not wait for the request any more. The channel calls this at most once. The call may come while
    /// the last response passes on another thread, or shortly after. `entry` is the entry id of the request in its
    /// queue, if [`EntryIdSetter::set`](crate::EntryIdSetter::set) has already set it.
    fn cancelled(&self, entry: Option<EntryId>) {
        let _ = entry;
    }

    /// The backend reports times.
    fn reported(&self, report: BackendReport<'_>) {
        let _ = report;
    }
}

/// The observer of a request that nobody observes, such as a padding row or a warm-up sample.
#[derive(Debug)]
pub struct Unobserved;

impl ResponseObserver for Unobserved {}

/// What a backend reports besides its responses.
#[derive(Debug, Clone, Copy)]
pub enum BackendReport<'a> {
    /// The times of a request that has already been counted without them.
    Request {
        /// The times of the request.
        timeline: &'a Timeline,
        /// When it was counted.
        counted: Timestamp,
        /// The times that the backend has measured.
        times: ReportedTimes,
    },
    /// The times of a whole execution that has already been counted without them.
    Batch {
        /// The times of the execution.
        execution_times: &'a ExecutionTimes,
        /// When it was counted.
        counted: Timestamp,
        /// The times that the backend has measured.
        times: ReportedTimes,
    },
    /// How the backend made a response of a decoupled request.
    Response {
        /// The position of the response in its request, from 0.
        index: u64,
        /// How it was made.
        report: ResponseReport,
    },
}

/// A response that the client cannot see yet, or the end of a request without another response.
#[derive(Debug, Clone, Copy)]
pub struct PassingResponse<'a> {
    item: Option<&'a ResponseItem>,
    ends: bool,
    timeline: &'a Timeline,
}

impl<'a> PassingResponse<'a> {
    /// `ends`: the request ends with this response.
    pub(super) fn new(item: Option<&'a ResponseItem>, ends: bool, timeline: &'a Timeline) -> Self {
        Self { item, ends, timeline }
    }

    /// The response, or an error instead of one; `None` for an end without another response.
    pub fn result(&self) -> Option<&'a Result<Response, Error>> {
        self.item.map(|item| &item.result)
    }

    /// Whether the request has succeeded, or the error of its last response. `None`: it does not end with this response.
    pub fn outcome(&self) -> Option<Result<(), &'a Error>> {
        self.ends.then(|| match self.result() {
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Ok(()),
        })
    }

    /// The times of the request.
    pub fn timeline(&self) -> &'a Timeline {
        self.timeline
    }
}

/// Reports the times of one execution to the observer of its requests.
#[derive(Clone)]
pub struct BatchReporter {
    execution_times: Arc<ExecutionTimes>,
    observer: Arc<dyn ResponseObserver>,
}

impl fmt::Debug for BatchReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchReporter")
            .field("execution_times", &self.execution_times)
            .finish_non_exhaustive()
    }
}

impl BatchReporter {
    pub(super) fn new(execution_times: Arc<ExecutionTimes>, observer: Arc<dyn ResponseObserver>) -> Self {
        Self { execution_times, observer }
    }

    /// Reports the times of the execution. Only the first report counts.
    pub fn report(&self, times: ReportedTimes) {
        if let Some(counted) = self.execution_times.report(times) {
            let execution_times = &self.execution_times;
            self.observer.reported(BackendReport::Batch { execution_times, counted, times });
        }
    }
}
