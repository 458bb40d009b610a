//! The snapshot of the repository for readers. A reader never waits for a load.
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lifecycle::{
    IN_TWO_REPOSITORIES, ManagedModel, ModelKey, NoVersion, NoVersionCause, UNLOADED, VersionStatus,
};
use rpds::{HashTrieMapSync, HashTrieSetSync};
use vocabulary::{Error, Name};

use crate::{
    model_state::{IndexEntry, ModelState, NotReady},
    models::{copies::Copies, loaded_version::LoadedVersion},
};

impl IndexEntry {
    /// A model that was never loaded.
    pub(super) fn unknown(ModelKey { name, namespace }: &ModelKey) -> Self {
        let (name, namespace) = (name.clone(), namespace.clone());
        Self { name, namespace, version: None, state: None, reason: String::new() }
    }

    /// A model that was never loaded, and that several repositories have.
    pub(super) fn not_unique(key: &ModelKey) -> Self {
        let reason = IN_TWO_REPOSITORIES.to_owned();
        Self { state: Some(ModelState::Unavailable), reason, ..Self::unknown(key) }
    }
}

/// All models at one point in time. Tables share what they have in common: a clone costs nothing, and a change of one model
/// the same among few models and among many.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelTable {
    /// The models of each name: one, or one for each namespace, by namespace.
    models: HashTrieMapSync<Name, Vec<Versions>>,
    /// The names of the models that readiness depends on, besides those whose backends panic: see
    /// [`Versions::decide_readiness`].
    deciding: HashTrieSetSync<Name>,
    /// Counts the executors whose backends have panicked. The table is not told which.
    faults: Arc<AtomicUsize>,
    /// Which repositories can be read, if they are polled.
    readable: Arc<BTreeMap<Name, bool>>,
}

/// A copy of a version, and the number of the load that it comes from.
pub(crate) struct ServingVersion {
    pub(crate) loaded: Arc<LoadedVersion>,
    pub(crate) generation: u64,
}

/// One model of the table.
#[derive(Debug, Clone, Default)]
struct Versions {
    /// The repository, if the server uses namespaces.
    namespace: Option<Name>,
    versions: BTreeMap<i64, VersionEntry>,
    /// The loads that the copies of versions come from.
    generations: BTreeMap<i64, u64>,
    /// Copies that finish their accepted requests.
    retiring: Vec<Arc<LoadedVersion>>,
    /// Why the model has no version.
    problem: Option<NoVersion>,
    /// The model is an ensemble whose members are missing or do not fit.
    awaits_members: bool,
}

impl Versions {
    fn of(key: &ModelKey, model: &ManagedModel, copies: &Copies) -> Self {
        let mut shown = Self {
            namespace: key.namespace.clone(),
            problem: model.problem().cloned(),
            awaits_members: model.awaits_members(),
            retiring: model.retiring().filter_map(|copy| copies.get(copy).cloned()).collect(),
            ..Self::default()
        };
        for (number, status) in model.versions() {
            let entry = match &status {
                VersionStatus::Loading => Some(VersionEntry::Loading),
                VersionStatus::Ready(id) => copies.get(*id).cloned().map(VersionEntry::Ready),
                VersionStatus::Unloading(id) => copies.get(*id).cloned().map(VersionEntry::Unloading),
                VersionStatus::Unavailable(reason) => Some(VersionEntry::Unavailable(reason.clone())),
            };
            if let VersionStatus::Ready(id) | VersionStatus::Unloading(id) = &status {
                shown.generations.insert(number, id.generation.0);
            }
            shown.versions.extend(entry.map(|entry| (number, entry)));
        }
        shown
    }

    /// Whether readers see the model: it has versions, or a reason why it has none.
    fn is_known(&self) -> bool {
        self.problem.is_some() || !self.versions.is_empty()
    }

    /// Whether a name with namespaces means this model: it has not been unloaded.
    fn is_meant(&self) -> bool {
        let is_gone =
            |version: &VersionEntry| version.is_unloaded() || matches!(version, VersionEntry::Unloading(_));
        self.problem.is_some() || !self.versions.values().all(is_gone)
    }

    fn all_usable(&self) -> bool {
        self.problem.is_none()
            && !self.versions.is_empty()
            && self.versions.values().all(|version| version.usable().is_some())
    }

    /// Whether one must look at the model to say whether the server is ready, if no backend has panicked: a version is
    /// not ready, or its backend says whether it is.
    fn decide_readiness(&self) -> bool {
        let may_be_missing = |version: &VersionEntry| match version {
            VersionEntry::Ready(loaded) => loaded.work().reports_readiness(),
            VersionEntry::Loading | VersionEntry::Unloading(_) | VersionEntry::Unavailable(_) => {
                !version.is_unloaded()
            }
        };
        self.problem.is_some() || self.versions.values().any(may_be_missing)
    }

    /// One copy of each version that has been built and has not ended, usable or not, ascending.
    fn built(&self) -> impl Iterator<Item = Arc<LoadedVersion>> {
        self.versions.values().filter_map(VersionEntry::built).cloned()
    }

    /// Versions that are neither ready nor ended on purpose. A version that finishes its requests and sequences while
    /// another one serves does not keep the server from being ready.
    fn missing(&self) -> impl Iterator<Item = (i64, ModelState)> {
        let serves = self.versions.values().any(|version| version.usable().is_some());
        self.versions.iter().filter_map(move |(&number, version)| {
            let is_settled = match version {
                VersionEntry::Unloading(_) => serves,
                VersionEntry::Loading | VersionEntry::Ready(_) | VersionEntry::Unavailable(_) => {
                    version.usable().is_some() || version.is_unloaded()
                }
            };
            (!is_settled).then(|| (number, version.state().0))
        })
    }
}

/// One version of the table.
#[derive(Debug, Clone)]
enum VersionEntry {
    Loading,
    Ready(Arc<LoadedVersion>),
    Unloading(Arc<LoadedVersion>),
    Unavailable(String),
}

impl VersionEntry {
    /// The version, if it is usable. A version whose backend has panicked is not ready any more, even before the
    /// repository task knows.
    fn usable(&self) -> Option<&Arc<LoadedVersion>> {
        match self {
            Self::Ready(loaded) if loaded.fault().is_none() => Some(loaded),
            Self::Ready(_) | Self::Loading | Self::Unloading(_) | Self::Unavailable(_) => None,
        }
    }

    /// As [`usable`](Self::usable), or a version that still takes requests of the sequences that it has.
    fn reachable(&self) -> Option<&Arc<LoadedVersion>> {
        match self {
            Self::Unloading(loaded) if loaded.model().succession().waits_for_sequences() => Some(loaded),
            other => other.usable(),
        }
    }

    /// The copy of the version, usable or not.
    fn built(&self) -> Option<&Arc<LoadedVersion>> {
        match self {
            Self::Ready(loaded) | Self::Unloading(loaded) => Some(loaded),
            Self::Loading | Self::Unavailable(_) => None,
        }
    }

    /// Whether the version was ended on purpose. Such a version does not keep the server from being ready.
    fn is_unloaded(&self) -> bool {
        matches!(self, Self::Unavailable(reason) if reason == UNLOADED)
    }

    fn state(&self) -> (ModelState, String) {
        match self {
            Self::Loading => (ModelState::Loading, String::new()),
            Self::Ready(loaded) => match loaded.fault() {
                None => (ModelState::Ready, String::new()),
                Some(fault) => (ModelState::Unavailable, fault.with_code()),
            },
            Self::Unloading(_) => (ModelState::Unloading, String::new()),
            Self::Unavailable(reason) => (ModelState::Unavailable, reason.clone()),
        }
    }
}

impl ModelTable {
    /// A table without models. `faults` counts the executors whose backends have panicked.
    pub(super) fn new(faults: Arc<AtomicUsize>) -> Self {
        Self { faults, ..Self::default() }
    }

    /// Shows what has become of a model. `None`: it is not known any more. `copies` has every copy that has been built and
    /// has not ended.
    pub(super) fn set(&mut self, key: &ModelKey, model: Option<&ManagedModel>, copies: &Copies) {
        self.show(key, model.map(|model| Versions::of(key, model, copies)).filter(Versions::is_known));
    }

    fn show(&mut self, key: &ModelKey, shown: Option<Versions>) {
        let mut named = self.models.get(&key.name).cloned().unwrap_or_default();
        let place = named.binary_search_by(|model| model.namespace.cmp(&key.namespace));
        match (place, shown) {
            (Ok(index), Some(shown)) => named[index] = shown,
            (Ok(index), None) => drop(named.remove(index)),
            (Err(index), Some(shown)) => named.insert(index, shown),
            (Err(_), None) => return,
        }
        if named.iter().any(Versions::decide_readiness) {
            self.deciding.insert_mut(key.name.clone());
        } else {
            self.deciding.remove_mut(&key.name);
        }
        if named.is_empty() {
            self.models.remove_mut(&key.name);
        } else {
            self.models.insert_mut(key.name.clone(), named);
        }
    }

    /// Shows which repositories can be read.
    pub(super) fn set_readable(&mut self, readable: Arc<BTreeMap<Name, bool>>) {
        self.readable = readable;
    }

    /// The only model of a name.
    fn only(&self, name: &str) -> Result<Option<&Versions>, Error> {
        let Some(models) = self.models.get(name) else { return Ok(None) };
        let has_namespaces = models.iter().any(|model| model.namespace.is_some());
        let meant: Vec<_> = models.iter().filter(|model| !has_namespaces || model.is_meant()).collect();
        match meant[..] {
            [] if has_namespaces => {
                Err(Error::not_found(format!("Identifier of model '{name}' is not found in global map")))
            }
            [] => Ok(None),
            [only] => Ok(Some(only)),
            ref several => Err(Error::invalid(format!(
                "There are {} identifiers of model '{name}' in global map, model namespace must be provided to resolve \
                 ambiguity.",
                several.len()
            ))),
        }
    }

    /// The requested version, or the largest one that is ready. Also a version that only takes requests of the sequences
    /// that it has.
    ///
    /// # Errors
    /// NOT_FOUND, or UNAVAILABLE for a version that exists but is not ready.
    pub(crate) fn model(&self, name: &str, version: Option<i64>) -> Result<Arc<LoadedVersion>, Error> {
        self.find(name, version, VersionEntry::reachable)
    }

    /// As [`model`](Self::model), but a version that takes all requests.
    pub(crate) fn serving(&self, name: &str, version: Option<i64>) -> Result<Arc<LoadedVersion>, Error> {
        self.find(name, version, VersionEntry::usable)
    }

    fn find(
        &self,
        name: &str,
        version: Option<i64>,
        fits: fn(&VersionEntry) -> Option<&Arc<LoadedVersion>>,
    ) -> Result<Arc<LoadedVersion>, Error> {
        let unknown = |what: &str| Error::not_found(format!("Request for unknown model: '{name}' {what}"));
        let is_known = |model: &&Versions| match &model.problem {
            None => true,
            // As Triton: a model with a valid configuration is known, whatever the state of its versions.
            Some(problem) => problem.cause == NoVersionCause::NoneSelected,
        };
        let model = self.only(name)?.filter(is_known).ok_or_else(|| unknown("is not found"))?;
        let Some(number) = version else {
            let largest = model.versions.values().rev().find_map(VersionEntry::usable);
            return largest.cloned().ok_or_else(|| unknown("has no available versions"));
        };
        let version =
            model.versions.get(&number).ok_or_else(|| unknown(&format!("version {number} is not found")))?;
        fits(version).cloned().ok_or_else(|| {
            Error::unavailable(format!(
                "Request for unknown model: '{name}' version {number} is not at ready state"
            ))
        })
    }

    /// The versions of a model that can be used, ascending.
    pub(crate) fn ready_versions(&self, name: &str) -> Vec<i64> {
        let models = self.models.get(name).into_iter().flatten();
        let versions = models.flat_map(|model| &model.versions);
        versions.filter(|(_, version)| version.usable().is_some()).map(|(number, _)| *number).collect()
    }

    /// Whether each directory is a model with versions, all of which can be used.
    pub(crate) fn all_loaded(&self) -> bool {
        self.models.values().flatten().all(Versions::all_usable)
    }

    /// What is neither ready nor unloaded, nor replaced by another version. A directory without a configuration file is
    /// not a model. Looks at all models only while a backend has panicked.
    pub(crate) fn not_ready(&self) -> Vec<NotReady> {
        if self.faults.load(Ordering::Acquire) > 0 {
            Self::not_ready_of(self.models.iter())
        } else {
            Self::not_ready_of(self.deciding())
        }
    }

    /// The models that readiness depends on, if no backend has panicked.
    fn deciding(&self) -> impl Iterator<Item = (&Name, &Vec<Versions>)> {
        self.deciding.iter().filter_map(|name| self.models.get_key_value(name))
    }

    fn not_ready_of<'t>(models: impl Iterator<Item = (&'t Name, &'t Vec<Versions>)>) -> Vec<NotReady> {
        let mut missing = Vec::new();
        for (name, model) in models.flat_map(|(name, models)| models.iter().map(move |model| (name, model))) {
            match &model.problem {
                Some(problem) if problem.cause == NoVersionCause::NoConfiguration => {}
                // As Triton: an ensemble whose members do not fit does not keep the server from being ready.
                None if model.awaits_members => {}
                Some(_) => {
                    let state = Some(ModelState::Unavailable);
                    missing.push(NotReady { name: name.clone(), version: None, state });
                }
                None => {
                    missing.extend(model.missing().map(|(number, state)| NotReady {
                        name: name.clone(),
                        version: Some(number),
                        state: Some(state),
                    }));
                }
            }
        }
        missing
    }

    /// Whether a version of the models of a name serves or ends, or is being loaded.
    pub(crate) fn is_in_use(&self, name: &str) -> bool {
        let models = self.models.get(name).into_iter().flatten();
        let mut versions = models.flat_map(|model| model.versions.values());
        versions.any(|version| version.state().0 != ModelState::Unavailable)
    }

    /// The names of the models.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.models.keys()
    }

    /// Versions that can be used and whose backends report readiness.
    pub(crate) fn telling_readiness(&self) -> Vec<Arc<LoadedVersion>> {
        let versions =
            self.deciding().flat_map(|(_, models)| models).flat_map(|model| model.versions.values());
        versions
            .filter_map(VersionEntry::usable)
            .filter(|loaded| loaded.work().reports_readiness())
            .cloned()
            .collect()
    }

    /// Versions that can be used, by name and number.
    pub(crate) fn ready(&self) -> Vec<Arc<LoadedVersion>> {
        let versions = self.models.values().flatten().flat_map(|model| model.versions.values());
        Self::sorted(versions.filter_map(VersionEntry::usable).cloned().collect())
    }

    /// One copy of each version that has been built and has not ended, usable or not, by name and number.
    pub(crate) fn built(&self) -> Vec<Arc<LoadedVersion>> {
        Self::sorted(self.models.values().flatten().flat_map(Versions::built).collect())
    }

    /// The usable versions of a model, ascending.
    pub(crate) fn usable_of(&self, name: &str) -> Vec<Arc<LoadedVersion>> {
        let versions = self.models.get(name).into_iter().flatten().flat_map(|model| model.versions.values());
        versions.filter_map(VersionEntry::usable).cloned().collect()
    }

    /// The number of accepted requests of all copies whose last response has not been sent.
    pub(crate) fn in_flight(&self) -> usize {
        self.accepting().map(|loaded| loaded.in_flight()).sum()
    }

    /// The same by model and version, for versions that have some.
    pub(crate) fn in_flight_by_version(&self) -> BTreeMap<(Name, i64), usize> {
        let mut requests = BTreeMap::new();
        for loaded in self.accepting() {
            let model = loaded.model();
            *requests.entry((model.name().clone(), model.version())).or_default() += loaded.in_flight();
        }
        requests.retain(|_, requests| *requests > 0);
        requests
    }

    /// The number of sequences of all copies that may still get requests.
    pub(crate) fn live_sequences(&self) -> usize {
        self.accepting().map(|loaded| loaded.live_sequences()).sum()
    }

    /// The copies that may have requests: those that serve, and those that end.
    pub(crate) fn accepting(&self) -> impl Iterator<Item = &Arc<LoadedVersion>> {
        let versions = self.models.values().flatten().flat_map(|model| model.versions.values());
        let ready = versions.filter_map(|version| match version {
            VersionEntry::Ready(loaded) => Some(loaded),
            VersionEntry::Loading | VersionEntry::Unloading(_) | VersionEntry::Unavailable(_) => None,
        });
        ready.chain(self.models.values().flatten().flat_map(|model| &model.retiring))
    }

    fn sorted(mut built: Vec<Arc<LoadedVersion>>) -> Vec<Arc<LoadedVersion>> {
        built.sort_by(|one, other| {
            let (one, other) = (one.model(), other.model());
            (one.name(), one.version()).cmp(&(other.name(), other.version()))
        });
        built
    }

    /// Which repositories can be read, if they are polled.
    pub(crate) fn readable(&self) -> &BTreeMap<Name, bool> {
        &self.readable
    }

    /// Whether the table has a model of the name.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.models.contains_key(name)
    }

    /// Whether the table has this model.
    pub(super) fn has(&self, key: &ModelKey) -> bool {
        self.models.get(&key.name).into_iter().flatten().any(|model| model.namespace == key.namespace)
    }

    /// The lines of the index. Those of versions that can be used, or finish their requests, have their copies and the
    /// number of the load.
    pub(crate) fn explained(&self) -> Vec<(IndexEntry, Option<ServingVersion>)> {
        let lines = self.index(false).into_iter().map(|line| {
            let models = self.models.get(&line.name).into_iter().flatten();
            let model = models.into_iter().find(|model| model.namespace == line.namespace);
            let copy = model.zip(line.version).and_then(|(model, number)| {
                let copy = model.versions.get(&number)?.built().filter(|copy| copy.fault().is_none())?;
                let generation = model.generations.get(&number).copied().unwrap_or_default();
                Some(ServingVersion { loaded: copy.clone(), generation })
            });
            (line, copy)
        });
        lines.collect()
    }

    /// One line for each version, or for each model without versions, by name, namespace and number.
    pub(crate) fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
        let mut models: Vec<_> = self.models.iter().collect();
        // Names are sorted and not lines, because these are larger.
        models.sort_unstable_by_key(|(name, _)| *name);
        let mut lines = Vec::with_capacity(models.len());
        for (name, model) in
            models.into_iter().flat_map(|(name, models)| models.iter().map(move |model| (name, model)))
        {
            let line = |version, state, reason| {
                let (name, namespace) = (name.clone(), model.namespace.clone());
                IndexEntry { name, namespace, version, state: Some(state), reason }
            };
            let problem = model.problem.iter().filter(|_| !ready_only);
            lines.extend(problem.map(|problem| line(None, ModelState::Unavailable, problem.reason.clone())));
            let versions =
                model.versions.iter().filter(|(_, version)| !ready_only || version.usable().is_some());
            lines.extend(versions.map(|(&number, version)| {
                let (state, reason) = version.state();
                line(Some(number), state, reason)
            }));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use config::Scheduling;

    use super::*;
    use crate::models::loaded_version::tests::gated;

    fn with_version(version: VersionEntry) -> Option<Versions> {
        Some(Versions { versions: BTreeMap::from([(1, version)]), ..Versions::default() })
    }

    #[test]
    fn readiness_looks_at_models_that_are_not_plainly_ready() {
        let faults = Arc::new(AtomicUsize::new(0));
        let mut table = ModelTable::new(faults.clone());
        let key = |name: &str| ModelKey { name: Name::new(name), namespace: None };
        let (loaded, _batches) = gated(Scheduling::Unbatched, &["i"]);
        for number in 0..1000 {
            table.show(&key(&format!("m{number}")), with_version(VersionEntry::Ready(loaded.clone())));
        }
        table.show(&key("unloaded"), with_version(VersionEntry::Unavailable(UNLOADED.to_owned())));
        assert_eq!((table.deciding().count(), table.not_ready()), (0, Vec::new()));
        table.show(&key("m7"), with_version(VersionEntry::Loading));
        let missing = NotReady { name: Name::new("m7"), version: Some(1), state: Some(ModelState::Loading) };
        assert_eq!((table.deciding().count(), table.not_ready()), (1, vec![missing.clone()]));
        // A fault may be that of any model.
        faults.store(1, Ordering::Release);
        assert_eq!(table.not_ready(), [missing]);
        table.show(&key("m7"), None);
        assert_eq!((table.deciding().count(), table.not_ready()), (0, Vec::new()));
    }
}
