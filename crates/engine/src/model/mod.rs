//! A model version that clients can use: the public part, which does not depend on how the model is executed.
//!
//! The model validates a request, looks it up in the response cache if the model uses one, and passes it to the
//! executor. The responses come back through [`Model`]'s [`ResponsePath`], the only place that counts, caches and
//! orders them.
use std::{path::PathBuf, sync::Arc, time::Duration};

use inference::{
    ByteBudget, EntryId, Error, ExecutionTimes, Flow, InFlightResponse, Inferer, Name, ReportedTimes,
    Request, ResponsePath, ResponseReport, ResponseStream, Timeline, Timestamp, UnreadBudget,
    backend::{BackendModel, Execution, MemoryUsage},
    batching::BatchingStrategy,
    config::{ModelConfig, ResolvedConfig, Scheduling},
    response_channel,
};
use scheduling::Meta;

use crate::{
    check::{ReadableMemory, RequestValidator},
    clock::now,
    engine_threads::EngineThreads,
    executor::{CallerThread, Executor, ExecutorParts, ExecutorView, WaitingWork},
    fingerprint::Fingerprint,
    host_policy::Placed,
    in_flight::InFlight,
    limiter::Limiter,
    observe::{Latencies, ModelStatistics, Record},
    options::MetricsOptions,
    order::Orders,
    snapshot::StepSnapshot,
};

mod cache;
mod ensemble;
mod handover;
mod replacement;
mod work;

pub(crate) use cache::{ModelCache, ModelCacheParts, cache_for_model};
use ensemble::EnsembleOrigin;
pub(crate) use ensemble::EnsembleParts;
use handover::Handover;
pub(crate) use handover::UpdateParts;
use replacement::Replacement;
use work::ModelWork;

/// One served version of a model. A caller that holds it may use it, even if the repository has replaced it meanwhile.
pub struct Model {
    namespace: Option<Name>,
    version: i64,
    config: Arc<ModelConfig>,
    shown: proto::ModelConfig,
    validator: Arc<RequestValidator>,
    record: Arc<Record>,
    in_flight: Arc<InFlight>,
    orders: Arc<Orders>,
    /// The server's response cache, if there is one and the model uses it.
    cached: Option<Arc<ModelCache>>,
    /// What distinguishes the answers of this version from those of others, if it was needed.
    fingerprint: Option<Fingerprint>,
    inflight: Arc<ByteBudget>,
    unread: Arc<UnreadBudget>,
    work: ModelWork,
    load_duration: Duration,
    replacement: Replacement,
    handover: Handover,
    /// What new fronts of an ensemble are made of.
    ensemble_origin: Option<Arc<EnsembleOrigin>>,
}

/// What a model version is built from.
pub(crate) struct ModelParts {
    /// The repository, if the server uses namespaces.
    pub(crate) namespace: Option<Name>,
    pub(crate) version: i64,
    pub(crate) config: ResolvedConfig,
    /// The model's directory.
    pub(crate) directory: PathBuf,
    pub(crate) backend: Box<dyn BackendModel>,
    pub(crate) instances: Vec<Placed>,
    /// The custom batching strategy of the model, if it has one. It decides which requests may share a batch.
    pub(crate) strategy: Option<Box<dyn BatchingStrategy>>,
    pub(crate) threads: EngineThreads,
    /// The rate limiter, if the server has one.
    pub(crate) limiter: Option<Arc<Limiter>>,
    pub(crate) cached: Option<Arc<ModelCache>>,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The budget for the inputs of requests.
    pub(crate) inflight: Arc<ByteBudget>,
    /// The budget for the responses that clients have not read.
    pub(crate) unread: Arc<UnreadBudget>,
    /// When the load began.
    pub(crate) since: Timestamp,
    /// Looks models up, for requests that come after the version has been replaced.
    pub(crate) inferer: Option<Arc<dyn Inferer>>,
    /// What is counted of requests.
    pub(crate) metrics: Arc<MetricsOptions>,
}

/// A request that has been validated, and what its response channel is made of.
struct ValidRequest {
    request: Request,
    meta: Meta,
    timeline: Timeline,
    flow: Flow,
}

impl Model {
    /// Builds all instances. The version can be used when this returns. Blocks.
    ///
    /// # Errors
    /// The first error of an instance.
    pub(crate) fn start(parts: ModelParts) -> Result<Arc<Self>, Error> {
        let ModelParts { version, config, cached, inflight, unread, since, inferer, .. } = parts;
        let ModelParts {
            metrics, namespace, directory, backend, instances, strategy, threads, limiter, ..
        } = parts;
        let fingerprint = parts.fingerprint;
        let ResolvedConfig { typed, shown, .. } = config;
        let config = Arc::new(typed);
        let active = instances.iter().filter(|placed| !placed.spec.passive).count();
        let readable = ReadableMemory {
            device: backend.reads_device_memory(),
            foreign: backend.copies_foreign_memory(),
        };
        let validator = Arc::new(RequestValidator::new(&config, readable));
        let record = Arc::new(Record::new(Latencies::new(&metrics, &config, since)));
        let orders = Arc::new(Orders::of(&config.scheduling, active));
        let executor = Executor::start(ExecutorParts {
            version,
            config: config.clone(),
            validator: validator.clone(),
            record: record.clone(),
            orders: orders.clone(),
            directory,
            backend,
            instances,
            strategy,
            threads,
            limiter,
        })?;
        Ok(Arc::new(Self {
            namespace,
            version,
            config,
            shown,
            validator,
            record,
            in_flight: Arc::default(),
            orders,
            cached,
            fingerprint,
            inflight,
            unread,
            work: ModelWork::Executor(executor),
            load_duration: now() - since,
            replacement: Replacement::new(inferer),
            handover: Handover::default(),
            ensemble_origin: None,
        }))
    }

    /// The model's name.
    pub fn name(&self) -> &Name {
        &self.config.name
    }

    /// The repository, if the server uses namespaces.
    pub(crate) fn namespace(&self) -> Option<&Name> {
        self.namespace.as_ref()
    }

    /// The version's number.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The number of the version that answers a request which was sent here: a sequence may go on with a copy of another
    /// version.
    pub fn version_of(&self, responses: &ResponseStream) -> i64 {
        responses.timeline().version.unwrap_or(self.version)
    }

    /// The configuration that the server uses.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The configuration that clients see.
    pub fn shown(&self) -> &proto::ModelConfig {
        &self.shown
    }

    /// Accepts a request. The responses, successful or not, come on the stream. A brief execution may happen before
    /// this function returns. Does not block. Must be called in a tokio runtime if the model has a response cache.
    ///
    /// # Errors
    /// The request contradicts the configuration (INVALID_ARG), its queue is full, the server is stopping or the model
    /// has failed (UNAVAILABLE), or the server holds too many bytes of requests (RESOURCE_EXHAUSTED). The request has
    /// then ended.
    pub fn infer(self: &Arc<Self>, request: Request) -> Result<ResponseStream, Error> {
        if let Some(previous) = self.previous_copy_for(&request) {
            return previous.infer(request);
        }
        if !self.in_flight.enter() {
            return self.infer_elsewhere(request);
        }
        // Looks after it has entered: a copy that has been replaced waits for those that have not seen it.
        let is_left = self.leaves_to_others(&request);
        let accepted = if is_left { self.infer_elsewhere(request) } else { self.accept_from_client(request) };
        self.in_flight.leave();
        accepted
    }

    fn accept_from_client(self: &Arc<Self>, mut request: Request) -> Result<ResponseStream, Error> {
        if self.is_ensemble() && self.in_flight.is_draining() {
            return Err(self.work.refusal(&request));
        }
        if request.reservation.is_none() {
            request.reservation = Some(self.inflight.reserve(request.reserved_bytes())?);
        }
        let reservation = request.reservation.take();
        let flow = Flow { reservation, ..self.flow(&request, &self.unread) };
        self.accept(request, flow)
    }

    /// Accepts a request of an ensemble that has pinned this model. It is accepted also while the model ends, and counts in
    /// no budget of clients: the ensemble has its own limit. The ensemble reads the responses at once, for which `unread`
    /// stands.
    ///
    /// # Errors
    /// As [`infer`](Self::infer).
    pub(crate) fn infer_step(
        self: &Arc<Self>,
        request: Request,
        unread: &Arc<UnreadBudget>,
    ) -> Result<ResponseStream, Error> {
        if let Some(previous) = self.previous_copy_for(&request) {
            return previous.infer(request);
        }
        if self.leaves_to_others(&request) {
            return self.infer_elsewhere(request);
        }
        let flow = self.flow(&request, unread);
        self.accept(request, flow)
    }

    fn accept(self: &Arc<Self>, mut request: Request, flow: Flow) -> Result<ResponseStream, Error> {
        if let Some(fault) = self.fault() {
            return Err(Error::unavailable(fault.message.clone()));
        }
        let arrived = now();
        let meta = self.validator.check(&self.config, &mut request)?;
        if let Some(trace) = &request.trace {
            trace.accepted(self.name(), self.version, &request.id);
        }
        let timeline = Timeline::new(arrived, meta.batch_size.max(1)).of_version(self.version);
        let timeline = timeline.traced(request.trace.clone());
        let asks_cache = |_: &&Arc<ModelCache>| !self.in_flight.is_draining() && !request.has_device_memory();
        if let Some(cached) = self.cached.as_ref().filter(asks_cache) {
            // The answer is also for other requests.
            request.keep_outputs_on_host();
            return cached.infer(self, ValidRequest { request, meta, timeline, flow });
        }
        self.in_flight.begin();
        let (responder, stream) = response_channel(timeline, self.clone(), flow);
        let execution = Box::new(Execution::new(request, responder));
        self.work.enqueue(meta, execution, now(), CallerThread::MayExecute)?;
        Ok(stream)
    }

    /// What happens to responses that the client of a request does not read.
    fn flow(&self, request: &Request, unread: &Arc<UnreadBudget>) -> Flow {
        let most_unread = request.most_unread.or(self.config.most_unread_responses);
        // A model that is not decoupled may run on the same thread that reads its responses.
        let most_unread = most_unread.filter(|_| self.config.decoupled);
        Flow { budget: unread.clone(), client: request.client, most_unread, reservation: None }
    }

    /// When a request that comes `at` this time has waited too long for its turn, if there is such a time.
    fn queue_deadline(&self, meta: &Meta, request: &Request, at: Timestamp) -> Option<Timestamp> {
        match &self.config.scheduling {
            Scheduling::Dynamic(dynamic) => dynamic.rejection_time(at, meta),
            Scheduling::Ensemble(_) => request.timeout.map(|timeout| at + timeout),
            Scheduling::Unbatched | Scheduling::Sequence(_) => None,
        }
    }

    /// The priority level in which a request waits. A lower one is more urgent.
    fn queue_level(&self, meta: &Meta) -> u64 {
        match &self.config.scheduling {
            Scheduling::Dynamic(dynamic) => dynamic.level(meta.priority),
            Scheduling::Unbatched | Scheduling::Sequence(_) | Scheduling::Ensemble(_) => 0,
        }
    }

    /// Removes all answers of the model version from the response cache. Returns how many there were.
    ///
    /// # Errors
    /// INVALID_ARG if the model does not use a response cache. UNSUPPORTED if the cache cannot remove answers, or why it
    /// has not.
    pub async fn empty_cache(&self) -> Result<u64, Error> {
        match &self.cached {
            Some(cached) => cached.empty().await,
            None => Err(Error::invalid(format!("model '{}' does not use a response cache", self.name()))),
        }
    }

    /// Checks a request as [`Model::infer`] does before it queues the request.
    ///
    /// # Errors
    /// The request contradicts the configuration (INVALID_ARG).
    pub fn check(&self, mut request: Request) -> Result<(), Error> {
        self.validator.check(&self.config, &mut request).map(drop)
    }

    /// The reason why the version cannot be used any more, if there is one.
    pub(crate) fn fault(&self) -> Option<&Error> {
        self.work.fault()
    }

    /// Whether the model is an ensemble.
    pub(crate) fn is_ensemble(&self) -> bool {
        self.work.ensemble().is_some()
    }

    /// Whether requests of a sequence must come in their order: the model has sequences, or a member of it has.
    pub(crate) fn keeps_order_of_sequences(&self) -> bool {
        match self.work.ensemble() {
            Some(ensemble) => ensemble.binding().keeps_order,
            None => matches!(self.config.scheduling, Scheduling::Sequence(_)),
        }
    }

    /// Whether a new copy may use what the backend has opened for this one. May block.
    pub(crate) fn is_sound(&self) -> bool {
        self.fault().is_none() && !self.is_outdated()
    }

    /// Whether the files of the backend have changed since it opened the model. May block.
    pub(crate) fn is_outdated(&self) -> bool {
        self.work.is_outdated()
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn statistics(&self) -> ModelStatistics {
        ModelStatistics {
            responses: self.record.responses(),
            memory_usage: self.memory_usage(),
            ..self.record.read(self.name(), self.version)
        }
    }

    /// The memory that the model uses, as far as its backend knows.
    pub(crate) fn memory_usage(&self) -> Vec<MemoryUsage> {
        self.work.memory_usage()
    }

    /// The work that waits for an instance.
    pub(crate) fn waiting_work(&self) -> WaitingWork {
        self.work.waiting_work()
    }

    /// What the model does now. An ensemble has no instances of its own.
    pub(crate) fn look(&self) -> ExecutorView {
        self.work.look()
    }

    /// The server's rate limiter, if it has one and the model knows it.
    pub(crate) fn limiter(&self) -> Option<Arc<Limiter>> {
        self.work.executor()?.limiter()
    }

    /// Whether the model uses the response cache.
    pub(crate) fn uses_cache(&self) -> bool {
        self.cached.is_some()
    }

    /// How often processes of the model were started again, if it runs in processes of its own.
    pub(crate) fn process_restarts(&self) -> Option<u64> {
        self.work.process_restarts()
    }

    /// The steps of an ensemble.
    pub(crate) fn steps(&self) -> Vec<StepSnapshot> {
        self.work.ensemble().map(|ensemble| ensemble.steps()).unwrap_or_default()
    }

    /// The number of accepted requests whose last response has not been sent.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.count()
    }

    pub(crate) fn load_duration(&self) -> Duration {
        self.load_duration
    }

    /// Whether the backend takes part in the decision that the version is ready.
    pub(crate) fn reports_readiness(&self) -> bool {
        self.work.reports_readiness()
    }

    /// Whether the instances can take requests, as the backend reports it. A thread that may block asks the backend.
    /// Must be called in a tokio runtime.
    pub(crate) async fn ready(&self) -> bool {
        self.work.ready().await
    }

    /// As [`Engine::model_ready`](crate::Engine::model_ready), but asks on this thread. Blocks as long as the backend
    /// does.
    pub fn ready_here(&self) -> bool {
        self.work.ready_here()
    }

    /// From now on, no request waits for others to share its batch. The model still accepts requests.
    pub(crate) fn end_queue_delay(&self) {
        self.work.end_queue_delay();
    }

    /// Accepts no new requests. Accepted requests continue.
    pub(crate) fn drain(&self) {
        self.refuse_late_requests();
        self.in_flight.drain();
        self.work.drain();
    }

    /// Returns when the model has drained and its last request has ended.
    pub(crate) async fn last_request_ended(&self) {
        self.in_flight.last_ended().await;
    }

    /// Accepts no more requests, and returns when the last request has ended, and those of the copies that had the executor
    /// before. Then [`close`](Self::close) waits for the backend only.
    pub(crate) async fn finish_requests(&self) {
        self.accept_no_more();
        self.in_flight.last_ended().await;
        if self.owns_executor() {
            self.earlier_requests_ended().await;
        }
    }

    /// The server stops: the ends of instances wait no longer for what they were given.
    pub(crate) fn abandon_releases(&self) {
        self.work.executor().iter().for_each(|executor| executor.abandon_releases());
    }

    /// Returns when the backend has released all that it was given, after the last request has ended.
    pub(crate) async fn released(&self) {
        if self.owns_executor()
            && let Some(executor) = self.work.executor()
        {
            executor.released().await;
        }
    }

    fn accept_no_more(&self) {
        self.in_flight.close();
        if self.owns_executor() {
            self.work.end_queue_delay();
        }
    }

    /// Accepts no more requests, waits until the last request has ended, ends the instances on their threads, and then
    /// drops the backend's model. Blocks.
    pub(crate) fn close(&self) {
        self.accept_no_more();
        self.in_flight.wait_for_the_last();
        if !self.owns_executor() {
            return self.discard_update();
        }
        self.wait_for_earlier_requests();
        self.work.close();
    }
}

impl Model {
    /// Counts a response, which need not be the last one.
    fn tell_response(&self, response: &InFlightResponse) {
        if response.result().is_some() && self.record.wants_first_responses() {
            self.record.responded(response.timeline(), now());
        }
    }
}

/// Each response of each request passes this path once: the model counts it, puts it in order, and makes it visible.
/// Responses of a model with a response cache pass `CachePath` first.
impl ResponsePath for Model {
    fn respond(&self, response: InFlightResponse) {
        if let Some(Ok(answer)) = response.result() {
            response.timeline().responded(answer);
        }
        self.tell_response(&response);
        if let Some(outcome) = response.outcome() {
            let at = now();
            self.record.request_ended(response.timeline(), outcome, at);
            response.timeline().ended(at);
            // Counted before the last response is visible: a client that has the response finds no request in flight.
            self.in_flight.end();
        }
        self.orders.release(response);
    }

    fn cancelled(&self, entry: Option<EntryId>) {
        // If the request has no queue id yet, the executor checks for the cancellation when it assigns the id.
        if let Some(entry) = entry {
            self.work.cancel(entry);
        }
    }

    fn reported(&self, timeline: &Timeline, counted: Timestamp, times: ReportedTimes) {
        self.record.revise_request(timeline, counted, times);
    }

    fn batch_reported(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        self.record.revise_batch(execution_times, counted, times);
    }

    fn response_reported(&self, index: u64, report: ResponseReport) {
        self.record.response(index, report);
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("name", self.name())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod cancellation_tests;
#[cfg(test)]
mod sequence_tests;
#[cfg(test)]
pub(crate) mod tests;
