//! A model version that clients can use: the public part, which does not depend on how the model is executed.
//!
//! The model validates a request, looks it up in the response cache if the model uses one, and passes it to its runner.
//! The responses come back through the [`RequestAccount`], the only place that counts them.
use std::sync::{Arc, atomic::Ordering};

use config::{ModelConfig, Scheduling};
use host::now;
use inference::{
    Request, RequestValidator, ResponseStream, RunThread, SequenceId, Timeline, UnreadBudget, UnreadPolicy,
    backend::Execution, rejection::RejectionErrors, response_channel,
};
use scheduling::Rejection;
use vocabulary::{Error, FailureReason, Name};

use super::succession::Succession;
use crate::{
    account::RequestAccount,
    fingerprint::Fingerprint,
    response_cache::{ModelCache, ValidRequest},
    server_parts::ServerParts,
};

/// One served version of a model. A caller that holds it may use it, even if the repository has replaced it meanwhile.
pub struct Model {
    namespace: Option<Name>,
    version: i64,
    config: Arc<ModelConfig>,
    shown: proto::ModelConfig,
    validator: Arc<RequestValidator>,
    account: Arc<RequestAccount>,
    /// The server's response cache, if there is one and the model uses it.
    cached: Option<Arc<ModelCache>>,
    /// What distinguishes the answers of this version from those of others, if it was needed.
    fingerprint: Option<Fingerprint>,
    server: Arc<ServerParts>,
    succession: Succession<Self>,
}

/// What a model is made of.
pub(crate) struct ModelParts {
    /// The repository, if the server uses namespaces.
    pub(crate) namespace: Option<Name>,
    pub(crate) version: i64,
    pub(crate) config: Arc<ModelConfig>,
    /// The configuration that clients see.
    pub(crate) shown: proto::ModelConfig,
    pub(crate) validator: Arc<RequestValidator>,
    pub(crate) account: Arc<RequestAccount>,
    pub(crate) cached: Option<Arc<ModelCache>>,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) server: Arc<ServerParts>,
}

/// Who sends a request.
#[derive(Clone, Copy)]
pub(crate) enum RequestOrigin<'a> {
    /// A client, or a backend for its own model.
    Client,
    /// An ensemble that has pinned the model. Its request is accepted also while the model ends, and counts in no budget of
    /// clients: the ensemble has its own limit. The ensemble reads the responses at once, for which `unread` stands.
    Ensemble {
        /// Counts the responses.
        unread: &'a Arc<UnreadBudget>,
    },
}

impl Model {
    /// A model in front of a runner.
    pub(crate) fn new(parts: ModelParts) -> Self {
        let ModelParts { namespace, version, config, shown, validator, account, .. } = parts;
        let ModelParts { cached, fingerprint, server, .. } = parts;
        Self {
            namespace,
            version,
            config,
            shown,
            validator,
            account,
            cached,
            fingerprint,
            server,
            succession: Succession::default(),
        }
    }

    /// The same model with another configuration of its instances, in front of the same runner. Its requests are counted
    /// together with those of this one, but are open by themselves.
    pub(crate) fn with_config(
        &self,
        config: Arc<ModelConfig>,
        shown: proto::ModelConfig,
        cached: Option<Arc<ModelCache>>,
        fingerprint: Option<Fingerprint>,
    ) -> Self {
        Self {
            namespace: self.namespace.clone(),
            version: self.version,
            config,
            shown,
            validator: self.validator.clone(),
            account: Arc::new(self.account.successor()),
            cached,
            fingerprint,
            server: self.server.clone(),
            succession: Succession::default(),
        }
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
        self.infer_from(RequestOrigin::Client, request)
    }

    /// As [`infer`](Self::infer), for a request of that origin.
    ///
    /// # Errors
    /// As that.
    pub(crate) fn infer_from(
        self: &Arc<Self>,
        origin: RequestOrigin<'_>,
        mut request: Request,
    ) -> Result<ResponseStream, Error> {
        if let Some(predecessor) = self.predecessor_for(&request) {
            return predecessor.infer(request);
        }
        let open = self.account.open();
        let _entered = match origin {
            RequestOrigin::Client => match open.enter() {
                Some(entered) => Some(entered),
                None => return self.infer_elsewhere(request),
            },
            RequestOrigin::Ensemble { .. } => None,
        };
        // Looks after it has entered: a version that has been replaced waits for those that have not seen it.
        if self.succession.takes_only_own_sequences() && !self.continues(&request) {
            return self.infer_elsewhere(request);
        }
        if matches!(origin, RequestOrigin::Client) {
            self.begins_in_time(&request)?;
        }
        let flow = self.flow(origin, &mut request)?;
        self.accept(request, flow)
    }

    /// What holds the request, and what happens to responses that nobody reads.
    fn flow(&self, origin: RequestOrigin<'_>, request: &mut Request) -> Result<UnreadPolicy, Error> {
        let (budget, reservation) = match origin {
            RequestOrigin::Client => {
                let is_ensemble = matches!(self.config.scheduling, Scheduling::Ensemble(_));
                if is_ensemble && self.account.open().is_draining() {
                    return Err(self.refusal(request));
                }
                let reservation = match request.reservation.take() {
                    Some(reservation) => reservation,
                    None => self.server.inflight.reserve(request.reserved_bytes())?,
                };
                (&self.server.unread, Some(reservation))
            }
            RequestOrigin::Ensemble { unread } => (unread, None),
        };
        let most_unread = request.most_unread.or(self.config.most_unread_responses);
        // A model that is not decoupled may run on the same thread that reads its responses.
        let most_unread = most_unread.filter(|_| self.config.decoupled);
        Ok(UnreadPolicy { budget: budget.clone(), client: request.client, most_unread, reservation })
    }

    fn accept(self: &Arc<Self>, mut request: Request, flow: UnreadPolicy) -> Result<ResponseStream, Error> {
        if let Some(fault) = self.account.runner().fault() {
            return Err(Error::unavailable(fault.message.clone()));
        }
        let arrived = now();
        let attributes = self.validator.check(&self.config, &mut request)?;
        if let Some(trace) = &request.trace {
            trace.accepted(self.name(), self.version, &request.id);
        }
        let timeline = Timeline::new(arrived, attributes.batch_size.max(1)).of_version(self.version);
        let timeline = timeline.traced(request.trace.clone());
        let asks_cache =
            |_: &&Arc<ModelCache>| !self.account.open().is_draining() && !request.has_device_memory();
        if let Some(cached) = self.cached.as_ref().filter(asks_cache) {
            // The answer is also for other requests.
            request.keep_outputs_on_host();
            return cached.infer(&self.account, ValidRequest { request, attributes, timeline, flow });
        }
        self.account.open().begin();
        let (responder, stream) = response_channel(timeline, self.account.clone(), flow);
        let execution = Box::new(Execution::new(request, responder));
        self.account.runner().clone().enqueue(attributes, execution, now(), RunThread::CallersMay)?;
        Ok(stream)
    }

    /// The version that must get a request because of its sequence, if it is another one. One that waits no more may have
    /// closed, and would send requests back.
    fn predecessor_for(&self, request: &Request) -> Option<Arc<Self>> {
        request.sequence.id.as_ref()?;
        if !self.succession.has_predecessors() || self.continues(request) {
            return None;
        }
        self.succession
            .predecessor(|other| other.succession.waits_for_sequences() && other.continues(request))
    }

    /// Whether this version must get a request because of its sequence. A model that has sequences has the one that the
    /// request continues. An ensemble of such models has earlier requests of the sequence, which the request must not
    /// overtake.
    fn continues(&self, request: &Request) -> bool {
        self.account.runner().continues(&request.sequence)
    }

    /// Whether clients send sequences of several requests to the model, or through it to a member.
    pub(crate) fn takes_sequences(&self) -> bool {
        match &self.config.scheduling {
            Scheduling::Sequence(sequence) => !sequence.batching.iterative,
            Scheduling::Ensemble(_) => self.config.has_sequences,
            Scheduling::Unbatched | Scheduling::Dynamic(_) => false,
        }
    }

    /// Refuses a request that begins a sequence although the server has said that it will stop.
    fn begins_in_time(&self, request: &Request) -> Result<(), Error> {
        let begins = request.sequence.start && request.sequence.id.is_some();
        if begins && self.server.stop_announced.load(Ordering::Acquire) && self.takes_sequences() {
            let error = Error::unavailable("The server will stop, and begins no sequence any more");
            return Err(error.because(FailureReason::Rejected));
        }
        Ok(())
    }

    /// The version has been replaced or unloaded since the caller looked it up: the model is looked up again.
    fn infer_elsewhere(&self, request: Request) -> Result<ResponseStream, Error> {
        match &self.server.inferer {
            Some(inferer) if !self.succession.refuses_late_requests() => {
                inferer.infer(self.name(), request.model_version, request)
            }
            Some(_) | None => Err(self.refusal(&request)),
        }
    }

    /// The error of a request that comes after the server has begun to stop.
    fn refusal(&self, request: &Request) -> Error {
        RejectionErrors::of(&self.config).error(Rejection::Draining, request)
    }

    /// Whether a request continues a sequence that runs on this version or on one that waits for its sequences.
    pub fn has_sequence_of(&self, request: &Request) -> bool {
        let sequence = &request.sequence;
        !sequence.start && sequence.id.as_ref().is_some_and(|id| self.has_sequence(id))
    }

    /// Whether a sequence runs on this version or on one that waits for its sequences.
    pub fn has_sequence(&self, id: &SequenceId) -> bool {
        let has = |version: &Self| version.account.runner().has_sequence(id);
        let waits_and_has = |other: &Self| other.succession.waits_for_sequences() && has(other);
        has(self) || self.succession.predecessor(waits_and_has).is_some()
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

    /// As [`ModelDemands::ready`](crate::ModelDemands::ready), but asks on this thread. Blocks as long as the backend does.
    pub fn ready_here(&self) -> bool {
        self.account.runner().ready_here()
    }

    /// The account of the model's requests.
    pub(crate) fn account(&self) -> &Arc<RequestAccount> {
        &self.account
    }

    /// What distinguishes the answers of this version from those of others, if it was needed.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// Whether the model uses the response cache.
    pub(crate) fn uses_cache(&self) -> bool {
        self.cached.is_some()
    }

    /// What the version knows of those before and after it.
    pub(crate) fn succession(&self) -> &Succession<Self> {
        &self.succession
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
