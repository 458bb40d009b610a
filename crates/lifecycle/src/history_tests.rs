//! Random histories: commands, listings, changes of files and results in any order, against what obviously must follow.
//!
//! A world has files, performs the actions in random order, and keeps a plain record of what serves. After each
//! operation on a name that no change of its files has crossed, the policy must serve exactly what the rules say: what
//! the files say after a good load, what served before after a failed one, nothing after an unload.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::*;

const NAMES: [&str; 3] = ["a", "b", "c"];
const SETTLE: Duration = Duration::from_secs(2);

/// A generator of random numbers that is the same everywhere (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A model on disk. A content that is a multiple of 5 cannot be loaded.
#[derive(Debug, Clone, Default, PartialEq)]
struct Disk {
    directories: usize,
    config_is_bad: bool,
    config: u8,
    shared: u64,
    versions: BTreeMap<i64, u64>,
    is_incomplete: bool,
    /// When the configuration, the shared file and each version were changed: no time comes twice.
    times: BTreeMap<i64, i64>,
}

const CONFIG: i64 = -1;
const SHARED: i64 = -2;

impl Disk {
    fn files(&self) -> Arc<ModelFiles> {
        let stamp = |path: String, item: i64| FileStamp {
            path: path.into(),
            byte_size: 1,
            changed_ns: [self.times.get(&item).copied().unwrap_or_default(), 0],
            inode: 0,
            tag: "".into(),
        };
        let (config, shared) = (stamp("config".into(), CONFIG), stamp("labels".into(), SHARED));
        let versions = self.versions.keys().map(|version| stamp(format!("{version}/m"), *version));
        let stamps = [config, shared].into_iter().chain(versions).collect();
        Arc::new(ModelFiles::new(stamps, "config", self.versions.keys().copied()))
    }

    fn is_good(&self) -> bool {
        self.directories == 1
            && !self.config_is_bad
            && !self.versions.is_empty()
            && self.versions.values().all(|content| content % 5 != 0)
    }
}

/// What a copy was built from.
type Content = (u64, u64, u8);

#[derive(Default)]
struct NameOnDisk {
    disk: Disk,
    /// Counts the changes of the disk, and its value when the running load looked.
    changes: u64,
    looked_at: u64,
    /// The disk when the listing was made that began the running load.
    listed: Disk,
    /// What served when the running load looked.
    before: BTreeMap<i64, Content>,
}

struct World {
    random: Random,
    lifecycle: Lifecycle,
    /// Commands have been refused.
    is_stopping: bool,
    names: BTreeMap<Name, NameOnDisk>,
    open: Vec<LifecycleAction>,
    /// Commands that have not been answered, with what they want.
    commands: BTreeMap<CommandId, Option<LifecycleCommand>>,
    next_command: u64,
    copies: BTreeMap<LoadedVersionId, Content>,
    faulty: BTreeSet<LoadedVersionId>,
    retiring: BTreeSet<LoadedVersionId>,
    /// Loads whose agents are attached, and whether they were told that the load is complete.
    attached: BTreeMap<Generation, bool>,
    /// Loads whose agents were told that no copy serves any more.
    unloaded: BTreeSet<Generation>,
    /// The configuration that each load has read.
    configs: BTreeMap<Generation, u8>,
    now: Timestamp,
    polls: bool,
    /// How often the files had changed while a model was loading, when its load looked at them again.
    changes_while_loading: BTreeMap<Generation, u32>,
    /// Answers that were compared with the files.
    checked: u64,
}

impl World {
    fn new(seed: u64, polls: bool) -> Self {
        let options = LifecycleOptions {
            polls,
            partial_models: false,
            settle: SETTLE,
            first_retry: Duration::from_secs(10),
            longest_retry: Duration::from_secs(60),
        };
        Self {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            lifecycle: Lifecycle::new(options),
            is_stopping: false,
            names: NAMES.iter().map(|name| (Name::new(name), NameOnDisk::default())).collect(),
            open: Vec::new(),
            commands: BTreeMap::new(),
            next_command: 0,
            copies: BTreeMap::new(),
            faulty: BTreeSet::new(),
            retiring: BTreeSet::new(),
            attached: BTreeMap::new(),
            unloaded: BTreeSet::new(),
            configs: BTreeMap::new(),
            now: Timestamp::from_nanos(1),
            polls,
            changes_while_loading: BTreeMap::new(),
            checked: 0,
        }
    }

    fn name(&mut self) -> Name {
        let index = usize::try_from(self.random.below(NAMES.len() as u64)).unwrap();
        Name::new(NAMES[index])
    }

    fn change_disk(&mut self) {
        let name = self.name();
        let kind = self.random.below(8);
        let (version, content) = (1 + i64::try_from(self.random.below(3)).unwrap(), self.random.below(40));
        let entry = self.names.get_mut(&name).unwrap();
        entry.changes += 1;
        let disk = &mut entry.disk;
        let item = match kind {
            1 | 2 => CONFIG,
            3 => SHARED,
            _ => version,
        };
        disk.times.insert(item, i64::try_from(entry.changes).unwrap());
        match kind {
            0 => disk.directories = usize::try_from(content % 3).unwrap(),
            1 => disk.config_is_bad = content % 4 == 0,
            2 => disk.config = (content % 4) as u8,
            3 => disk.shared = content,
            4 => drop(disk.versions.remove(&version)),
            5 if content % 8 == 0 => disk.is_incomplete = !disk.is_incomplete,
            _ => {
                disk.directories = 1;
                disk.versions.insert(version, content);
            }
        }
    }

    fn serving(&self, name: &Name) -> BTreeMap<i64, LoadedVersionId> {
        let model = self.lifecycle.models().find(|(key, _)| key.name == *name);
        let versions = model.into_iter().flat_map(|(_, model)| model.versions());
        let ready = versions.filter_map(|(version, status)| match status {
            VersionStatus::Ready(copy) => Some((version, copy)),
            _ => None,
        });
        ready.collect()
    }

    fn found(&mut self, name: &Name) -> FoundModel {
        let serving = self.serving(name);
        let is_faulty =
            |(version, copy): (&i64, &LoadedVersionId)| self.faulty.contains(copy).then_some(*version);
        let faulty = serving.iter().filter_map(is_faulty).collect();
        let entry = self.names.get_mut(name).unwrap();
        entry.looked_at = entry.changes;
        let disk = &entry.disk;
        let place = |number| {
            let (repository, directory) = (format!("/r{number}").into(), format!("/r{number}/{name}").into());
            Arc::new(ModelLocation { repository, directory })
        };
        FoundModel {
            places: (0..disk.directories).map(place).collect(),
            files: disk.files(),
            is_incomplete: disk.is_incomplete,
            faulty,
        }
    }

    fn listing(&mut self) -> ModelListing {
        let names: Vec<_> = self.names.keys().cloned().collect();
        let mut listing = ModelListing::default();
        for name in names {
            if self.names[&name].disk.directories > 0 {
                let found = self.found(&name);
                if self.load(&name).is_none() {
                    let entry = self.names.get_mut(&name).unwrap();
                    entry.listed = entry.disk.clone();
                }
                listing.models.insert(ModelKey { namespace: None, name }, found);
            }
        }
        listing
    }

    fn load(&self, name: &Name) -> Option<(Generation, u32)> {
        let (_, model) = self.lifecycle.models().find(|(key, _)| key.name == *name)?;
        Some((model.load.as_ref()?.generation, model.listing.changed_while_loading))
    }

    fn command(&mut self, command: LifecycleCommand) {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        self.commands.insert(id, Some(command.clone()));
        let actions = self.lifecycle.command(id, command, self.now);
        self.take(actions);
    }

    /// Takes new actions. Answers and calls of agents happen at once.
    fn take(&mut self, actions: Vec<LifecycleAction>) {
        for action in actions {
            match action {
                LifecycleAction::Answer { command, result } => self.answered(command, result),
                LifecycleAction::NotifyLoaded { generation } => {
                    assert_eq!(self.attached.insert(generation, true), Some(false), "{generation:?}");
                    self.switched(generation);
                }
                LifecycleAction::NotifyFailed { generation } => {
                    assert_eq!(self.attached.remove(&generation), Some(false), "{generation:?}");
                    assert!(self.copies.keys().all(|copy| copy.generation != generation));
                }
                LifecycleAction::End { generation } => {
                    assert!(self.unloaded.remove(&generation), "{generation:?} was not told of its unload");
                    assert_eq!(self.attached.remove(&generation), Some(true), "{generation:?}");
                    assert!(self.copies.keys().all(|copy| copy.generation != generation));
                }
                LifecycleAction::Retire { generation, ref versions, unloads } => {
                    assert!(!unloads || self.unloaded.insert(generation), "{generation:?} is told twice");
                    for &version in versions {
                        let copy = LoadedVersionId { generation, version };
                        assert!(self.copies.contains_key(&copy) && self.retiring.insert(copy), "{copy:?}");
                        self.open.push(LifecycleAction::Retire {
                            generation,
                            versions: vec![version],
                            unloads: false,
                        });
                    }
                }
                LifecycleAction::Log { .. } => {}
                action => self.open.push(action),
            }
        }
        self.check();
    }

    /// In control mode `poll`, copies serve only if their files were the same before and after the load.
    fn switched(&mut self, generation: Generation) {
        let changes = self.changes_while_loading.remove(&generation).unwrap_or_default();
        let serving = |name: &&Name| self.serving(name).values().any(|copy| copy.generation == generation);
        let Some(name) = self.names.keys().find(serving).filter(|_| self.polls && changes < 5) else {
            return;
        };
        let listed = &self.names[name].listed;
        let wanted = listed.versions.iter();
        let wanted: BTreeMap<_, _> =
            wanted.map(|(version, content)| (*version, (*content, listed.shared, listed.config))).collect();
        assert_eq!(self.contents(name), wanted, "{name} {listed:?}");
    }

    /// What is true after each step.
    fn check(&mut self) {
        for name in self.names.keys() {
            for (_, copy) in self.serving(name) {
                assert!(self.copies.contains_key(&copy) && !self.retiring.contains(&copy), "{copy:?} serves");
            }
        }
    }

    fn contents(&self, name: &Name) -> BTreeMap<i64, Content> {
        self.serving(name).into_iter().map(|(version, copy)| (version, self.copies[&copy])).collect()
    }

    fn answered(&mut self, id: CommandId, result: Result<(), Error>) {
        let command = self.commands.remove(&id).flatten().expect("a command is answered once");
        let (LifecycleCommand::Load { name, .. } | LifecycleCommand::Unload { name, .. }) = command.clone()
        else {
            return;
        };
        let touches = |command: &LifecycleCommand| match command {
            LifecycleCommand::LoadAll => true,
            LifecycleCommand::Load { name: other, .. } | LifecycleCommand::Unload { name: other, .. } => {
                *other == name
            }
        };
        if self.commands.values().flatten().any(touches) {
            // The next operation may have begun in the same step.
            return;
        }
        self.checked += 1;
        let now = self.contents(&name);
        let entry = self.names.get_mut(&name).unwrap();
        match (&command, result) {
            (LifecycleCommand::Unload { .. }, Ok(())) => assert!(now.is_empty()),
            (LifecycleCommand::Load { .. }, Ok(())) if entry.changes == entry.looked_at => {
                let disk = &entry.disk;
                assert!(disk.is_good(), "{disk:?}");
                let wanted = disk.versions.iter();
                let wanted: BTreeMap<_, _> = wanted
                    .map(|(version, content)| (*version, (*content, disk.shared, disk.config)))
                    .collect();
                assert_eq!(now, wanted);
            }
            (LifecycleCommand::Load { .. }, Err(_)) => assert_eq!(now, entry.before, "a failed load"),
            _ => {}
        }
    }

    /// Performs one open action, chosen at random.
    fn perform(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let chosen = usize::try_from(self.random.below(self.open.len() as u64)).unwrap();
        let (action, now) = (self.open.swap_remove(chosen), self.now);
        let actions = match action {
            LifecycleAction::Find { name } => {
                let found = self.found(&name);
                let before = self.contents(&name);
                self.names.get_mut(&name).unwrap().before = before;
                let models = match found.places.is_empty() {
                    true => Vec::new(),
                    false => vec![(ModelKey { namespace: None, name: name.clone() }, found)],
                };
                self.lifecycle.found(&name, Ok(models), now)
            }
            LifecycleAction::List { command } => {
                let listing = self.listing();
                self.lifecycle.listed(command, Ok(listing), now)
            }
            LifecycleAction::Plan { key, generation, .. } => {
                let disk = &self.names[&key.name].disk;
                let refused = |cause| {
                    let no_version = NoVersion { cause, reason: String::new() };
                    Err(PlanFailure { no_version, error: Error::invalid("bad") })
                };
                let result = if disk.config_is_bad {
                    refused(NoVersionCause::Refused)
                } else if disk.versions.is_empty() {
                    refused(NoVersionCause::NoneSelected)
                } else {
                    self.attached.insert(generation, false);
                    self.configs.insert(generation, disk.config);
                    let config = ConfigIdentity { model: vec![disk.config] };
                    Ok(PlannedModel {
                        versions: disk.versions.keys().copied().collect(),
                        config,
                        ..PlannedModel::default()
                    })
                };
                self.lifecycle.planned(generation, result, now)
            }
            LifecycleAction::Load { key, copy, base } => {
                if let Some(base) = base {
                    // A stop retires copies while others are built from them.
                    assert!(self.copies.contains_key(&base) || self.is_stopping, "{base:?}");
                }
                let disk = &self.names[&key.name].disk;
                let content = disk.versions.get(&copy.version).copied().unwrap_or_default();
                let result = if content % 5 == 0 { Err(Error::internal("bad")) } else { Ok(()) };
                if result.is_ok() {
                    self.copies.insert(copy, (content, disk.shared, self.configs[&copy.generation]));
                }
                self.lifecycle.loaded(copy, result, now)
            }
            LifecycleAction::Check { key, generation, .. } => {
                let files = self.names[&key.name].disk.files();
                self.changes_while_loading.extend(self.load(&key.name));
                self.lifecycle.checked(generation, Some(files), now)
            }
            LifecycleAction::Retire { generation, versions, .. } => {
                let copy = LoadedVersionId { generation, version: versions[0] };
                self.copies.remove(&copy).expect("a copy is retired once");
                self.retiring.remove(&copy);
                self.faulty.remove(&copy);
                self.lifecycle.retired(copy, now)
            }
            other => panic!("{other:?} is performed at once"),
        };
        self.take(actions);
    }

    fn perform_all(&mut self) {
        while !self.open.is_empty() {
            self.perform();
        }
    }

    fn random_command(&mut self) -> LifecycleCommand {
        let name = self.name();
        match self.random.below(20) {
            0 => LifecycleCommand::LoadAll,
            1..5 => LifecycleCommand::Unload { name, dependents: false },
            _ => LifecycleCommand::Load { name, origin: ModelOrigin::Repository },
        }
    }

    fn break_a_copy(&mut self) {
        let name = self.name();
        let serving: Vec<_> = self.serving(&name).into_values().collect();
        if let Some(copy) = serving.first() {
            self.faulty.insert(*copy);
        }
    }

    fn poll(&mut self) {
        let listing = self.listing();
        let (actions, _) = self.lifecycle.polled(listing, self.now);
        self.take(actions);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// The server stops without waiting for loads. What is performed after that are the ends of copies only.
    fn abandon(&mut self) {
        for _ in 0..self.random.below(20) {
            self.perform();
        }
        let actions = self.lifecycle.abandon_loads(self.now);
        self.take(actions);
        let is_end = |action: &LifecycleAction| matches!(action, LifecycleAction::Retire { .. });
        let (ends, late) = std::mem::take(&mut self.open).into_iter().partition(is_end);
        self.open = ends;
        for action in late {
            let now = self.now;
            let actions = match action {
                LifecycleAction::Find { name } => self.lifecycle.found(&name, Ok(Vec::new()), now),
                LifecycleAction::List { command } => {
                    self.lifecycle.listed(command, Ok(ModelListing::default()), now)
                }
                LifecycleAction::Plan { generation, .. } => {
                    let plan = PlannedModel { versions: vec![1], ..PlannedModel::default() };
                    self.lifecycle.planned(generation, Ok(plan), now)
                }
                LifecycleAction::Load { copy, .. } => self.lifecycle.loaded(copy, Ok(()), now),
                LifecycleAction::Check { generation, .. } => self.lifecycle.checked(generation, None, now),
                other => panic!("{other:?} is performed at once"),
            };
            assert_eq!(actions, [], "a late result");
        }
    }

    /// Nothing is left of any copy, load or command.
    fn end(mut self) {
        let actions = self.lifecycle.refuse_commands();
        self.is_stopping = true;
        self.commands.clear();
        assert!(actions.iter().all(|action| matches!(action, LifecycleAction::Answer { .. })), "{actions:?}");
        if self.random.one_in(2) {
            self.abandon();
        }
        let actions = self.lifecycle.stop();
        self.take(actions);
        self.perform_all();
        assert!(self.lifecycle.is_idle());
        assert!(self.copies.is_empty() && self.attached.is_empty() && self.commands.is_empty());
    }
}

/// Operations of all histories of a test, and of one history.
const OPERATIONS: u64 = if cfg!(miri) { 2_000 } else { 600_000 };
const LENGTH: u64 = 2_000;

#[test]
fn commands_lead_to_what_the_files_say_or_change_nothing() {
    for seed in 0..OPERATIONS / LENGTH {
        let mut world = World::new(seed, false);
        for _ in 0..LENGTH {
            match world.random.below(10) {
                0..2 => world.change_disk(),
                2..4 if world.commands.len() < 6 => {
                    let command = world.random_command();
                    world.command(command);
                }
                4 if world.random.one_in(4) => world.break_a_copy(),
                _ => world.perform(),
            }
        }
        world.perform_all();
        assert!(world.lifecycle.is_idle() && world.commands.is_empty(), "seed {seed}");
        assert!(world.checked > LENGTH / 40, "seed {seed} checks too little: {}", world.checked);
        for _ in 0..world.random.below(30) {
            let command = world.random_command();
            world.command(command);
            world.perform();
        }
        world.end();
    }
}

#[test]
fn listings_lead_to_what_settled_files_say() {
    for seed in 0..OPERATIONS / LENGTH {
        let mut world = World::new(seed, true);
        for step in 0..LENGTH {
            match world.random.below(10) {
                0 => world.change_disk(),
                1..3 => {
                    let passes = world.random.below(3);
                    world.pass(Duration::from_secs(passes));
                    world.poll();
                }
                3 if world.random.one_in(8) => world.break_a_copy(),
                _ => world.perform(),
            }
            if step % 200 == 199 {
                settled(&mut world, seed);
            }
        }
        for _ in 0..world.random.below(30) {
            world.change_disk();
            world.pass(SETTLE);
            world.poll();
            world.perform();
        }
        world.end();
    }
}

/// When files have been at rest for longer than all pauses, good models serve what they say, absent ones and those in
/// two repositories serve nothing, and broken ones serve what they served.
fn settled(world: &mut World, seed: u64) {
    world.perform_all();
    let before: BTreeMap<_, _> = NAMES.map(|name| (Name::new(name), world.contents(&Name::new(name)))).into();
    for _ in 0..3 {
        world.pass(Duration::from_secs(100));
        world.poll();
        world.perform_all();
    }
    for (name, before) in before {
        let disk = world.names[&name].disk.clone();
        let now = world.contents(&name);
        if disk.is_incomplete && disk.directories == 1 {
            assert_eq!(now, before, "seed {seed}: {name} is incomplete");
        } else if disk.is_good() {
            let wanted = disk.versions.iter();
            let wanted: BTreeMap<_, _> =
                wanted.map(|(version, content)| (*version, (*content, disk.shared, disk.config))).collect();
            assert_eq!(now, wanted, "seed {seed}: {name}");
        } else if disk.directories != 1 && !disk.is_incomplete {
            assert_eq!(now, BTreeMap::new(), "seed {seed}: {name} {disk:?}");
        } else if !disk.is_incomplete {
            assert_eq!(now, before, "seed {seed}: {name} is broken");
        }
    }
}
