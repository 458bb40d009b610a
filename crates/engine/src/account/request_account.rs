//! The account of a model version's requests: it sees each of their responses once.
use std::sync::Arc;

use host::now;
use inference::{
    BackendReport, EntryId, ModelRunner, PassingResponse, ResponseObserver, Timeline, Timestamp,
};

use super::{
    open_requests::OpenRequests,
    request_counters::{LookupTimes, RequestCounters},
};

/// Counts the requests of a model version from their acceptance to their last response. The models of one ensemble
/// share an account.
pub(crate) struct RequestAccount {
    record: Arc<RequestCounters>,
    open: Arc<OpenRequests>,
    runner: Arc<dyn ModelRunner>,
}

impl RequestAccount {
    /// An account without open requests.
    pub(crate) fn new(record: Arc<RequestCounters>, runner: Arc<dyn ModelRunner>) -> Self {
        Self { record, open: Arc::default(), runner }
    }

    /// An account of another model over the same runner, with the same counters.
    pub(crate) fn successor(&self) -> Self {
        Self::new(self.record.clone(), self.runner.clone())
    }

    /// The counters.
    pub(crate) fn record(&self) -> &Arc<RequestCounters> {
        &self.record
    }

    /// The accepted requests whose last response has not been sent.
    pub(crate) fn open(&self) -> &Arc<OpenRequests> {
        &self.open
    }

    /// What does the work of the requests.
    pub(crate) fn runner(&self) -> &Arc<dyn ModelRunner> {
        &self.runner
    }

    /// A response comes from the cache, or from an equal request. Otherwise as
    /// [`responding`](ResponseObserver::responding).
    pub(crate) fn responding_from_cache(&self, response: &PassingResponse<'_>, lookup: &LookupTimes) {
        self.count_response(response);
        if response.outcome().is_some() {
            let at = now();
            self.record.cache_hit(response.timeline(), lookup, at);
            self.end(response.timeline(), at);
        }
    }

    /// Counts a response, which need not be the last one.
    fn count_response(&self, response: &PassingResponse<'_>) {
        if response.result().is_some() && self.record.wants_first_responses() {
            self.record.responded(response.timeline(), now());
        }
    }

    /// A request ends. Done before its last response is visible: a client that has the response finds no request in
    /// flight.
    fn end(&self, timeline: &Timeline, at: Timestamp) {
        timeline.ended(at);
        self.open.end();
    }
}

/// The one place where responses are counted. The observers of models with a response cache pass them on to it.
impl ResponseObserver for RequestAccount {
    fn responding(&self, response: &PassingResponse<'_>) {
        if let Some(Ok(answer)) = response.result() {
            response.timeline().responded(answer);
        }
        self.count_response(response);
        if let Some(outcome) = response.outcome() {
            let at = now();
            self.record.request_ended(response.timeline(), outcome, at);
            self.end(response.timeline(), at);
        }
    }

    fn cancelled(&self, entry: Option<EntryId>) {
        // If the request has no queue id yet, the runner checks for the cancellation when it assigns the id.
        if let Some(entry) = entry {
            self.runner.clone().cancel(entry);
        }
    }

    fn reported(&self, report: BackendReport<'_>) {
        match report {
            BackendReport::Request { timeline, counted, times } => {
                self.record.revise_request(timeline, counted, times);
            }
            BackendReport::Batch { execution_times, counted, times } => {
                self.record.counters().revise(execution_times, counted, times);
            }
            BackendReport::Response { index, report } => self.record.response(index, report),
        }
    }
}
