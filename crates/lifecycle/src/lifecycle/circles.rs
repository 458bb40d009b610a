//! Circles among ensembles: of loads that wait for each other, and of models that would serve with each other.
use std::collections::{BTreeMap, BTreeSet};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::Lifecycle;
use crate::{
    keys::{LoadedVersionId, ModelKey},
    managed_model::{Building, LoadPhase, ManagedModel},
    plan_result::PlannedModel,
};

impl Lifecycle {
    /// The load fails as if its copies could not be built.
    pub(super) fn fail_circle(&mut self, key: &ModelKey, plan: PlannedModel, path: &[Name], now: Timestamp) {
        // As Triton: model_repository_manager.cc, DependencyGraph.
        let last = path.iter().rev().nth(1).unwrap_or(&key.name);
        let error = Error::invalid(format!(
            "circular dependency between ensembles: {0} -> ... -> {last} -> {0}",
            key.name
        ));
        let members_before = self.serving_copies(&plan.members);
        let others: Vec<_> = path[1..].iter().flat_map(|name| self.models.named(name)).collect();
        let others: Vec<_> = others.into_iter().map(|(other, _)| other.clone()).collect();
        for other in others {
            let load = self.models.get_mut(&other).and_then(|model| model.load.as_mut());
            load.into_iter().for_each(|load| load.blocked.extend([key.name.clone()]));
        }
        let Some(model) = self.models.get_mut(key) else { return };
        model.problem = None;
        let Some(load) = &mut model.load else { return };
        let generation = load.generation;
        let failed: BTreeMap<_, _> = plan.versions.iter().map(|version| (*version, error.clone())).collect();
        load.phase =
            LoadPhase::Building(Building { plan, left: 0, built: Vec::new(), failed, members_before });
        self.check_or_complete(key, generation, now);
    }

    /// The path from a model over these members back to it, if there is one. `next` lists what comes after a model.
    pub(super) fn path_to(
        &self,
        start: &Name,
        members: &BTreeSet<Name>,
        next: fn(&ManagedModel) -> Vec<&BTreeSet<Name>>,
    ) -> Option<Vec<Name>> {
        let mut before: BTreeMap<&Name, &Name> = BTreeMap::new();
        let mut open: Vec<(&Name, &Name)> = members.iter().map(|member| (start, member)).collect();
        while let Some((from, name)) = open.pop() {
            if name == start {
                let mut path = vec![start.clone()];
                let mut name = from;
                while name != start {
                    path.push(name.clone());
                    name = before[name];
                }
                path.push(start.clone());
                path.reverse();
                return Some(path);
            }
            if before.contains_key(name) {
                continue;
            }
            before.insert(name, from);
            for (_, model) in self.models.named(name) {
                open.extend(next(model).into_iter().flatten().map(|member| (name, member)));
            }
        }
        None
    }

    /// The copies of these models that serve.
    pub(super) fn serving_copies(&self, names: &BTreeSet<Name>) -> Vec<LoadedVersionId> {
        let models = names.iter().flat_map(|name| self.models.named(name));
        let versions = models.flat_map(|(_, model)| &model.versions);
        let copies = versions
            .filter_map(|(&version, state)| Some(LoadedVersionId { generation: state.serving?, version }));
        copies.collect()
    }
}

/// The models for which the load of a model waits.
pub(super) fn waits_for(model: &ManagedModel) -> Vec<&BTreeSet<Name>> {
    let phase = model.load.as_ref().map(|load| &load.phase);
    if let Some(LoadPhase::AwaitingMembers { left, .. } | LoadPhase::RefreshingMembers { left, .. }) = phase {
        return vec![left];
    }
    Vec::new()
}

/// The members of what serves and of what is being built.
pub(super) fn binds(model: &ManagedModel) -> Vec<&BTreeSet<Name>> {
    let mut members = Vec::new();
    if model.serves() {
        members.push(model.members());
    }
    let phase = model.load.as_ref().map(|load| &load.phase);
    if let Some(LoadPhase::Building(building) | LoadPhase::Checking(building)) = phase {
        members.push(&building.plan.members);
    }
    members
}
