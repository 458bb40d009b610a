//! Members that are unloaded or disappear while ensembles need them, step by step.
use vocabulary::Error;

use super::{
    script_tests::{OPTIONS, POLLS, Script, model},
    *,
};

#[test]
fn an_unload_of_a_member_waits_for_the_load_of_its_ensemble() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "e");
    script.found_one("e", 1);
    assert_eq!(script.planned_with(0, &["m"]), "find m");
    script.found_one("m", 1);
    script.planned(1, &[1]);
    assert_eq!(script.unload(1, "m"), "");
    assert_eq!(script.loaded(1, 1, Ok(())), "complete 1, load e 0:1");
    assert_eq!(script.load(2, "m"), "", "what comes behind the unload waits, too");
    assert_eq!(script.loaded(0, 1, Ok(())), "complete 0, ok, retire 1:[1] unloads, ok, find m");
}

/// The ensemble `e` has the members `n` and `m`, and `n` has the member `m`.
#[test]
fn a_load_of_an_ensemble_holds_the_members_of_its_members_and_waits_for_none_of_their_unloads() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "e");
    script.found_one("e", 1);
    assert_eq!(script.planned_with(0, &["m", "n"]), "find m, find n");
    script.found_one("m", 1);
    script.planned(1, &[1]);
    assert_eq!(script.loaded(1, 1, Ok(())), "complete 1");
    assert_eq!(script.unload(1, "m"), "");
    script.found_one("n", 1);
    assert_eq!(script.planned_with(2, &["m"]), "load n 2:1", "it does not wait behind the unload");
    assert_eq!(script.loaded(2, 1, Ok(())), "complete 2, load e 0:1");
    assert_eq!(script.unload(2, "n"), "");
    let error = Err(Error::internal("no"));
    assert_eq!(
        script.loaded(0, 1, error),
        "failed 0, error: Invalid argument: load failed for model 'e': no\n, \
        retire 1:[1] unloads, ok, retire 2:[1] unloads, ok"
    );
}

#[test]
fn an_unload_that_came_before_the_load_of_an_ensemble_comes_first() {
    let mut script = Script::ensemble();
    script.load(1, "m");
    assert_eq!(script.unload(2, "m"), "");
    script.load(3, "e");
    assert_eq!(script.found_one("e", 1), "");
    assert_eq!(script.found_one("m", 1), "ok, retire 1:[1] unloads, ok, find m");
}

#[test]
fn a_stop_does_not_wait_for_an_unload_of_a_held_member() {
    let mut script = Script::ensemble();
    script.load(1, "e");
    script.found_one("e", 2);
    script.planned_with(2, &["m"]);
    script.found_one("m", 1);
    assert_eq!(script.unload(2, "m"), "");
    let refused = "error: Unavailable: Server exiting";
    let actions = script.lifecycle.refuse_commands();
    assert_eq!(script.show(actions), format!("{refused}, {refused}"));
    assert_eq!(script.loaded(2, 1, Ok(())), "retire 2:[1]");
    assert_eq!(script.retired(2, 1), "failed 2");
    assert!(script.lifecycle.is_idle());
}

/// The ensemble is in the repository `/3`. Which of two members it means, the engine cannot tell.
#[test]
fn an_ensemble_is_loaded_again_when_one_of_two_models_that_it_may_mean_has_gone() {
    for is_broken in [false, true] {
        let mut script = Script::new(POLLS);
        let key =
            |repository: &str, name: &str| ModelKey { namespace: Some(repository.into()), name: name.into() };
        let listing = |keys: &[ModelKey]| ModelListing {
            models: keys.iter().map(|key| (key.clone(), model(&[(1, 1)]))).collect(),
            ..ModelListing::default()
        };
        let keys = [key("/1", "m"), key("/2", "m"), key("/3", "e")];
        script.polled(10, listing(&keys[..2]));
        assert_eq!(script.polled(12, listing(&keys[..2])).0, "plan /1::m 0");
        script.planned(0, &[1]);
        script.loaded(0, 1, if is_broken { Err(Error::internal("no")) } else { Ok(()) });
        let check = |script: &mut Script, generation| {
            let actions =
                script.lifecycle.checked(Generation(generation), Some(model(&[(1, 1)]).files), script.now());
            script.show(actions)
        };
        let end = if is_broken { "failed 0" } else { "complete 0" };
        assert_eq!(check(&mut script, 0), end);
        assert_eq!(script.polled(14, listing(&keys[..2])).0, "plan /2::m 1");
        script.planned(1, &[1]);
        script.loaded(1, 1, Ok(()));
        assert_eq!(check(&mut script, 1), "complete 1");
        script.polled(20, listing(&keys));
        assert_eq!(script.polled(22, listing(&keys)).0, "plan /3::e 2");
        assert_eq!(script.planned_with(2, &["m"]), "load /3::e 2:1");
        script.loaded(2, 1, Err(Error::invalid("not available or ambiguous")));
        assert_eq!(check(&mut script, 2), "failed 2");
        let (first, _) = script.polled(30, listing(&keys[1..]));
        let (second, _) = script.polled(32, listing(&keys[1..]));
        let retire = if is_broken { ["find e", ""] } else { ["", "retire 0:[1] unloads, find e"] };
        assert_eq!([&*first, &*second], retire);
    }
}
