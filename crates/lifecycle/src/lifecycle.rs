//! The state machine: commands and results in, actions out.
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    time::Duration,
};

use inference::{Error, Name};
use scheduling::Timestamp;

use crate::{
    CommandId, DirectoryStamp, FoundModel, Generation, LifecycleAction, LifecycleCommand, LogLevel,
    ManagedModel, ModelKey, ModelListing,
    listing::{ListedState, Pace, Verdict},
    loads::LoadRecord,
    members::DueStep,
    operation::{LoadPurpose, NameQueue, Operation, OperationKind, OperationWaiter, server_exits},
    plans::not_read,
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
    pub(crate) options: LifecycleOptions,
    pub(crate) models: BTreeMap<ModelKey, ManagedModel>,
    pub(crate) queues: BTreeMap<Name, NameQueue>,
    pub(crate) loads: BTreeMap<Generation, LoadRecord>,
    pub(crate) commands: BTreeMap<CommandId, OpenCommand>,
    pub(crate) next_generation: u64,
    pub(crate) is_stopping: bool,
    /// Names with an unload that waits for loads of ensembles.
    pub(crate) held: BTreeSet<Name>,
    pub(crate) actions: Vec<LifecycleAction>,
    /// What must still happen in this step.
    pub(crate) due: VecDeque<DueStep>,
}

/// A command that has not been answered.
#[derive(Debug)]
pub(crate) struct OpenCommand {
    pub(crate) operations_left: usize,
    /// Several models are loaded: the view of each shows its own error.
    pub(crate) is_for_all: bool,
    /// Members of ensembles that have been loaded for the command, or are being loaded.
    pub(crate) members: BTreeSet<Name>,
    pub(crate) error: Option<Error>,
}

impl Lifecycle {
    /// No models.
    pub fn new(options: LifecycleOptions) -> Self {
        Self {
            options,
            models: BTreeMap::new(),
            queues: BTreeMap::new(),
            loads: BTreeMap::new(),
            commands: BTreeMap::new(),
            next_generation: 0,
            is_stopping: false,
            held: BTreeSet::new(),
            actions: Vec::new(),
            due: VecDeque::new(),
        }
    }

    /// All models that are known, by namespace and name.
    pub fn models(&self) -> impl Iterator<Item = (&ModelKey, &ManagedModel)> {
        self.models.iter()
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
        for (key, model) in &mut self.models {
            model.awaits_members &= models.contains_key(key);
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

    pub(crate) fn begin_loads(&mut self, name: &Name, models: Vec<(ModelKey, FoundModel)>, now: Timestamp) {
        if let Some(running) = self.queues.get_mut(name).and_then(|queue| queue.running.as_mut()) {
            running.loads_left = models.len();
        }
        for (key, found) in models {
            self.begin_load(key, found, now);
        }
    }

    /// A listing of the repositories in control mode `poll`.
    pub fn polled(
        &mut self,
        listing: ModelListing,
        now: Timestamp,
    ) -> (Vec<LifecycleAction>, Option<Timestamp>) {
        let mut next: Option<Timestamp> = None;
        if self.is_stopping || !self.options.polls {
            return (Vec::new(), next);
        }
        let ModelListing { models, repositories, unreadable } = listing;
        let absent: Vec<_> = self.models.keys().filter(|key| !models.contains_key(key)).cloned().collect();
        let found = models.into_iter().map(|(key, found)| (key, Some(found)));
        for (key, found) in found.chain(absent.into_iter().map(|key| (key, None))) {
            let is_unreadable = self.is_in(&key, &unreadable);
            let repository = self.repository(&key).and_then(|name| repositories.get(name)).copied();
            let seen = Look { found, repository, is_unreadable };
            if let Some(again) = self.poll_model(&key, seen, now) {
                next = Some(next.map_or(again, |next| next.min(again)));
            }
        }
        (self.take_actions(now), next)
    }

    /// Decides about one model of a listing. Returns when the next listing must come, if this one does not decide.
    fn poll_model(&mut self, key: &ModelKey, look: Look, now: Timestamp) -> Option<Timestamp> {
        let Look { found, repository, is_unreadable } = look;
        if self.queues.get(&key.name).is_some_and(|queue| !queue.is_idle()) {
            return None;
        }
        let pace = self.pace();
        let model = self.models.entry(key.clone()).or_default();
        let seen = match &found {
            Some(found) if found.is_incomplete => return None,
            Some(found) if found.places.len() > 1 => ListedState::Twice,
            Some(found) => ListedState::Files(found.files.clone()),
            None => ListedState::Absent(repository),
        };
        match (&seen, &found) {
            (ListedState::Files(files), Some(found)) if model.is_as(files, &found.faulty) => {
                model.listing.unchanged();
                model.awaits_members = false;
                model.forget_absent(|number| files.has_version(number));
                return None;
            }
            (ListedState::Twice, _) if !model.serves() && model.problem.is_some() => return None,
            // What cannot be read is not gone.
            (ListedState::Absent(_), _) if is_unreadable => return None,
            (ListedState::Absent(_), _) if !model.serves() && model.is_at_rest() => {
                self.models.remove(key);
                self.retry_ensembles_of_others(key);
                return None;
            }
            _ => {}
        }
        match model.listing.changed(&seen, now, pace) {
            Verdict::WaitUntil(again) => Some(again),
            Verdict::Act => {
                let kind = match (&seen, found) {
                    (ListedState::Files(_), Some(found)) => {
                        OperationKind::LoadFound { key: key.clone(), found }
                    }
                    _ => {
                        OperationKind::UnloadListed { key: key.clone(), is_twice: seen == ListedState::Twice }
                    }
                };
                self.enqueue(&key.name, Operation { waiter: OperationWaiter::Nobody, kind }, now);
                None
            }
        }
    }

    /// Forgets records at rest of models and versions that the repositories do not have. `exists` tells whether they have
    /// a model, or a version of it (M-W11).
    pub fn exist(&mut self, exists: impl Fn(&ModelKey, Option<i64>) -> bool) {
        self.models.retain(|key, model| {
            model.forget_absent(|version| exists(key, Some(version)));
            exists(key, None) || !model.is_at_rest()
        });
    }

    /// The repository in which a model was last.
    fn repository(&self, key: &ModelKey) -> Option<&Name> {
        self.models.get(key)?.listing.repository.as_ref()
    }

    /// Whether a model was last in one of these repositories.
    fn is_in(&self, key: &ModelKey, repositories: &BTreeSet<Name>) -> bool {
        self.repository(key).is_some_and(|repository| repositories.contains(repository))
    }

    pub(crate) fn pace(&self) -> Pace {
        let LifecycleOptions { settle, first_retry, longest_retry, .. } = self.options;
        Pace { settle, first_retry, longest_retry }
    }

    /// The end of a step.
    pub(crate) fn take_actions(&mut self, now: Timestamp) -> Vec<LifecycleAction> {
        self.perform_due(now);
        mem::take(&mut self.actions)
    }

    pub(crate) fn tell_twice(&mut self, key: &ModelKey) {
        let text = format!("failed to poll model '{key}': not unique across all model repositories");
        self.log(LogLevel::Error, text);
    }

    pub(crate) fn log(&mut self, level: LogLevel, text: String) {
        self.actions.push(LifecycleAction::Log { level, text });
    }
}

/// What a listing shows of a model.
struct Look {
    found: Option<FoundModel>,
    /// The repository in which the model was last.
    repository: Option<DirectoryStamp>,
    /// That repository cannot be read now.
    is_unreadable: bool,
}
