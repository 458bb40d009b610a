//! Models that are loaded when requests come for them, within a budget of memory (`--model-memory-budget`).
//!
//! The policy is [`MemoryBudget`]. Here are those who wait for a model, and what asks the policy: requests for models that
//! are not in memory, and commands of operators. A [task](task) does what the policy decides. Requests for models in memory
//! do not come here.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use host::now;
use inference::{Timestamp, UnreadBudget, lock::Mutex};
use lifecycle::{BudgetLine, DemandAnswer, MemoryBudget};
use repository::LoadParameters;
use tokio::{
    runtime::Handle,
    sync::{Mutex as TaskMutex, Notify, oneshot},
    task::JoinSet,
    time::timeout,
};
use vocabulary::{Error, Name};

use self::{infer_absent::AbsentModelsInferer, task::OnDemandTask};
use crate::{
    model::Model,
    models::{Repository, SurveyedModel},
};

mod infer_absent;
mod measure;
mod task;

/// So many requests may wait for loads. Their bytes count in the budget of requests, too.
const MOST_WAITING: usize = 10_000;

/// Unknown names cause a look at the repositories at most once in this time, or in so many times what the last look took.
const LEAST_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_FACTOR: u32 = 20;

/// What the memory of models is used for, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelMemorySnapshot {
    /// The limit in bytes.
    pub limit: u64,
    /// What models have, or were promised, in bytes.
    pub used: u64,
    /// Loads and unloads since the start.
    pub counts: DemandCounts,
    /// The models by name.
    pub models: Vec<BudgetLine>,
}

/// What has happened since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DemandCounts {
    /// Loads that have succeeded.
    pub loads: u64,
    /// Models that were unloaded for others.
    pub unloads: u64,
    /// Models that were refused, because they do not fit or could not be loaded.
    pub refusals: u64,
}

/// See the module documentation. The task ends when this is dropped.
pub(crate) struct OnDemandModels {
    demands: Arc<Demands>,
    repository: Arc<Repository>,
    _task: JoinSet<()>,
}

/// The demands for models, shared with the task.
struct Demands {
    state: Mutex<DemandState>,
    /// There is something to decide.
    asked: Notify,
    /// The longest time that a request waits for a model.
    patience: Duration,
    /// When the repositories were looked at, and how long that took. Held during a look.
    surveyed: TaskMutex<Option<(Instant, Duration)>>,
}

/// The policy and those who wait.
struct DemandState {
    budget: MemoryBudget,
    waiters: HashMap<Name, Vec<Waiter>>,
    waiting: usize,
    /// Models that are decoupled.
    decoupled: HashMap<Name, bool>,
    /// What operators have brought with loads that have not begun.
    given: HashMap<Name, LoadParameters>,
    counts: DemandCounts,
    /// The server stops.
    is_stopping: bool,
}

type Waiter = oneshot::Sender<Result<(), Error>>;

impl OnDemandModels {
    /// Loads models of a repository within so many bytes. Requests wait for `patience` at most. Requests of models reach
    /// others through the repository, and `unread` counts their responses. Must be called in a tokio runtime.
    pub(crate) fn start(
        limit: u64,
        patience: Duration,
        repository: &Arc<Repository>,
        unread: Arc<UnreadBudget>,
    ) -> Self {
        let state = DemandState {
            budget: MemoryBudget::new(limit),
            waiters: HashMap::new(),
            waiting: 0,
            decoupled: HashMap::new(),
            given: HashMap::new(),
            counts: DemandCounts::default(),
            is_stopping: false,
        };
        let demands = Arc::new(Demands {
            state: Mutex::new(state),
            asked: Notify::new(),
            patience,
            surveyed: TaskMutex::new(None),
        });
        let owner = Arc::downgrade(repository);
        repository.set_absent_models(Arc::new(AbsentModelsInferer {
            demands: demands.clone(),
            repository: owner.clone(),
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

    /// What the memory is used for. `shows` tells which models may be told.
    pub(crate) fn snapshot(&self, shows: impl Fn(&str) -> bool) -> ModelMemorySnapshot {
        let state = self.demands.state.lock();
        ModelMemorySnapshot {
            limit: state.budget.limit(),
            used: state.budget.used(),
            counts: state.counts,
            models: state.budget.lines().filter(|line| shows(&line.name)).collect(),
        }
    }

    /// The limit, the bytes in use, and what has happened since the start.
    pub(crate) fn totals(&self) -> (u64, u64, DemandCounts) {
        let state = self.demands.state.lock();
        (state.budget.limit(), state.budget.used(), state.counts)
    }
}

fn server_ended() -> Error {
    Error::unavailable("the server has ended")
}

fn exiting() -> Error {
    Error::unavailable("Server exiting")
}

/// What a demand comes to.
#[derive(Debug, PartialEq, Eq)]
enum Demanded {
    /// The model was in memory when it was asked for.
    WasThere,
    /// The model was loaded.
    Came,
    /// Nothing loads a model of this name.
    NeverComes,
}

impl Demands {
    async fn model(
        &self,
        repository: &Repository,
        name: &Name,
        version: Option<i64>,
        mut looked_up: Error,
    ) -> Result<Arc<Model>, Error> {
        let mut was_there = false;
        loop {
            match self.demand(repository, name).await? {
                Demanded::NeverComes => return Err(looked_up),
                // It is in memory since it was looked up, or it is there without the version.
                Demanded::WasThere if was_there => return Err(looked_up),
                Demanded::WasThere => was_there = true,
                // It may be unloaded again before the request has reached it.
                Demanded::Came => was_there = false,
            }
            match repository.table().model(name, version) {
                Ok(loaded) => return Ok(loaded.model().clone()),
                Err(error) => looked_up = error,
            }
        }
    }

    /// Waits until a model that a request needs is in memory.
    async fn demand(&self, repository: &Repository, name: &Name) -> Result<Demanded, Error> {
        let mut answer = self.ask(name, MemoryBudget::demand)?;
        if matches!(answer, Asked::Unknown) {
            self.survey_again(repository).await;
            answer = self.ask(name, MemoryBudget::demand)?;
        }
        self.wait(name, answer).await
    }

    /// Loads a model as an operator asks. `None` if it is in memory, or in no repository: then the repository decides.
    async fn load(
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
        let asked = match self.ask(name, MemoryBudget::prefetch) {
            Ok(Asked::Unknown | Asked::Came | Asked::NeverComes) => {
                self.state.lock().given.remove(name);
                return None;
            }
            Ok(asked) => asked,
            Err(error) => return Some(Err(error)),
        };
        Some(self.wait(name, asked).await.map(drop))
    }

    /// An operator has loaded a model again that was in memory.
    fn reloaded(&self, repository: &Repository, name: &Name, is_given: bool) {
        let table = repository.table().clone();
        let mut state = self.state.lock();
        state.budget.replaced(name, measure::needs_of(&table, name, is_given));
    }

    /// An operator unloads a model. Those who wait for it get the error of an unloaded model.
    fn withdraw(&self, name: &Name) {
        let mut state = self.state.lock();
        state.budget.withdraw(name);
        state.given.remove(name);
        state.answer(name, &Ok(()));
        drop(state);
        // The task finds that the model has gone.
        self.asked.notify_one();
    }

    /// Whether a request for the model would be answered, now or after its load.
    fn takes_requests(&self, name: &Name) -> bool {
        self.state.lock().budget.takes_requests(name, now())
    }

    fn is_decoupled(&self, name: &Name) -> bool {
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
    async fn look(
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
    ) -> Result<Asked, Error> {
        let mut state = self.state.lock();
        if state.is_stopping {
            return Err(exiting());
        }
        match question(&mut state.budget, name, now()) {
            DemandAnswer::Ready => Ok(Asked::Came),
            DemandAnswer::Withdrawn => Ok(Asked::NeverComes),
            DemandAnswer::Unknown => Ok(Asked::Unknown),
            DemandAnswer::Refused(error) => Err(error),
            DemandAnswer::Waits if state.waiting >= MOST_WAITING => Err(Error::exhausted(format!(
                "{MOST_WAITING} requests wait for models to be loaded, which is the limit"
            ))),
            DemandAnswer::Waits => {
                let (waiter, answer) = oneshot::channel();
                state.waiting += 1;
                state.waiters.entry(name.clone()).or_default().push(waiter);
                self.asked.notify_one();
                Ok(Asked::Waits(answer))
            }
        }
    }

    async fn wait(&self, name: &Name, asked: Asked) -> Result<Demanded, Error> {
        let answer = match asked {
            Asked::Came => return Ok(Demanded::WasThere),
            Asked::NeverComes | Asked::Unknown => return Ok(Demanded::NeverComes),
            Asked::Waits(answer) => answer,
        };
        match timeout(self.patience, answer).await {
            Ok(Ok(answer)) => answer.map(|()| Demanded::Came),
            Ok(Err(_)) => Err(server_ended()),
            Err(_) => {
                let seconds = self.patience.as_secs();
                Err(Error::unavailable(format!(
                    "model '{name}' was not loaded within {seconds} seconds (--model-load-wait-secs)"
                )))
            }
        }
    }
}

/// What the policy has said to a question.
enum Asked {
    Came,
    NeverComes,
    Unknown,
    Waits(oneshot::Receiver<Result<(), Error>>),
}

impl DemandState {
    /// Tells all who wait for a model.
    fn answer(&mut self, name: &Name, result: &Result<(), Error>) {
        for waiter in self.waiters.remove(name).into_iter().flatten() {
            self.waiting -= 1;
            // Who has waited may have gone.
            let _ = waiter.send(result.clone());
        }
    }

    /// Forgets those who wait no longer. A model that nobody waits for does not wait for memory.
    fn forget_the_gone(&mut self) {
        let mut left = Vec::new();
        for (name, waiters) in &mut self.waiters {
            let before = waiters.len();
            waiters.retain(|waiter| !waiter.is_closed());
            self.waiting -= before - waiters.len();
            if waiters.is_empty() {
                left.push(name.clone());
            }
        }
        let reason = Error::unavailable("there was no memory in time");
        for name in left {
            self.waiters.remove(&name);
            self.budget.give_up(&name, &reason);
        }
    }
}
