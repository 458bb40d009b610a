//! Loads, switches and unloads: the part of the state machine that deals with copies.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::{Lifecycle, server_exits};
use crate::{
    actions::{LifecycleAction, LogLevel},
    files::ModelFiles,
    keys::{Generation, LoadedVersionId, ModelKey, ModelLocation},
    managed_model::{Building, LoadOrigin, LoadPhase, ManagedModel, RunningLoad, UNLOADED, VersionStatus},
    operation::LoadPurpose,
    plan_result::PlannedModel,
};

/// A load during which the files have changed this often is taken as it is: the model may write them itself.
const MOST_CHANGES_WHILE_LOADING: u32 = 5;

impl Lifecycle {
    /// Begins to build copies. The members of an ensemble have been loaded, as far as they can be.
    pub(super) fn build(&mut self, key: &ModelKey, plan: PlannedModel, now: Timestamp) {
        let members_before = self.serving_copies(&plan.members);
        let Some(model) = self.models.get_mut(key) else { return };
        let Some(load) = model.load.take() else { return };
        let generation = load.generation;
        model.problem = None;
        let versions = model.to_be_built(&load, &plan);
        let base = |&version: &i64| Some((version, model.base(&load, version)?));
        let mut bases: BTreeMap<_, _> =
            versions.iter().filter(|_| plan.members.is_empty()).filter_map(base).collect();
        let (left, built, failed) = (versions.len(), Vec::new(), BTreeMap::new());
        let building = Building { plan, left, built, failed, members_before };
        model.load = Some(RunningLoad { phase: LoadPhase::Building(building), ..load });
        for &version in &versions {
            model.versions.entry(version).or_default().is_loading = true;
        }
        for &version in &versions {
            self.log(LogLevel::Info, format!("loading: {key}:{version}"));
            let copy = LoadedVersionId { generation, version };
            self.actions.push(LifecycleAction::Load { key: key.clone(), copy, base: bases.remove(&version) });
        }
        if versions.is_empty() {
            self.complete(key, now);
        }
    }

    /// A copy has been built, or could not be built.
    pub fn loaded(
        &mut self,
        copy: LoadedVersionId,
        result: Result<(), Error>,
        now: Timestamp,
    ) -> Vec<LifecycleAction> {
        let LoadedVersionId { generation, version } = copy;
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
            self.check_or_complete(&key, generation, now);
        }
        self.take_actions(now)
    }

    pub(super) fn check_or_complete(&mut self, key: &ModelKey, generation: Generation, now: Timestamp) {
        match self.to_be_checked(key) {
            Some(place) => self.check(key, generation, place),
            None => self.complete(key, now),
        }
    }

    /// The place of a load whose files must be looked at once more, because what was read while it was being written must
    /// neither serve nor count as a failure.
    pub(super) fn to_be_checked(&self, key: &ModelKey) -> Option<Arc<ModelLocation>> {
        let load = self.models.get(key)?.load.as_ref()?;
        load.place.clone().filter(|_| self.options.polls && !self.is_stopping)
    }

    pub(super) fn check(&mut self, key: &ModelKey, generation: Generation, place: Arc<ModelLocation>) {
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

    /// The copies that serve instead of one that ends: all of its model. None for a copy that has never served.
    pub fn successors(&self, copy: LoadedVersionId) -> Vec<LoadedVersionId> {
        let record = self.loads.get(&copy.generation);
        let model = record.and_then(|record| self.models.get(&record.key));
        let model = model.filter(|model| model.retiring().any(|retiring| retiring == copy));
        let versions = model.into_iter().flat_map(ManagedModel::versions);
        let serving = versions.filter_map(|(_, status)| match status {
            VersionStatus::Ready(serving) => Some(serving),
            VersionStatus::Loading | VersionStatus::Unloading(_) | VersionStatus::Unavailable(_) => None,
        });
        serving.collect()
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
            LoadPhase::Checking(_) => None,
            // The load has been abandoned meanwhile.
            LoadPhase::RefreshingMembers { .. }
            | LoadPhase::Planning
            | LoadPhase::AwaitingMembers { .. }
            | LoadPhase::Building(_)
            | LoadPhase::Discarding { .. } => return Vec::new(),
        };
        let is_same = files.as_deref() == Some(&*before);
        // A server that stops loads nothing again.
        if is_same || self.is_stopping || changes >= MOST_CHANGES_WHILE_LOADING {
            // What the model writes itself is no change.
            load.files = files.or(Some(before));
            let files = load.files.clone();
            model.last_files = files;
            match refused {
                Some(failure) => self.refuse(&key, generation, failure, now),
                None => self.complete(&key, now),
            }
            return self.take_actions(now);
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
        self.take_actions(now)
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
        match building.failed.values().next() {
            // As Triton: what is wrong with the members of an ensemble concerns all of its versions.
            Some(error) if !building.plan.members.is_empty() => text.push_str(&error.message),
            _ => {
                for (version, error) in &building.failed {
                    text.push_str(&format!(
                        "version {version} is at UNAVAILABLE state: {};",
                        error.with_code()
                    ));
                }
            }
        }
        text.push('\n');
        let retry_times = self.retry_times();
        let Some(model) = self.models.get_mut(key) else { return };
        let files = model.load.as_ref().and_then(|load| load.files.clone());
        let is_again = files.is_some_and(|files| model.listing.failed(&files, &text, now, retry_times));
        self.tell_failed_versions(key, is_again);
        self.load_failed(key);
        self.discard(key, Error::invalid(text), now);
    }

    /// Records why versions could not be built, and logs it: the reason once for the same files.
    fn tell_failed_versions(&mut self, key: &ModelKey, is_again: bool) {
        let keeps_reasons = self.is_unbound_on_purpose(key);
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
            lines.push(match is_again {
                false => (
                    LogLevel::Error,
                    format!("failed to load '{key}' version {version}: {}", error.with_code()),
                ),
                true => (LogLevel::Info, format!("'{key}' version {version} still cannot be loaded")),
            });
            if !keeps_reasons || state.reason != UNLOADED {
                state.reason = error.with_code();
            }
        }
        lines.into_iter().for_each(|(level, line)| self.log(level, line));
    }

    /// The new copies come into service, all at once.
    fn switch(&mut self, key: &ModelKey, now: Timestamp) {
        self.tell_failed_versions(key, false);
        let is_explicit = self.purpose(&key.name).is_some_and(LoadPurpose::is_explicit);
        let Some(model) = self.models.get_mut(key) else { return };
        let Some(load) = model.load.take() else { return };
        let RunningLoad { generation, files, phase, .. } = load;
        let (LoadPhase::Building(building) | LoadPhase::Checking(building)) = phase else { return };
        let Building { plan, built, failed, members_before, .. } = building;
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
        let is_whole = failed.is_empty();
        if is_whole {
            model.listing.loaded();
        }
        model.is_explicit |= is_explicit;
        model.awaits_members = !is_whole && !plan.members.is_empty();
        let PlannedModel { config, members, .. } = plan;
        model.loaded = Some(LoadOrigin { files, config, members, is_whole });
        if let Some(record) = self.loads.get_mut(&generation) {
            record.serving = built.len();
        }
        for version in &built {
            self.log(LogLevel::Info, format!("successfully loaded '{key}' version {version}"));
        }
        self.actions.push(LifecycleAction::NotifyLoaded { generation });
        if built.is_empty() {
            // Every version keeps its copy. Only the agents of this load have been attached.
            self.loads.remove(&generation);
            self.actions.push(LifecycleAction::Retire { generation, versions: Vec::new(), unloads: true });
            self.actions.push(LifecycleAction::End { generation });
        }
        self.retire(key, replaced);
        if !built.is_empty() {
            self.retry_ensembles_of(&key.name);
        }
        self.retry_if_members_changed(key, &members_before);
        self.load_ended(&key.name, None, now);
    }

    /// The new copies end. What served before goes on.
    pub(super) fn discard(&mut self, key: &ModelKey, error: Error, now: Timestamp) {
        let (partial_models, is_stopping) = (self.options.partial_models, self.is_stopping);
        let Some(model) = self.models.get_mut(key) else { return };
        let Some(load) = &mut model.load else { return };
        let building = match std::mem::replace(&mut load.phase, LoadPhase::Planning) {
            LoadPhase::Building(building) | LoadPhase::Checking(building) => building,
            other => {
                debug_assert!(false, "{other:?} has no copies to discard");
                load.phase = other;
                return;
            }
        };
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
    pub(super) fn failed(&mut self, key: &ModelKey, generation: Generation, error: Error, now: Timestamp) {
        self.actions.push(LifecycleAction::NotifyFailed { generation });
        self.forget_load(key, generation, error, now);
    }

    fn forget_load(&mut self, key: &ModelKey, generation: Generation, error: Error, now: Timestamp) {
        let load = self.models.get_mut(key).and_then(|model| model.load.take());
        self.unblock(key, load);
        self.loads.remove(&generation);
        self.load_ended(&key.name, Some(error), now);
    }

    /// Copies that have served end.
    pub(super) fn retire(&mut self, key: &ModelKey, copies: Vec<(Generation, i64)>) {
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
    pub fn retired(&mut self, copy: LoadedVersionId, now: Timestamp) -> Vec<LifecycleAction> {
        let LoadedVersionId { generation, version } = copy;
        let Some(record) = self.loads.get_mut(&generation) else { return Vec::new() };
        record.ending -= 1;
        let (is_last, key) = (record.serving == 0 && record.ending == 0, record.key.clone());
        let Some(model) = self.models.get_mut(&key) else { return Vec::new() };
        let discarded = model.running(generation).and_then(|load| match &mut load.phase {
            LoadPhase::Discarding { left, error } => {
                *left -= 1;
                Some((*left == 0).then(|| error.clone()))
            }
            LoadPhase::RefreshingMembers { .. }
            | LoadPhase::Planning
            | LoadPhase::AwaitingMembers { .. }
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
        self.take_actions(now)
    }

    /// Retires what serves. Returns the members of the model.
    pub(super) fn unload(&mut self, key: &ModelKey) -> BTreeSet<Name> {
        let Some(model) = self.models.get_mut(key) else { return BTreeSet::new() };
        let members = model.members() | &model.planned_members;
        (model.loaded, model.problem) = (None, None);
        (model.awaits_members, model.is_explicit) = (false, false);
        let mut copies = Vec::new();
        for (&version, state) in &mut model.versions {
            // What has failed is not wanted any more.
            state.reason = UNLOADED.to_owned();
            copies.extend(state.serving.take().map(|generation| (generation, version)));
        }
        self.retire(key, copies);
        members
    }
}
