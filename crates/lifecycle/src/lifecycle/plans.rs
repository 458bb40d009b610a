//! Loads until the configuration is known: the model is found, compared with what serves, and planned.
use std::{collections::BTreeSet, sync::Arc};

use scheduling::Timestamp;
use vocabulary::Error;

use super::{Lifecycle, ModelLoad, not_read, server_exits};
use crate::{
    actions::{LifecycleAction, LogLevel},
    files::ModelFiles,
    keys::{Generation, ModelKey, ModelLocation},
    listing::FoundModel,
    managed_model::{LoadPhase, RunningLoad},
    operation::LoadPurpose,
    plan_result::{IN_TWO_REPOSITORIES, NoVersionCause, PlanFailure, PlannedModel},
};

impl Lifecycle {
    pub(super) fn begin_load(&mut self, key: ModelKey, found: FoundModel, now: Timestamp) {
        if self.is_stopping {
            return self.load_ended(&key.name, Some(server_exits()), now);
        }
        let FoundModel { places, files, faulty, .. } = found;
        let Ok([place]) = <[Arc<ModelLocation>; 1]>::try_from(places) else {
            self.tell_twice(&key);
            let error = not_read(&key.name, IN_TWO_REPOSITORIES);
            return self.load_ended(&key.name, Some(error), now);
        };
        let purpose = self.purpose(&key.name);
        let model = self.models.get_or_add(&key);
        model.listing.repository = Some(place.repository.clone());
        if model.is_as(&files, &faulty) && purpose.and_then(LoadPurpose::overriding_command).is_none() {
            model.awaits_members = false;
            return match purpose.and_then(LoadPurpose::command) {
                Some(command) if !model.members().is_empty() => {
                    self.refresh_members(&key, (place, files), command);
                }
                Some(_) | None => self.load_ended(&key.name, None, now),
            };
        }
        self.plan(key, Some((place, files)), faulty);
    }

    pub(super) fn plan(
        &mut self,
        key: ModelKey,
        found: Option<(Arc<ModelLocation>, Arc<ModelFiles>)>,
        faulty: Vec<i64>,
    ) {
        let place = found.as_ref().map(|(place, _)| place.clone());
        let generation = self.new_load(&key, found, faulty);
        let given = self.purpose(&key.name).and_then(LoadPurpose::overriding_command);
        self.actions.push(LifecycleAction::Plan { key, generation, place, given });
    }

    pub(super) fn new_load(
        &mut self,
        key: &ModelKey,
        found: Option<(Arc<ModelLocation>, Arc<ModelFiles>)>,
        faulty: Vec<i64>,
    ) -> Generation {
        let (place, files) = found.unzip();
        let phase = LoadPhase::Planning;
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        let model = self.models.get_or_add(key);
        model.last_files.clone_from(&files);
        let (blocked, held) = (BTreeSet::new(), BTreeSet::new());
        model.load = Some(RunningLoad { generation, place, files, faulty, blocked, held, phase });
        self.loads.insert(generation, ModelLoad { key: key.clone(), serving: 0, ending: 0 });
        generation
    }

    /// The configuration of a load has been read.
    pub fn planned(
        &mut self,
        generation: Generation,
        result: Result<PlannedModel, PlanFailure>,
        now: Timestamp,
    ) -> Vec<LifecycleAction> {
        match result {
            Ok(plan) => self.await_members(generation, plan, now),
            Err(failure) => self.not_planned(generation, failure, now),
        }
        self.take_actions(now)
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
    pub(super) fn refuse(
        &mut self,
        key: &ModelKey,
        generation: Generation,
        failure: PlanFailure,
        now: Timestamp,
    ) {
        let PlanFailure { no_version, error } = failure;
        self.loads.remove(&generation);
        let retry_times = self.retry_times();
        let Some(model) = self.models.get_mut(key) else { return };
        let name = &key.name;
        let load_error = match no_version.cause {
            NoVersionCause::NoneSelected => {
                Error::invalid(format!("load failed for model '{key}': {}\n", error.message))
            }
            NoVersionCause::NoConfiguration | NoVersionCause::Refused => not_read(name, &error.message),
        };
        if !model.serves() {
            model.problem = Some(no_version);
        }
        let files = model.load.take().and_then(|load| load.files);
        let is_again =
            files.is_some_and(|files| model.listing.failed(&files, &error.message, now, retry_times));
        if !is_again {
            self.log(LogLevel::Error, format!("Poll failed for model directory '{key}': {error}"));
        }
        self.load_ended(&key.name, Some(load_error), now);
    }
}
