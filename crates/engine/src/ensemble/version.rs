//! A version of an ensemble. What clients see of an ensemble depends on its members, so each change of these makes a new
//! model over the same ensemble.
use std::sync::Arc;

use config::{EnsembleScheduling, FittedEnsemble, ModelConfig, ResolvedConfig};
use host::now;
use inference::{ReadableMemory, RequestValidator, Timestamp, cache::ResponseCache};
use proto::ModelTransactionPolicy;
use vocabulary::{Error, Name};

use super::{
    binding::{EnsembleMember, MemberBinding},
    ensemble::Ensemble,
};
use crate::{
    account::{Latencies, RequestAccount, RequestCounters},
    fingerprint::{self, Fingerprint},
    model::{Model, ModelParts},
    response_cache::{ModelCache, ModelCacheParts},
    server_parts::ServerParts,
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
    /// Bytes that requests may hold between steps, if the configuration does not say.
    pub(crate) intermediate_bytes: usize,
    /// When the load began.
    pub(crate) since: Timestamp,
    pub(crate) server: Arc<ServerParts>,
}

/// An ensemble, and what the models over it are made of.
pub(crate) struct EnsembleVersion {
    ensemble: Arc<Ensemble>,
    parts: EnsembleParts,
    /// The models share it: requests that a former one has accepted go on.
    account: Arc<RequestAccount>,
}

impl EnsembleVersion {
    /// An ensemble with its members, one for each step, and the first model over it.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit.
    pub(crate) fn new(parts: EnsembleParts, members: Vec<EnsembleMember>) -> Result<(Self, Model), Error> {
        let config = &parts.config.typed;
        let (binding, fitted) = MemberBinding::new(config, &parts.scheduling, members)?;
        let ensemble = Arc::new(Ensemble::new(
            Arc::new(config.clone()),
            parts.scheduling.clone(),
            binding,
            parts.intermediate_bytes,
            parts.server.runtime.clone(),
        ));
        let config = with_members(config, &fitted);
        let record = Arc::new(RequestCounters::new(Latencies::new(&parts.server.metrics, &config, now())));
        let account = Arc::new(RequestAccount::new(record, ensemble.clone()));
        let version = Self { ensemble, parts, account };
        let model = version.model(config, &fitted);
        Ok((version, model))
    }

    /// Binds the ensemble to other members. The new model replaces the one before. `None` if nothing changes.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit. Then nothing changes.
    pub(crate) fn bind(&self, members: Vec<EnsembleMember>) -> Result<Option<Model>, Error> {
        if self.ensemble.binding().is_to(&members) {
            return Ok(None);
        }
        let declared = &self.parts.config.typed;
        let (binding, fitted) = MemberBinding::new(declared, &self.parts.scheduling, members)?;
        self.ensemble.bind(binding);
        Ok(Some(self.model(with_members(declared, &fitted), &fitted)))
    }

    pub(crate) fn ensemble(&self) -> &Arc<Ensemble> {
        &self.ensemble
    }

    fn model(&self, config: ModelConfig, fitted: &FittedEnsemble) -> Model {
        let EnsembleParts { namespace, version, cache, server, .. } = &self.parts;
        let mut shown = self.parts.config.shown.clone();
        // As Triton: it follows from the members, and is always there.
        shown.model_transaction_policy = Some(ModelTransactionPolicy { decoupled: fitted.decoupled });
        let config = Arc::new(config);
        let binding = self.ensemble.binding();
        let members = binding.members().map(|member| (member.version(), member.fingerprint()));
        let fingerprint = fingerprint::of_ensemble(self.parts.fingerprint, members);
        let cached = cache.as_ref().zip(config.response_cache).map(|(cache, caching)| {
            ModelCache::new(ModelCacheParts {
                cache: cache.clone(),
                config: config.clone(),
                version: *version,
                // If the answers of a member cannot be told apart, those of earlier members are not found.
                fingerprint: fingerprint.unwrap_or_else(fingerprint::unique_fingerprint),
                caching,
                server: server.clone(),
            })
        });
        // Members refuse memory of devices that they cannot read. All members get the same copy of foreign memory.
        let readable = ReadableMemory { device: true, foreign: false };
        Model::new(ModelParts {
            namespace: namespace.clone(),
            version: *version,
            shown,
            validator: Arc::new(RequestValidator::new(&config, readable)),
            account: self.account.clone(),
            cached,
            fingerprint,
            server: server.clone(),
            config,
        })
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
