//! The snapshot of the repository for readers. A reader never waits for a load.
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use inference::{Error, Name};

use crate::model::Model;

/// Whether a model version can be used (protocol extension "model repository").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelState {
    /// The version is being built.
    Loading,
    /// The version can be used.
    Ready,
    /// The version finishes its accepted requests.
    Unloading,
    /// The version cannot be used. The reason explains why.
    Unavailable,
}

impl ModelState {
    /// The state's name in the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "LOADING",
            Self::Ready => "READY",
            Self::Unloading => "UNLOADING",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

/// One line of the repository's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Model name.
    pub name: Name,
    /// Version number; absent for a model without versions.
    pub version: Option<i64>,
    /// State; absent for a model that was never loaded.
    pub state: Option<ModelState>,
    /// Why the version is not ready; may be empty.
    pub reason: String,
}

/// All models at one point in time.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelTable {
    pub(super) models: HashMap<Name, Versions>,
}

/// One model of the table.
#[derive(Debug, Clone, Default)]
pub(super) struct Versions {
    pub(super) versions: BTreeMap<i64, VersionEntry>,
    /// Why the model has no version.
    pub(super) problem: Option<NoVersion>,
}

/// Why a model has no version at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoVersion {
    pub(super) cause: NoVersionCause,
    /// The text for the index.
    pub(super) reason: String,
}

/// The cause. The errors for clients depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoVersionCause {
    /// The directory has no configuration file, but the options require one. It may not be a model.
    NoConfiguration,
    /// The configuration is valid and selects no version directory.
    NoneSelected,
    /// The configuration is invalid, an agent refused, or the model is in two repositories.
    Refused,
}

impl Versions {
    fn all_usable(&self) -> bool {
        self.problem.is_none()
            && !self.versions.is_empty()
            && self.versions.values().all(|version| version.usable().is_some())
    }

    /// The versions that have been built, usable or not, ascending.
    pub(super) fn built(&self) -> impl Iterator<Item = Arc<Model>> {
        self.versions.values().filter_map(|version| match version {
            VersionEntry::Ready(model) => Some(model.clone()),
            VersionEntry::Loading | VersionEntry::Unavailable(_) => None,
        })
    }
}

/// One version of the table.
#[derive(Debug, Clone)]
pub(super) enum VersionEntry {
    Loading,
    Ready(Arc<Model>),
    Unavailable(String),
}

impl VersionEntry {
    /// The model, if it is usable. A version whose backend has panicked is not ready any more, even before the
    /// repository task knows.
    fn usable(&self) -> Option<&Arc<Model>> {
        match self {
            Self::Ready(model) if model.fault().is_none() => Some(model),
            Self::Ready(_) | Self::Loading | Self::Unavailable(_) => None,
        }
    }

    fn state(&self) -> (ModelState, String) {
        match self {
            Self::Loading => (ModelState::Loading, String::new()),
            Self::Ready(model) => match model.fault() {
                None => (ModelState::Ready, String::new()),
                Some(fault) => (ModelState::Unavailable, fault.with_code()),
            },
            Self::Unavailable(reason) => (ModelState::Unavailable, reason.clone()),
        }
    }
}

impl ModelTable {
    /// The requested version, or the largest one that is ready.
    ///
    /// # Errors
    /// NOT_FOUND, or UNAVAILABLE for a version that exists but is not ready.
    pub(crate) fn model(&self, name: &str, version: Option<i64>) -> Result<Arc<Model>, Error> {
        let unknown = |what: &str| Error::not_found(format!("Request for unknown model: '{name}' {what}"));
        let is_known = |model: &&Versions| match &model.problem {
            None => true,
            // As Triton: a model with a valid configuration is known, whatever the state of its versions.
            Some(problem) => problem.cause == NoVersionCause::NoneSelected,
        };
        let model = self.models.get(name).filter(is_known).ok_or_else(|| unknown("is not found"))?;
        let Some(number) = version else {
            let largest = model.versions.values().rev().find_map(VersionEntry::usable);
            return largest.cloned().ok_or_else(|| unknown("has no available versions"));
        };
        let version =
            model.versions.get(&number).ok_or_else(|| unknown(&format!("version {number} is not found")))?;
        version.usable().cloned().ok_or_else(|| {
            Error::unavailable(format!(
                "Request for unknown model: '{name}' version {number} is not at ready state"
            ))
        })
    }

    /// The versions of a model that can be used, ascending.
    pub(crate) fn ready_versions(&self, name: &str) -> Vec<i64> {
        let versions = self.models.get(name).map(|model| &model.versions).into_iter().flatten();
        versions.filter(|(_, version)| version.usable().is_some()).map(|(number, _)| *number).collect()
    }

    /// Whether each directory is a model with versions, all of which can be used.
    pub(crate) fn all_loaded(&self) -> bool {
        self.models.values().all(Versions::all_usable)
    }

    /// As [`all_loaded`](Self::all_loaded), but for strict readiness, where a directory without a configuration file is
    /// not a model.
    pub(crate) fn all_ready(&self) -> bool {
        self.models.values().all(|model| match &model.problem {
            Some(problem) => problem.cause == NoVersionCause::NoConfiguration,
            None => model.all_usable(),
        })
    }

    /// Versions that can be used and whose backends report readiness.
    pub(crate) fn telling_readiness(&self) -> Vec<Arc<Model>> {
        let versions = self.models.values().flat_map(|model| model.versions.values());
        versions.filter_map(VersionEntry::usable).filter(|model| model.reports_readiness()).cloned().collect()
    }

    /// Versions that can be used, by name and number.
    pub(crate) fn ready(&self) -> Vec<Arc<Model>> {
        let mut ready = self.built();
        ready.retain(|model| model.fault().is_none());
        ready
    }

    /// Every version that has been built, usable or not, by name and number.
    pub(crate) fn built(&self) -> Vec<Arc<Model>> {
        let mut built: Vec<_> = self.models.values().flat_map(Versions::built).collect();
        built.sort_by(|one, other| (one.name(), one.version()).cmp(&(other.name(), other.version())));
        built
    }

    /// One line for each version, or for each model without versions, by name and number.
    pub(crate) fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
        let mut lines = Vec::new();
        for (name, model) in &self.models {
            if let Some(problem) = &model.problem {
                let state = Some(ModelState::Unavailable);
                lines.push(IndexEntry {
                    name: name.clone(),
                    version: None,
                    state,
                    reason: problem.reason.clone(),
                });
            }
            for (&number, version) in &model.versions {
                let (state, reason) = version.state();
                lines.push(IndexEntry {
                    name: name.clone(),
                    version: Some(number),
                    state: Some(state),
                    reason,
                });
            }
        }
        lines.retain(|line| !ready_only || line.state == Some(ModelState::Ready));
        lines.sort_by(|one, other| (&one.name, one.version).cmp(&(&other.name, other.version)));
        lines
    }
}
