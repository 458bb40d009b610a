//! A model version that clients can use: the public part, which does not depend on how the model is executed.
//!
//! The model validates a request, looks it up in the response cache if the model uses one, and passes it to its runner.
//! The responses come back through the [`RequestAccount`], the only place that counts and orders them.
use std::{sync::Arc, time::Duration};

use inference::{
    CallerThread, Error, Flow, Name, Request, ResponseStream, Timeline, UnreadBudget,
    backend::Execution,
    config::{ModelConfig, Scheduling},
    response_channel,
};
use scheduling::Rejection;

use crate::{
    account::RequestAccount,
    check::RequestValidator,
    clock::now,
    fingerprint::Fingerprint,
    in_flight::ModelPin,
    rejection::RejectionErrors,
    response_cache::{ModelCache, ValidRequest},
    server_parts::ServerParts,
};

mod replacement;

use replacement::Replacement;

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
    load_duration: Duration,
    replacement: Replacement,
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
    pub(crate) load_duration: Duration,
}

impl Model {
    /// A model in front of a runner.
    pub(crate) fn new(parts: ModelParts) -> Self {
        let ModelParts { namespace, version, config, shown, validator, account, .. } = parts;
        let ModelParts { cached, fingerprint, server, load_duration, .. } = parts;
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
            load_duration,
            replacement: Replacement::default(),
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
            load_duration: self.load_duration,
            replacement: Replacement::default(),
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
        if let Some(previous) = self.previous_copy_for(&request) {
            return previous.infer(request);
        }
        if !self.account.open().enter() {
            return self.infer_elsewhere(request);
        }
        // Looks after it has entered: a copy that has been replaced waits for those that have not seen it.
        let is_left = self.leaves_to_others(&request);
        let accepted = if is_left { self.infer_elsewhere(request) } else { self.accept_from_client(request) };
        self.account.open().leave();
        accepted
    }

    fn accept_from_client(self: &Arc<Self>, mut request: Request) -> Result<ResponseStream, Error> {
        if self.is_ensemble() && self.account.open().is_draining() {
            return Err(self.refusal(&request));
        }
        if request.reservation.is_none() {
            request.reservation = Some(self.server.inflight.reserve(request.reserved_bytes())?);
        }
        let reservation = request.reservation.take();
        let flow = Flow { reservation, ..self.flow(&request, &self.server.unread) };
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
        let asks_cache =
            |_: &&Arc<ModelCache>| !self.account.open().is_draining() && !request.has_device_memory();
        if let Some(cached) = self.cached.as_ref().filter(asks_cache) {
            // The answer is also for other requests.
            request.keep_outputs_on_host();
            return cached.infer(&self.account, ValidRequest { request, meta, timeline, flow });
        }
        self.account.open().begin();
        let (responder, stream) = response_channel(timeline, self.account.clone(), flow);
        let execution = Box::new(Execution::new(request, responder));
        self.account.enqueue(meta, execution, now(), CallerThread::MayExecute)?;
        Ok(stream)
    }

    /// What happens to responses that the client of a request does not read.
    fn flow(&self, request: &Request, unread: &Arc<UnreadBudget>) -> Flow {
        let most_unread = request.most_unread.or(self.config.most_unread_responses);
        // A model that is not decoupled may run on the same thread that reads its responses.
        let most_unread = most_unread.filter(|_| self.config.decoupled);
        Flow { budget: unread.clone(), client: request.client, most_unread, reservation: None }
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

    /// The error of a request that comes after the server has begun to stop.
    fn refusal(&self, request: &Request) -> Error {
        let sequences = matches!(self.config.scheduling, Scheduling::Sequence(_));
        let errors = RejectionErrors { model: self.config.name.clone(), sequences };
        errors.error(Rejection::Draining, request)
    }

    /// The reason why the version cannot be used any more, if there is one.
    pub(crate) fn fault(&self) -> Option<&Error> {
        self.account.runner().fault()
    }

    /// Whether the model is an ensemble.
    pub(crate) fn is_ensemble(&self) -> bool {
        matches!(self.config.scheduling, Scheduling::Ensemble(_))
    }

    /// As [`Engine::model_ready`](crate::Engine::model_ready), but asks on this thread. Blocks as long as the backend
    /// does.
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

    /// How long the load took.
    pub(crate) fn load_duration(&self) -> Duration {
        self.load_duration
    }

    /// Keeps the model from ending.
    ///
    /// # Errors
    /// NOT_FOUND if the model has been replaced or unloaded.
    pub(crate) fn pin(&self) -> Result<ModelPin, Error> {
        let gone = || Error::not_found(format!("Request for unknown model: '{}' is not found", self.name()));
        self.account.open().pin().ok_or_else(gone)
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
