//! Binds ensembles to the copies of their members that serve, each time these change.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use config::EnsembleScheduling;
use host::now;
use lifecycle::{LifecycleAction, LoadedVersionId, ManagedModel, ModelKey, UNLOADED, VersionStatus};
use vocabulary::{Error, Name};

use super::RepositoryTask;
use crate::{ensemble::EnsembleParts, models::loaded_version::LoadedVersion};

impl RepositoryTask {
    /// Makes an ensemble that has been loaded, with its members as they serve now.
    ///
    /// # Errors
    /// INVALID_ARG if a member is missing or does not fit.
    pub(super) fn make_ensemble(&self, parts: EnsembleParts) -> Result<Arc<LoadedVersion>, Error> {
        let name = &parts.config.typed.name;
        let members = self.members(name, parts.namespace.as_ref(), &parts.scheduling)?;
        LoadedVersion::of_ensemble(parts, &members)
    }

    /// Binds the ensembles that serve, and that are among the models that have changed or use one of them, to their
    /// members as they serve now. Ensembles whose members do not fit any more are taken out of service. Returns what
    /// follows. `changed` gets the models that this changes.
    pub(super) fn bind_ensembles(&mut self, changed: &mut BTreeSet<ModelKey>) -> Vec<LifecycleAction> {
        let mut actions = Vec::new();
        let mut open: BTreeSet<_> = changed.iter().map(|key| key.name.clone()).collect();
        loop {
            let mut lost = BTreeMap::new();
            while let Some(name) = open.pop_first() {
                for copy in self.ensembles_around(&name) {
                    if lost.contains_key(&copy) {
                        continue;
                    }
                    match self.bind(copy) {
                        Ok(None) => {}
                        Ok(Some(key)) => {
                            // An ensemble may be a member of another one.
                            open.insert(key.name.clone());
                            changed.insert(key);
                        }
                        Err(error) => drop(lost.insert(copy, error)),
                    }
                }
            }
            if lost.is_empty() {
                return actions;
            }
            actions.extend(self.lifecycle.unbound(lost.into_iter().collect(), now()));
            let more = self.lifecycle.take_changed();
            open.extend(more.iter().map(|key| key.name.clone()));
            changed.extend(more);
        }
    }

    /// The copies of ensembles that serve under a name, and those that have a member of this name.
    fn ensembles_around(&self, name: &Name) -> BTreeSet<LoadedVersionId> {
        let own = self.lifecycle.named(name).flat_map(|(_, model)| ready(model));
        let users = self.copies.of_ensembles_with(name).filter(|copy| self.lifecycle.serves(*copy));
        own.chain(users).collect()
    }

    /// Binds a copy of an ensemble to its members as they serve now. Returns its model if that has changed the copy; `None`
    /// for a copy that is no ensemble.
    ///
    /// # Errors
    /// The members do not fit any more.
    fn bind(&mut self, copy: LoadedVersionId) -> Result<Option<ModelKey>, Error> {
        let Some(loaded) = self.copies.get(copy) else { return Ok(None) };
        let Some(version) = loaded.work().ensemble() else { return Ok(None) };
        let model = loaded.model();
        let members = self.members(model.name(), model.namespace(), version.ensemble().scheduling())?;
        let Some(bound) = loaded.bound_to(&members)? else { return Ok(None) };
        let key = ModelKey { name: model.name().clone(), namespace: model.namespace().cloned() };
        self.copies.insert(copy, bound);
        Ok(Some(key))
    }

    /// The copy of the member for each step of an ensemble.
    ///
    /// # Errors
    /// INVALID_ARG for a member that is not there, in Triton's words (model_repository_manager.cc, CheckNode).
    fn members(
        &self,
        ensemble: &Name,
        namespace: Option<&Name>,
        scheduling: &EnsembleScheduling,
    ) -> Result<Vec<Arc<LoadedVersion>>, Error> {
        let names = scheduling.members();
        let missing: Vec<_> = names
            .iter()
            .filter(|name| self.find_member(name, namespace).is_none())
            .map(|name| &**name)
            .collect();
        if !missing.is_empty() {
            return Err(Error::invalid(format!(
                "ensemble {ensemble} contains models that are not available or ambiguous: {}",
                missing.join(", ")
            )));
        }
        let member = |step: &config::EnsembleStep| {
            let name = &step.model;
            let depends =
                |why: String| Error::invalid(format!("ensemble '{ensemble}' depends on '{name}' {why}"));
            let Some(model) = self.find_member(name, namespace) else {
                return Err(depends("which has no loaded version.".to_owned()));
            };
            if let Some(why) = refusal(model) {
                return Err(depends(format!("which is not valid. Model '{name}' failed with error: {why}")));
            }
            let Some(latest) = ready(model).last() else {
                let why = failures(model);
                let why = if why.is_empty() {
                    String::new()
                } else {
                    format!(" Model '{name}' loading failed with error: {why}")
                };
                return Err(depends(format!("which has no loaded version.{why}")));
            };
            let copy = match step.version {
                None => Some(latest),
                Some(version) => ready(model).find(|copy| copy.version == version),
            };
            copy.and_then(|copy| self.copies.get(copy).cloned()).ok_or_else(|| {
                let version = step.version.unwrap_or(-1);
                depends(format!("whose required version {version} is not loaded."))
            })
        };
        scheduling.steps.iter().map(member).collect()
    }

    /// The model that a step means: that of the ensemble's own namespace, or the only one of the name. Models that were
    /// unloaded count only if there is no other.
    fn find_member(&self, name: &Name, namespace: Option<&Name>) -> Option<&ManagedModel> {
        let mut named: Vec<_> = self.lifecycle.named(name).collect();
        if named.iter().any(|(_, model)| !model.is_absent()) {
            named.retain(|(_, model)| !model.is_absent());
        }
        let own = named.iter().find(|(key, _)| key.namespace.as_ref() == namespace);
        match (own, &named[..]) {
            (Some((_, model)), _) | (None, [(_, model)]) => Some(model),
            (None, _) => None,
        }
    }
}

/// The copies of a model that serve, by version.
fn ready(model: &ManagedModel) -> impl Iterator<Item = LoadedVersionId> {
    model.versions().filter_map(|(_, status)| match status {
        VersionStatus::Ready(copy) => Some(copy),
        VersionStatus::Loading | VersionStatus::Unloading(_) | VersionStatus::Unavailable(_) => None,
    })
}

/// Why a model was refused as a whole: its configuration, or an ensemble's members.
fn refusal(model: &ManagedModel) -> Option<String> {
    let of_members = || {
        let reason = reasons(model).next()?.1;
        // Without the words of the error's code.
        Some(reason.split_once(": ").map_or(reason.clone(), |(_, text)| text.to_owned()))
    };
    let problem = model.problem().map(|problem| problem.reason.clone());
    problem.or_else(|| if model.awaits_members() { of_members() } else { None })
}

/// Why the versions of a model are not there, except for those that were unloaded.
fn failures(model: &ManagedModel) -> String {
    let failure = |(version, reason)| format!("version {version} is at UNAVAILABLE state: {reason};");
    reasons(model).map(failure).collect()
}

fn reasons(model: &ManagedModel) -> impl Iterator<Item = (i64, String)> {
    let reasons = model.versions().filter_map(|(version, status)| match status {
        VersionStatus::Unavailable(reason) => Some((version, reason)),
        VersionStatus::Ready(_) | VersionStatus::Loading | VersionStatus::Unloading(_) => None,
    });
    reasons.filter(|(_, reason)| !reason.is_empty() && reason != UNLOADED)
}
