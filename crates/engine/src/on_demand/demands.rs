//! Who waits for models, and the policy that decides.
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use host::now;
use inference::{
    Timestamp,
    lock::{LockRank, Mutex},
};
use lifecycle::{BudgetAction, DemandAnswer, MemoryBudget, ModelUse};
use repository::LoadParameters;
use tokio::{
    sync::{Mutex as TaskMutex, Notify, oneshot},
    time::timeout,
};
use vocabulary::{Error, Name};

use super::measure;
use crate::{
    model::Model,
    models::{ModelTable, Repository, SurveyedModel},
    snapshot::{DemandCounts, ModelMemoryTotals},
};

/// So many requests may wait for loads. Their bytes count in the budget of requests, too.
const MOST_WAITING: usize = 10_000;

/// A model that was just loaded stays for so long at least, unless it has answered a request.
const TIME_TO_COME: Duration = Duration::from_secs(1);

/// Unknown names cause a look at the repositories at most once in this time, or in so many times what the last look took.
const LEAST_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_FACTOR: u32 = 20;

/// The demands for models, shared with the task.
pub(super) struct Demands {
    pub(super) state: Mutex<DemandState>,
    /// There is something to decide.
    pub(super) asked: Notify,
    /// The longest time that a request waits for a model.
    pub(super) patience: Duration,
    /// When the repositories were looked at, and how long that took. Held during a look.
    pub(super) surveyed: TaskMutex<Option<(Instant, Duration)>>,
}

/// The policy and those who wait.
pub(super) struct DemandState {
    pub(super) budget: MemoryBudget,
    pub(super) waiters: HashMap<Name, Vec<Waiter>>,
    pub(super) waiting: usize,
    /// Models that are decoupled.
    pub(super) decoupled: HashMap<Name, bool>,
    /// What operators have brought with loads that have not begun.
    pub(super) given: HashMap<Name, LoadParameters>,
    /// When models were loaded for which requests wait that have not come yet.
    pub(super) awaiting_use: HashMap<Name, Timestamp>,
    pub(super) counts: DemandCounts,
    /// The server stops.
    pub(super) is_stopping: bool,
}

type Waiter = oneshot::Sender<Result<(), Error>>;

pub(super) fn server_ended() -> Error {
    Error::unavailable("the server has ended")
}

pub(super) fn exiting() -> Error {
    Error::unavailable("Server exiting")
}

/// What a demand comes to.
enum Demanded {
    /// The model was in memory when it was asked for.
    WasThere,
    /// The model is loaded, or refused, and this tells when.
    Waits(oneshot::Receiver<Result<(), Error>>),
    /// An operator has unloaded the model.
    NeverComes,
    /// No repository is known to have a model of this name.
    IsUnknown,
}

impl Demands {
    /// Without demands.
    pub(super) fn new(budget: MemoryBudget, patience: Duration) -> Self {
        let state = DemandState {
            budget,
            waiters: HashMap::new(),
            waiting: 0,
            decoupled: HashMap::new(),
            given: HashMap::new(),
            awaiting_use: HashMap::new(),
            counts: DemandCounts::default(),
            is_stopping: false,
        };
        let state = Mutex::ranked(LockRank::ModelMemory, state);
        Self { state, asked: Notify::new(), patience, surveyed: TaskMutex::new(None) }
    }

    /// The requested version of a model, or the largest one, when it is in memory. `looked_up` is why it is not in the table.
    ///
    /// # Errors
    /// That error for a model that nothing loads. Why the model did not come, or not in time.
    pub(super) async fn model(
        &self,
        repository: &Repository,
        name: &Name,
        version: Option<i64>,
        looked_up: Error,
    ) -> Result<Arc<Model>, Error> {
        let coming = self.model_at_last(repository, name, version, looked_up);
        timeout(self.patience, coming).await.unwrap_or_else(|_| {
            let seconds = self.patience.as_secs();
            Err(Error::unavailable(format!(
                "model '{name}' was not loaded within {seconds} seconds (--model-load-wait-secs)"
            )))
        })
    }

    async fn model_at_last(
        &self,
        repository: &Repository,
        name: &Name,
        version: Option<i64>,
        mut looked_up: Error,
    ) -> Result<Arc<Model>, Error> {
        let mut was_there = false;
        loop {
            match self.demand(repository, name).await? {
                Demanded::NeverComes | Demanded::IsUnknown => return Err(looked_up),
                // It is in memory since it was looked up, or it is there without the version.
                Demanded::WasThere if was_there => return Err(looked_up),
                Demanded::WasThere => was_there = true,
                Demanded::Waits(answer) => {
                    came(answer).await?;
                    // It may be unloaded again before the request has reached it.
                    was_there = false;
                }
            }
            match repository.table().model(name, version) {
                Ok(loaded) => return Ok(loaded.model().clone()),
                Err(error) => looked_up = error,
            }
        }
    }

    /// Demands a model for a request. Looks at the repositories again for a name that is not known.
    async fn demand(&self, repository: &Repository, name: &Name) -> Result<Demanded, Error> {
        match self.ask(name, MemoryBudget::demand)? {
            Demanded::IsUnknown => {
                self.survey_again(repository).await;
                self.ask(name, MemoryBudget::demand)
            }
            demanded => Ok(demanded),
        }
    }

    /// Loads a model as an operator asks. `None` if it is in memory, or in no repository: then the repository decides.
    pub(super) async fn load(
        &self,
        repository: &Repository,
        name: &Name,
        given: LoadParameters,
    ) -> Option<Result<(), Error>> {
        let mut found = match repository.survey(Some(name.clone())).await {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        if !given.is_empty() {
            let file_bytes = given.files.iter().map(|(_, file)| file.len() as u64).sum();
            let surveyed = found.entry(name.clone()).or_default();
            surveyed.needs.file_bytes = surveyed.needs.file_bytes.max(file_bytes);
            self.state.lock().given.insert(name.clone(), given);
        }
        self.learn(found);
        let loaded = match self.ask(name, MemoryBudget::prefetch) {
            Ok(Demanded::Waits(answer)) => came(answer).await,
            Ok(Demanded::WasThere | Demanded::NeverComes | Demanded::IsUnknown) => {
                self.state.lock().given.remove(name);
                return None;
            }
            Err(error) => return Some(Err(error)),
        };
        // A load that a request had begun before has not taken what the operator has brought.
        let is_left = self.state.lock().given.remove(name).is_some();
        (loaded.is_err() || !is_left).then_some(loaded)
    }

    /// An operator has loaded a model again that was in memory.
    pub(super) fn reloaded(&self, repository: &Repository, name: &Name, is_given: bool) {
        let table = repository.table().clone();
        let mut state = self.state.lock();
        state.budget.replaced(name, measure::needs_of(&table, name, is_given));
    }

    /// An operator unloads a model. Those who wait for it get the error of an unloaded model.
    pub(super) fn withdraw(&self, name: &Name) {
        let mut state = self.state.lock();
        state.budget.withdraw(name);
        state.given.remove(name);
        state.answer(name, &Ok(()));
        drop(state);
        // The task finds that the model has gone.
        self.asked.notify_one();
    }

    /// Whether a request for the model would be answered, now or after its load.
    pub(super) fn takes_requests(&self, name: &Name) -> bool {
        self.state.lock().budget.takes_requests(name, now())
    }

    pub(super) fn is_decoupled(&self, name: &Name) -> bool {
        self.state.lock().decoupled.get(name).copied().unwrap_or_default()
    }

    /// Looks at the repositories again, unless that was done a moment ago.
    async fn survey_again(&self, repository: &Repository) {
        let mut surveyed = self.surveyed.lock().await;
        let is_due = surveyed.is_none_or(|(at, took)| at.elapsed() >= LEAST_PAUSE.max(took * PAUSE_FACTOR));
        if is_due && let Err(error) = self.look(repository, &mut surveyed).await {
            log::warn!("the models of the repositories are not known: {error}");
        }
    }

    /// Looks at all models of the repositories.
    ///
    /// # Errors
    /// A repository that cannot be read.
    pub(super) async fn look(
        &self,
        repository: &Repository,
        surveyed: &mut Option<(Instant, Duration)>,
    ) -> Result<(), Error> {
        let began = Instant::now();
        let found = repository.survey(None).await;
        *surveyed = Some((Instant::now(), began.elapsed()));
        let found = found?;
        self.state.lock().budget.retain(|name| found.contains_key(name));
        self.learn(found);
        Ok(())
    }

    fn learn(&self, found: BTreeMap<Name, SurveyedModel>) {
        let mut state = self.state.lock();
        for (name, SurveyedModel { needs, is_decoupled }) in found {
            state.decoupled.entry(name.clone()).or_insert(is_decoupled);
            state.budget.learn(name, needs);
        }
    }

    /// Asks the policy, and waits in line if it says so.
    fn ask(
        &self,
        name: &Name,
        question: fn(&mut MemoryBudget, &Name, Timestamp) -> DemandAnswer,
    ) -> Result<Demanded, Error> {
        let mut state = self.state.lock();
        if state.is_stopping {
            return Err(exiting());
        }
        match question(&mut state.budget, name, now()) {
            DemandAnswer::Ready => Ok(Demanded::WasThere),
            DemandAnswer::Withdrawn => Ok(Demanded::NeverComes),
            DemandAnswer::Unknown => Ok(Demanded::IsUnknown),
            DemandAnswer::Refused(error) => Err(error),
            DemandAnswer::Waits if state.waiting >= MOST_WAITING => Err(Error::exhausted(format!(
                "{MOST_WAITING} requests wait for models to be loaded, which is the limit"
            ))),
            DemandAnswer::Waits => {
                let (waiter, answer) = oneshot::channel();
                state.waiting += 1;
                state.waiters.entry(name.clone()).or_default().push(waiter);
                self.asked.notify_one();
                Ok(Demanded::Waits(answer))
            }
        }
    }
}

/// Waits for the answer to a demand.
async fn came(answer: oneshot::Receiver<Result<(), Error>>) -> Result<(), Error> {
    answer.await.unwrap_or_else(|_| Err(server_ended()))
}

impl DemandState {
    /// The memory of all models together.
    pub(super) fn totals(&self) -> ModelMemoryTotals {
        let (limit, used) = self.budget.totals();
        ModelMemoryTotals { limit, used, counts: self.counts }
    }

    /// What is to be done now.
    pub(super) fn decide(&mut self, table: &ModelTable) -> Vec<BudgetAction> {
        let Self { budget, awaiting_use, .. } = self;
        let now = now();
        awaiting_use.retain(|name, loaded| {
            now - *loaded < TIME_TO_COME && measure::use_of(table, name).requests == 0
        });
        let use_of = |name: &Name| {
            let usage = measure::use_of(table, name);
            // Who has waited for the model sends its request now.
            ModelUse { is_busy: usage.is_busy || awaiting_use.contains_key(name), ..usage }
        };
        budget.decide(&use_of, now)
    }

    /// Tells all who wait for a model.
    pub(super) fn answer(&mut self, name: &Name, result: &Result<(), Error>) {
        for waiter in self.waiters.remove(name).into_iter().flatten() {
            self.waiting -= 1;
            // Who has waited may have gone.
            let _ = waiter.send(result.clone());
        }
    }

    /// Forgets those who wait no longer. A model that nobody waits for does not wait for memory.
    pub(super) fn forget_the_gone(&mut self) {
        let mut left = Vec::new();
        for (name, waiters) in &mut self.waiters {
            let before = waiters.len();
            waiters.retain(|waiter| !waiter.is_closed());
            self.waiting -= before - waiters.len();
            if waiters.is_empty() {
                left.push(name.clone());
            }
        }
        let reason = Error::unavailable("it was not loaded in time");
        for name in left {
            self.waiters.remove(&name);
            self.budget.give_up(&name, &reason);
        }
    }
}
