//! The account of a model version's requests: each of their responses passes here once.
use std::sync::Arc;

use inference::{
    CallerThread, EntryId, Error, ExecutionTimes, InFlightResponse, ModelRunner, ReportedTimes, ResponsePath,
    ResponseReport, Timeline, Timestamp, backend::Execution,
};
use scheduling::Meta;

use crate::{
    clock::now,
    in_flight::InFlight,
    observe::{Lookup, Record},
    order::Orders,
};

/// Counts the requests of a model version from their acceptance to their last response, and puts the responses in order.
/// The models of one ensemble share an account.
pub(crate) struct RequestAccount {
    record: Arc<Record>,
    open: Arc<InFlight>,
    orders: Arc<Orders>,
    runner: Arc<dyn ModelRunner>,
}

impl RequestAccount {
    /// An account without open requests.
    pub(crate) fn new(record: Arc<Record>, orders: Arc<Orders>, runner: Arc<dyn ModelRunner>) -> Self {
        Self { record, open: Arc::default(), orders, runner }
    }

    /// An account of another model over the same runner, with the same counters and orders.
    pub(crate) fn successor(&self) -> Self {
        Self::new(self.record.clone(), self.orders.clone(), self.runner.clone())
    }

    /// The counters.
    pub(crate) fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// The accepted requests whose last response has not been sent.
    pub(crate) fn open(&self) -> &Arc<InFlight> {
        &self.open
    }

    pub(crate) fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// What does the work of the requests.
    pub(crate) fn runner(&self) -> &Arc<dyn ModelRunner> {
        &self.runner
    }

    /// As [`ModelRunner::enqueue`], of the account's runner.
    ///
    /// # Errors
    /// As that.
    pub(crate) fn enqueue(
        &self,
        meta: Meta,
        execution: Box<Execution>,
        queued: Timestamp,
        thread: CallerThread,
    ) -> Result<(), Error> {
        self.runner.clone().enqueue(meta, execution, queued, thread)
    }

    /// A response comes from the cache, or from an equal request. Otherwise as [`respond`](ResponsePath::respond).
    pub(crate) fn respond_from_cache(&self, response: InFlightResponse, lookup: &Lookup) {
        self.count_response(&response);
        if response.outcome().is_some() {
            let at = now();
            self.record.cache_hit(response.timeline(), lookup, at);
            self.end(response.timeline(), at);
        }
        self.orders.release(response);
    }

    /// Counts a response, which need not be the last one.
    fn count_response(&self, response: &InFlightResponse) {
        if response.result().is_some() && self.record.wants_first_responses() {
            self.record.responded(response.timeline(), now());
        }
    }

    /// A request ends. Done before its last response is visible: a client that has the response finds no request in flight.
    fn end(&self, timeline: &Timeline, at: Timestamp) {
        timeline.ended(at);
        self.open.end();
    }
}

/// Each response of each request passes this path once: the account counts it, puts it in order, and makes it visible.
/// Responses of a model with a response cache pass `CachePath` first.
impl ResponsePath for RequestAccount {
    fn respond(&self, response: InFlightResponse) {
        if let Some(Ok(answer)) = response.result() {
            response.timeline().responded(answer);
        }
        self.count_response(&response);
        if let Some(outcome) = response.outcome() {
            let at = now();
            self.record.request_ended(response.timeline(), outcome, at);
            self.end(response.timeline(), at);
        }
        self.orders.release(response);
    }

    fn cancelled(&self, entry: Option<EntryId>) {
        // If the request has no queue id yet, the runner checks for the cancellation when it assigns the id.
        if let Some(entry) = entry {
            self.runner.clone().cancel(entry);
        }
    }

    fn reported(&self, timeline: &Timeline, counted: Timestamp, times: ReportedTimes) {
        self.record.revise_request(timeline, counted, times);
    }

    fn batch_reported(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        self.record.executions().revise(execution_times, counted, times);
    }

    fn response_reported(&self, index: u64, report: ResponseReport) {
        self.record.response(index, report);
    }
}
