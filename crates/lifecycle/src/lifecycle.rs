//! The state machine: commands and results in, actions out.
mod circles;
mod holds;
mod loads;
mod members;
mod operations;
mod plans;
mod polling;
mod stop;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    time::Duration,
};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use crate::{
    actions::{LifecycleAction, LogLevel},
    commands::LifecycleCommand,
    keys::{CommandId, Generation, LoadedVersionId, ModelKey},
    listing::{FoundModel, ModelListing, RetryTimes},
    managed_model::ManagedModel,
    managed_models::ManagedModels,
    operation::{LoadPurpose, NameQueue, Operation, OperationKind, OperationWaiter},
};

/// What a server wants of its models, fixed at its start.
#[derive(Debug, Clone, Copy)]
pub struct LifecycleOptions {
    /// Listings load, reload and unload models (control mode `poll`).
    pub polls: bool,
    /// If some versions of a model fail to load, the others serve all the same.
    pub partial_models: bool,
    /// How long a change of files must have been the same before it counts.
    pub settle: Duration,
    /// The pause before a failed load is tried again in control mode `poll`; it doubles with each attempt.
    pub first_retry: Duration,
    /// The longest such pause.
    pub longest_retry: Duration,
}

/// What happens to the models of a server. See the documentation of the crate.
#[derive(Debug)]
pub struct Lifecycle {
    options: LifecycleOptions,
    models: ManagedModels,
    queues: BTreeMap<Name, NameQueue>,
    loads: BTreeMap<Generation, ModelLoad>,
    commands: BTreeMap<CommandId, OpenCommand>,
    next_generation: u64,
    is_stopping: bool,
    /// Names with an unload that waits for loads of ensembles.
    held: BTreeSet<Name>,
    actions: Vec<LifecycleAction>,
    /// What must still happen in this step.
    deferred: VecDeque<DeferredAction>,
}

/// A command that has not been answered.
#[derive(Debug)]
struct OpenCommand {
    operations_left: usize,
    /// Several models are loaded: the view of each shows its own error.
    is_for_all: bool,
    /// Members of ensembles that have been loaded for the command, or are being loaded.
    members: BTreeSet<Name>,
    error: Option<Error>,
}

/// A load that has copies, or will have some.
#[derive(Debug)]
struct ModelLoad {
    key: ModelKey,
    serving: usize,
    ending: usize,
}

/// What must still happen in a step. It is not done at once, so that long chains of ensembles need no deep recursion.
#[derive(Debug)]
enum DeferredAction {
    Enqueue {
        name: Name,
        operation: Operation,
    },
    /// All members that a load waited for have ended.
    MembersSettled {
        generation: Generation,
    },
    /// No load of an ensemble holds the models of the name any more.
    Released {
        name: Name,
    },
}

impl Lifecycle {
    /// No models.
    pub fn new(options: LifecycleOptions) -> Self {
        Self {
            options,
            models: ManagedModels::default(),
            queues: BTreeMap::new(),
            loads: BTreeMap::new(),
            commands: BTreeMap::new(),
            next_generation: 0,
            is_stopping: false,
            held: BTreeSet::new(),
            actions: Vec::new(),
            deferred: VecDeque::new(),
        }
    }

    /// All models that are known, by name and namespace.
    pub fn models(&self) -> impl Iterator<Item = (&ModelKey, &ManagedModel)> {
        self.models.iter()
    }

    /// One model, if it is known.
    pub fn model(&self, key: &ModelKey) -> Option<&ManagedModel> {
        self.models.get(key)
    }

    /// The models of a name: one, or one for each namespace.
    pub fn named(&self, name: &Name) -> impl Iterator<Item = (&ModelKey, &ManagedModel)> {
        self.models.named(name)
    }

    /// The models that may have changed since the last call, and those that are not known any more.
    pub fn take_changed(&mut self) -> BTreeSet<ModelKey> {
        self.models.take_changed()
    }

    /// Whether a copy serves.
    pub fn serves(&self, copy: LoadedVersionId) -> bool {
        let model = self.loads.get(&copy.generation).and_then(|load| self.models.get(&load.key));
        let version = model.and_then(|model| model.versions.get(&copy.version));
        version.is_some_and(|version| version.serving == Some(copy.generation))
    }

    /// Whether an operation on a model runs or waits.
    pub fn has_operations(&self) -> bool {
        !self.queues.values().all(NameQueue::is_idle)
    }

    /// Whether nothing runs and nothing ends: no action is open that would change a model.
    pub fn is_idle(&self) -> bool {
        !self.has_operations() && self.loads.values().all(|load| load.ending == 0)
    }

    /// A command. Its answer is an action of this or of a later step.
    pub fn command(
        &mut self,
        id: CommandId,
        command: LifecycleCommand,
        now: Timestamp,
    ) -> Vec<LifecycleAction> {
        if self.is_stopping {
            let result = Err(server_exits());
            self.actions.push(LifecycleAction::Answer { command: id, result });
            return self.take_actions(now);
        }
        let is_for_all = command == LifecycleCommand::LoadAll;
        let open = OpenCommand { operations_left: 1, is_for_all, members: BTreeSet::new(), error: None };
        self.commands.insert(id, open);
        let (name, kind) = match command {
            LifecycleCommand::LoadAll => {
                self.actions.push(LifecycleAction::List { command: id });
                return self.take_actions(now);
            }
            LifecycleCommand::Load { name, origin } => (name, OperationKind::Load { command: id, origin }),
            LifecycleCommand::Unload { name, dependents } => (name, OperationKind::Unload { dependents }),
        };
        self.enqueue(&name, Operation { waiter: OperationWaiter::Command(id), kind }, now);
        self.take_actions(now)
    }

    /// The listing for [`LifecycleCommand::LoadAll`].
    pub fn listed(
        &mut self,
        id: CommandId,
        listing: Result<ModelListing, Error>,
        now: Timestamp,
    ) -> Vec<LifecycleAction> {
        let models = match listing {
            // The command has been refused.
            Ok(_) if self.is_stopping => return Vec::new(),
            Ok(listing) => listing.models,
            Err(error) => {
                self.commands.remove(&id);
                self.actions.push(LifecycleAction::Answer { command: id, result: Err(error) });
                return self.take_actions(now);
            }
        };
        for key in self.models.awaiting() {
            if !models.contains_key(&key) {
                self.models.get_mut(&key).into_iter().for_each(|model| model.awaits_members = false);
            }
        }
        if let Some(command) = self.commands.get_mut(&id) {
            // This listing counts as one operation, so that the answer is not given too early.
            command.operations_left += models.len();
        }
        for (key, found) in models {
            let kind = match found.places.len() {
                0 | 1 => OperationKind::LoadFound { key: key.clone(), found },
                _ => OperationKind::UnloadListed { key: key.clone(), is_twice: true },
            };
            self.enqueue(&key.name, Operation { waiter: OperationWaiter::Command(id), kind }, now);
        }
        self.operation_ended(id, None);
        self.take_actions(now)
    }

    /// What the repositories have under a name: one model, or one for each namespace.
    pub fn found(
        &mut self,
        name: &Name,
        models: Result<Vec<(ModelKey, FoundModel)>, Error>,
        now: Timestamp,
    ) -> Vec<LifecycleAction> {
        let Some(purpose) = self.purpose(name) else { return Vec::new() };
        if purpose == LoadPurpose::Retry {
            self.found_again(name, models, now);
            return self.take_actions(now);
        }
        let models = match models {
            Ok(models) if models.is_empty() => {
                // As Triton: scripts search for this line.
                let text = format!("failed to poll model '{name}': model not found in any model repository.");
                self.actions.push(LifecycleAction::Log { level: LogLevel::Error, text });
                Err(format!("no repository has a model '{name}'"))
            }
            Ok(models) => Ok(models),
            Err(error) => Err(error.message.into_owned()),
        };
        let models = match models {
            Ok(models) => models,
            Err(why) => {
                self.load_ended(name, Some(not_read(name, &why)), now);
                return self.take_actions(now);
            }
        };
        self.begin_loads(name, models, now);
        self.take_actions(now)
    }

    fn begin_loads(&mut self, name: &Name, models: Vec<(ModelKey, FoundModel)>, now: Timestamp) {
        if let Some(running) = self.queues.get_mut(name).and_then(|queue| queue.running.as_mut()) {
            running.loads_left = models.len();
        }
        for (key, found) in models {
            self.begin_load(key, found, now);
        }
    }

    /// Forgets records at rest of models and versions that the repositories do not have. `exists` tells whether they have
    /// a model, or a version of it (M-W11).
    pub fn exist(&mut self, exists: impl Fn(&ModelKey, Option<i64>) -> bool) {
        let is_gone = |key: &ModelKey, model: &ManagedModel| !exists(key, None) && model.is_at_rest();
        let outdated = self.models.iter().filter(|(key, model)| {
            is_gone(key, model) || model.has_absent(|version| exists(key, Some(version)))
        });
        let outdated: Vec<_> = outdated.map(|(key, _)| key.clone()).collect();
        for key in outdated {
            let Some(model) = self.models.get_mut(&key) else { continue };
            model.forget_absent(|version| exists(&key, Some(version)));
            if is_gone(&key, model) {
                self.models.remove(&key);
            }
        }
    }

    fn retry_times(&self) -> RetryTimes {
        let LifecycleOptions { settle, first_retry, longest_retry, .. } = self.options;
        RetryTimes { settle, first_retry, longest_retry }
    }

    /// The end of a step.
    fn take_actions(&mut self, now: Timestamp) -> Vec<LifecycleAction> {
        self.perform_due(now);
        mem::take(&mut self.actions)
    }

    fn tell_twice(&mut self, key: &ModelKey) {
        let text = format!("failed to poll model '{key}': not unique across all model repositories");
        self.log(LogLevel::Error, text);
    }

    fn log(&mut self, level: LogLevel, text: String) {
        self.actions.push(LifecycleAction::Log { level, text });
    }
}

/// The error of commands to a server that stops.
fn server_exits() -> Error {
    Error::unavailable("Server exiting")
}

/// The error of an explicit load that finds no usable model (M-W9).
fn not_read(name: &Name, why: &str) -> Error {
    Error::internal(format!("failed to load '{name}', failed to poll from model repository: {why}"))
}
