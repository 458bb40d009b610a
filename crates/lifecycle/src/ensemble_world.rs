//! A world for histories of ensembles: models on disk, and what the engine does.
//!
//! It performs the actions in random order, and binds ensembles to members as the engine does: an ensemble binds if each
//! member serves and has the interface that the ensemble requires. After each step the world looks at all ensembles that
//! serve, and reports those that do not bind any more.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::{history_tests::Random, *};

pub(crate) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A model on disk. A content that is a multiple of 5 cannot be loaded.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Disk {
    pub(crate) exists: bool,
    pub(crate) config_is_bad: bool,
    pub(crate) interface: u8,
    /// The members with the interfaces that they must have.
    pub(crate) members: BTreeMap<Name, u8>,
    pub(crate) versions: BTreeMap<i64, u64>,
    /// Counts the changes of everything, of the configuration and of each version.
    pub(crate) changes: u64,
    pub(crate) config_changes: u64,
    pub(crate) version_changes: BTreeMap<i64, u64>,
}

impl Disk {
    fn files(&self) -> Arc<ModelFiles> {
        let stamp = |path: String, changes: u64| FileStamp {
            path: path.into(),
            byte_size: 1,
            changed_ns: [i64::try_from(changes).unwrap(), 0],
            inode: 0,
            tag: "".into(),
        };
        let version = |version: &i64| {
            let changes = self.version_changes.get(version).copied().unwrap_or_default();
            stamp(format!("{version}/m"), changes)
        };
        let mut stamps: Vec<_> = self.versions.keys().map(version).collect();
        stamps.push(stamp("config".into(), self.config_changes));
        Arc::new(ModelFiles::new(stamps, "config", self.versions.keys().copied()))
    }

    /// Whether the model can be loaded, but for its members.
    pub(crate) fn is_good(&self) -> bool {
        self.exists
            && !self.config_is_bad
            && !self.versions.is_empty()
            && self.versions.values().all(|content| content % 5 != 0)
    }
}

/// What a copy was built from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CopyContent {
    pub(crate) interface: u8,
    pub(crate) members: BTreeMap<Name, u8>,
    pub(crate) content: u64,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) disks: BTreeMap<Name, Disk>,
    pub(crate) open: Vec<LifecycleAction>,
    pub(crate) commands: BTreeSet<CommandId>,
    pub(crate) next_command: u64,
    pub(crate) answers: Vec<Result<(), Error>>,
    pub(crate) copies: BTreeMap<LoadedVersionId, CopyContent>,
    pub(crate) retiring: BTreeSet<LoadedVersionId>,
    /// Loads whose agents are attached.
    pub(crate) attached: BTreeSet<Generation>,
    /// The configuration that each load has read.
    pub(crate) plans: BTreeMap<Generation, Disk>,
    /// The changes of each name when its files were last found.
    pub(crate) found: BTreeMap<Name, u64>,
    /// What a reader shows who looks only at models that have changed.
    pub(crate) shown: BTreeMap<ModelKey, ShownModel>,
    pub(crate) log: Vec<String>,
    /// How often each name was planned.
    pub(crate) planned: BTreeMap<Name, u64>,
    pub(crate) now: Timestamp,
    /// How often the policy was compared with the files.
    pub(crate) checked: u64,
}

/// What readers see of a model.
#[derive(Debug, PartialEq)]
pub(crate) struct ShownModel {
    versions: Vec<(i64, VersionStatus)>,
    retiring: Vec<LoadedVersionId>,
    problem: Option<NoVersion>,
    awaits_members: bool,
}

impl ShownModel {
    fn of(model: &ManagedModel) -> Self {
        Self {
            versions: model.versions().collect(),
            retiring: model.retiring().collect(),
            problem: model.problem().cloned(),
            awaits_members: model.awaits_members(),
        }
    }
}

pub(crate) fn binds(
    members: &BTreeMap<Name, u8>,
    interface: impl Fn(&Name) -> Option<u8>,
) -> Result<(), Error> {
    for (member, wanted) in members {
        match interface(member) {
            None => {
                let text = format!("depends on '{member}' which has no loaded version");
                return Err(Error::invalid(text));
            }
            Some(interface) if interface != *wanted => {
                return Err(Error::invalid(format!("'{member}' has another interface")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl World {
    pub(crate) fn new(seed: u64, polls: bool) -> Self {
        let options = LifecycleOptions {
            polls,
            partial_models: false,
            settle: Duration::from_secs(2),
            first_retry: Duration::from_secs(10),
            longest_retry: Duration::from_secs(60),
        };
        Self {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            lifecycle: Lifecycle::new(options),
            disks: NAMES.iter().map(|name| (Name::new(name), Disk::default())).collect(),
            open: Vec::new(),
            commands: BTreeSet::new(),
            next_command: 0,
            answers: Vec::new(),
            copies: BTreeMap::new(),
            retiring: BTreeSet::new(),
            attached: BTreeSet::new(),
            plans: BTreeMap::new(),
            found: BTreeMap::new(),
            shown: BTreeMap::new(),
            log: Vec::new(),
            planned: BTreeMap::new(),
            now: Timestamp::from_nanos(1),
            checked: 0,
        }
    }

    pub(crate) fn name(&mut self) -> Name {
        let index = usize::try_from(self.random.below(NAMES.len() as u64)).unwrap();
        Name::new(NAMES[index])
    }

    /// Writes a configuration.
    pub(crate) fn write(&mut self, name: &str, members: &[(&str, u8)], interface: u8) {
        let disk = self.disks.get_mut(name).unwrap();
        (disk.changes, disk.config_changes) = (disk.changes + 1, disk.config_changes + 1);
        (disk.exists, disk.config_is_bad, disk.interface) = (true, false, interface);
        disk.members = members.iter().map(|(member, wanted)| (Name::new(member), *wanted)).collect();
        disk.versions.entry(1).or_insert(1);
    }

    pub(crate) fn write_version(&mut self, name: &str, version: i64, content: u64) {
        let disk = self.disks.get_mut(name).unwrap();
        disk.changes += 1;
        disk.exists = true;
        disk.versions.insert(version, content);
        disk.version_changes.insert(version, disk.changes);
    }

    pub(crate) fn delete(&mut self, name: &str) {
        let disk = self.disks.get_mut(name).unwrap();
        disk.changes += 1;
        disk.exists = false;
    }

    pub(crate) fn change_disk(&mut self) {
        let name = self.name();
        match self.random.below(10) {
            0 => self.delete(&name),
            1 => {
                self.write(&name, &[], 0);
                self.disks.get_mut(&name).unwrap().config_is_bad = true;
            }
            2 => {
                let disk = self.disks.get_mut(&name).unwrap();
                // No state of the files comes twice.
                (disk.changes, disk.config_changes) = (disk.changes + 1, disk.config_changes + 1);
                disk.versions.remove(&2);
            }
            3..5 => {
                let (version, content) =
                    (1 + i64::try_from(self.random.below(2)).unwrap(), self.random.below(50));
                self.write_version(&name, version, content);
            }
            _ => {
                let members = self.random_members(&name);
                let members: Vec<_> = members.iter().map(|(name, wanted)| (&**name, *wanted)).collect();
                let interface = u8::from(self.random.one_in(4));
                self.write(&name, &members, interface);
            }
        }
    }

    /// Mostly later names, so that circles are not the rule, with the interfaces that the files say.
    fn random_members(&mut self, name: &Name) -> BTreeMap<Name, u8> {
        let mut members = BTreeMap::new();
        for _ in 0..self.random.below(3) {
            let member = self.name();
            if member > *name || self.random.one_in(5) {
                let wanted = if self.random.one_in(5) { 1 } else { self.disks[&member].interface };
                members.insert(member, wanted);
            }
        }
        members
    }

    pub(crate) fn serving(&self, name: &str) -> BTreeMap<i64, LoadedVersionId> {
        let model = self.lifecycle.models().find(|(key, _)| *key.name == *name);
        let versions = model.into_iter().flat_map(|(_, model)| model.versions());
        let ready = versions.filter_map(|(version, status)| match status {
            VersionStatus::Ready(copy) => Some((version, copy)),
            _ => None,
        });
        ready.collect()
    }

    pub(crate) fn serves(&self, name: &str) -> bool {
        !self.serving(name).is_empty()
    }

    pub(crate) fn reason(&self, name: &str) -> Option<String> {
        let (_, model) = self.lifecycle.models().find(|(key, _)| *key.name == *name)?;
        model.versions().find_map(|(_, status)| match status {
            VersionStatus::Unavailable(reason) => Some(reason),
            _ => None,
        })
    }

    pub(crate) fn interface(&self, name: &Name) -> Option<u8> {
        let (_, copy) = self.serving(name).pop_last()?;
        Some(self.copies[&copy].interface)
    }

    fn found_model(&mut self, name: &Name) -> FoundModel {
        let disk = &self.disks[name];
        self.found.insert(name.clone(), disk.changes);
        let place = ModelLocation { repository: "/r".into(), directory: format!("/r/{name}").into() };
        FoundModel { places: vec![Arc::new(place)], files: disk.files(), ..FoundModel::default() }
    }

    fn listing(&mut self) -> ModelListing {
        let mut listing = ModelListing::default();
        for name in NAMES.map(Name::new) {
            if self.disks[&name].exists {
                let found = self.found_model(&name);
                listing.models.insert(ModelKey { namespace: None, name }, found);
            }
        }
        listing
    }

    pub(crate) fn command(&mut self, command: LifecycleCommand) {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        self.commands.insert(id);
        let actions = self.lifecycle.command(id, command, self.now);
        self.take(actions);
    }

    pub(crate) fn load(&mut self, name: &str) {
        let (name, origin) = (Name::new(name), ModelOrigin::Repository);
        self.command(LifecycleCommand::Load { name, origin });
    }

    pub(crate) fn unload(&mut self, name: &str, dependents: bool) {
        self.command(LifecycleCommand::Unload { name: Name::new(name), dependents });
    }

    /// Takes new actions. Answers and calls of agents happen at once. Then ensembles are bound again.
    /// A reader who looks only at models that have changed sees what is there.
    fn show_changes(&mut self) {
        for key in self.lifecycle.take_changed() {
            match self.lifecycle.model(&key) {
                Some(model) => drop(self.shown.insert(key, ShownModel::of(model))),
                None => drop(self.shown.remove(&key)),
            }
        }
        let all = self.lifecycle.models().map(|(key, model)| (key.clone(), ShownModel::of(model)));
        assert_eq!(self.shown, all.collect());
    }

    pub(crate) fn take(&mut self, actions: Vec<LifecycleAction>) {
        for action in actions {
            match action {
                LifecycleAction::Answer { command, result } => {
                    assert!(self.commands.remove(&command), "a command is answered once");
                    self.answers.push(result);
                }
                LifecycleAction::NotifyLoaded { generation } => assert!(self.attached.contains(&generation)),
                LifecycleAction::NotifyFailed { generation } | LifecycleAction::End { generation } => {
                    assert!(self.attached.remove(&generation), "{generation:?}");
                    assert!(self.copies.keys().all(|copy| copy.generation != generation));
                }
                LifecycleAction::Retire { generation, versions, .. } => {
                    for version in versions {
                        let copy = LoadedVersionId { generation, version };
                        assert!(self.copies.contains_key(&copy) && self.retiring.insert(copy), "{copy:?}");
                        let versions = vec![version];
                        self.open.push(LifecycleAction::Retire { generation, versions, unloads: false });
                    }
                }
                LifecycleAction::Log { text, .. } => self.log.push(text),
                action => self.open.push(action),
            }
        }
        self.show_changes();
        let unbound = self.unbound();
        if unbound.is_empty() {
            return self.check();
        }
        let actions = self.lifecycle.unbound(unbound, self.now);
        self.take(actions);
    }

    /// Ensembles that do not bind any more, in a random order.
    fn unbound(&mut self) -> Vec<(LoadedVersionId, Error)> {
        let mut unbound: BTreeMap<LoadedVersionId, Error> = BTreeMap::new();
        loop {
            let before = unbound.len();
            for copy in NAMES.iter().flat_map(|name| self.serving(name).into_values()) {
                let interface = |name: &Name| {
                    let (_, copy) =
                        self.serving(name).pop_last().filter(|(_, copy)| !unbound.contains_key(copy))?;
                    Some(self.copies[&copy].interface)
                };
                if let Err(error) = binds(&self.copies[&copy].members, interface)
                    && !unbound.contains_key(&copy)
                {
                    unbound.insert(copy, error);
                }
            }
            if unbound.len() == before {
                break;
            }
        }
        let mut unbound: Vec<_> = unbound.into_iter().collect();
        if self.random.one_in(2) {
            unbound.reverse();
        }
        unbound
    }

    /// What is true after each step: copies that serve are there, and ensembles that serve form no circle.
    fn check(&self) {
        for name in NAMES {
            for (_, copy) in self.serving(name) {
                assert!(self.copies.contains_key(&copy) && !self.retiring.contains(&copy), "{copy:?} serves");
                let members: Vec<_> = self.copies[&copy].members.keys().cloned().collect();
                assert!(!self.reaches(members, name), "a circle over {name}");
            }
        }
    }

    /// Whether one of these models is the other one, or depends on it.
    pub(crate) fn reaches(&self, mut open: Vec<Name>, wanted: &str) -> bool {
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            if *name == *wanted {
                return true;
            }
            if seen.insert(name.clone()) {
                let copies = self.serving(&name).into_values();
                open.extend(copies.flat_map(|copy| self.copies[&copy].members.keys().cloned()));
            }
        }
        false
    }

    /// Performs one open action, chosen at random.
    pub(crate) fn perform(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let chosen = usize::try_from(self.random.below(self.open.len() as u64)).unwrap();
        let (action, now) = (self.open.swap_remove(chosen), self.now);
        let actions = match action {
            LifecycleAction::Find { name } => {
                let found = self.found_model(&name);
                let models = self.disks[&name].exists.then(|| (ModelKey::new(&name), found));
                self.lifecycle.found(&name, Ok(models.into_iter().collect()), now)
            }
            LifecycleAction::List { command } => {
                let listing = self.listing();
                self.lifecycle.listed(command, Ok(listing), now)
            }
            LifecycleAction::Plan { key, generation, .. } => {
                let disk = self.disks[&key.name].clone();
                *self.planned.entry(key.name.clone()).or_default() += 1;
                let result = if disk.config_is_bad || disk.versions.is_empty() || !disk.exists {
                    let no_version = NoVersion { cause: NoVersionCause::Refused, reason: "bad".into() };
                    Err(PlanFailure { no_version, error: Error::invalid("bad") })
                } else {
                    self.attached.insert(generation);
                    self.plans.insert(generation, disk.clone());
                    let model = format!("{} {:?}", disk.interface, disk.members).into_bytes();
                    let members = disk.members.keys().cloned().collect();
                    let versions = disk.versions.keys().copied().collect();
                    Ok(PlannedModel { versions, config: ConfigIdentity { model }, members })
                };
                self.lifecycle.planned(generation, result, now)
            }
            LifecycleAction::Load { key, copy, .. } => {
                let content = self.disks[&key.name].versions.get(&copy.version).copied().unwrap_or_default();
                let Disk { interface, members, .. } = self.plans[&copy.generation].clone();
                let mut result = binds(&members, |name| self.interface(name));
                if content % 5 == 0 {
                    result = Err(Error::internal("bad"));
                }
                if result.is_ok() {
                    self.copies.insert(copy, CopyContent { interface, members, content });
                }
                self.lifecycle.loaded(copy, result, now)
            }
            LifecycleAction::Check { key, generation, .. } => {
                let files = self.disks[&key.name].files();
                self.lifecycle.checked(generation, Some(files), now)
            }
            LifecycleAction::Retire { generation, versions, .. } => {
                let copy = LoadedVersionId { generation, version: versions[0] };
                self.copies.remove(&copy).expect("a copy is retired once");
                self.retiring.remove(&copy);
                self.lifecycle.retired(copy, now)
            }
            other => panic!("{other:?} is performed at once"),
        };
        self.take(actions);
    }

    /// Performs everything. Nothing may hang then.
    pub(crate) fn rest(&mut self) {
        let mut performed = 0;
        while !self.open.is_empty() {
            self.perform();
            performed += 1;
            assert!(performed < 10_000, "it never rests");
        }
        assert!(self.lifecycle.is_idle() && self.commands.is_empty(), "operations hang");
    }

    pub(crate) fn poll(&mut self) {
        let listing = self.listing();
        let (actions, _) = self.lifecycle.polled(listing, self.now);
        self.take(actions);
    }

    pub(crate) fn pass(&mut self, secs: u64) {
        self.now = self.now + Duration::from_secs(secs);
    }
}
