//! Ensembles step by step: which operations come first, what is told, and what comes back by itself.
use vocabulary::{Error, Name};

use super::{
    ensemble_world::World,
    script_tests::{OPTIONS, POLLS, Script, model},
    *,
};

impl Script {
    pub(crate) fn planned_with(&mut self, generation: u64, members: &[&str]) -> String {
        let members = members.iter().map(|member| Name::new(member)).collect();
        let plan = PlannedModel { versions: vec![1], members, ..PlannedModel::default() };
        let actions = self.lifecycle.planned(Generation(generation), Ok(plan), self.now());
        self.show(actions)
    }

    fn unbound(&mut self, generation: u64, error: Error) -> String {
        let copy = LoadedVersionId { generation: Generation(generation), version: 1 };
        let actions = self.lifecycle.unbound(vec![(copy, error)], self.now());
        self.show(actions)
    }

    fn unload_with_members(&mut self, id: u64, name: &str) -> String {
        let command = LifecycleCommand::Unload { name: Name::new(name), dependents: true };
        let actions = self.lifecycle.command(CommandId(id), command, self.now());
        self.show(actions)
    }

    pub(crate) fn found_one(&mut self, name: &str, byte_size: u64) -> String {
        self.found(name, Some(model(&[(1, byte_size)])))
    }

    /// An ensemble `e` of `m`, loaded by a command: `e` is generation 0, `m` is generation 1.
    pub(crate) fn ensemble() -> Self {
        let mut script = Self::new(OPTIONS);
        script.load(0, "e");
        script.found_one("e", 1);
        assert_eq!(script.planned_with(0, &["m"]), "find m");
        assert_eq!(script.found_one("m", 1), "plan m 1");
        assert_eq!(script.planned(1, &[1]), "load m 1:1");
        assert_eq!(script.loaded(1, 1, Ok(())), "complete 1, load e 0:1");
        assert_eq!(script.loaded(0, 1, Ok(())), "complete 0, ok");
        script
    }

    fn awaits_members(&self, name: &str) -> bool {
        let models: Vec<_> = self.lifecycle.models().filter(|(key, _)| *key.name == *name).collect();
        models.iter().any(|(_, model)| model.awaits_members())
    }
}

fn unfit() -> Error {
    Error::invalid("in ensemble e, ensemble tensor t: inconsistent data type")
}

#[test]
fn a_command_loads_members_before_their_ensemble() {
    let script = Script::ensemble();
    let lines: Vec<_> = script.log.iter().filter(|line| line.starts_with("loading")).collect();
    assert_eq!(lines, ["loading: m:1", "loading: e:1"]);
    let (_, model) = script.lifecycle.models().next().unwrap();
    assert_eq!(model.members(), &[Name::new("m")].into());
}

#[test]
fn a_member_that_is_up_to_date_is_not_loaded_again() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "m");
    script.found_one("m", 1);
    script.planned(0, &[1]);
    script.loaded(0, 1, Ok(()));
    script.load(1, "e");
    script.found_one("e", 1);
    assert_eq!(script.planned_with(1, &["m"]), "find m");
    assert_eq!(script.found_one("m", 1), "load e 1:1");
}

#[test]
fn an_ensemble_that_has_not_changed_is_loaded_again_if_a_command_finds_changed_members() {
    let mut script = Script::ensemble();
    script.load(1, "e");
    assert_eq!(script.found_one("e", 1), "find m");
    assert_eq!(script.found_one("m", 1), "ok", "nothing has changed");
    script.load(2, "e");
    assert_eq!(script.found_one("e", 1), "find m");
    assert_eq!(script.found_one("m", 2), "plan m 4");
    script.planned(4, &[1]);
    assert_eq!(script.loaded(4, 1, Ok(())), "complete 4, retire 1:[1] unloads, plan e 3");
    assert_eq!(script.planned_with(3, &["m"]), "load e 3:1", "the member is not loaded twice");
    assert_eq!(script.loaded(3, 1, Ok(())), "complete 3, retire 0:[1] unloads, ok");
}

#[test]
fn a_failed_or_missing_member_leaves_the_verdict_to_the_copies_of_the_ensemble() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "e");
    script.found_one("e", 1);
    assert_eq!(script.planned_with(0, &["gone", "m"]), "find gone, find m");
    assert_eq!(script.found("gone", None), "");
    script.found_one("m", 1);
    script.planned(1, &[1]);
    assert_eq!(script.loaded(1, 1, Err(Error::internal("no"))), "failed 1, load e 0:1");
    let error = Error::invalid("ensemble 'e' depends on 'gone' which has no loaded version.");
    assert_eq!(
        script.loaded(0, 1, Err(error)),
        "failed 0, error: Invalid argument: load failed for model 'e': ensemble 'e' depends on 'gone' which has no \
         loaded version.\n"
    );
    assert!(script.awaits_members("e") && !script.awaits_members("m"));
    script.load(1, "gone");
    script.found_one("gone", 1);
    script.planned(2, &[1]);
    assert_eq!(script.loaded(2, 1, Ok(())), "complete 2, ok, find e", "the ensemble is loaded again");
    assert_eq!(script.found_one("e", 1), "plan e 3");
    assert_eq!(script.planned_with(3, &["gone", "m"]), "load e 3:1", "no member is loaded");
    assert_eq!(script.loaded(3, 1, Ok(())), "complete 3");
    assert!(!script.awaits_members("e"));
}

#[test]
fn a_listing_loads_no_members_but_waits_for_their_operations() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "m");
    script.found_one("m", 1);
    let actions = script.lifecycle.command(CommandId(1), LifecycleCommand::LoadAll, script.now());
    assert_eq!(script.show(actions), "list");
    let models = [(ModelKey::new("e"), model(&[(1, 1)]))].into();
    let listing = ModelListing { models, ..ModelListing::default() };
    let actions = script.lifecycle.listed(CommandId(1), Ok(listing), script.now());
    assert_eq!(script.show(actions), "plan e 1");
    assert_eq!(script.planned_with(1, &["idle", "m"]), "");
    script.planned(0, &[1]);
    assert_eq!(script.loaded(0, 1, Ok(())), "complete 0, ok, load e 1:1");
}

#[test]
fn an_ensemble_whose_member_was_unloaded_is_unloaded_and_comes_back_with_it() {
    let mut script = Script::ensemble();
    assert_eq!(script.unload(1, "m"), "retire 1:[1] unloads, ok");
    let error = Error::invalid("ensemble 'e' depends on 'm' which has no loaded version.");
    assert_eq!(script.unbound(0, error.clone()), "retire 0:[1] unloads");
    assert_eq!(script.unbound(0, error), "", "once");
    assert_eq!(script.retired(0, 1), "end 0");
    assert_eq!(script.states("e"), [(1, "unloaded".into())]);
    assert!(script.awaits_members("e"));
    script.load(2, "m");
    script.found_one("m", 1);
    script.planned(2, &[1]);
    assert_eq!(script.loaded(2, 1, Ok(())), "complete 2, ok, find e");
    assert_eq!(script.found_one("e", 1), "plan e 3", "what served is forgotten");
    script.planned_with(3, &["m"]);
    assert_eq!(script.loaded(3, 1, Ok(())), "complete 3");
    assert_eq!(script.states("e"), [(1, "ready 3".into())]);
}

#[test]
fn an_ensemble_whose_member_does_not_fit_any_more_has_the_reason_until_one_fits() {
    let mut script = Script::ensemble();
    let reload = |script: &mut Script, byte_size: u64, generation: u64| {
        script.load(10 + byte_size, "m");
        script.found_one("m", byte_size);
        script.planned(generation, &[1]);
        script.loaded(generation, 1, Ok(()))
    };
    assert_eq!(reload(&mut script, 2, 2), "complete 2, retire 1:[1] unloads, ok");
    assert_eq!(script.unbound(0, unfit()), "retire 0:[1] unloads");
    script.retired(0, 1);
    assert_eq!(script.states("e"), [(1, unfit().with_code())]);
    let told = |script: &Script| script.log.iter().filter(|line| line.contains("inconsistent")).count();
    assert_eq!(told(&script), 1);
    for (byte_size, generation) in [(3, 3), (4, 5), (5, 7)] {
        let shown = reload(&mut script, byte_size, generation);
        assert!(shown.ends_with("find e"), "{shown}");
        script.found_one("e", 1);
        script.planned_with(generation + 1, &["m"]);
        script.loaded(generation + 1, 1, Err(unfit()));
    }
    assert_eq!(told(&script), 2, "a failing retry is told once");
    reload(&mut script, 6, 9);
    script.found_one("e", 1);
    script.planned_with(10, &["m"]);
    assert_eq!(script.loaded(10, 1, Ok(())), "complete 10");
    assert_eq!(script.states("e"), [(1, "ready 10".into())]);
}

/// The member fits again before the load of the ensemble is told that it does not.
#[test]
fn a_member_that_changes_while_the_ensemble_is_built_is_not_missed() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "e");
    script.found_one("e", 1);
    script.planned_with(0, &["m"]);
    assert_eq!(script.found("m", None), "load e 0:1");
    script.load(1, "m");
    script.found_one("m", 1);
    script.planned(1, &[1]);
    assert_eq!(script.loaded(1, 1, Ok(())), "complete 1, ok");
    assert!(script.loaded(0, 1, Err(unfit())).ends_with("\n, find e"));
}

#[test]
fn an_unload_ends_the_waiting_for_members() {
    let mut script = Script::ensemble();
    script.unload(1, "m");
    script.unbound(0, unfit());
    script.retired(0, 1);
    assert_eq!(script.unload(2, "e"), "ok");
    assert!(!script.awaits_members("e"));
    script.load(3, "m");
    script.found_one("m", 1);
    script.planned(2, &[1]);
    assert_eq!(script.loaded(2, 1, Ok(())), "complete 2, ok");
}

#[test]
fn an_unload_of_an_ensemble_waits_for_its_load_and_the_members_in_it() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "e");
    script.found_one("e", 1);
    script.planned_with(0, &["m"]);
    assert_eq!(script.unload(1, "e"), "");
    assert_eq!(script.found("m", None), "load e 0:1");
    assert_eq!(script.loaded(0, 1, Ok(())), "complete 0, ok, retire 0:[1] unloads, ok");
}

#[test]
fn an_unload_with_members_is_answered_when_the_last_member_is_unloaded() {
    let mut script = Script::ensemble();
    script.load_from(1, "m", ModelOrigin::GivenConfig);
    assert_eq!(script.unload_with_members(2, "e"), "retire 0:[1] unloads");
    // The load by its own name fails, so the member is there for the ensemble only.
    assert!(script.found("m", None).ends_with("retire 1:[1] unloads, ok"));
}

#[test]
fn a_full_queue_of_a_member_counts_as_ended() {
    let mut script = Script::new(OPTIONS);
    for id in 0..=1_000 {
        script.load(id, "m");
    }
    script.load(2_000, "e");
    script.found_one("e", 1);
    assert_eq!(script.planned_with(0, &["m"]), "load e 0:1");
}

#[test]
fn an_ensemble_that_is_given_up_stays_so() {
    for abandons in [false, true] {
        let mut script = Script::new(OPTIONS);
        script.load(0, "e");
        script.found_one("e", 1);
        script.planned_with(0, &["f", "m"]);
        script.found_one("f", 1);
        script.planned_with(1, &["m"]);
        script.found_one("m", 1);
        let actions = script.lifecycle.refuse_commands();
        assert_eq!(script.show(actions), "error: Unavailable: Server exiting, failed 0, failed 1");
        if abandons {
            let actions = script.lifecycle.abandon_loads(script.now());
            assert_eq!(script.show(actions), "");
            assert!(script.lifecycle.is_idle());
        }
        assert_eq!(script.planned(2, &[1]), if abandons { "" } else { "failed 2" });
        assert!(script.lifecycle.is_idle());
    }
}

#[test]
fn a_load_that_stops_before_its_members_are_known_waits_for_nobody() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "e");
    script.found_one("e", 1);
    script.lifecycle.refuse_commands();
    assert_eq!(script.planned_with(0, &["m"]), "failed 0");
    assert!(script.lifecycle.is_idle());
}

#[test]
fn a_retry_of_changed_files_is_left_to_the_listings() {
    let mut script = Script::new(POLLS);
    let listing = |size: u64, has_member: bool| {
        let names = [("e", true), ("m", has_member)].into_iter().filter(|(_, is_there)| *is_there);
        let models = names.map(|(name, _)| (ModelKey::new(name), model(&[(1, size)]))).collect();
        ModelListing { models, ..ModelListing::default() }
    };
    script.polled(0, listing(1, false));
    assert_eq!(script.polled(2, listing(1, false)).0, "plan e 0");
    assert_eq!(script.planned_with(0, &["m"]), "load e 0:1");
    assert_eq!(script.loaded(0, 1, Err(unfit())), "check e");
    let checked = |script: &mut Script, generation, size| {
        let files = model(&[(1, size)]).files;
        let actions = script.lifecycle.checked(Generation(generation), Some(files), script.now());
        script.show(actions)
    };
    assert_eq!(checked(&mut script, 0, 1), "failed 0");
    script.polled(3, listing(1, true));
    assert_eq!(script.polled(5, listing(1, true)).0, "plan m 1", "the ensemble waits for its pause");
    script.planned(1, &[1]);
    script.loaded(1, 1, Ok(()));
    assert_eq!(checked(&mut script, 1, 1), "complete 1, find e", "but not if the member has come");
    assert_eq!(script.found_one("e", 2), "", "these files have not settled");
    assert!(script.awaits_members("e"));
}

fn circle(length: usize) -> (World, &'static [&'static str]) {
    let names = &["a", "b", "c"][..length];
    let mut world = World::new(1, false);
    for (index, name) in names.iter().enumerate() {
        world.write(name, &[(names[(index + 1) % length], 0)], 0);
    }
    (world, names)
}

#[test]
fn circles_fail_from_each_end_and_all_at_once() {
    for length in 1..=3 {
        for start in 0..=length {
            let (mut world, names) = circle(length);
            match names.get(start) {
                Some(name) => world.load(name),
                None => world.command(LifecycleCommand::LoadAll),
            }
            world.rest();
            assert!(names.iter().all(|name| !world.serves(name)));
            let is_circle = |line: &&String| line.contains("circular dependency between ensembles: ");
            let lines: Vec<_> = world.log.iter().filter(is_circle).cloned().collect();
            assert_eq!(lines.len(), 1, "{lines:?}");
            let path = lines[0].rsplit_once(": ").unwrap().1;
            let path: Vec<_> = path.split(" -> ").collect();
            let &[first, "...", before, last] = &path[..] else { panic!("{path:?}") };
            assert_eq!(first, last);
            let of = |name| names.iter().position(|known| *known == name).unwrap();
            assert_eq!((of(before) + 1) % length, of(first), "a model, and one that needs it");
            if let Some(name) = names.get(start) {
                assert!(world.answers[0].is_err());
                assert_ne!(world.reason(name), Some(String::new()));
                // The last model of the path is mended.
                world.write(names[(start + length - 1) % length], &[], 0);
                world.load(name);
                world.rest();
                assert!(names.iter().all(|name| world.serves(name)), "{length} {start} {:?}", world.log);
            }
        }
    }
}

#[test]
fn a_reload_that_closes_a_circle_of_served_models_fails_and_the_old_copies_go_on() {
    let mut world = World::new(1, false);
    world.write("a", &[("b", 0)], 0);
    world.write("b", &[("c", 0)], 0);
    world.write("c", &[], 0);
    world.load("a");
    world.rest();
    world.write("c", &[("a", 0)], 0);
    world.load("c");
    world.rest();
    let error = world.answers.pop().unwrap().unwrap_err();
    let wanted = "circular dependency between ensembles: c -> ... -> b -> c";
    assert!(error.message.contains(wanted), "{error}");
    assert!(world.serves("a") && world.serves("b") && world.serves("c"));
}

#[test]
fn members_that_several_models_need_are_loaded_once() {
    let mut world = World::new(1, false);
    world.write("a", &[("b", 0), ("c", 0)], 0);
    world.write("b", &[("d", 0), ("e", 0)], 0);
    world.write("c", &[("d", 0), ("e", 0)], 0);
    world.write("d", &[], 0);
    world.write("e", &[], 0);
    world.write_version("e", 1, 5);
    world.load("a");
    world.rest();
    assert!(world.planned.values().all(|count| *count == 1), "{:?}", world.planned);
    assert!(world.answers[0].is_err() && world.serves("d") && !world.serves("b"));
    world.write_version("e", 1, 6);
    world.load("e");
    world.rest();
    assert!(["a", "b", "c", "d", "e"].iter().all(|name| world.serves(name)), "all come back");
}

#[test]
fn unloads_take_along_members_that_nothing_else_needs() {
    let mut world = World::new(1, false);
    world.write("a", &[("b", 0), ("c", 0), ("d", 0)], 0);
    world.write("b", &[("e", 0)], 0);
    world.write("f", &[("d", 0)], 0);
    for name in ["c", "d", "e"] {
        world.write(name, &[], 0);
    }
    // One by its own name before, one by its own name when it was there already, one for another ensemble as well.
    for name in ["c", "a", "b", "f"] {
        world.load(name);
        world.rest();
    }
    world.unload("a", true);
    assert_eq!(world.answers.len(), 5, "answered at once");
    let serving = |world: &World| ["a", "b", "c", "d", "e", "f"].map(|name| world.serves(name));
    assert_eq!(serving(&world), [false, false, true, true, false, true]);
    world.unload("f", false);
    assert_eq!(serving(&world), [false, false, true, true, false, false]);
    world.unload("f", true);
    assert_eq!(serving(&world), [false, false, true, false, false, false]);
    world.rest();
    world.load("a");
    world.rest();
    world.unload("e", true);
    assert_eq!(
        serving(&world),
        [false, false, true, true, false, false],
        "ensembles above only lose their member"
    );
    world.load("e");
    world.rest();
    assert!(world.serves("a") && world.serves("b"));
}

#[test]
fn ensembles_that_come_before_their_members_in_listings_are_loaded_later() {
    let mut world = World::new(1, true);
    world.write("a", &[("b", 0)], 0);
    for secs in [0, 2, 1] {
        world.pass(secs);
        world.poll();
        world.rest();
    }
    assert!(!world.serves("a"));
    world.write("b", &[], 0);
    for secs in [1, 2] {
        world.pass(secs);
        world.poll();
        world.rest();
    }
    assert!(world.serves("a") && world.serves("b"), "before the pause after the failure is over");
    world.delete("a");
    world.delete("b");
    for secs in [1, 2, 1] {
        world.pass(secs);
        world.poll();
        world.rest();
    }
    assert_eq!(world.lifecycle.models().count(), 0, "{:?}", world.log);
}

#[test]
fn an_ensemble_keeps_the_reason_unloaded_while_its_member_is_absent() {
    let mut world = World::new(1, true);
    world.write("a", &[("b", 0)], 0);
    world.write("b", &[("c", 0)], 0);
    world.write("c", &[], 0);
    let poll = |world: &mut World, count: u64| {
        for _ in 0..count {
            world.pass(2);
            world.poll();
            world.rest();
        }
    };
    poll(&mut world, 2);
    assert!(world.serves("a"));
    world.delete("c");
    poll(&mut world, 30);
    assert_eq!(["a", "b"].map(|name| world.reason(name)), [(); 2].map(|()| Some("unloaded".to_owned())));
    world.write("c", &[], 1);
    poll(&mut world, 2);
    assert!(world.serves("c") && !world.serves("a"));
    assert_eq!(world.reason("b").as_deref(), Some("Invalid argument: 'c' has another interface"));
}

/// Generation 1 is a reload of `f`, which kept the load of `e` out because of the circle.
fn kept_out() -> Script {
    let mut script = Script::new(OPTIONS);
    script.load(0, "f");
    script.found_one("f", 1);
    script.planned(0, &[1]);
    script.loaded(0, 1, Ok(()));
    script.load(1, "f");
    script.found_one("f", 2);
    assert_eq!(script.planned_with(1, &["e"]), "find e");
    script.found_one("e", 1);
    assert_eq!(script.planned_with(2, &["f"]), "failed 2, load f 1:1", "e -> f -> e");
    script
}

#[test]
fn an_ensemble_that_another_load_kept_out_is_loaded_when_that_load_has_failed() {
    let mut script = kept_out();
    assert!(script.loaded(1, 1, Err(unfit())).ends_with(", find e"), "the old copy of f serves");
    script.found_one("e", 1);
    assert_eq!(script.planned_with(3, &["f"]), "load e 3:1");
}

#[test]
fn one_retry_waits_however_often_members_change() {
    let mut script = Script::ensemble();
    script.unload(1, "m");
    script.unbound(0, unfit());
    assert_eq!(script.load(2, "e"), "find e");
    for (id, size, generation) in [(3, 2, 2), (4, 3, 3)] {
        script.load(id, "m");
        script.found_one("m", size);
        script.planned(generation, &[1]);
        assert!(script.loaded(generation, 1, Ok(())).ends_with("ok"), "the load of e runs");
    }
    assert!(script.found("e", None).ends_with(", find e"));
    assert_eq!(script.found("e", None), "", "nobody is told");
    assert!(!script.lifecycle.has_operations());
}

#[test]
fn what_no_listing_shows_awaits_nothing() {
    let mut script = Script::ensemble();
    script.unload(1, "m");
    script.unbound(0, unfit());
    script.lifecycle.command(CommandId(2), LifecycleCommand::LoadAll, script.now());
    assert!(script.awaits_members("e"));
    let actions = script.lifecycle.listed(CommandId(2), Ok(ModelListing::default()), script.now());
    assert_eq!(script.show(actions), "ok");
    assert!(!script.awaits_members("e"));
}

#[test]
fn an_ensemble_whose_files_are_as_they_were_awaits_nothing() {
    let mut script = Script::ensemble();
    script.load(1, "e");
    script.found_one("e", 2);
    script.planned_with(2, &["m"]);
    script.found_one("m", 1);
    assert!(script.loaded(2, 1, Err(unfit())).starts_with("failed 2, error"));
    assert!(script.awaits_members("e"), "though the old copy serves");
    script.load(2, "e");
    script.found_one("e", 1);
    assert_eq!(script.found_one("m", 1), "ok");
    assert!(!script.awaits_members("e"));
}

#[test]
fn a_load_of_an_ensemble_builds_all_its_copies() {
    let mut script = Script::ensemble();
    script.load_from(1, "e", ModelOrigin::GivenConfig);
    assert_eq!(script.found_one("e", 1), "plan e 2 given");
    assert_eq!(script.planned_with(2, &["m"]), "find m");
    assert_eq!(script.found_one("m", 1), "load e 2:1");
}

#[test]
fn a_deeper_change_opens_a_circle_for_a_model_that_awaits() {
    let mut world = World::new(1, false);
    world.write("a", &[], 0);
    world.write("b", &[("a", 0)], 0);
    world.write("c", &[("b", 0)], 0);
    world.load("c");
    world.rest();
    world.write("a", &[("c", 0)], 0);
    world.load("a");
    world.rest();
    assert!(world.answers.pop().unwrap().is_err());
    world.write("b", &[], 0);
    world.load("b");
    world.rest();
    let (_, a) = world.lifecycle.models().next().unwrap();
    assert!(!a.awaits_members());
    assert_eq!(a.members(), &[Name::new("c")].into());
}

#[test]
fn what_a_command_names_is_explicit_until_it_is_unloaded_even_if_its_members_come_later() {
    let mut world = World::new(1, false);
    world.write("a", &[("b", 0)], 0);
    world.write("b", &[("c", 0)], 0);
    world.load("b");
    world.rest();
    assert!(!world.serves("b"));
    world.write("c", &[], 0);
    for name in ["c", "a"] {
        world.load(name);
        world.rest();
    }
    world.unload("a", true);
    assert!(world.serves("b") && world.serves("c"), "each was named");
    for name in ["b", "c"] {
        world.unload(name, false);
    }
    world.load("a");
    world.rest();
    world.unload("a", true);
    assert!(!world.serves("b") && !world.serves("c"), "neither was named again");
}

#[test]
fn nothing_is_loaded_again_when_the_server_stops() {
    let mut script = kept_out();
    script.lifecycle.refuse_commands();
    assert_eq!(script.loaded(1, 1, Err(unfit())), "failed 1");
    assert!(script.lifecycle.is_idle());
}
