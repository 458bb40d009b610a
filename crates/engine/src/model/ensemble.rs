//! The front of an ensemble. What clients see of an ensemble depends on its members, so each change of these makes a new
//! front over the same ensemble.
use std::{sync::Arc, time::Duration};

use inference::{
    ByteBudget, Error, Inferer, Name, Timestamp, UnreadBudget,
    cache::ResponseCache,
    config::{EnsembleScheduling, FittedEnsemble, ModelConfig, ResolvedConfig},
};
use proto::ModelTransactionPolicy;
use tokio::runtime::Handle;

use super::{Handover, Model, ModelCache, ModelCacheParts, ModelWork, Replacement};
use crate::clock::TimerThread;
use crate::{
    check::{ReadableMemory, RequestValidator},
    clock::now,
    ensemble::{Ensemble, MemberBinding, Pins},
    fingerprint::{self, Fingerprint},
    observe::{Latencies, Record},
    options::MetricsOptions,
    order::Orders,
};

/// What an ensemble is built from, besides its members.
pub(crate) struct EnsembleParts {
    /// The repository, if the server uses namespaces.
    pub(crate) namespace: Option<Name>,
    pub(crate) version: i64,
    pub(crate) config: ResolvedConfig,
    pub(crate) scheduling: Arc<EnsembleScheduling>,
    /// The server's response cache, if the ensemble uses it.
    pub(crate) cache: Option<Arc<dyn ResponseCache>>,
    /// Of its own files and configuration, if it is needed.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) clock: TimerThread,
    /// Bytes that requests may hold between steps, if the configuration does not say.
    pub(crate) intermediate_bytes: usize,
    /// The budget for the inputs of requests.
    pub(crate) inflight: Arc<ByteBudget>,
    /// The budget for the responses that clients have not read.
    pub(crate) unread: Arc<UnreadBudget>,
    pub(crate) runtime: Handle,
    /// When the load began.
    pub(crate) since: Timestamp,
    /// Looks models up, for requests that come after the version has been replaced.
    pub(crate) inferer: Option<Arc<dyn Inferer>>,
    /// What is counted of requests.
    pub(crate) metrics: Arc<MetricsOptions>,
}

/// What the fronts of one ensemble have in common.
pub(super) struct EnsembleOrigin {
    parts: EnsembleParts,
    load_duration: Duration,
}

impl Model {
    /// An ensemble with its members, one for each step.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit.
    pub(crate) fn of_ensemble(parts: EnsembleParts, members: Vec<Arc<Self>>) -> Result<Arc<Self>, Error> {
        let config = &parts.config.typed;
        let (binding, fitted) = MemberBinding::new(config, &parts.scheduling, members)?;
        let ensemble = Arc::new(Ensemble::new(
            Arc::new(config.clone()),
            parts.scheduling.clone(),
            binding,
            parts.intermediate_bytes,
            parts.runtime.clone(),
        ));
        let origin = EnsembleOrigin { load_duration: now() - parts.since, parts };
        let front = origin.front(&ensemble, &fitted);
        Ok(Arc::new(Self { ensemble_origin: Some(Arc::new(origin)), ..front }))
    }

    /// Binds an ensemble to other members. The new front replaces this one. `None` if nothing changes.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit. Then nothing changes.
    pub(crate) fn bound_to(&self, members: Vec<Arc<Self>>) -> Result<Option<Arc<Self>>, Error> {
        let (Some(ensemble), Some(origin)) = (self.work.ensemble(), &self.ensemble_origin) else {
            return Ok(None);
        };
        if ensemble.binding().is_to(&members) {
            return Ok(None);
        }
        let (binding, fitted) =
            MemberBinding::new(&origin.parts.config.typed, ensemble.scheduling(), members)?;
        ensemble.bind(binding);
        let front = origin.front(ensemble, &fitted);
        front.replacement.follow_as(&self.replacement);
        Ok(Some(Arc::new(Self {
            record: self.record.clone(),
            in_flight: self.in_flight.clone(),
            ensemble_origin: Some(origin.clone()),
            ..front
        })))
    }

    /// The steps, if the model is an ensemble.
    pub(crate) fn ensemble_scheduling(&self) -> Option<&Arc<EnsembleScheduling>> {
        self.work.ensemble().map(|ensemble| ensemble.scheduling())
    }

    /// Keeps the model from ending; for an ensemble, also its members.
    ///
    /// # Errors
    /// NOT_FOUND if the model has been replaced or unloaded.
    pub(crate) fn pin_into(&self, pins: &mut Pins) -> Result<(), Error> {
        let gone = || Error::not_found(format!("Request for unknown model: '{}' is not found", self.name()));
        pins.push(self.in_flight.pin().ok_or_else(gone)?);
        match self.work.ensemble() {
            Some(ensemble) => ensemble.binding().pin_into(pins),
            None => Ok(()),
        }
    }
}

impl EnsembleOrigin {
    fn front(&self, ensemble: &Arc<Ensemble>, fitted: &FittedEnsemble) -> Model {
        let EnsembleParts { namespace, version, config, cache, inflight, unread, inferer, .. } = &self.parts;
        let EnsembleParts { runtime, clock, metrics, .. } = &self.parts;
        let mut shown = config.shown.clone();
        if fitted.decoupled {
            shown.model_transaction_policy = Some(ModelTransactionPolicy { decoupled: true });
        }
        let config = Arc::new(with_members(&config.typed, fitted));
        let binding = ensemble.binding();
        let members = binding.members().map(|member| (member.version, member.fingerprint));
        let fingerprint = fingerprint::of_ensemble(self.parts.fingerprint, members);
        let cached = cache.as_ref().zip(config.response_cache).map(|(cache, caching)| {
            ModelCache::new(ModelCacheParts {
                cache: cache.clone(),
                model: &config.name,
                version: *version,
                // If the answers of a member cannot be told apart, those of earlier members are not found.
                fingerprint: fingerprint.unwrap_or_else(fingerprint::unique_fingerprint),
                caching,
                runtime: runtime.clone(),
                clock: clock.clone(),
            })
        });
        Model {
            namespace: namespace.clone(),
            version: *version,
            shown,
            // Members refuse memory of devices that they cannot read. All members get the same copy of foreign memory.
            validator: Arc::new(RequestValidator::new(
                &config,
                ReadableMemory { device: true, foreign: false },
            )),
            record: Arc::new(Record::new(Latencies::new(metrics, &config, now()))),
            in_flight: Arc::default(),
            orders: Arc::new(Orders::of(&config.scheduling, 0)),
            cached,
            fingerprint,
            inflight: inflight.clone(),
            unread: unread.clone(),
            work: ModelWork::Ensemble(ensemble.clone()),
            load_duration: self.load_duration,
            replacement: Replacement::new(inferer.clone()),
            handover: Handover::default(),
            ensemble_origin: None,
            config,
        }
    }
}

/// The configuration of an ensemble together with what follows from its members.
fn with_members(config: &ModelConfig, fitted: &FittedEnsemble) -> ModelConfig {
    let mut config = config.clone();
    config.decoupled = fitted.decoupled;
    config.has_sequences = fitted.has_sequences;
    for (output, labels) in config.outputs.iter_mut().zip(&fitted.labels) {
        output.labels = labels.clone();
    }
    config
}
