//! When the server counts as ready for requests.
use std::{collections::BTreeSet, sync::Arc};

use inference::lock::Mutex;
use vocabulary::Name;

use crate::{
    model_state::NotReady, models::ModelTable, models::loaded_version::LoadedVersion, options::ReadinessRule,
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
    fn counts(&self, name: &str) -> bool {
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
    fn missing(&self, table: &ModelTable, named: bool) -> Vec<NotReady> {
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

    /// What is known without asking backends. `named`: the options name the models of the start.
    pub(crate) fn known(&self, table: &ModelTable, named: bool) -> KnownReadiness {
        let missing = self.missing(table, named);
        if !missing.is_empty() {
            return KnownReadiness::Decided(Readiness::NotReady(missing));
        }
        let mut models = table.telling_readiness();
        models.retain(|loaded| self.counts(loaded.model().name()));
        KnownReadiness::BackendsDecide(models)
    }
}

/// What is known about the readiness of the server without asking backends.
pub(crate) enum KnownReadiness {
    Decided(Readiness),
    /// The server is ready if these models are, as their backends report it.
    BackendsDecide(Vec<Arc<LoadedVersion>>),
}
