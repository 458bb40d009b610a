//! One model and its versions, as the policy knows them.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use vocabulary::{Error, Name};

use crate::{
    files::ModelFiles,
    keys::{Generation, LoadedVersionId, ModelLocation},
    listing::ListingHistory,
    plan_result::{ConfigIdentity, NoVersion, PlanFailure, PlannedModel},
};

/// The reason of a version that is not wanted any more. Clients see it, as Triton's clients do.
pub const UNLOADED: &str = "unloaded";

/// What a version is, for the index and for requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionStatus {
    /// The first copy of the version is being built.
    Loading,
    /// This copy serves.
    Ready(LoadedVersionId),
    /// No copy serves; this one finishes its accepted requests.
    Unloading(LoadedVersionId),
    /// No copy is there. The text explains why.
    Unavailable(String),
}

/// A model: what serves, what is being loaded, what ends.
#[derive(Debug, Default)]
pub struct ManagedModel {
    pub(crate) versions: BTreeMap<i64, ManagedVersion>,
    /// What the copies that serve were loaded from.
    pub(crate) loaded: Option<LoadOrigin>,
    pub(crate) problem: Option<NoVersion>,
    pub(crate) load: Option<RunningLoad>,
    pub(crate) listing: ListingHistory,
    /// The members of the last plan.
    pub(crate) planned_members: BTreeSet<Name>,
    /// The files of the last load.
    pub(crate) last_files: Option<Arc<ModelFiles>>,
    pub(crate) awaits_members: bool,
    /// A command that names the model, or one that loads all models, has loaded it.
    pub(crate) is_explicit: bool,
}

/// One version of a model.
#[derive(Debug, Default)]
pub(crate) struct ManagedVersion {
    pub(crate) serving: Option<Generation>,
    pub(crate) is_loading: bool,
    /// Copies that end, the latest last.
    pub(crate) retiring: Vec<Generation>,
    pub(crate) reason: String,
}

/// What the copies that serve were loaded from.
#[derive(Debug)]
pub(crate) struct LoadOrigin {
    /// `None`: from given files, so that what a repository has is always newer.
    pub(crate) files: Option<Arc<ModelFiles>>,
    pub(crate) config: ConfigIdentity,
    pub(crate) members: BTreeSet<Name>,
    /// All selected versions serve.
    pub(crate) is_whole: bool,
}

/// A load that has not ended.
#[derive(Debug)]
pub(crate) struct RunningLoad {
    pub(crate) generation: Generation,
    /// Where the model is; `None` for given files.
    pub(crate) place: Option<Arc<ModelLocation>>,
    /// The files as they were before the configuration was read; `None` for given files.
    pub(crate) files: Option<Arc<ModelFiles>>,
    /// Versions whose copies cannot be used any more.
    pub(crate) faulty: Vec<i64>,
    /// Ensembles whose load failed because this load would have formed a circle with it.
    pub(crate) blocked: BTreeSet<Name>,
    /// Members that are as the load needs them: they are not unloaded before the load has ended.
    pub(crate) held: BTreeSet<Name>,
    pub(crate) phase: LoadPhase,
}

#[derive(Debug)]
pub(crate) enum LoadPhase {
    /// Nothing has changed but perhaps the members. They are loaded first. The load goes on if others than these serve then.
    RefreshingMembers {
        left: BTreeSet<Name>,
        before: Vec<LoadedVersionId>,
    },
    Planning,
    /// Operations on these members come first.
    AwaitingMembers {
        plan: PlannedModel,
        left: BTreeSet<Name>,
    },
    Building(Building),
    /// All copies have been built or have failed; the files are looked at once more.
    Checking(Building),
    /// The configuration cannot be used; the files are looked at once more.
    CheckingPlan(PlanFailure),
    /// The load has failed; its copies end.
    Discarding {
        left: usize,
        error: Error,
    },
}

/// The copies of a load.
#[derive(Debug)]
pub(crate) struct Building {
    pub(crate) plan: PlannedModel,
    /// Copies that are still being built.
    pub(crate) left: usize,
    pub(crate) built: Vec<i64>,
    pub(crate) failed: BTreeMap<i64, Error>,
    /// The copies of the members that served when the load began to build.
    pub(crate) members_before: Vec<LoadedVersionId>,
}

impl ManagedModel {
    /// Why the model has no version, if it has none.
    pub fn problem(&self) -> Option<&NoVersion> {
        self.problem.as_ref()
    }

    /// The members of what serves, or of the last plan if nothing serves; empty for a model that is no ensemble.
    pub fn members(&self) -> &BTreeSet<Name> {
        let loaded = self.loaded.as_ref().filter(|_| self.serves());
        loaded.map_or(&self.planned_members, |loaded| &loaded.members)
    }

    /// Whether the model is loaded again when one of its members comes into service: its load has failed, or its copies
    /// could not be used with its members any more.
    pub fn awaits_members(&self) -> bool {
        self.awaits_members
    }

    /// The versions that are known, ascending.
    pub fn versions(&self) -> impl Iterator<Item = (i64, VersionStatus)> {
        self.versions.iter().map(|(&number, version)| (number, version.status(number)))
    }

    /// All copies that end, though a newer copy may serve.
    pub fn retiring(&self) -> impl Iterator<Item = LoadedVersionId> {
        self.versions.iter().flat_map(|(&version, state)| {
            state.retiring.iter().map(move |&generation| LoadedVersionId { generation, version })
        })
    }

    /// Whether there is a record of a version at rest that does not exist.
    pub(crate) fn has_absent(&self, exists: impl Fn(i64) -> bool) -> bool {
        let is_absent = |(number, version): (&i64, &ManagedVersion)| !version.is_used() && !exists(*number);
        self.load.is_none() && self.versions.iter().any(is_absent)
    }

    /// Forgets versions at rest that do not exist.
    pub(crate) fn forget_absent(&mut self, exists: impl Fn(i64) -> bool) {
        if self.load.is_none() {
            self.versions.retain(|number, version| version.is_used() || exists(*number));
        }
    }

    /// Whether any copy serves.
    pub(crate) fn serves(&self) -> bool {
        self.versions.values().any(|version| version.serving.is_some())
    }

    /// Whether the model serves, is loaded, or waits for members, and has a member of this name.
    pub(crate) fn needs(&self, member: &Name) -> bool {
        self.serves() && self.members().contains(member)
            || (self.load.is_some() || self.awaits_members) && self.planned_members.contains(member)
    }

    /// Whether no copy serves because the model was unloaded, and not because of an error.
    pub(crate) fn is_unloaded(&self) -> bool {
        let is_unloaded = |version: &ManagedVersion| version.reason == UNLOADED;
        !self.serves() && self.problem.is_none() && self.versions.values().all(is_unloaded)
    }

    /// Whether nothing of the model serves, and no error is the reason: it was unloaded, or is being loaded for the first
    /// time. Another model of the name may stand for it.
    pub fn is_absent(&self) -> bool {
        let is_absent = |version: &ManagedVersion| {
            version.reason == UNLOADED || version.is_loading && version.reason.is_empty()
        };
        !self.serves() && self.problem.is_none() && self.versions.values().all(is_absent)
    }

    /// Whether nothing of the model is there but records.
    pub(crate) fn is_at_rest(&self) -> bool {
        let at_rest = |version: &ManagedVersion| {
            version.serving.is_none() && !version.is_loading && version.retiring.is_empty()
        };
        self.load.is_none() && self.versions.values().all(at_rest)
    }

    /// Whether what serves is what these files say.
    pub(crate) fn is_as(&self, files: &ModelFiles, faulty: &[i64]) -> bool {
        faulty.is_empty()
            && self.loaded.as_ref().is_some_and(|loaded| {
                loaded.is_whole && loaded.files.as_deref().is_some_and(|loaded| loaded == files)
            })
    }

    /// The versions of a plan for which a new copy is needed. The others keep their copies. An ensemble keeps none,
    /// because its members may have changed, and the command must be told whether they fit.
    pub(crate) fn to_be_built(&self, load: &RunningLoad, plan: &PlannedModel) -> Vec<i64> {
        if !plan.members.is_empty() {
            return plan.versions.clone();
        }
        let same_config = self.loaded.as_ref().is_some_and(|loaded| loaded.config == plan.config);
        let is_kept = |version: &i64| same_config && self.base(load, *version).is_some();
        plan.versions.iter().copied().filter(|version| !is_kept(version)).collect()
    }

    /// The copy of a version that serves, if it is good and the version's files are those that it was built from.
    pub(crate) fn base(&self, load: &RunningLoad, version: i64) -> Option<LoadedVersionId> {
        let generation = self.versions.get(&version)?.serving?;
        let (now, before) = (load.files.as_ref()?, self.loaded.as_ref()?.files.as_ref()?);
        let is_good = !load.faulty.contains(&version) && now.same_version(before, version);
        is_good.then_some(LoadedVersionId { generation, version })
    }

    /// The generation of a load that is in this phase.
    pub(crate) fn running(&mut self, generation: Generation) -> Option<&mut RunningLoad> {
        self.load.as_mut().filter(|load| load.generation == generation)
    }
}

impl ManagedVersion {
    /// Whether a copy of the version serves or ends.
    fn is_used(&self) -> bool {
        self.serving.is_some() || !self.retiring.is_empty()
    }

    fn status(&self, number: i64) -> VersionStatus {
        let copy = |generation| LoadedVersionId { generation, version: number };
        match (self.serving, self.retiring.last()) {
            (Some(generation), _) => VersionStatus::Ready(copy(generation)),
            (None, _) if self.is_loading => VersionStatus::Loading,
            (None, Some(&generation)) => VersionStatus::Unloading(copy(generation)),
            (None, None) => VersionStatus::Unavailable(self.reason.clone()),
        }
    }
}
