//! The public interface of the runtime.
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use executor::EngineThreads;
use inference::metrics::MetricsForm;
use vocabulary::{ByteBudget, Error, Name};

use crate::{
    account::ModelStatistics,
    explain,
    exposition::Exposition,
    model::Model,
    model_demands::ModelDemands,
    model_state::{IndexEntry, ModelState, NotReady},
    models::{Repository, loaded_version::LoadedVersion},
    on_demand::OnDemandModels,
    options::{ModelControl, ServerMetadata},
    readiness::{KnownReadiness, Readiness, ReadinessPolicy},
    repository_commands::RepositoryCommands,
    snapshot::EngineSnapshot,
    workload::ServerWorkload,
};

mod model_loader;
mod start_stop;

/// A running inference server without its protocols. Clones refer to the same engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineInner>,
}

/// What the clones of an engine share.
struct EngineInner {
    server: ServerMetadata,
    readiness: ReadinessPolicy,
    repository: Arc<Repository>,
    /// Models are loaded when requests come for them.
    on_demand: Option<OnDemandModels>,
    exposition: Exposition,
    inflight: Arc<ByteBudget>,
    control: ModelControl,
    threads: EngineThreads,
    /// The repositories could not be read, so the engine has no models.
    failed_to_start: AtomicBool,
    /// A model of the start could not be loaded.
    lacks_startup_models: AtomicBool,
    /// The server is not ready, because it will stop soon.
    stop_announced: Arc<AtomicBool>,
    exiting: AtomicBool,
}

impl Engine {
    /// The budget for the bytes of requests. A protocol reserves the bytes that it receives there.
    pub fn inflight_bytes(&self) -> &Arc<ByteBudget> {
        &self.shared.inflight
    }

    /// A model version that is ready: the requested version, or the largest.
    ///
    /// # Errors
    /// NOT_FOUND, or UNAVAILABLE for a version that exists but is not ready, or if the repositories cannot be read.
    pub fn model(&self, name: &str, version: Option<i64>) -> Result<Arc<Model>, Error> {
        self.demands().in_memory(name, version)
    }

    /// Models as requests ask for them: also those that are not in memory, if models are loaded on demand.
    pub fn demands(&self) -> ModelDemands<'_> {
        let EngineInner { repository, on_demand, .. } = &*self.shared;
        ModelDemands::new(repository, on_demand.as_ref(), self.failed_to_start())
    }

    /// Whether the server is live: its repositories could be read.
    ///
    /// # Errors
    /// UNAVAILABLE while the server is stopping.
    pub fn live(&self) -> Result<bool, Error> {
        self.not_exiting().map(|()| !self.failed_to_start())
    }

    /// Whether the server is ready for requests: the models that count are ready, also as their backends report it.
    /// Threads that may block ask the backends.
    ///
    /// # Errors
    /// UNAVAILABLE while the server is stopping.
    pub async fn ready(&self) -> Result<bool, Error> {
        Ok(self.readiness().await? == Readiness::Ready)
    }

    /// As [`Engine::ready`], and tells what is not ready.
    ///
    /// # Errors
    /// As [`Engine::ready`].
    pub async fn readiness(&self) -> Result<Readiness, Error> {
        let models = match self.known_readiness()? {
            KnownReadiness::Decided(readiness) => return Ok(readiness),
            KnownReadiness::BackendsDecide(models) => models,
        };
        for loaded in models {
            if !loaded.work().ready().await {
                let model = loaded.model();
                let (name, version) = (Name::new(model.name()), Some(model.version()));
                let missing = NotReady { name, version, state: Some(ModelState::Unavailable) };
                return Ok(Readiness::NotReady(vec![missing]));
            }
        }
        Ok(Readiness::Ready)
    }

    /// As [`Engine::ready`], but asks on this thread. Blocks as long as a backend does.
    ///
    /// # Errors
    /// As [`Engine::ready`].
    pub fn ready_here(&self) -> Result<bool, Error> {
        Ok(match self.known_readiness()? {
            KnownReadiness::Decided(readiness) => readiness == Readiness::Ready,
            KnownReadiness::BackendsDecide(models) => models.iter().all(|loaded| loaded.model().ready_here()),
        })
    }

    /// What is known without asking backends.
    fn known_readiness(&self) -> Result<KnownReadiness, Error> {
        self.not_exiting()?;
        if self.shared.stop_announced.load(Ordering::Acquire) {
            return Ok(KnownReadiness::Decided(Readiness::StopAnnounced));
        }
        if self.failed_to_start() {
            return Ok(KnownReadiness::Decided(Readiness::NotReady(Vec::new())));
        }
        let has_startup_names = self.shared.control.startup_names().is_some();
        Ok(self.shared.readiness.known(&self.shared.repository.table(), has_startup_names))
    }

    fn failed_to_start(&self) -> bool {
        self.shared.failed_to_start.load(Ordering::Acquire)
    }

    fn not_exiting(&self) -> Result<(), Error> {
        let exiting = self.shared.exiting.load(Ordering::Acquire);
        if exiting { Err(Error::unavailable("Server exiting")) } else { Ok(()) }
    }

    /// Whether each directory of the repositories is a model with versions, all of them ready.
    pub fn all_loaded(&self) -> bool {
        !self.failed_to_start()
            && !self.shared.lacks_startup_models.load(Ordering::Acquire)
            && self.shared.repository.table().all_loaded()
    }

    /// What the server reports about itself.
    pub fn server(&self) -> &ServerMetadata {
        &self.shared.server
    }

    /// What operators may do with the models and their repositories.
    pub fn repository(&self) -> RepositoryCommands<'_> {
        let EngineInner { repository, on_demand, readiness, control, .. } = &*self.shared;
        RepositoryCommands::new(repository, on_demand.as_ref(), readiness, control)
    }

    /// The versions of a model that are ready, ascending.
    pub fn ready_versions(&self, name: &str) -> Vec<i64> {
        self.shared.repository.table().ready_versions(name)
    }

    /// All models and their states, by name and version. In control mode `explicit`, and if models are loaded on demand,
    /// also the models of the repositories that were never loaded; threads that may block read the repositories.
    pub async fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
        let is_partial =
            matches!(self.shared.control, ModelControl::Explicit(_)) || self.shared.on_demand.is_some();
        if is_partial && let Ok(lines) = self.shared.repository.index(ready_only).await {
            return lines;
        }
        self.known_models(ready_only)
    }

    /// The models that were loaded, or that could not be loaded, and their states, by name and version.
    pub fn known_models(&self, ready_only: bool) -> Vec<IndexEntry> {
        self.shared.repository.table().index(ready_only)
    }

    /// Counters of the ready versions of one model, or of all models, by name and version.
    ///
    /// # Errors
    /// INVALID_ARG for a model or version that is not ready.
    pub fn statistics(
        &self,
        name: Option<&str>,
        version: Option<i64>,
    ) -> Result<Vec<ModelStatistics>, Error> {
        let models = self.ready_models(name, version)?;
        Ok(models.iter().map(|loaded| loaded.statistics()).collect())
    }

    /// Removes the answers of a version, or of all versions of a model, from the response cache. Returns how many there
    /// were.
    ///
    /// # Errors
    /// As [`statistics`](Self::statistics), and as [`Model::empty_cache`].
    pub async fn empty_cache(&self, name: &str, version: Option<i64>) -> Result<u64, Error> {
        let mut removed = 0;
        for loaded in self.ready_models(Some(name), version)? {
            removed += loaded.model().empty_cache().await?;
        }
        log::info!("removed {removed} answers of model '{name}' from the response cache");
        Ok(removed)
    }

    /// The versions that are ready: of all models, or of the model with that name, or that one version.
    fn ready_models(
        &self,
        name: Option<&str>,
        version: Option<i64>,
    ) -> Result<Vec<Arc<LoadedVersion>>, Error> {
        let mut models = self.shared.repository.table().ready();
        if let Some(name) = name {
            models.retain(|loaded| loaded.model().name() == name);
            if models.is_empty() {
                return Err(Error::invalid(format!("requested model '{name}' is not available")));
            }
            models.retain(|loaded| version.is_none_or(|version| loaded.model().version() == version));
            if models.is_empty() {
                return Err(Error::invalid(format!(
                    "requested model version is not available for model '{name}'"
                )));
            }
        }
        Ok(models)
    }

    /// All metrics as text.
    pub fn metrics(&self, form: MetricsForm) -> String {
        let table = self.shared.repository.table();
        let model_memory = self.shared.on_demand.as_ref().map(OnDemandModels::totals);
        self.shared.exposition.text(form, table.built().iter(), table.readable(), model_memory)
    }

    /// What the server does now: all versions of models that `shows` permits, or those of one model, or one version. Takes
    /// no more locks than a scrape of the metrics. Does not look into repositories. If there are more than
    /// [`explain::MOST_MODELS`], the versions that are not ready and the busiest are described.
    ///
    /// # Errors
    /// NOT_FOUND for a model or a version that the server does not know.
    pub fn explain(
        &self,
        model: Option<(&str, Option<i64>)>,
        shows: impl Fn(&str) -> bool,
    ) -> Result<EngineSnapshot, Error> {
        let EngineInner { repository, on_demand, exposition, inflight, .. } = &*self.shared;
        let table = repository.table().clone();
        let wanted = |name: &str| model.map_or_else(|| shows(name), |(asked, _)| asked == name);
        let model_memory = on_demand.as_ref().map(|on_demand| on_demand.snapshot(wanted, &shows));
        explain::take(&table, model, shows, (exposition.cache(), inflight), model_memory)
    }

    /// The value of a metric of a plug-in, by the name of its family and one of its labels.
    pub fn plugin_metric(&self, family: &str, label: (&str, &str)) -> Option<f64> {
        self.shared.exposition.plugin_metric(family, label)
    }

    /// How much the server has to do. `shows` tells of which models the numbers may be told; the totals are of all models.
    pub fn workload(&self, shows: impl Fn(&str) -> bool) -> ServerWorkload {
        ServerWorkload::of(&self.shared.repository.table(), shows)
    }

    /// The number of accepted requests whose last response has not been sent.
    pub fn in_flight(&self) -> usize {
        self.shared.repository.table().in_flight()
    }

    /// The requests of [`Engine::in_flight`] by model and version. None of the numbers is 0.
    pub fn in_flight_by_version(&self) -> BTreeMap<(Name, i64), usize> {
        self.shared.repository.table().in_flight_by_version()
    }

    /// The number of running sequences, which may still get requests.
    pub fn live_sequences(&self) -> usize {
        self.shared.repository.table().live_sequences()
    }
}
