//! When the server counts as ready for requests.
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use inference::{Error, Name, lock::Mutex};

use crate::{
    engine::Engine,
    model::Model,
    model_state::{ModelState, NotReady},
    options::ReadinessRule,
    repository::ModelTable,
};

/// Whether the server is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It is.
    Ready,
    /// It is not because of these models, by name and version. Empty if the repositories could not be read.
    NotReady(Vec<NotReady>),
    /// It is not, because it will stop soon.
    StopAnnounced,
}

/// Decides which models must be ready.
pub(crate) struct ReadinessPolicy {
    rule: ReadinessRule,
    /// Names of the models that were asked for at the start. `None` while they are not known.
    startup: Mutex<Option<BTreeSet<Name>>>,
}

impl ReadinessPolicy {
    /// `startup` are the models that the options name, if they do.
    pub(crate) fn new(rule: ReadinessRule, startup: Option<&BTreeSet<String>>) -> Self {
        let startup = startup.map(|names| names.iter().map(|name| Name::new(name)).collect());
        Self { rule, startup: Mutex::new(startup) }
    }

    /// The start has loaded all models of the repositories: these.
    pub(crate) fn started_with(&self, names: BTreeSet<Name>) {
        self.startup.lock().get_or_insert(names);
    }

    /// A client has unloaded a model: it is not asked for any more.
    pub(crate) fn unloaded(&self, name: &str) {
        self.startup.lock().iter_mut().for_each(|startup| _ = startup.remove(name));
    }

    /// Whether a model of this name must be ready.
    pub(crate) fn counts(&self, name: &str) -> bool {
        match self.rule {
            ReadinessRule::NoModel => false,
            ReadinessRule::AllModels => true,
            ReadinessRule::StartupModels => {
                self.startup.lock().as_ref().is_none_or(|startup| startup.contains(name))
            }
        }
    }

    /// What is not ready, by name and version, as far as the table tells. `named` says that the options name the models
    /// of the start: then one that the server does not have is missing. Otherwise its directory has been deleted.
    pub(crate) fn missing(&self, table: &ModelTable, named: bool) -> Vec<NotReady> {
        let mut missing = table.not_ready();
        missing.retain(|missing| self.counts(&missing.name));
        if self.rule == ReadinessRule::StartupModels && named {
            let startup = self.startup.lock();
            let absent = startup.iter().flatten().filter(|name| !table.knows(name));
            missing.extend(absent.map(|name| NotReady { name: name.clone(), version: None, state: None }));
        }
        missing.sort();
        missing
    }
}

impl Engine {
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
        for model in models {
            if !model.ready().await {
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
            KnownReadiness::BackendsDecide(models) => models.iter().all(|model| model.ready_here()),
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
        let (table, readiness) = (self.shared.repository.table(), &self.shared.readiness);
        let missing = readiness.missing(&table, self.shared.control.startup_names().is_some());
        if !missing.is_empty() {
            return Ok(KnownReadiness::Decided(Readiness::NotReady(missing)));
        }
        let mut models = table.telling_readiness();
        models.retain(|model| readiness.counts(model.name()));
        Ok(KnownReadiness::BackendsDecide(models))
    }
}

/// What is known about the readiness of the server without asking backends.
enum KnownReadiness {
    Decided(Readiness),
    /// The server is ready if these models are, as their backends report it.
    BackendsDecide(Vec<Arc<Model>>),
}
