//! Does what the policy decides: loads and unloads models, and tells those who wait.
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use host::now;
use lifecycle::{BudgetAction, LoadMeasure};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep_until},
};
use vocabulary::{Error, Name};

use super::{demands::Demands, measure};
use crate::models::Repository;

/// How often the sizes of the models in memory are measured.
const MEASURE_PERIOD: Duration = Duration::from_secs(2);

/// How often a blocked model looks whether others have become idle.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// What the task works on.
pub(super) struct OnDemandTask {
    demands: Arc<Demands>,
    /// The owner of the task has the repository, too.
    repository: Weak<Repository>,
}

/// A slow operation has ended.
enum EndedOperation {
    Loaded(EndedLoad),
    Unloaded(Name),
    Measured(Vec<(Name, u64)>),
}

/// A load that has ended.
struct EndedLoad {
    name: Name,
    /// The operator has brought something.
    is_given: bool,
    result: Result<(), Error>,
}

impl OnDemandTask {
    /// The task ends when it is dropped, or with the repository. Must be called in a tokio runtime.
    pub(super) fn start(demands: Arc<Demands>, repository: Weak<Repository>) -> JoinSet<()> {
        let mut task = JoinSet::new();
        task.spawn(Self { demands, repository }.run());
        task
    }

    async fn run(self) {
        let mut operations = JoinSet::new();
        let mut next_measure = Instant::now() + MEASURE_PERIOD;
        let mut is_measuring = false;
        loop {
            let is_blocked = self.demands.state.lock().budget.is_blocked();
            let look = Instant::now() + LOOK_PERIOD;
            // All branches may be dropped while they wait.
            tokio::select! {
                () = self.demands.asked.notified() => {}
                Some(ended) = operations.join_next() => match ended {
                    Ok(ended) => {
                        is_measuring &= !matches!(ended, EndedOperation::Measured(_));
                        let Some(repository) = self.repository.upgrade() else { return };
                        self.ended(&repository, ended, &mut operations);
                    }
                    Err(error) => log::error!("an operation on a model's memory was lost: {error}"),
                },
                () = sleep_until(look), if is_blocked => self.demands.state.lock().forget_the_gone(),
                () = sleep_until(next_measure), if !is_measuring => {
                    next_measure = Instant::now() + MEASURE_PERIOD;
                    is_measuring = self.measure(&mut operations);
                    self.demands.state.lock().forget_the_gone();
                }
            }
            let Some(repository) = self.repository.upgrade() else { return };
            self.decide(&repository, &mut operations);
        }
    }

    fn decide(&self, repository: &Arc<Repository>, operations: &mut JoinSet<EndedOperation>) {
        let table = repository.table().clone();
        let actions = self.demands.state.lock().decide(&table);
        self.perform(repository, actions, operations);
    }

    fn perform(
        &self,
        repository: &Arc<Repository>,
        actions: Vec<BudgetAction>,
        operations: &mut JoinSet<EndedOperation>,
    ) {
        for action in actions {
            match action {
                BudgetAction::Load(name) => self.load(repository.clone(), name, operations),
                BudgetAction::Unload(name) => self.unload(repository.clone(), name, operations),
                BudgetAction::Refuse(name, error) => {
                    // Requests may cause it without end.
                    log::debug!("{error}");
                    let mut state = self.demands.state.lock();
                    state.counts.refusals += 1;
                    state.answer(&name, &Err(error));
                }
            }
        }
    }

    fn load(&self, repository: Arc<Repository>, name: Name, operations: &mut JoinSet<EndedOperation>) {
        let given = self.demands.state.lock().given.remove(&name);
        operations.spawn(async move {
            let is_given = given.is_some();
            let result = repository.load(&name, given.unwrap_or_default()).await;
            EndedOperation::Loaded(EndedLoad { name, is_given, result })
        });
    }

    fn unload(&self, repository: Arc<Repository>, name: Name, operations: &mut JoinSet<EndedOperation>) {
        self.demands.state.lock().counts.unloads += 1;
        operations.spawn(async move {
            log::info!("unloading model '{name}', because others need its memory (--model-memory-budget)");
            if let Err(error) = repository.unload(&name, false).await {
                log::warn!("model '{name}' was not unloaded: {error}");
            }
            repository.until(|table| !table.is_in_use(&name)).await;
            EndedOperation::Unloaded(name)
        });
    }

    /// Measures the models in memory on a thread that may block. Returns whether there are some.
    fn measure(&self, operations: &mut JoinSet<EndedOperation>) -> bool {
        let names: Vec<_> = self.demands.state.lock().budget.in_memory().cloned().collect();
        let Some(repository) = self.repository.upgrade().filter(|_| !names.is_empty()) else { return false };
        operations.spawn(async move {
            let measured = spawn_blocking(move || {
                let table = repository.table().clone();
                let measured = |name: Name| {
                    let bytes = measure::bytes_of(&table, &name);
                    (name, bytes)
                };
                names.into_iter().map(measured).collect()
            });
            EndedOperation::Measured(measured.await.unwrap_or_default())
        });
        true
    }

    fn ended(
        &self,
        repository: &Arc<Repository>,
        ended: EndedOperation,
        operations: &mut JoinSet<EndedOperation>,
    ) {
        match ended {
            EndedOperation::Loaded(load) => self.loaded(repository, load, operations),
            EndedOperation::Unloaded(name) => self.demands.state.lock().budget.ended(&name),
            EndedOperation::Measured(sizes) => {
                let table = repository.table().clone();
                let mut state = self.demands.state.lock();
                for (name, bytes) in sizes {
                    // It may have been unloaded together with an ensemble.
                    if table.is_in_use(&name) {
                        state.budget.measured(&name, bytes, measure::use_of(&table, &name), now());
                    } else {
                        state.budget.ended(&name);
                    }
                }
            }
        }
    }

    fn loaded(
        &self,
        repository: &Arc<Repository>,
        EndedLoad { name, is_given, result }: EndedLoad,
        operations: &mut JoinSet<EndedOperation>,
    ) {
        let name = &name;
        let table = repository.table().clone();
        if let Err(error) = result {
            let mut state = self.demands.state.lock();
            state.counts.refusals += 1;
            state.budget.failed(name, &error, now());
            state.answer(name, &Err(error));
            return;
        }
        if table.usable_of(name).is_empty() {
            // An operator has unloaded it meanwhile.
            let mut state = self.demands.state.lock();
            state.budget.ended(name);
            state.answer(name, &Ok(()));
            return;
        }
        let bytes = measure::bytes_of(&table, name);
        // Without the wait for a load thread, which is long when many models are wanted, and says nothing of this one.
        let duration = measure::load_duration_of(&table, name);
        let needs = measure::needs_of(&table, name, is_given);
        let is_decoupled = table.usable_of(name).iter().any(|loaded| loaded.model().config().decoupled);
        let actions = {
            let mut state = self.demands.state.lock();
            state.decoupled.insert(name.clone(), is_decoupled);
            state.counts.loads += 1;
            let actions = state.budget.loaded(name, LoadMeasure { bytes, duration }, needs, now());
            if actions.is_empty() {
                state.awaiting_use.insert(name.clone(), now());
                state.answer(name, &Ok(()));
            }
            actions
        };
        self.perform(repository, actions, operations);
    }
}
