//! Checks ensembles together with their members, with the texts of the server.
use std::collections::{BTreeMap, BTreeSet};

use config::{ConfigErrors, EnsembleStep, ModelConfig, check_members, fit_members, rule};
use inference::nearest;
use vocabulary::Name;

use crate::{
    Finding, Severity,
    model::{CheckedModel, ensemble_of},
};

/// Checks all ensembles. `models` are those of one namespace, by name.
pub(crate) fn check_ensembles(models: &mut BTreeMap<Name, CheckedModel>) {
    let mut ensembles = EnsembleCheck { models, open: Vec::new(), done: BTreeSet::new() };
    let names: Vec<_> = ensembles.models.keys().cloned().collect();
    names.iter().for_each(|name| ensembles.check(name));
}

struct EnsembleCheck<'a> {
    models: &'a mut BTreeMap<Name, CheckedModel>,
    /// The ensembles whose members are being checked.
    open: Vec<Name>,
    done: BTreeSet<Name>,
}

/// Ensembles inside each other that are followed.
const MOST_LEVELS: usize = 200;

impl EnsembleCheck<'_> {
    /// Checks a model, after its members.
    fn check(&mut self, name: &Name) {
        if !self.done.insert(name.clone()) {
            return;
        }
        let Some(model) = self.models.get(name) else { return };
        let of_versions: Vec<_> =
            model.versions.iter().filter_map(|(version, config)| Some((*version, config.clone()?))).collect();
        for (version, config) in of_versions {
            let Some(ensemble) = ensemble_of(&config).cloned() else { continue };
            self.open.push(name.clone());
            let has_circle = self.visit_members(&ensemble.members());
            self.open.pop();
            let mut findings = Vec::new();
            // The check of a member may have found a circle through this ensemble.
            let is_known = self.models[name].versions.get(&version).is_some_and(Option::is_some);
            if !has_circle && is_known {
                let fitted = self.fit(name, &config, &ensemble, &mut findings);
                let model = self.models.get_mut(name).expect("the model is there");
                model.versions.insert(version, fitted);
            }
            let model = self.models.get_mut(name).expect("the model is there");
            model.findings.extend(findings);
        }
    }

    /// Checks the members first. Returns whether the ensemble is a member of itself.
    fn visit_members(&mut self, members: &BTreeSet<Name>) -> bool {
        let mut has_circle = false;
        for member in members {
            let Some(begin) = self.open.iter().position(|open| open == member) else {
                if self.open.len() < MOST_LEVELS {
                    self.check(member);
                }
                continue;
            };
            has_circle = true;
            let circle = self.open[begin..].to_vec();
            for (position, one) in circle.iter().enumerate() {
                // As Triton: model_repository_manager.cc, DependencyGraph.
                let last = &circle[(position + circle.len() - 1) % circle.len()];
                let text = format!("circular dependency between ensembles: {one} -> ... -> {last} -> {one}");
                let Some(model) = self.models.get_mut(one) else { continue };
                let finding = model.at(Severity::Error, rule::ENSEMBLE_MEMBERS, "ensemble_scheduling", &text);
                model.findings.push(finding);
                model.versions.values_mut().for_each(|config| *config = None);
            }
        }
        has_circle
    }

    /// The configuration of an ensemble with what follows from its members; `None` if that is not known.
    fn fit(
        &self,
        name: &Name,
        config: &ModelConfig,
        ensemble: &config::EnsembleScheduling,
        findings: &mut Vec<Finding>,
    ) -> Option<ModelConfig> {
        let model = &self.models[name];
        let mut members = Vec::new();
        for (position, step) in ensemble.steps.iter().enumerate() {
            let known = self.member(name, step);
            if let Err((text, near)) = &known {
                let field = format!("ensemble_scheduling.step[{position}].model_name");
                let finding = model.at(Severity::Error, rule::ENSEMBLE_MEMBERS, &field, text);
                findings.push(finding.meaning(near.clone()));
            }
            members.push(known.ok().flatten());
        }
        let mut errors = ConfigErrors::default();
        check_members(config, ensemble, &members, &mut errors);
        if let Some(given) = &model.given {
            errors = errors.located(given.file(), given.fields());
        }
        let problems = Finding::of_problems(&errors, &model.place);
        findings.extend(problems.into_iter().map(|finding| finding.about(name)));
        let members: Option<Vec<_>> = members.into_iter().collect();
        let fitted = fit_members(config, ensemble, &members?).ok()?;
        let (decoupled, has_sequences) = (fitted.decoupled, fitted.has_sequences);
        Some(ModelConfig { decoupled, has_sequences, ..config.clone() })
    }

    /// The configuration of a step's member. `None` if only its load tells.
    ///
    /// Fails with the text of the server, and the name that was probably meant.
    fn member(
        &self,
        ensemble: &Name,
        step: &EnsembleStep,
    ) -> Result<Option<&ModelConfig>, (String, Option<String>)> {
        let name = &step.model;
        let Some(member) = self.models.get(name) else {
            let text =
                format!("ensemble {ensemble} contains models that are not available or ambiguous: {name}");
            let others = self.models.keys().filter(|other| *other != ensemble).map(ToString::to_string);
            return Err((text, nearest(name, others)));
        };
        if member.has_errors() {
            let text = format!(
                "ensemble '{ensemble}' depends on '{name}' which has no loaded version: it has errors"
            );
            return Err((text, None));
        }
        let version = match step.version {
            None => member.versions.values().next_back(),
            Some(version) => member.versions.get(&version),
        };
        version.map(Option::as_ref).ok_or_else(|| {
            let version = step.version.unwrap_or(-1);
            let text = format!(
                "ensemble '{ensemble}' depends on '{name}' whose required version {version} is not loaded."
            );
            // A step that names no version names version 0.
            (text, (version == 0).then(|| "model_version: -1".to_owned()))
        })
    }
}
