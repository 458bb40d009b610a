//! Random histories of ensembles: members come, go and change, in any order, with circles among them.
use std::collections::{BTreeMap, BTreeSet};

use vocabulary::Name;

use super::{
    ensemble_world::{CopyContent, NAMES, World, binds},
    *,
};

/// What must be true at rest.
impl World {
    /// Whether what serves is what the files say.
    fn is_as_files(&self, name: &Name) -> bool {
        let disk = &self.disks[name];
        let content = |(version, content): (&i64, &u64)| {
            let (interface, members) = (disk.interface, disk.members.clone());
            (*version, CopyContent { interface, members, content: *content })
        };
        let serving =
            self.serving(name).into_iter().map(|(version, copy)| (version, self.copies[&copy].clone()));
        serving.collect::<BTreeMap<_, _>>() == disk.versions.iter().map(content).collect()
    }

    /// Whether the files of a model can serve with the members that serve now.
    fn could_serve(&self, name: &Name) -> bool {
        let disk = &self.disks[name];
        let circle = self.reaches(disk.members.keys().cloned().collect(), name);
        disk.is_good()
            && !circle
            && !self.is_in_circle(name)
            && binds(&disk.members, |member| self.interface(member)).is_ok()
    }

    /// No ensemble awaits members that are there.
    fn check_awaiting(&mut self, seed: u64) {
        let awaiting = self.lifecycle.models().filter(|(_, model)| model.awaits_members());
        for name in awaiting.map(|(key, _)| key.name.clone()) {
            let is_seen = self.found.get(&name) == Some(&self.disks[&name].changes);
            assert!(
                !is_seen || !self.could_serve(&name),
                "seed {seed}: {name} awaits nothing {:?} {:#?}",
                self.disks[&name],
                self.log.iter().rev().take(40).collect::<Vec<_>>()
            );
        }
    }

    /// Whether the files of a model and of its members, and so on, can all serve together.
    fn is_good_with_members(&self, name: &Name, path: &mut Vec<Name>) -> bool {
        if path.contains(name) || !self.disks[name].is_good() {
            return false;
        }
        path.push(name.clone());
        let members = &self.disks[name].members;
        let is_good = members.iter().all(|(member, wanted)| {
            self.disks[member].interface == *wanted && self.is_good_with_members(member, path)
        });
        path.pop();
        is_good
    }

    /// Whether the files of a model and of others form a circle. What serves then depends on the order of loads.
    fn is_in_circle(&self, name: &Name) -> bool {
        let members = self.disks[name].members.keys();
        members.clone().any(|member| self.models_needed_by(member).contains(name))
    }

    fn models_needed_by(&self, name: &Name) -> BTreeSet<Name> {
        let mut needed = BTreeSet::from([name.clone()]);
        let mut open = vec![name.clone()];
        while let Some(name) = open.pop() {
            for member in self.disks[&name].members.keys() {
                if needed.insert(member.clone()) {
                    open.push(member.clone());
                }
            }
        }
        needed
    }

    /// One load while nothing else happens.
    fn check_load(&mut self, seed: u64) {
        let name = self.name();
        let is_good = self.is_good_with_members(&name, &mut Vec::new());
        self.load(&name);
        self.rest();
        let result = self.answers.pop().unwrap();
        if result.is_ok() {
            assert!(
                self.is_as_files(&name),
                "seed {seed}: {name} was loaded {:?} {:#?}",
                self.disks,
                self.log.iter().rev().take(15).collect::<Vec<_>>()
            );
            self.checked += 1;
        }
        if is_good {
            for needed in self.models_needed_by(&name) {
                assert!(self.is_as_files(&needed), "seed {seed}: {name} needs {needed}: {result:?}");
            }
            assert_eq!(result, Ok(()), "seed {seed}: {name}");
        }
    }

    /// One unload while nothing else happens.
    fn check_unload(&mut self, seed: u64) {
        let (name, dependents) = (self.name(), self.random.one_in(2));
        let model = |world: &Self, name: &Name| -> (bool, BTreeSet<Name>) {
            let model = world.lifecycle.models().find(|(key, _)| key.name == *name).map(|(_, model)| model);
            model.map(|it| (it.is_explicit, it.members() | &it.planned_members)).unwrap_or_default()
        };
        let before: BTreeMap<_, _> =
            NAMES.map(Name::new).map(|name| (name.clone(), (self.serves(&name), model(self, &name)))).into();
        let mut below = Vec::from_iter(before[&name].1.1.clone());
        let mut reached = BTreeSet::new();
        while let Some(member) = below.pop() {
            if reached.insert(member.clone()) {
                below.extend(before[&member].1.1.clone());
            }
        }
        self.unload(&name, dependents);
        let is_answered_at_once = self.commands.is_empty();
        assert!(is_answered_at_once, "nothing else happens");
        assert!(!self.serves(&name));
        self.rest();
        let above = |world: &Self, other: &Name| {
            let members = before[other].1.1.iter();
            members.clone().any(|member| !world.serves(member) && before[member].0)
        };
        for (other, (served, (is_explicit, _))) in before.iter().filter(|(other, _)| **other != name) {
            let serves = self.serves(other);
            let needed = |(key, it): (&ModelKey, &ManagedModel)| key.name != *other && it.needs(other);
            let is_needed = self.lifecycle.models().any(needed);
            if *served && !serves && !above(self, other) {
                assert!(
                    dependents && reached.contains(other) && !is_explicit && !is_needed,
                    "seed {seed} {other}"
                );
            }
            if dependents && before[&name].1.1.contains(other) && serves {
                assert!(*is_explicit || is_needed, "seed {seed}: {other} is left after {name}");
            }
        }
    }

    /// When files have been at rest for longer than all pauses: exactly what can serve does.
    fn check_settled(&mut self, seed: u64) {
        for _ in 0..NAMES.len() {
            self.pass(100);
            self.poll();
            self.rest();
        }
        for name in NAMES.map(Name::new) {
            if self.could_serve(&name) {
                assert!(
                    self.is_as_files(&name),
                    "seed {seed}: {name} {:#?} {:#?}",
                    self.disks,
                    self.log.iter().rev().take(15).collect::<Vec<_>>()
                );
                self.checked += 1;
            } else if !self.disks[&name].exists {
                assert!(!self.serves(&name), "seed {seed}: {name} is gone");
            } else {
                let disk = &self.disks[&name];
                let is_open = disk.config_is_bad || disk.versions.is_empty() || self.is_in_circle(&name);
                assert!(is_open || !self.is_as_files(&name), "seed {seed}: {name} {disk:?}");
            }
        }
    }

    fn random_command(&mut self) {
        let name = self.name();
        match self.random.below(20) {
            0 => self.command(LifecycleCommand::LoadAll),
            1..4 => self.unload(&name, false),
            4..7 => self.unload(&name, true),
            _ => self.load(&name),
        }
    }

    /// Nothing is left of any copy, load or command.
    fn end(mut self) {
        let actions = self.lifecycle.refuse_commands();
        self.take(actions);
        assert!(self.commands.is_empty(), "all commands are refused");
        if self.random.one_in(2) {
            for _ in 0..self.random.below(10) {
                self.perform();
            }
            let actions = self.lifecycle.abandon_loads(self.now);
            self.take(actions);
            // Threads that have begun to build copies or to read configurations are left behind. Other results come late.
            let is_left = |action: &LifecycleAction| {
                matches!(action, LifecycleAction::Plan { .. } | LifecycleAction::Load { .. })
            };
            self.open.retain(|action| !is_left(action));
            self.attached.retain(|generation| self.copies.keys().any(|copy| copy.generation == *generation));
        }
        let actions = self.lifecycle.stop();
        self.take(actions);
        self.rest();
        assert!(self.copies.is_empty(), "{:?}", self.copies);
        assert_eq!(self.attached, [].into());
    }
}

/// Operations of all histories of a test, and of one history.
const OPERATIONS: u64 = if cfg!(miri) { 2_000 } else { 100_000 };
const LENGTH: u64 = 1_000;

#[test]
fn commands_on_ensembles_end_and_lead_to_what_files_and_members_allow() {
    let mut checked = 0;
    for seed in 0..OPERATIONS / LENGTH {
        let mut world = World::new(seed, false);
        for step in 0..LENGTH {
            match world.random.below(10) {
                0..2 => world.change_disk(),
                2..4 if world.commands.len() < 6 => world.random_command(),
                _ => world.perform(),
            }
            if step % 50 == 49 {
                world.rest();
                world.check_awaiting(seed);
                match world.random.below(3) {
                    0 => world.check_unload(seed),
                    _ => world.check_load(seed),
                }
                world.check_awaiting(seed);
            }
        }
        checked += world.checked;
        for _ in 0..world.random.below(30) {
            world.random_command();
            world.perform();
        }
        world.end();
    }
    assert!(checked > OPERATIONS / 400, "{checked} loads are too few");
}

#[test]
fn listings_with_ensembles_lead_to_what_files_and_members_allow() {
    let mut checked = 0;
    for seed in 0..OPERATIONS / LENGTH {
        let mut world = World::new(seed, true);
        for step in 0..LENGTH {
            match world.random.below(10) {
                0 => world.change_disk(),
                1..3 => {
                    let secs = world.random.below(3);
                    world.pass(secs);
                    world.poll();
                }
                _ => world.perform(),
            }
            if step % 100 == 99 {
                world.rest();
                world.check_settled(seed);
                world.check_awaiting(seed);
            }
        }
        checked += world.checked;
        for _ in 0..world.random.below(30) {
            world.change_disk();
            world.pass(2);
            world.poll();
            world.perform();
        }
        world.end();
    }
    assert!(checked > OPERATIONS / 100, "{checked} models are too few");
}
