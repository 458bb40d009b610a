//! All models of a server, and what is found among them without a walk over all: those of a name, those that await
//! members, those that have a member, and those that have changed.
use std::collections::{BTreeMap, BTreeSet};

use vocabulary::Name;

use crate::{keys::ModelKey, listing::ListingHistory, managed_model::ManagedModel};

/// The models, by name and namespace.
#[derive(Debug, Default)]
pub(crate) struct ManagedModels {
    models: BTreeMap<ModelKey, ManagedModel>,
    /// Models that may have changed since [`take_changed`](Self::take_changed).
    changed: BTreeSet<ModelKey>,
    /// Models that may have changed since `relations` was right.
    unrelated: BTreeSet<ModelKey>,
    relations: Relations,
}

/// How models depend on each other.
#[derive(Debug, Default)]
struct Relations {
    awaiting: BTreeSet<ModelKey>,
    holding: BTreeSet<ModelKey>,
    users: BTreeMap<Name, BTreeSet<ModelKey>>,
    /// The members of each ensemble in `users`.
    members: BTreeMap<ModelKey, BTreeSet<Name>>,
}

impl ManagedModels {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ModelKey, &ManagedModel)> {
        self.models.iter()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &ModelKey> {
        self.models.keys()
    }

    pub(crate) fn get(&self, key: &ModelKey) -> Option<&ManagedModel> {
        self.models.get(key)
    }

    /// The models of a name: one, or one for each namespace.
    pub(crate) fn named(&self, name: &Name) -> impl Iterator<Item = (&ModelKey, &ManagedModel)> {
        let first = ModelKey { name: name.clone(), namespace: None };
        self.models.range(first..).take_while(move |(key, _)| key.name == *name)
    }

    /// A model that is about to change.
    pub(crate) fn get_mut(&mut self, key: &ModelKey) -> Option<&mut ManagedModel> {
        if self.models.contains_key(key) {
            self.note(key);
        }
        self.models.get_mut(key)
    }

    /// A model that is about to change. It is new if it was not known.
    pub(crate) fn get_or_add(&mut self, key: &ModelKey) -> &mut ManagedModel {
        self.note(key);
        self.models.entry(key.clone()).or_default()
    }

    /// What listings have shown of a model. It is no part of what readers see.
    pub(crate) fn listing_mut(&mut self, key: &ModelKey) -> Option<&mut ListingHistory> {
        self.models.get_mut(key).map(|model| &mut model.listing)
    }

    pub(crate) fn remove(&mut self, key: &ModelKey) {
        self.models.remove(key);
        self.note(key);
    }

    /// A model changes, comes or goes.
    fn note(&mut self, key: &ModelKey) {
        self.changed.insert(key.clone());
        self.unrelated.insert(key.clone());
    }

    /// The models that may have changed since the last call, and those that have gone.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<ModelKey> {
        std::mem::take(&mut self.changed)
    }

    /// The models that await members.
    pub(crate) fn awaiting(&mut self) -> Vec<ModelKey> {
        self.related().awaiting.iter().cloned().collect()
    }

    /// The members that loads of ensembles hold.
    pub(crate) fn held(&mut self) -> BTreeSet<Name> {
        let holding: Vec<_> = self.related().holding.iter().cloned().collect();
        let loads = holding.iter().filter_map(|key| self.get(key)?.load.as_ref());
        loads.flat_map(|load| load.held.iter().cloned()).collect()
    }

    /// Whether another model needs the models of a name. See [`ManagedModel::needs`].
    pub(crate) fn are_needed(&mut self, name: &Name) -> bool {
        let users: Vec<_> = self.related().users.get(name).into_iter().flatten().cloned().collect();
        let mut others = users.iter().filter(|key| key.name != *name).filter_map(|key| self.get(key));
        others.any(|model| model.needs(name))
    }

    fn related(&mut self) -> &Relations {
        for key in std::mem::take(&mut self.unrelated) {
            self.relations.set(&key, self.models.get(&key));
        }
        &self.relations
    }
}

impl Relations {
    /// Records what a model has to do with others.
    fn set(&mut self, key: &ModelKey, model: Option<&ManagedModel>) {
        let holds = model.and_then(|model| model.load.as_ref()).is_some_and(|load| !load.held.is_empty());
        put(&mut self.awaiting, key, model.is_some_and(ManagedModel::awaits_members));
        put(&mut self.holding, key, holds);
        let members = model.map(|model| model.members() | &model.planned_members).unwrap_or_default();
        let before = match members.is_empty() {
            true => self.members.remove(key),
            false => self.members.insert(key.clone(), members.clone()),
        };
        let before = before.unwrap_or_default();
        for member in before.difference(&members) {
            if let Some(users) = self.users.get_mut(member) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(member);
                }
            }
        }
        for member in members.difference(&before) {
            self.users.entry(member.clone()).or_default().insert(key.clone());
        }
    }
}

/// Puts a key into a set, or takes it out.
fn put(keys: &mut BTreeSet<ModelKey>, key: &ModelKey, is_in: bool) {
    match is_in {
        true => drop(keys.insert(key.clone())),
        false => drop(keys.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        history_tests::Random,
        keys::Generation,
        managed_model::{LoadPhase, RunningLoad},
    };

    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn random_names(random: &mut Random) -> BTreeSet<Name> {
        NAMES.into_iter().filter(|_| random.one_in(3)).map(Name::new).collect()
    }

    fn load(held: BTreeSet<Name>) -> RunningLoad {
        let (place, files, faulty, blocked) = (None, None, Vec::new(), BTreeSet::new());
        let (generation, phase) = (Generation(0), LoadPhase::Planning);
        RunningLoad { generation, place, files, faulty, blocked, held, phase }
    }

    fn change(models: &mut ManagedModels, random: &mut Random) {
        let namespace = random.one_in(2).then(|| Name::new("/r"));
        let index = usize::try_from(random.below(NAMES.len() as u64)).unwrap();
        let key = ModelKey { name: Name::new(NAMES[index]), namespace };
        match random.below(5) {
            0 => models.remove(&key),
            1 => models.get_or_add(&key).awaits_members = random.one_in(2),
            2 => models.get_or_add(&key).planned_members = random_names(random),
            3 => models.get_or_add(&key).load = None,
            _ => models.get_or_add(&key).load = Some(load(random_names(random))),
        }
    }

    #[test]
    fn what_is_looked_up_is_what_a_walk_over_all_finds() {
        let (mut models, mut random) = (ManagedModels::default(), Random(7));
        for _ in 0..20_000 {
            change(&mut models, &mut random);
            if random.one_in(3) {
                continue;
            }
            let awaiting = models.iter().filter(|(_, model)| model.awaits_members());
            let awaiting: Vec<_> = awaiting.map(|(key, _)| key.clone()).collect();
            assert_eq!(models.awaiting(), awaiting);
            let loads = models.iter().filter_map(|(_, model)| model.load.as_ref());
            let held: BTreeSet<_> = loads.flat_map(|load| load.held.clone()).collect();
            assert_eq!(models.held(), held);
            for name in NAMES.map(Name::new) {
                let named = models.named(&name).map(|(key, _)| key);
                assert!(named.eq(models.keys().filter(|key| key.name == name)));
                let is_needed = models.iter().any(|(key, model)| key.name != name && model.needs(&name));
                assert_eq!(models.are_needed(&name), is_needed, "{name}");
            }
        }
    }

    #[test]
    fn one_change_among_many_models_is_one_change() {
        let mut models = ManagedModels::default();
        let keys: Vec<_> = (0..1_000).map(|index| ModelKey::new(&format!("m{index}"))).collect();
        keys.iter().for_each(|key| models.get_or_add(key).awaits_members = true);
        assert_eq!(models.take_changed().len(), keys.len());
        assert_eq!(models.awaiting().len(), keys.len());
        models.get_mut(&keys[500]).unwrap().awaits_members = false;
        models.listing_mut(&keys[1]).unwrap().unchanged();
        assert_eq!(models.unrelated.len(), 1);
        assert_eq!(models.take_changed(), [keys[500].clone()].into());
        assert_eq!(models.awaiting().len(), keys.len() - 1);
    }
}
