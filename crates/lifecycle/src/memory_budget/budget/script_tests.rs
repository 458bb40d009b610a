//! Scripts: who is loaded, who goes, who is refused.
use std::{cell::RefCell, collections::BTreeMap, num::NonZeroUsize, time::Duration};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::MemoryBudget;
use crate::memory_budget::*;

/// Four loads make progress at once.
const MOST_LOADS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// A budget with models of given sizes, and how they are used.
struct World {
    budget: MemoryBudget,
    uses: RefCell<BTreeMap<Name, ModelUse>>,
    now: Timestamp,
}

fn model(file_bytes: u64) -> ModelNeeds {
    ModelNeeds { file_bytes, ..ModelNeeds::default() }
}

fn ensemble(members: &[&str]) -> ModelNeeds {
    ModelNeeds { members: members.iter().map(|name| Name::new(name)).collect(), ..ModelNeeds::default() }
}

impl World {
    fn new(limit: u64, models: &[(&str, ModelNeeds)]) -> Self {
        Self::with_loads(MOST_LOADS, limit, models)
    }

    fn with_loads(most_loads: NonZeroUsize, limit: u64, models: &[(&str, ModelNeeds)]) -> Self {
        let mut budget = MemoryBudget::new(limit, most_loads);
        models.iter().for_each(|(name, needs)| budget.learn(Name::new(name), needs.clone()));
        Self { budget, uses: RefCell::default(), now: Timestamp::from_nanos(0) }
    }

    fn demand(&mut self, name: &str) -> DemandAnswer {
        self.budget.demand(&Name::new(name), self.now)
    }

    /// What is to be done, as words.
    fn decide(&mut self) -> Vec<String> {
        let uses = &self.uses;
        let actions =
            self.budget.decide(&|name| uses.borrow().get(name).copied().unwrap_or_default(), self.now);
        actions.iter().map(told).collect()
    }

    /// A load ends after so many milliseconds; the model has so many bytes.
    fn loaded(&mut self, name: &str, bytes: u64, millis: u64) -> Vec<String> {
        let name = Name::new(name);
        let needs = self.budget.models[&name].needs.clone();
        self.uses.borrow_mut().insert(name.clone(), ModelUse::default());
        let measure = LoadMeasure { bytes, duration: Duration::from_millis(millis) };
        self.budget.loaded(&name, measure, needs, self.now).iter().map(told).collect()
    }

    /// Demands and loads a model.
    fn bring(&mut self, name: &str, bytes: u64, millis: u64) {
        assert_eq!(self.demand(name), DemandAnswer::Waits);
        assert_eq!(self.decide(), [format!("load {name}")]);
        assert_eq!(self.loaded(name, bytes, millis), [""; 0]);
    }

    fn used(&self, name: &str, requests: u64, is_busy: bool) {
        self.uses.borrow_mut().insert(Name::new(name), ModelUse { requests, is_busy });
    }

    fn ended(&mut self, name: &str) {
        self.budget.ended(&Name::new(name));
    }

    fn place(&self, name: &str) -> BudgetPlace {
        self.budget.models[&Name::new(name)].line(&Name::new(name)).place
    }
}

fn told(action: &BudgetAction) -> String {
    match action {
        BudgetAction::Load(name) => format!("load {name}"),
        BudgetAction::Unload(name) => format!("unload {name}"),
        BudgetAction::Refuse(name, error) => format!("refuse {name}: {}", error.message),
    }
}

#[test]
fn a_model_is_loaded_once_for_all_who_ask_and_then_serves() {
    let mut world = World::new(100, &[("a", model(10))]);
    assert_eq!(world.demand("x"), DemandAnswer::Unknown);
    assert_eq!(world.demand("a"), DemandAnswer::Waits);
    assert_eq!(world.demand("a"), DemandAnswer::Waits);
    assert_eq!(world.decide(), ["load a"]);
    assert_eq!(world.demand("a"), DemandAnswer::Waits);
    assert_eq!(world.decide(), [""; 0]);
    assert_eq!(world.budget.totals().1, 20, "a load counts twice the files until it is measured");
    world.loaded("a", 15, 1);
    assert_eq!(world.budget.totals().1, 15);
    assert_eq!(world.demand("a"), DemandAnswer::Ready);
}

#[test]
fn the_cheapest_and_least_used_model_goes_first() {
    let models = [("cheap", model(20)), ("dear", model(20)), ("hot", model(20)), ("new", model(20))];
    let mut world = World::new(120, &models);
    world.bring("cheap", 30, 10);
    world.bring("dear", 30, 1000);
    world.bring("hot", 30, 10);
    world.used("hot", 1000, false);
    assert_eq!(world.demand("new"), DemandAnswer::Waits);
    assert_eq!(world.decide(), ["unload cheap"], "its load is cheap, and nobody uses it");
    assert_eq!(world.decide(), [""; 0], "its memory is not free yet");
    world.ended("cheap");
    assert_eq!(world.decide(), ["load new"]);
    assert_eq!(world.place("cheap"), BudgetPlace::Out(Absence::MadeRoom(Some(Name::new("new")))));
    let line = world.budget.models[&Name::new("cheap")].line(&Name::new("cheap"));
    assert_eq!(line.clone().telling(|_| true).why(), "it was unloaded because model 'new' needed its memory");
    assert_eq!(line.telling(|_| false).why(), "it was unloaded because others needed its memory");
    world.loaded("new", 30, 10);
    // What was measured counts from the second load on.
    assert_eq!(world.demand("cheap"), DemandAnswer::Waits);
    assert_eq!(world.decide(), ["unload new"]);
}

#[test]
fn a_slow_first_load_does_not_keep_a_model_in_the_place_of_one_that_is_used_more() {
    let models = ["once", "again", "new"].map(|name| (name, model(20)));
    let mut world = World::new(90, &models);
    world.bring("once", 30, 60);
    world.bring("again", 30, 60);
    world.budget.unload(&Name::new("again"), None, &mut Vec::new());
    world.ended("again");
    // A second load takes a third of the first one. Measuring tells that of the models in memory.
    world.bring("again", 30, 20);
    let unused = ModelUse::default();
    world.budget.measured(&Name::new("once"), 30, unused, world.now);
    world.used("once", 10, false);
    world.used("again", 20, false);
    assert_eq!(world.demand("new"), DemandAnswer::Waits);
    assert_eq!(world.decide(), ["unload once"]);
}

#[test]
fn models_that_wait_for_a_load_thread_unload_nothing() {
    let wanted = ["a", "b", "c", "d", "e", "f"];
    let mut models: Vec<_> = wanted.iter().map(|name| (*name, model(10))).collect();
    models.push(("hot", model(20)));
    let mut world = World::new(100, &models);
    world.bring("hot", 20, 10);
    world.used("hot", 1000, false);
    for name in wanted {
        assert_eq!(world.demand(name), DemandAnswer::Waits);
    }
    assert_eq!(world.decide(), ["load a", "load b", "load c", "load d"], "a thread for each");
    assert_eq!(world.loaded("b", 10, 10), [""; 0]);
    assert_eq!(world.decide(), ["unload b"], "it is worth least");
    world.ended("b");
    assert_eq!(world.decide(), ["load e"]);
    assert_eq!(world.place("hot"), BudgetPlace::In);
}

#[test]
fn an_ensemble_keeps_its_turn_until_all_of_its_members_are_loaded() {
    let single = ["x", "y", "z"];
    let mut models = vec![("e", ensemble(&["a", "b", "c"]))];
    models.extend(["a", "b", "c"].into_iter().chain(single).map(|name| (name, model(10))));
    let mut world = World::with_loads(NonZeroUsize::MIN, 50, &models);
    for name in ["e"].into_iter().chain(single) {
        assert_eq!(world.demand(name), DemandAnswer::Waits);
    }
    for name in ["a", "b", "c"] {
        assert_eq!(world.decide(), [format!("load {name}")]);
        assert!(!world.budget.is_blocked(), "the end of the load tells");
        assert_eq!(world.loaded(name, 10, 10), [""; 0]);
    }
    assert_eq!(world.decide(), ["load e"], "those behind it wait");
    world.loaded("e", 0, 1);
    assert_eq!(world.decide(), ["load x"]);
}

#[test]
fn what_was_used_long_ago_loses_against_what_is_used_now() {
    let mut world = World::new(40, &[("old", model(5)), ("a", model(5)), ("b", model(5))]);
    world.bring("old", 20, 10);
    world.used("old", 3, false);
    world.bring("a", 20, 10);
    let mut gone = Vec::new();
    for _ in 0..8 {
        let (coming, staying) = if world.place("a") == BudgetPlace::In { ("b", "a") } else { ("a", "b") };
        world.used(staying, 1, false);
        assert_eq!(world.demand(coming), DemandAnswer::Waits);
        for action in world.decide() {
            let name = action.strip_prefix("unload ").unwrap().to_owned();
            world.ended(&name);
            gone.push(name);
        }
        assert_eq!(world.decide(), [format!("load {coming}")]);
        world.loaded(coming, 20, 10);
        if gone.last().is_some_and(|name| name == "old") {
            return;
        }
    }
    panic!("'old' stays for ever: {gone:?}");
}

#[test]
fn busy_models_stay_until_they_are_idle() {
    let mut world = World::new(40, &[("a", model(5)), ("b", model(20))]);
    world.bring("a", 10, 1);
    world.used("a", 1, true);
    assert_eq!(world.demand("b"), DemandAnswer::Waits);
    assert_eq!(world.decide(), [""; 0]);
    assert!(world.budget.is_blocked());
    world.used("a", 1, false);
    assert_eq!(world.decide(), ["unload a"]);
    world.ended("a");
    assert_eq!(world.decide(), ["load b"]);
    assert!(!world.budget.is_blocked());
}

#[test]
fn nobody_overtakes_a_model_that_waits_for_memory_except_by_priority() {
    let urgent = ModelNeeds { priority: 5, ..model(5) };
    let models = [("a", model(15)), ("big", model(20)), ("small", model(5)), ("urgent", urgent)];
    let mut world = World::new(50, &models);
    world.bring("a", 20, 1);
    world.used("a", 1, true);
    world.demand("big");
    world.demand("small");
    assert_eq!(world.decide(), [""; 0], "the big one would never get its memory");
    world.demand("urgent");
    assert_eq!(world.decide(), ["load urgent"]);
    world.budget.give_up(&Name::new("big"), &Error::unavailable("too late"));
    assert_eq!(world.decide(), ["load small"]);
    assert_eq!(world.place("big"), BudgetPlace::Out(Absence::Refused("too late".to_owned())));
}

#[test]
fn models_that_stay_leave_the_rest_to_others() {
    let pinned = ModelNeeds { is_pinned: true, ..model(10) };
    let important = ModelNeeds { priority: 2, ..model(10) };
    let models = [("pinned", pinned), ("important", important), ("a", model(45)), ("b", model(150))];
    let mut world = World::new(100, &models);
    world.bring("pinned", 30, 1);
    world.bring("important", 30, 1);
    world.demand("a");
    let refusal = "refuse a: model 'a' needs 45 bytes of memory, and --model-memory-budget has 100, of which 60 are \
                   taken by models that stay (pinned, or of a higher priority)";
    assert_eq!(world.decide(), [refusal]);
    world.demand("b");
    let refused = world.decide();
    assert!(refused[0].starts_with("refuse b: model 'b' needs 150 bytes of memory"), "{refused:?}");
    world.ended("important");
    world.demand("a");
    assert_eq!(world.decide(), ["load a"]);
}

#[test]
fn a_model_that_turns_out_too_large_is_unloaded_and_refused_from_then_on() {
    let mut world = World::new(100, &[("a", model(10))]);
    world.demand("a");
    world.decide();
    let told = world.loaded("a", 120, 1);
    let text = "model 'a' needs 120 bytes of memory, and --model-memory-budget has 100";
    assert_eq!(told, [format!("refuse a: {text}"), "unload a".to_owned()]);
    world.ended("a");
    assert_eq!(world.budget.totals().1, 0);
    world.demand("a");
    assert_eq!(world.decide(), [format!("refuse a: {text}")]);
}

#[test]
fn models_that_grow_push_others_out() {
    let mut world = World::new(100, &[("a", model(10)), ("b", model(10))]);
    world.bring("a", 40, 1);
    world.bring("b", 40, 100);
    world.budget.measured(&Name::new("b"), 70, ModelUse::default(), world.now);
    assert_eq!(world.decide(), ["unload a"]);
    assert_eq!(world.decide(), [""; 0]);
    world.ended("a");
    assert_eq!(world.budget.totals().1, 70);
    assert_eq!(world.place("a"), BudgetPlace::Out(Absence::MadeRoom(None)));
}

#[test]
fn a_failed_load_is_tried_again_after_pauses_that_grow() {
    let mut world = World::new(100, &[("a", model(10))]);
    let failure = Error::internal("broken");
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(world.demand("a"), DemandAnswer::Waits);
        assert_eq!(world.decide(), ["load a"]);
        world.budget.failed(&Name::new("a"), &failure, world.now);
        let again = world.now + Duration::from_secs(pause);
        assert_eq!(world.demand("a"), DemandAnswer::Refused(failure.clone()));
        world.now = again;
    }
    assert_eq!(world.budget.totals().1, 0);
    world.now = Timestamp::from_nanos(0);
    assert_eq!(world.budget.prefetch(&Name::new("a"), world.now), DemandAnswer::Waits, "an operator may");
}

#[test]
fn what_an_operator_has_unloaded_comes_back_by_command_only() {
    let mut world = World::new(100, &[("a", model(10))]);
    world.bring("a", 10, 1);
    world.budget.withdraw(&Name::new("a"));
    world.ended("a");
    assert_eq!(world.demand("a"), DemandAnswer::Withdrawn);
    assert!(!world.budget.takes_requests(&Name::new("a"), world.now));
    assert_eq!(world.budget.prefetch(&Name::new("a"), world.now), DemandAnswer::Waits);
    assert_eq!(world.decide(), ["load a"]);
}

#[test]
fn an_ensemble_comes_with_its_members_and_goes_before_them() {
    let models = [
        ("e", ensemble(&["m", "n"])),
        ("m", model(10)),
        ("n", model(10)),
        ("outer", ensemble(&["e"])),
        ("x", model(40)),
    ];
    let mut world = World::new(100, &models);
    world.bring("m", 20, 1);
    world.demand("outer");
    assert_eq!(world.decide(), ["load n"]);
    world.loaded("n", 20, 1);
    assert_eq!(world.decide(), ["load e"]);
    world.loaded("e", 0, 1);
    assert_eq!(world.decide(), ["load outer"]);
    world.loaded("outer", 0, 1);
    assert_eq!(world.demand("outer"), DemandAnswer::Ready);
    world.used("outer", 1, true);
    world.demand("x");
    assert_eq!(world.decide(), [""; 0], "a request runs through both members");
    world.used("outer", 1, false);
    assert_eq!(world.decide(), ["unload e", "unload outer", "unload m"]);
}

#[test]
fn ensembles_that_call_each_other_are_refused() {
    let models = [("e", ensemble(&["f"])), ("f", ensemble(&["e"])), ("own", ensemble(&["own"]))];
    let mut world = World::new(100, &models);
    for name in ["e", "own"] {
        world.demand(name);
        let text = "cannot be loaded: models that it needs call each other in a circle";
        assert_eq!(world.decide(), [format!("refuse {name}: model '{name}' {text}")]);
    }
}

#[test]
fn an_ensemble_is_refused_with_the_reason_of_its_member() {
    let models = [("e", ensemble(&["m"])), ("m", model(10)), ("f", ensemble(&["absent"]))];
    let mut world = World::new(100, &models);
    world.demand("f");
    assert_eq!(world.decide(), ["refuse f: model 'f' needs model 'absent', which is in no repository"]);
    world.demand("e");
    assert_eq!(world.decide(), ["load m"]);
    world.budget.failed(&Name::new("m"), &Error::internal("broken"), world.now);
    assert_eq!(world.decide(), ["refuse e: model 'e' needs model 'm', which failed to load: broken"]);
    world.now = world.now + Duration::from_secs(2);
    world.demand("e");
    assert_eq!(world.decide(), ["load m"]);
}

#[test]
fn a_model_that_is_asked_for_while_it_goes_comes_back() {
    let mut world = World::new(40, &[("a", model(10)), ("b", model(10))]);
    world.bring("a", 30, 1);
    world.demand("b");
    assert_eq!(world.decide(), ["unload a"]);
    assert_eq!(world.demand("a"), DemandAnswer::Waits);
    world.ended("a");
    assert_eq!(world.decide(), ["load b"]);
    assert_eq!(world.place("a"), BudgetPlace::Waiting);
    world.loaded("b", 20, 1);
    assert_eq!(world.decide(), ["unload b"]);
    world.ended("b");
    assert_eq!(world.decide(), ["load a"]);
}

#[test]
fn models_that_have_gone_from_the_repositories_are_forgotten() {
    let mut world = World::new(100, &[("a", model(10)), ("b", model(10))]);
    world.bring("a", 10, 1);
    world.budget.retain(|_| false);
    assert!(world.budget.models.contains_key(&Name::new("a")), "it is in memory");
    assert!(!world.budget.models.contains_key(&Name::new("b")));
    world.ended("a");
    world.budget.retain(|_| false);
    assert!(!world.budget.models.contains_key(&Name::new("a")));
}

/// Looking for a model to unload costs the same among few models and among many.
#[test]
fn the_search_for_a_victim_does_not_grow_with_the_models() {
    let steps = |count: u64| {
        let names: Vec<_> = (0..count).map(|number| format!("m{number}")).collect();
        let models: Vec<_> = names.iter().map(|name| (&**name, model(1))).collect();
        let mut world = World::new(count / 2 * 2, &models);
        for name in &names[..(count / 2) as usize] {
            world.bring(name, 2, 1);
        }
        for name in &names[(count / 2) as usize..] {
            world.demand(name);
            let unloaded = world.decide();
            world.ended(unloaded[0].strip_prefix("unload ").unwrap());
            assert_eq!(world.decide(), [format!("load {name}")]);
            world.loaded(name, 2, 1);
        }
        world.budget.steps
    };
    let (few, many) = (steps(200), steps(400));
    assert!(many <= few * 2 + 2, "{few} {many}");
}
