//! Loads, switches and unloads: the part of the state machine that deals with copies.
use std::{collections::BTreeMap, sync::Arc};

use inference::{Error, Name};
use scheduling::Timestamp;

use crate::{
    CommandId, CopyId, FoundModel, Generation, Lifecycle, LifecycleAction, LogLevel, ModelFiles, ModelKey,
    ModelOrigin, ModelPlace, NoVersionCause, PlanFailure, PlannedModel,
    lifecycle::IN_TWO_REPOSITORIES,
    managed_model::{Building, LoadPhase, LoadedFrom, RunningLoad},
    operation::server_exits,
};

/// A load during which the files have changed this often is taken as it is: the model may write them itself.
const MOST_CHANGES_WHILE_LOADING: u32 = 5;

const UNLOADED: &str = "unloaded";

/// A load that has copies, or will have some.
#[derive(Debug)]
pub(crate) struct LoadRecord {
    key: ModelKey,
    serving: usize,
    pub(crate) ending: usize,
}

/// The error of an explicit load that finds no usable model (M-W9).
pub(crate) fn not_read(name: &Name, why: &str) -> Error {
    Error::internal(format!("failed to load '{name}', failed to poll from model repository: {why}"))
}

impl Lifecycle {
    pub(crate) fn begin_load(&mut self, key: ModelKey, found: FoundModel, now: Timestamp) {
        if self.is_stopping {
            return self.load_ended(&key.name, Some(server_exits()), now);
        }
        let FoundModel { places, files, faulty, .. } = found;
        let Ok([place]) = <[Arc<ModelPlace>; 1]>::try_from(places) else {
            self.tell_twice(&key);
            let error = not_read(&key.name, IN_TWO_REPOSITORIES);
            return self.load_ended(&key.name, Some(error), now);
        };
        let model = self.models.entry(key.clone()).or_default();
        model.listing.repository = Some(place.repository.clone());
        if model.is_as(&files, &faulty) && self.given(&key.name).is_none() {
            return self.load_ended(&key.name, None, now);
        }
        self.plan(key, Some((place, files)), faulty);
    }

    pub(crate) fn plan(
        &mut self,
        key: ModelKey,
        found: Option<(Arc<ModelPlace>, Arc<ModelFiles>)>,
        faulty: Vec<i64>,
    ) {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        let (place, files) = found.unzip();
        let load =
            RunningLoad { generation, place: place.clone(), files, faulty, phase: LoadPhase::Planning };
        self.models.entry(key.clone()).or_default().load = Some(load);
        self.loads.insert(generation, LoadRecord { key: key.clone(), serving: 0, ending: 0 });
        let given = self.given(&key.name);
        self.actions.push(LifecycleAction::Plan { key, generation, place, given });
    }

    /// The command that has given the configuration or the files of the running operation on a name, if one has.
    fn given(&self, name: &Name) -> Option<CommandId> {
        let running = self.queues.get(name)?.running.as_ref()?;
        running.command.filter(|_| running.origin != ModelOrigin::Repository)
    }

    /// The configuration of a load has been read.
    pub fn planned(
        &mut self,
        generation: Generation,
        result: Result<PlannedModel, PlanFailure>,
        now: Timestamp,
    ) -> Vec<LifecycleAction> {
        match result {
            Ok(plan) => self.build(generation, plan, now),
            Err(failure) => self.not_planned(generation, failure, now),
        }
        self.take_actions()
    }

    fn not_planned(&mut self, generation: Generation, failure: PlanFailure, now: Timestamp) {
        let Some(key) = self.loads.get(&generation).map(|load| load.key.clone()) else { return };
        match self.to_be_checked(&key) {
            Some(place) => {
                if let Some(load) = self.models.get_mut(&key).and_then(|model| model.load.as_mut()) {
                    load.phase = LoadPhase::CheckingPlan(failure);
                }
                self.check(&key, generation, place);
            }
            None => self.refuse(&key, generation, failure, now),
        }
    }

    /// The configuration of a load cannot be used.
    fn refuse(&mut self, key: &ModelKey, generation: Generation, failure: PlanFailure, now: Timestamp) {
        let PlanFailure { no_version, error } = failure;
        self.loads.remove(&generation);
        let pace = self.pace();
        let Some(model) = self.models.get_mut(key) else { return };
        let name = &key.name;
        let told = match no_version.cause {
            NoVersionCause::NoneSelected => {
                Error::invalid(format!("load failed for model '{key}': {}\n", error.message))
            }
            NoVersionCause::NoConfiguration | NoVersionCause::Refused => not_read(name, &error.message),
        };
        if !model.serves() {
            model.problem = Some(no_version);
        }
        let files = model.load.take().and_then(|load| load.files);
        let is_again = files.is_some_and(|files| model.listing.failed(&files, &error.message, now, pace));
        if !is_again {
            self.log(LogLevel::Error, format!("Poll failed for model directory '{key}': {error}"));
        }
        self.load_ended(&key.name, Some(told), now);
    }

    fn build(&mut self, generation: Generation, plan: PlannedModel, now: Timestamp) {
        let Some(key) = self.loads.get(&generation).map(|load| load.key.clone()) else { return };
        if self.is_stopping {
            return self.failed(&key, generation, server_exits(), now);
        }
        let Some(model) = self.models.get_mut(&key) else { return };
        let Some(load) = model.load.take() else { return };
        model.problem = None;
        let versions = model.to_be_built(&load, &plan);
        let base = |&version: &i64| Some((version, model.base(&load, version)?));
        let mut bases: BTreeMap<_, _> = versions.iter().filter_map(base).collect();
        let building = Building { plan, left: versions.len(), built: Vec::new(), failed: BTreeMap::new() };
        model.load = Some(RunningLoad { phase: LoadPhase::Building(building), ..load });
        for &version in &versions {
            model.versions.entry(version).or_default().is_loading = true;
        }
        for &version in &versions {
            self.log(LogLevel::Info, format!("loading: {key}:{version}"));
            let copy = CopyId { generation, version };
            self.actions.push(LifecycleAction::Load { key: key.clone(), copy, base: bases.remove(&version) });
        }
        if versions.is_empty() {
            self.complete(&key, now);
        }
    }

    /// A copy has been built, or could not be built.
    pub fn loaded(
        &mut self,
        copy: CopyId,
        result: Result<(), Error>,
        now: Timestamp,
    ) -> Vec<LifecycleAction> {
        let CopyId { generation, version } = copy;
        let Some(key) = self.loads.get(&generation).map(|load| load.key.clone()) else { return Vec::new() };
        let mut has_ended = false;
        if let Some(load) = self.models.get_mut(&key).and_then(|model| model.running(generation))
            && let LoadPhase::Building(building) = &mut load.phase
        {
            building.left -= 1;
            match result {
                Ok(()) => building.built.push(version),
                Err(error) => drop(building.failed.insert(version, error)),
            }
            has_ended = building.left == 0;
        }
        if has_ended {
            match self.to_be_checked(&key) {
                Some(place) => self.check(&key, generation, place),
                None => self.complete(&key, now),
            }
        }
        self.take_actions()
    }

    /// The place of a load whose files must be looked at once more, because what was read while it was being written must
    /// neither serve nor count as a failure.
    fn to_be_checked(&self, key: &ModelKey) -> Option<Arc<ModelPlace>> {
        let load = self.models.get(key)?.load.as_ref()?;
        load.place.clone().filter(|_| self.options.polls && !self.is_stopping)
    }

    fn check(&mut self, key: &ModelKey, generation: Generation, place: Arc<ModelPlace>) {
        if let Some(load) = self.models.get_mut(key).and_then(|model| model.load.as_mut()) {
            let phase = std::mem::replace(&mut load.phase, LoadPhase::Planning);
            load.phase = match phase {
                LoadPhase::Building(building) => LoadPhase::Checking(building),
                other => other,
            };
        }
        self.actions.push(LifecycleAction::Check { key: key.clone(), generation, place });
    }

    /// The files of a running load, as they were before it began.
    pub fn files_of(&self, generation: Generation) -> Option<&Arc<ModelFiles>> {
        let key = &self.loads.get(&generation)?.key;
        self.models.get(key)?.load.as_ref()?.files.as_ref()
    }

    /// The files of a model after its copies have been built, or its configuration was refused. `None` if they cannot be
    /// read.
    pub fn checked(
        &mut self,
        generation: Generation,
        files: Option<Arc<ModelFiles>>,
        now: Timestamp,
    ) -> Vec<LifecycleAction> {
        let Some(key) = self.loads.get(&generation).map(|load| load.key.clone()) else { return Vec::new() };
        let Some(model) = self.models.get_mut(&key) else { return Vec::new() };
        let changes = model.listing.changed_while_loading;
        let Some(load) = model.running(generation) else { return Vec::new() };
        let before = load.files.clone().unwrap_or_default();
        let refused = match &load.phase {
            LoadPhase::CheckingPlan(failure) => Some(failure.clone()),
            LoadPhase::Planning
            | LoadPhase::Building(_)
            | LoadPhase::Checking(_)
            | LoadPhase::Discarding { .. } => None,
        };
        let is_same = files.as_deref() == Some(&*before);
        if is_same || changes >= MOST_CHANGES_WHILE_LOADING {
            // What the model writes itself is no change.
            load.files = files.or(Some(before));
            match refused {
                Some(failure) => self.refuse(&key, generation, failure, now),
                None => self.complete(&key, now),
            }
            return self.take_actions();
        }
        model.listing.changed_in_between(files.unwrap_or_default(), now);
        let text = format!("the files of model '{key}' changed while it was loading; it is loaded again");
        self.log(LogLevel::Warning, text.clone());
        let error = Error::unavailable(text);
        if refused.is_some() {
            self.forget_load(&key, generation, error, now);
        } else {
            self.discard(&key, error, now);
        }
        self.take_actions()
    }

    /// All copies of a load have been built or have failed.
    fn complete(&mut self, key: &ModelKey, now: Timestamp) {
        let partial_models = self.options.partial_models;
        let Some(model) = self.models.get_mut(key) else { return };
        let Some(load) = &model.load else { return };
        let (LoadPhase::Building(building) | LoadPhase::Checking(building)) = &load.phase else { return };
        let is_good = building.failed.is_empty() || partial_models && !building.built.is_empty();
        if self.is_stopping {
            return self.discard(key, server_exits(), now);
        }
        if is_good {
            return self.switch(key, now);
        }
        let mut text = format!("load failed for model '{key}': ");
        for (version, error) in &building.failed {
            text.push_str(&format!("version {version} is at UNAVAILABLE state: {};", error.with_code()));
        }
        text.push('\n');
        let pace = self.pace();
        let Some(model) = self.models.get_mut(key) else { return };
        let files = model.load.as_ref().and_then(|load| load.files.clone());
        let is_again = files.is_some_and(|files| model.listing.failed(&files, &text, now, pace));
        self.tell_failed_versions(key, is_again);
        self.discard(key, Error::invalid(text), now);
    }

    /// Records why versions could not be built, and logs it, once for the same files.
    fn tell_failed_versions(&mut self, key: &ModelKey, is_again: bool) {
        let Some(model) = self.models.get_mut(key) else { return };
        let Some(RunningLoad {
            phase: LoadPhase::Building(building) | LoadPhase::Checking(building), ..
        }) = &model.load
        else {
            return;
        };
        let mut lines = Vec::new();
        for (version, error) in &building.failed {
            let state = model.versions.entry(*version).or_default();
            state.is_loading = false;
            state.reason = error.with_code();
            lines.push(format!("failed to load '{key}' version {version}: {}", state.reason));
        }
        if !is_again {
            lines.into_iter().for_each(|line| self.log(LogLevel::Error, line));
        }
    }

    /// The new copies come into service, all at once.
    fn switch(&mut self, key: &ModelKey, now: Timestamp) {
        self.tell_failed_versions(key, false);
        let Some(model) = self.models.get_mut(key) else { return };
        let Some(load) = model.load.take() else { return };
        let RunningLoad { generation, files, phase, .. } = load;
        let (LoadPhase::Building(building) | LoadPhase::Checking(building)) = phase else { return };
        let Building { plan, built, failed, .. } = building;
        let mut replaced = Vec::new();
        for &version in &built {
            let state = model.versions.entry(version).or_default();
            state.is_loading = false;
            state.reason = String::new();
            replaced.extend(state.serving.replace(generation).map(|before| (before, version)));
        }
        for (&version, state) in &mut model.versions {
            if !plan.versions.contains(&version)
                && let Some(before) = state.serving.take()
            {
                state.reason = UNLOADED.to_owned();
                replaced.push((before, version));
            }
        }
        model.loaded = Some(LoadedFrom { files, config: plan.config, is_whole: failed.is_empty() });
        if failed.is_empty() {
            model.listing.loaded();
        }
        if let Some(record) = self.loads.get_mut(&generation) {
            record.serving = built.len();
        }
        for version in &built {
            self.log(LogLevel::Info, format!("successfully loaded '{key}' version {version}"));
        }
        self.actions.push(LifecycleAction::TellComplete { generation });
        if built.is_empty() {
            // Every version keeps its copy. Only the agents of this load have been attached.
            self.loads.remove(&generation);
            self.actions.push(LifecycleAction::Retire { generation, versions: Vec::new(), unloads: true });
            self.actions.push(LifecycleAction::End { generation });
        }
        self.retire(key, replaced);
        self.load_ended(&key.name, None, now);
    }

    /// The new copies end. What served before goes on.
    pub(crate) fn discard(&mut self, key: &ModelKey, error: Error, now: Timestamp) {
        let (partial_models, is_stopping) = (self.options.partial_models, self.is_stopping);
        let Some(model) = self.models.get_mut(key) else { return };
        let Some(load) = &mut model.load else { return };
        let phase = std::mem::replace(&mut load.phase, LoadPhase::Planning);
        let (LoadPhase::Building(building) | LoadPhase::Checking(building)) = phase else { return };
        let generation = load.generation;
        let versions = building.built;
        let mut lines = Vec::new();
        for version in building.failed.keys() {
            // Unless its failure has been told, the version is loaded again.
            let state = model.versions.entry(*version).or_default();
            if state.is_loading {
                state.is_loading = false;
                state.reason = UNLOADED.to_owned();
            }
        }
        for &version in &versions {
            let state = model.versions.entry(version).or_default();
            state.is_loading = false;
            if state.serving.is_none() {
                state.reason = UNLOADED.to_owned();
                if !building.failed.is_empty() && !partial_models && !is_stopping {
                    lines.push(format!(
                        "'{key}' version {version} is not served, because another version of the model failed to \
                         load (--serve-partial-models=true serves it)"
                    ));
                }
            }
        }
        if versions.is_empty() {
            return self.failed(key, generation, error, now);
        }
        load.phase = LoadPhase::Discarding { left: versions.len(), error };
        lines.into_iter().for_each(|line| self.log(LogLevel::Warning, line));
        if let Some(record) = self.loads.get_mut(&generation) {
            record.ending = versions.len();
        }
        self.actions.push(LifecycleAction::Retire { generation, versions, unloads: false });
    }

    /// A load has failed, and none of its copies is left.
    fn failed(&mut self, key: &ModelKey, generation: Generation, error: Error, now: Timestamp) {
        self.actions.push(LifecycleAction::TellFailed { generation });
        self.forget_load(key, generation, error, now);
    }

    fn forget_load(&mut self, key: &ModelKey, generation: Generation, error: Error, now: Timestamp) {
        if let Some(model) = self.models.get_mut(key) {
            model.load = None;
        }
        self.loads.remove(&generation);
        self.load_ended(&key.name, Some(error), now);
    }

    /// Copies that have served end.
    fn retire(&mut self, key: &ModelKey, copies: Vec<(Generation, i64)>) {
        let Some(model) = self.models.get_mut(key) else { return };
        let mut by_load: BTreeMap<Generation, Vec<i64>> = BTreeMap::new();
        for (generation, version) in copies {
            model.versions.entry(version).or_default().retiring.push(generation);
            by_load.entry(generation).or_default().push(version);
        }
        for (generation, versions) in by_load {
            let Some(record) = self.loads.get_mut(&generation) else { continue };
            record.serving -= versions.len();
            record.ending += versions.len();
            let unloads = record.serving == 0;
            self.actions.push(LifecycleAction::Retire { generation, versions, unloads });
        }
    }

    /// A copy has ended.
    pub fn retired(&mut self, copy: CopyId, now: Timestamp) -> Vec<LifecycleAction> {
        let CopyId { generation, version } = copy;
        let Some(record) = self.loads.get_mut(&generation) else { return Vec::new() };
        record.ending -= 1;
        let (is_last, key) = (record.serving == 0 && record.ending == 0, record.key.clone());
        let Some(model) = self.models.get_mut(&key) else { return Vec::new() };
        let discarded = model.running(generation).and_then(|load| match &mut load.phase {
            LoadPhase::Discarding { left, error } => {
                *left -= 1;
                Some((*left == 0).then(|| error.clone()))
            }
            LoadPhase::Planning
            | LoadPhase::Building(_)
            | LoadPhase::Checking(_)
            | LoadPhase::CheckingPlan(_) => None,
        });
        match discarded {
            Some(Some(error)) => self.failed(&key, generation, error, now),
            Some(None) => {}
            None => {
                if let Some(state) = model.versions.get_mut(&version) {
                    state.retiring.retain(|retiring| *retiring != generation);
                }
                // As Triton: scripts search for this line.
                self.log(LogLevel::Info, format!("successfully unloaded '{key}' version {version}"));
                if is_last {
                    self.loads.remove(&generation);
                    self.actions.push(LifecycleAction::End { generation });
                }
            }
        }
        self.take_actions()
    }

    pub(crate) fn unload(&mut self, key: &ModelKey) {
        let Some(model) = self.models.get_mut(key) else { return };
        (model.loaded, model.problem) = (None, None);
        let mut copies = Vec::new();
        for (&version, state) in &mut model.versions {
            // What has failed is not wanted any more.
            state.reason = UNLOADED.to_owned();
            copies.extend(state.serving.take().map(|generation| (generation, version)));
        }
        self.retire(key, copies);
    }
}
