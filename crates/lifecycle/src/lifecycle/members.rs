//! Ensembles and their members: who waits for whom, who is loaded again, who is unloaded with whom.
//!
//! The load of an ensemble waits for operations on its members. Two rules keep it from waiting for itself: a load does
//! not begin to wait if that would close a circle of loads that wait, and it builds no copies if what serves or is being
//! built would form a circle of members with it.
use std::{collections::BTreeSet, sync::Arc};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::{
    DeferredAction, Lifecycle,
    circles::{binds, waits_for},
    server_exits,
};
use crate::{
    actions::{LifecycleAction, LogLevel},
    files::ModelFiles,
    keys::{CommandId, Generation, LoadedVersionId, ModelKey, ModelLocation},
    listing::FoundModel,
    managed_model::{LoadPhase, ManagedModel, RunningLoad, UNLOADED},
    operation::{LoadPurpose, NameQueue, Operation, OperationKind, OperationWaiter},
    plan_result::PlannedModel,
};

/// The load of an ensemble: members first.
impl Lifecycle {
    /// The configuration of a load is known. Operations on its members come before its copies.
    pub(super) fn await_members(&mut self, generation: Generation, plan: PlannedModel, now: Timestamp) {
        let Some(key) = self.loads.get(&generation).map(|load| load.key.clone()) else { return };
        if self.is_stopping {
            return self.failed(&key, generation, server_exits(), now);
        }
        let Some(model) = self.models.get_mut(&key) else { return };
        model.planned_members.clone_from(&plan.members);
        if plan.members.is_empty() {
            return self.build(&key, plan, now);
        }
        let command = self.purpose(&key.name).and_then(LoadPurpose::command);
        let wanted = self.to_wait_for(&plan.members, command);
        if let Some(path) = self.path_to(&key.name, &wanted, waits_for) {
            return self.fail_circle(&key, plan, &path, now);
        }
        self.hold(&key, &plan.members - &wanted);
        self.set_phase(&key, LoadPhase::AwaitingMembers { plan, left: wanted.clone() });
        self.wait(generation, wanted, command);
    }

    /// A model that a command loads is an ensemble that has not changed. Its members may have.
    pub(super) fn refresh_members(
        &mut self,
        key: &ModelKey,
        found: (Arc<ModelLocation>, Arc<ModelFiles>),
        command: CommandId,
    ) {
        let members = self.models.get(key).map(|model| model.members().clone()).unwrap_or_default();
        let mut left = self.to_wait_for(&members, Some(command));
        left.retain(|name| self.path_to(&key.name, &[name.clone()].into(), waits_for).is_none());
        let before = self.serving_copies(&members);
        let phase = LoadPhase::RefreshingMembers { left: left.clone(), before };
        let generation = self.new_load(key, Some(found), Vec::new());
        self.hold(key, &members - &left);
        self.set_phase(key, phase);
        self.wait(generation, left, Some(command));
    }

    /// The members on which a load must wait for an operation.
    fn to_wait_for(&self, members: &BTreeSet<Name>, command: Option<CommandId>) -> BTreeSet<Name> {
        members.iter().filter(|name| command.is_some() || self.is_busy(name)).cloned().collect()
    }

    fn is_busy(&self, name: &Name) -> bool {
        self.queues.get(name).is_some_and(|queue| !queue.is_idle())
    }

    fn set_phase(&mut self, key: &ModelKey, phase: LoadPhase) {
        if let Some(load) = self.models.get_mut(key).and_then(|model| model.load.as_mut()) {
            load.phase = phase;
        }
    }

    /// Puts operations behind those that are queued for these members. A command loads each member once.
    fn wait(&mut self, generation: Generation, names: BTreeSet<Name>, command: Option<CommandId>) {
        if names.is_empty() {
            self.deferred.push_back(DeferredAction::MembersSettled { generation });
        }
        for name in names {
            let open = command.and_then(|command| self.commands.get_mut(&command));
            let is_first = open.is_some_and(|open| open.members.insert(name.clone()));
            let kind = match command.filter(|_| is_first) {
                Some(command) => OperationKind::LoadMember { command },
                None => OperationKind::Barrier,
            };
            let operation = Operation { waiter: OperationWaiter::Load(generation), kind };
            self.deferred.push_back(DeferredAction::Enqueue { name, operation });
        }
    }

    /// An operation on a member has ended. What it has changed, the copies of the ensemble will show.
    pub(super) fn member_settled(&mut self, generation: Generation, member: &Name) {
        let Some(key) = self.loads.get(&generation).map(|load| &load.key) else { return };
        let Some(load) = self.models.get_mut(key).and_then(|model| model.running(generation)) else { return };
        if let LoadPhase::AwaitingMembers { left, .. } | LoadPhase::RefreshingMembers { left, .. } =
            &mut load.phase
            && left.remove(member)
        {
            load.held.insert(member.clone());
            if !left.is_empty() {
                return;
            }
            self.deferred.push_back(DeferredAction::MembersSettled { generation });
        }
    }

    pub(super) fn perform_due(&mut self, now: Timestamp) {
        while let Some(step) = self.deferred.pop_front().or_else(|| self.released()) {
            match step {
                DeferredAction::Enqueue { name, operation } => {
                    let is_retry = matches!(operation.kind, OperationKind::Retry);
                    if !is_retry || !self.queues.get(&name).is_some_and(NameQueue::has_waiting_retry) {
                        self.enqueue(&name, operation, now);
                    }
                }
                DeferredAction::MembersSettled { generation } => self.members_settled(generation, now),
                DeferredAction::Released { name } => self.begin_next(&name, now),
            }
        }
    }

    fn members_settled(&mut self, generation: Generation, now: Timestamp) {
        let Some(key) = self.loads.get(&generation).map(|load| load.key.clone()) else { return };
        let Some(model) = self.models.get_mut(&key) else { return };
        let Some(load) = model.running(generation) else { return };
        match std::mem::replace(&mut load.phase, LoadPhase::Planning) {
            LoadPhase::AwaitingMembers { plan, .. } => match self.path_to(&key.name, &plan.members, binds) {
                Some(path) => self.fail_circle(&key, plan, &path, now),
                None => self.build(&key, plan, now),
            },
            LoadPhase::RefreshingMembers { before, .. } => self.refreshed(&key, generation, &before, now),
            other => load.phase = other,
        }
    }

    /// The members of an ensemble have been loaded. If others serve now, the ensemble is loaded as well, so that the
    /// command is told whether they fit.
    fn refreshed(
        &mut self,
        key: &ModelKey,
        generation: Generation,
        before: &[LoadedVersionId],
        now: Timestamp,
    ) {
        let Some(model) = self.models.get(key) else { return };
        let is_same = model.loaded.is_some() && self.serving_copies(model.members()) == before;
        let Some(model) = self.models.get_mut(key) else { return };
        if is_same {
            model.load = None;
            self.loads.remove(&generation);
            return self.load_ended(&key.name, None, now);
        }
        let Some(load) = model.running(generation) else { return };
        let place = load.place.clone();
        self.actions.push(LifecycleAction::Plan { key: key.clone(), generation, place, given: None });
    }
}

/// A copy of an ensemble that cannot be used with its members any more.
struct UnboundCopy {
    key: ModelKey,
    copy: LoadedVersionId,
    members: BTreeSet<Name>,
    error: Error,
}

/// What happens to an ensemble when its members change.
impl Lifecycle {
    /// These serving copies of ensembles cannot be used with their members any more: they are retired. The ensemble is
    /// loaded again when one of its members comes into service.
    pub fn unbound(&mut self, copies: Vec<(LoadedVersionId, Error)>, now: Timestamp) -> Vec<LifecycleAction> {
        let mut unbound = Vec::new();
        for (copy, error) in copies {
            let Some(key) = self.loads.get(&copy.generation).map(|load| load.key.clone()) else { continue };
            let Some(model) = self.models.get_mut(&key) else { continue };
            let Some(state) = model.versions.get_mut(&copy.version) else { continue };
            if state.serving != Some(copy.generation) {
                continue;
            }
            (state.serving, state.reason) = (None, error.with_code());
            let members = match &model.loaded {
                Some(loaded) => loaded.members.clone(),
                None => model.planned_members.clone(),
            };
            unbound.push(UnboundCopy { key, copy, members, error });
        }
        for UnboundCopy { key, .. } in &unbound {
            let Some(model) = self.models.get_mut(key) else { continue };
            (model.loaded, model.awaits_members) = (None, true);
        }
        let on_purpose = self.tell_unloaded(&unbound);
        for UnboundCopy { key, copy, error, .. } in unbound {
            let level = if on_purpose.contains(&copy) { LogLevel::Info } else { LogLevel::Error };
            let text =
                format!("'{key}' version {} is unloaded because of its members: {error}", copy.version);
            self.log(level, text);
            self.retire(&key, vec![(copy.generation, copy.version)]);
        }
        self.take_actions(now)
    }

    /// Gives copies the reason `unloaded` whose members were unloaded on purpose, or depend on such members.
    fn tell_unloaded(&mut self, unbound: &[UnboundCopy]) -> BTreeSet<LoadedVersionId> {
        let mut on_purpose = BTreeSet::new();
        loop {
            let before = on_purpose.len();
            for UnboundCopy { key, copy, members, .. } in unbound {
                if !on_purpose.contains(copy) && self.lacks_unloaded(members) {
                    on_purpose.insert(*copy);
                    let version = self.models.get_mut(key).and_then(|it| it.versions.get_mut(&copy.version));
                    version.into_iter().for_each(|version| version.reason = UNLOADED.to_owned());
                }
            }
            if on_purpose.len() == before {
                return on_purpose;
            }
        }
    }

    /// Whether one of these models is not known, or was unloaded on purpose.
    fn lacks_unloaded(&self, members: &BTreeSet<Name>) -> bool {
        members.iter().any(|member| self.models.named(member).all(|(_, model)| model.is_unloaded()))
    }

    /// Whether a model awaits members that were unloaded on purpose, and nobody has asked for it since.
    pub(super) fn is_unbound_on_purpose(&self, key: &ModelKey) -> bool {
        let is_named = matches!(self.purpose(&key.name), Some(LoadPurpose::Named { .. }));
        self.models.get(key).is_some_and(|model| {
            model.awaits_members && !is_named && self.lacks_unloaded(&model.planned_members)
        })
    }

    /// A load has failed. An ensemble is loaded again when one of its members comes into service.
    pub(super) fn load_failed(&mut self, key: &ModelKey) {
        let is_explicit = self.purpose(&key.name).is_some_and(LoadPurpose::is_explicit);
        let Some(model) = self.models.get_mut(key) else { return };
        let Some(load) = &model.load else { return };
        let (LoadPhase::Building(building) | LoadPhase::Checking(building)) = &load.phase else { return };
        model.awaits_members = !building.plan.members.is_empty();
        model.is_explicit |= is_explicit && model.awaits_members;
        let members_before = building.members_before.clone();
        self.retry_if_members_changed(key, &members_before);
    }

    /// A load has failed. If the model serves as before, it forms no circle any more with ensembles that awaited it.
    pub(super) fn unblock(&mut self, key: &ModelKey, load: Option<RunningLoad>) {
        let serves = self.models.get(key).is_some_and(ManagedModel::serves);
        if let Some(load) = load.filter(|_| serves && !self.is_stopping) {
            load.blocked.into_iter().filter(|name| *name != key.name).for_each(|name| self.retry(name));
        }
    }

    /// If a model awaits members that have come into service while it was being built, it is loaded again.
    pub(super) fn retry_if_members_changed(&mut self, key: &ModelKey, before: &[LoadedVersionId]) {
        let Some(model) = self.models.get(key).filter(|model| model.awaits_members) else { return };
        let now = self.serving_copies(&model.planned_members);
        if now.iter().any(|copy| !before.contains(copy)) {
            self.retry(key.name.clone());
        }
    }

    /// A model has come into service: ensembles that it is a member of, and that await members, are loaded again.
    pub(super) fn retry_ensembles_of(&mut self, name: &Name) {
        let awaiting = self.models.awaiting();
        let is_member = |model: &ManagedModel| {
            model.planned_members.contains(name)
                || self.path_to(name, &model.planned_members, binds).is_some()
        };
        let concerns = |key: &ModelKey| self.models.get(key).is_some_and(is_member);
        let names: BTreeSet<_> = awaiting.into_iter().filter(concerns).map(|key| key.name).collect();
        names.into_iter().for_each(|name| self.retry(name));
    }

    /// A model has gone: ensembles that await members may now mean a model of the name in another repository.
    pub(super) fn retry_ensembles_of_others(&mut self, gone: &ModelKey) {
        if self.models.named(&gone.name).any(|(_, model)| model.serves()) {
            self.retry_ensembles_of(&gone.name);
        }
    }

    fn retry(&mut self, name: Name) {
        let operation = Operation { waiter: OperationWaiter::Nobody, kind: OperationKind::Retry };
        self.deferred.push_back(DeferredAction::Enqueue { name, operation });
    }

    pub(super) fn awaits_members(&self, name: &Name) -> bool {
        self.models.named(name).any(|(_, model)| model.awaits_members)
    }

    /// What the repositories have under the name of an ensemble that is loaded again.
    pub(super) fn found_again(
        &mut self,
        name: &Name,
        models: Result<Vec<(ModelKey, FoundModel)>, Error>,
        now: Timestamp,
    ) {
        let polls = self.options.polls;
        let mut models = match models {
            Ok(models) => models,
            Err(error) => {
                self.log(LogLevel::Error, format!("model '{name}' cannot be loaded again: {error}"));
                Vec::new()
            }
        };
        models.retain(|(key, found)| {
            let model = self.models.get(key).filter(|model| model.awaits_members);
            // Changes of files have to settle; listings show that.
            let is_settled = |model: &ManagedModel| {
                !polls || !found.is_incomplete && model.last_files.as_ref() == Some(&found.files)
            };
            model.is_some_and(is_settled)
        });
        if models.is_empty() {
            return self.load_ended(name, None, now);
        }
        self.begin_loads(name, models, now);
    }
}

/// Unloads.
impl Lifecycle {
    /// Unloads the models of a name. Returns their members.
    pub(super) fn unload_name(&mut self, name: &Name) -> BTreeSet<Name> {
        let keys: Vec<_> = self.models.named(name).map(|(key, _)| key.clone()).collect();
        keys.iter().flat_map(|key| self.unload(key)).collect()
    }

    /// Unloads members of a model that was unloaded, if nothing needs them any more.
    pub(super) fn unload_members(&mut self, waiter: OperationWaiter, members: BTreeSet<Name>) {
        if let OperationWaiter::Command(command) = waiter
            && let Some(command) = self.commands.get_mut(&command)
        {
            command.operations_left += members.len();
        }
        for name in members {
            let operation = Operation { waiter, kind: OperationKind::UnloadMember };
            self.deferred.push_back(DeferredAction::Enqueue { name, operation });
        }
    }

    /// Whether models of the name serve or await members, but neither a command nor another model needs them.
    pub(super) fn is_needless(&mut self, name: &Name) -> bool {
        self.models.named(name).any(|(_, model)| model.serves() || model.awaits_members)
            && self.models.named(name).all(|(_, model)| !model.is_explicit)
            && !self.models.are_needed(name)
    }

    /// The server stops: loads that wait for members have built nothing, and go no further.
    pub(super) fn dismiss_waiting(&mut self) {
        let loading = self.models.iter().filter(|(_, model)| model.load.is_some());
        let loading: Vec<_> = loading.map(|(key, _)| key.clone()).collect();
        for key in loading {
            let Some(model) = self.models.get_mut(&key) else { continue };
            let Some(load) = &model.load else { continue };
            let generation = load.generation;
            let is_planned = matches!(load.phase, LoadPhase::AwaitingMembers { .. });
            if !is_planned && !matches!(load.phase, LoadPhase::RefreshingMembers { .. }) {
                continue;
            }
            if is_planned {
                self.actions.push(LifecycleAction::NotifyFailed { generation });
            }
            model.load = None;
            self.loads.remove(&generation);
            let Some(queue) = self.queues.get_mut(&key.name) else { continue };
            let Some(running) = &mut queue.running else { continue };
            running.loads_left -= 1;
            if running.loads_left == 0 {
                self.queues.remove(&key.name);
            }
        }
    }
}
