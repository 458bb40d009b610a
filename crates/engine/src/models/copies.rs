//! The copies of versions that have been built and have not ended, and which of them are ensembles of which members.
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use lifecycle::LoadedVersionId;
use vocabulary::Name;

use super::loaded_version::LoadedVersion;

/// All copies that have been built and have not ended.
#[derive(Default)]
pub(super) struct Copies {
    by_id: HashMap<LoadedVersionId, Arc<LoadedVersion>>,
    /// The copies of ensembles, by the names of their members.
    by_member: HashMap<Name, BTreeSet<LoadedVersionId>>,
}

impl Copies {
    pub(super) fn get(&self, id: LoadedVersionId) -> Option<&Arc<LoadedVersion>> {
        self.by_id.get(&id)
    }

    /// The copies of ensembles that have a step of this name, in the order of their loads.
    pub(super) fn of_ensembles_with(&self, member: &str) -> impl Iterator<Item = LoadedVersionId> {
        self.by_member.get(member).into_iter().flatten().copied()
    }

    /// Keeps a copy. An ensemble that is bound anew takes the place of what it was; its members have the same names.
    pub(super) fn insert(&mut self, id: LoadedVersionId, copy: Arc<LoadedVersion>) {
        for member in members(&copy) {
            self.by_member.entry(member).or_default().insert(id);
        }
        self.by_id.insert(id, copy);
    }

    pub(super) fn remove(&mut self, id: LoadedVersionId) {
        let Some(copy) = self.by_id.remove(&id) else { return };
        for member in members(&copy) {
            if let Some(users) = self.by_member.get_mut(&member) {
                users.remove(&id);
                if users.is_empty() {
                    self.by_member.remove(&member);
                }
            }
        }
    }
}

/// The names of the members; none of a copy that is no ensemble.
fn members(copy: &LoadedVersion) -> BTreeSet<Name> {
    copy.work().ensemble().map(|version| version.ensemble().scheduling().members()).unwrap_or_default()
}
