//! What the engine asks of models that are loaded on demand.
use std::{cmp::Reverse, collections::BTreeSet, sync::Arc, time::Duration};

use inference::UnreadBudget;
use lifecycle::{BudgetLine, BudgetPlace, MemoryBudget};
use repository::LoadParameters;
use tokio::{runtime::Handle, task::JoinSet};
use vocabulary::{ByteBudget, Error, Name};

use super::{
    demands::{Demands, exiting},
    infer_absent::AbsentModelsInferer,
    task::OnDemandTask,
};
use crate::{
    model::Model,
    models::Repository,
    snapshot::{MOST_MODELS, ModelMemorySnapshot, ModelMemoryTotals},
};

/// Models that are loaded on demand. The task ends when this is dropped.
pub(crate) struct OnDemandModels {
    demands: Arc<Demands>,
    repository: Arc<Repository>,
    _task: JoinSet<()>,
}

impl OnDemandModels {
    /// Loads models of a repository within a budget that has no models yet. Requests wait for `patience` at most.
    /// Requests of models reach others through the repository, and `inflight` and `unread` count these and their
    /// responses. Must be called in a tokio runtime.
    pub(crate) fn start(
        budget: MemoryBudget,
        patience: Duration,
        repository: &Arc<Repository>,
        (inflight, unread): (Arc<ByteBudget>, Arc<UnreadBudget>),
    ) -> Self {
        let demands = Arc::new(Demands::new(budget, patience));
        let owner = Arc::downgrade(repository);
        repository.set_absent_models(Arc::new(AbsentModelsInferer {
            demands: demands.clone(),
            repository: owner.clone(),
            inflight,
            unread,
            runtime: Handle::current(),
        }));
        let task = OnDemandTask::start(demands.clone(), owner);
        Self { demands, repository: repository.clone(), _task: task }
    }

    /// The requested version of a model, or the largest one, when it is in memory. `looked_up` is why the model is not in
    /// the table.
    ///
    /// # Errors
    /// That error for a model that nothing loads. The model cannot be loaded, does not fit, or did not come in time
    /// (UNAVAILABLE). RESOURCE_EXHAUSTED if too many requests wait.
    pub(crate) async fn model(
        &self,
        name: &str,
        version: Option<i64>,
        looked_up: Error,
    ) -> Result<Arc<Model>, Error> {
        self.demands.model(&self.repository, &Name::new(name), version, looked_up).await
    }

    /// Loads or reloads a model as an operator asks. Returns when it serves or has failed.
    ///
    /// # Errors
    /// Those of [`Repository::load`]. UNAVAILABLE for a model that does not fit.
    pub(crate) async fn load(&self, name: &str, given: LoadParameters) -> Result<(), Error> {
        let (name, is_given) = (Name::new(name), !given.is_empty());
        if let Some(loaded) = self.demands.load(&self.repository, &name, given.clone()).await {
            return loaded;
        }
        // It is in memory, or the repository says that there is no such model.
        self.repository.load(&name, given).await?;
        self.demands.reloaded(&self.repository, &name, is_given);
        Ok(())
    }

    /// Unloads a model as an operator asks. Requests do not load it any more.
    ///
    /// # Errors
    /// Those of [`Repository::unload`].
    pub(crate) async fn unload(&self, name: &str, dependents: bool) -> Result<(), Error> {
        let key = Name::new(name);
        self.demands.withdraw(&key);
        self.repository.unload(name, dependents).await
    }

    /// Looks at all models of the repositories.
    ///
    /// # Errors
    /// A repository that cannot be read.
    pub(crate) async fn survey(&self) -> Result<(), Error> {
        let mut surveyed = self.demands.surveyed.lock().await;
        self.demands.look(&self.repository, &mut surveyed).await
    }

    /// The models that stay in memory.
    pub(crate) fn pinned(&self) -> BTreeSet<String> {
        self.demands.state.lock().budget.pinned().map(ToString::to_string).collect()
    }

    /// Whether a request for the model would be answered, now or after its load.
    pub(crate) fn takes_requests(&self, name: &str) -> bool {
        self.demands.takes_requests(&Name::new(name))
    }

    /// From now on requests wait for no model: the server stops.
    pub(crate) fn stop(&self) {
        let mut state = self.demands.state.lock();
        state.is_stopping = true;
        let names: Vec<_> = state.waiters.keys().cloned().collect();
        names.iter().for_each(|name| state.answer(name, &Err(exiting())));
    }

    /// What the memory is used for: by the models of `wanted`. `shows` tells which models may be told.
    pub(crate) fn snapshot(
        &self,
        wanted: impl Fn(&str) -> bool,
        shows: impl Fn(&str) -> bool,
    ) -> ModelMemorySnapshot {
        let state = self.demands.state.lock();
        let totals = state.totals();
        let mut models: Vec<_> = state.budget.lines().filter(|line| wanted(&line.name)).collect();
        drop(state);
        let is_out = |line: &BudgetLine| matches!(line.place, BudgetPlace::Out(_));
        models.sort_by_key(|line| (is_out(line), Reverse(if is_out(line) { 0 } else { line.bytes })));
        let models_left_out = models.len().saturating_sub(MOST_MODELS);
        models.truncate(MOST_MODELS);
        let models = models.into_iter().map(|line| line.telling(|name| shows(name))).collect();
        ModelMemorySnapshot { totals, models, models_left_out }
    }

    /// The limit, the bytes in use, and what has happened since the start.
    pub(crate) fn totals(&self) -> ModelMemoryTotals {
        self.demands.state.lock().totals()
    }
}
