//! Histories step by step: the order of actions, the texts of errors and lines of the log.
use std::{sync::Arc, time::Duration};

use scheduling::Timestamp;
use vocabulary::{Error, Name};

use super::*;

pub(crate) const OPTIONS: LifecycleOptions = LifecycleOptions {
    polls: false,
    partial_models: false,
    settle: Duration::from_secs(2),
    first_retry: Duration::from_secs(15),
    longest_retry: Duration::from_secs(600),
};

/// A policy whose actions are shown as words.
pub(crate) struct Script {
    pub(crate) lifecycle: Lifecycle,
    secs: u64,
    pub(crate) log: Vec<String>,
}

impl Script {
    pub(crate) fn new(options: LifecycleOptions) -> Self {
        Self { lifecycle: Lifecycle::new(options), secs: 0, log: Vec::new() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.secs * 1_000_000_000)
    }

    /// Actions as words; lines of the log are set aside.
    pub(crate) fn show(&mut self, actions: Vec<LifecycleAction>) -> String {
        let mut words = Vec::new();
        for action in actions {
            words.push(match action {
                LifecycleAction::Log { text, .. } => {
                    self.log.push(text);
                    continue;
                }
                LifecycleAction::List { .. } => "list".to_owned(),
                LifecycleAction::Find { name } => format!("find {name}"),
                LifecycleAction::Plan { key, generation, given, .. } => {
                    let given = given.map(|_| " given").unwrap_or_default();
                    format!("plan {key} {}{given}", generation.0)
                }
                LifecycleAction::Load { key, copy, .. } => {
                    format!("load {key} {}:{}", copy.generation.0, copy.version)
                }
                LifecycleAction::Check { key, .. } => format!("check {key}"),
                LifecycleAction::NotifyLoaded { generation } => format!("complete {}", generation.0),
                LifecycleAction::NotifyFailed { generation } => format!("failed {}", generation.0),
                LifecycleAction::Retire { generation, versions, unloads } => {
                    let unloads = if unloads { " unloads" } else { "" };
                    format!("retire {}:{versions:?}{unloads}", generation.0)
                }
                LifecycleAction::End { generation } => format!("end {}", generation.0),
                LifecycleAction::Answer { result, .. } => match result {
                    Ok(()) => "ok".to_owned(),
                    Err(error) => format!("error: {}", error.with_code()),
                },
            });
        }
        words.join(", ")
    }

    pub(crate) fn load(&mut self, id: u64, name: &str) -> String {
        self.load_from(id, name, ModelOrigin::Repository)
    }

    pub(crate) fn load_from(&mut self, id: u64, name: &str, origin: ModelOrigin) -> String {
        let command = LifecycleCommand::Load { name: Name::new(name), origin };
        let actions = self.lifecycle.command(CommandId(id), command, self.now());
        self.show(actions)
    }

    pub(crate) fn unload(&mut self, id: u64, name: &str) -> String {
        let command = LifecycleCommand::Unload { name: Name::new(name), dependents: false };
        let actions = self.lifecycle.command(CommandId(id), command, self.now());
        self.show(actions)
    }

    pub(crate) fn found(&mut self, name: &str, found: Option<FoundModel>) -> String {
        let models = found.map(|found| (ModelKey::new(name), found)).into_iter().collect();
        let actions = self.lifecycle.found(&Name::new(name), Ok(models), self.now());
        self.show(actions)
    }

    pub(crate) fn planned(&mut self, generation: u64, versions: &[i64]) -> String {
        let plan = PlannedModel { versions: versions.to_vec(), ..PlannedModel::default() };
        let actions = self.lifecycle.planned(Generation(generation), Ok(plan), self.now());
        self.show(actions)
    }

    pub(crate) fn not_planned(&mut self, generation: u64, cause: NoVersionCause, error: Error) -> String {
        let no_version = NoVersion { cause, reason: error.with_code() };
        let failure = PlanFailure { no_version, error };
        let actions = self.lifecycle.planned(Generation(generation), Err(failure), self.now());
        self.show(actions)
    }

    pub(crate) fn loaded(&mut self, generation: u64, version: i64, result: Result<(), Error>) -> String {
        let copy = LoadedVersionId { generation: Generation(generation), version };
        let actions = self.lifecycle.loaded(copy, result, self.now());
        self.show(actions)
    }

    pub(crate) fn retired(&mut self, generation: u64, version: i64) -> String {
        let copy = LoadedVersionId { generation: Generation(generation), version };
        let actions = self.lifecycle.retired(copy, self.now());
        self.show(actions)
    }

    pub(crate) fn polled(&mut self, secs: u64, listing: ModelListing) -> (String, Option<u64>) {
        self.secs = secs;
        let (actions, next) = self.lifecycle.polled(listing, self.now());
        (self.show(actions), next.map(|next| next.as_nanos() / 1_000_000_000))
    }

    pub(crate) fn states(&self, name: &str) -> Vec<(i64, String)> {
        let model = self.lifecycle.models().find(|(key, _)| *key.name == *name);
        let versions = model.into_iter().flat_map(|(_, model)| model.versions());
        let shown = |status| match status {
            VersionStatus::Loading => "loading".to_owned(),
            VersionStatus::Ready(copy) => format!("ready {}", copy.generation.0),
            VersionStatus::Unloading(copy) => format!("unloading {}", copy.generation.0),
            VersionStatus::Unavailable(reason) => reason,
        };
        versions.map(|(version, status)| (version, shown(status))).collect()
    }
}

/// A model with these versions, each with a file of that size.
pub(crate) fn model(versions: &[(i64, u64)]) -> FoundModel {
    let stamp = |(version, byte_size): &(i64, u64)| FileStamp {
        path: format!("{version}/model").into(),
        byte_size: *byte_size,
        changed_ns: [0; 2],
        inode: 0,
        tag: "".into(),
    };
    let files = ModelFiles::new(
        versions.iter().map(stamp).collect(),
        "config.pbtxt",
        versions.iter().map(|(version, _)| *version),
    );
    FoundModel {
        places: vec![Arc::new(ModelLocation { repository: "/models".into(), directory: "/models/m".into() })],
        files: Arc::new(files),
        ..FoundModel::default()
    }
}

fn listing(found: Option<FoundModel>) -> ModelListing {
    let models = found.map(|found| (ModelKey::new("m"), found)).into_iter().collect();
    ModelListing { models, ..ModelListing::default() }
}

/// A model `m` with version 1 in service, by generation 0.
fn serving(options: LifecycleOptions) -> Script {
    let mut script = Script::new(options);
    assert_eq!(script.load(0, "m"), "find m");
    assert_eq!(script.found("m", Some(model(&[(1, 1)]))), "plan m 0");
    assert_eq!(script.planned(0, &[1]), "load m 0:1");
    let loaded = script.loaded(0, 1, Ok(()));
    if loaded == "check m" {
        let actions = script.lifecycle.checked(Generation(0), Some(model(&[(1, 1)]).files), script.now());
        assert_eq!(script.show(actions), "complete 0, ok");
    } else {
        assert_eq!(loaded, "complete 0, ok");
    }
    script
}

#[test]
fn a_reload_switches_when_its_copies_are_ready_and_then_retires_the_old_ones() {
    let mut script = serving(OPTIONS);
    script.load(1, "m");
    assert_eq!(script.found("m", Some(model(&[(1, 2), (2, 1)]))), "plan m 1");
    assert_eq!(script.planned(1, &[1, 2]), "load m 1:1, load m 1:2");
    assert_eq!(script.loaded(1, 2, Ok(())), "");
    assert_eq!(script.states("m"), [(1, "ready 0".into()), (2, "loading".into())]);
    assert_eq!(script.loaded(1, 1, Ok(())), "complete 1, retire 0:[1] unloads, ok");
    assert_eq!(script.states("m"), [(1, "ready 1".into()), (2, "ready 1".into())]);
    assert_eq!(script.retired(0, 1), "end 0");
}

#[test]
fn a_copy_that_ends_is_succeeded_by_all_that_serve_then() {
    let mut script = serving(OPTIONS);
    let copy = |generation, version| LoadedVersionId { generation: Generation(generation), version };
    assert!(script.lifecycle.successors(copy(0, 1)).is_empty(), "it serves");
    script.load(1, "m");
    script.found("m", Some(model(&[(1, 2), (2, 1)])));
    script.planned(1, &[1, 2]);
    script.loaded(1, 2, Ok(()));
    assert!(script.lifecycle.successors(copy(1, 2)).is_empty(), "it has never served");
    script.loaded(1, 1, Ok(()));
    assert_eq!(script.lifecycle.successors(copy(0, 1)), [copy(1, 1), copy(1, 2)]);
    script.unload(2, "m");
    assert!(script.lifecycle.successors(copy(0, 1)).is_empty(), "nothing serves any more");
}

#[test]
fn a_version_that_is_not_selected_any_more_counts_as_unloaded_when_its_copy_has_ended() {
    let mut script = serving(OPTIONS);
    script.load(1, "m");
    script.found("m", Some(model(&[(1, 1), (2, 1)])));
    script.planned(1, &[2]);
    assert_eq!(script.loaded(1, 2, Ok(())), "complete 1, retire 0:[1] unloads, ok");
    assert_eq!(script.states("m"), [(1, "unloading 0".into()), (2, "ready 1".into())]);
    let unloaded = "successfully unloaded 'm' version 1".to_owned();
    assert!(!script.log.contains(&unloaded));
    assert_eq!(script.retired(0, 1), "end 0");
    assert_eq!(script.log.last(), Some(&unloaded));
}

#[test]
fn only_versions_whose_files_have_changed_get_new_copies() {
    let mut script = serving(OPTIONS);
    script.load(1, "m");
    script.found("m", Some(model(&[(1, 1), (2, 1)])));
    assert_eq!(script.planned(1, &[1, 2]), "load m 1:2");
    assert_eq!(script.loaded(1, 2, Ok(())), "complete 1, ok");
    assert_eq!(script.states("m"), [(1, "ready 0".into()), (2, "ready 1".into())]);
    script.load(2, "m");
    assert_eq!(script.found("m", Some(model(&[(1, 1), (2, 1)]))), "ok", "nothing has changed");
}

#[test]
fn a_failed_reload_changes_nothing_and_is_tried_again() {
    let mut script = serving(OPTIONS);
    for (id, generation) in [(1, 1), (2, 2)] {
        script.load(id, "m");
        assert_eq!(script.found("m", Some(model(&[(1, 2), (2, 1)]))), format!("plan m {generation}"));
        script.planned(generation, &[1, 2]);
        script.loaded(generation, 2, Ok(()));
        assert_eq!(
            script.loaded(generation, 1, Err(Error::internal("no"))),
            format!("retire {generation}:[2]")
        );
        assert_eq!(script.states("m"), [(1, "ready 0".into()), (2, "unloaded".into())]);
        assert_eq!(
            script.retired(generation, 2),
            format!(
                "failed {generation}, error: Invalid argument: load failed for model 'm': version 1 is at UNAVAILABLE \
                 state: Internal: no;\n"
            )
        );
    }
    let lines = script.log.iter().filter(|line| line.contains("'m' version 1"));
    let told: Vec<_> = lines.filter(|line| !line.starts_with("successfully")).map(String::as_str).collect();
    let reason = "failed to load 'm' version 1: Internal: no";
    assert_eq!(
        told,
        [reason, "'m' version 1 still cannot be loaded"],
        "a reason is told once for the same files"
    );
}

#[test]
fn a_version_that_was_never_loaded_keeps_the_reason_of_its_failure() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "m");
    script.found("m", Some(model(&[(1, 1)])));
    script.planned(0, &[1]);
    script.loaded(0, 1, Err(Error::internal("no")));
    assert_eq!(script.states("m"), [(1, "Internal: no".into())]);
}

#[test]
fn partial_models_serve_what_could_be_loaded_and_try_the_rest_again() {
    let mut script = Script::new(LifecycleOptions { partial_models: true, ..OPTIONS });
    script.load(0, "m");
    script.found("m", Some(model(&[(1, 1), (2, 1)])));
    script.planned(0, &[1, 2]);
    script.loaded(0, 1, Err(Error::internal("no")));
    assert_eq!(script.loaded(0, 2, Ok(())), "complete 0, ok");
    assert_eq!(script.states("m"), [(1, "Internal: no".into()), (2, "ready 0".into())]);
    script.load(1, "m");
    assert_eq!(script.found("m", Some(model(&[(1, 1), (2, 1)]))), "plan m 1");
    assert_eq!(script.planned(1, &[1, 2]), "load m 1:1");
}

#[test]
fn an_unload_is_answered_at_once_and_a_load_need_not_wait_for_its_end() {
    let mut script = serving(OPTIONS);
    assert_eq!(script.unload(1, "m"), "retire 0:[1] unloads, ok");
    assert_eq!(script.states("m"), [(1, "unloading 0".into())]);
    assert_eq!(script.load(2, "m"), "find m");
    script.found("m", Some(model(&[(1, 1)])));
    assert_eq!(script.planned(1, &[1]), "load m 1:1");
    assert_eq!(script.states("m"), [(1, "loading".into())]);
    assert_eq!(script.retired(0, 1), "end 0");
    assert_eq!(script.loaded(1, 1, Ok(())), "complete 1, ok");
    assert_eq!(script.unload(3, "m"), "retire 1:[1] unloads, ok");
    assert_eq!(script.retired(1, 1), "end 1");
    assert_eq!(script.states("m"), [(1, "unloaded".into())]);
    assert_eq!(script.unload(4, "unknown"), "ok");
}

#[test]
fn operations_on_a_name_follow_each_other_and_others_do_not_wait() {
    let mut script = Script::new(OPTIONS);
    assert_eq!(script.load(0, "m"), "find m");
    assert_eq!(script.unload(1, "m"), "");
    assert_eq!(script.load(2, "n"), "find n");
    script.found("m", Some(model(&[(1, 1)])));
    script.planned(0, &[1]);
    assert_eq!(script.loaded(0, 1, Ok(())), "complete 0, ok, retire 0:[1] unloads, ok");
}

#[test]
fn a_name_has_a_limit_on_commands_that_wait() {
    let mut script = Script::new(OPTIONS);
    script.load(0, "m");
    for id in 1..=1_000 {
        assert_eq!(script.load(id, "m"), "");
    }
    assert_eq!(script.load(2_000, "m"), "error: Unavailable: too many commands wait for model 'm'");
    assert_eq!(script.load(2_001, "n"), "find n");
}

#[test]
fn what_cannot_be_polled_is_an_error_with_its_reason() {
    let mut script = serving(OPTIONS);
    let polled = "error: Internal: failed to load 'm', failed to poll from model repository: ";
    script.load(1, "m");
    assert_eq!(script.found("m", None), format!("{polled}no repository has a model 'm'"));
    script.load(2, "m");
    let twice = FoundModel { places: vec![Arc::default(); 2], ..FoundModel::default() };
    assert_eq!(script.found("m", Some(twice)), format!("{polled}model appears in two or more repositories"));
    script.load(3, "m");
    script.found("m", Some(model(&[(1, 2)])));
    let refused = script.not_planned(1, NoVersionCause::Refused, Error::invalid("line 3: no such field"));
    assert_eq!(refused, format!("{polled}line 3: no such field"));
    script.load(4, "m");
    script.found("m", Some(model(&[])));
    assert_eq!(
        script.not_planned(2, NoVersionCause::NoneSelected, Error::invalid("at least one version")),
        "error: Invalid argument: load failed for model 'm': at least one version\n"
    );
    assert_eq!(script.states("m"), [(1, "ready 0".into())]);
}

#[test]
fn a_given_configuration_stays_until_the_files_change_and_given_files_until_the_next_load() {
    let mut script = serving(OPTIONS);
    assert_eq!(script.load_from(1, "m", ModelOrigin::GivenConfig), "find m");
    assert_eq!(script.found("m", Some(model(&[(1, 1)]))), "plan m 1 given");
    let other = ConfigIdentity { model: vec![1] };
    let plan = PlannedModel { versions: vec![1], config: other, ..PlannedModel::default() };
    let actions = script.lifecycle.planned(Generation(1), Ok(plan), script.now());
    assert_eq!(script.show(actions), "load m 1:1");
    assert_eq!(script.loaded(1, 1, Ok(())), "complete 1, retire 0:[1] unloads, ok");
    script.load(2, "m");
    assert_eq!(script.found("m", Some(model(&[(1, 1)]))), "ok");

    assert_eq!(script.load_from(3, "m", ModelOrigin::GivenFiles), "plan m 2 given");
    script.planned(2, &[1]);
    script.loaded(2, 1, Ok(()));
    script.load(4, "m");
    assert_eq!(script.found("m", Some(model(&[(1, 1)]))), "plan m 3");
}

#[test]
fn agents_of_a_load_without_new_copies_are_told_all_actions() {
    let mut script = serving(OPTIONS);
    script.load_from(1, "m", ModelOrigin::GivenConfig);
    script.found("m", Some(model(&[(1, 1)])));
    assert_eq!(script.planned(1, &[1]), "complete 1, retire 1:[] unloads, end 1, ok");
    assert_eq!(script.states("m"), [(1, "ready 0".into())]);
}

#[test]
fn records_are_forgotten_when_their_directories_are_gone() {
    let mut script = serving(OPTIONS);
    script.load(1, "m");
    script.found("m", Some(model(&[(1, 1), (2, 1)])));
    script.planned(1, &[1, 2]);
    script.loaded(1, 2, Ok(()));
    script.unload(2, "m");
    script.retired(1, 2);
    script.lifecycle.exist(|_, version| version.is_none_or(|version| version == 1));
    assert_eq!(script.states("m"), [(1, "unloading 0".into())]);
    script.lifecycle.exist(|_, _| false);
    assert_eq!(script.states("m"), [(1, "unloading 0".into())], "it still ends");
    script.retired(0, 1);
    script.lifecycle.exist(|_, _| false);
    assert_eq!(script.lifecycle.models().count(), 0);
}

#[test]
fn stopping_refuses_commands_and_discards_what_is_being_loaded() {
    let mut script = serving(OPTIONS);
    script.load(1, "n");
    script.found("n", Some(model(&[(1, 1)])));
    script.planned(1, &[1]);
    script.load(2, "n");
    let actions = script.lifecycle.stop();
    let refused = "error: Unavailable: Server exiting";
    assert_eq!(script.show(actions), format!("{refused}, {refused}, retire 0:[1] unloads"));
    assert_eq!(script.load(3, "m"), refused);
    assert_eq!(script.loaded(1, 1, Ok(())), "retire 1:[1]");
    assert_eq!(script.retired(1, 1), "failed 1");
    assert!(!script.lifecycle.is_idle());
    assert_eq!(script.retired(0, 1), "end 0");
    assert!(script.lifecycle.is_idle());
}

#[test]
fn refusing_commands_changes_nothing_that_serves() {
    let mut script = serving(OPTIONS);
    script.load(1, "m");
    let actions = script.lifecycle.refuse_commands();
    assert_eq!(script.show(actions), "error: Unavailable: Server exiting");
    assert_eq!(script.found("m", Some(model(&[(1, 2)]))), "");
    assert_eq!(script.states("m"), [(1, "ready 0".into())]);
    assert!(script.lifecycle.is_idle());
}

/// One load has built one of its copies, another reads its configuration, a third is still looked for.
#[test]
fn abandoned_loads_end_what_they_have_built_and_results_that_come_later_have_no_effect() {
    let mut script = serving(OPTIONS);
    for (command, name) in [(1, "m"), (2, "n"), (3, "o")] {
        script.load(command, name);
    }
    script.found("m", Some(model(&[(1, 2), (2, 2)])));
    script.planned(1, &[1, 2]);
    script.loaded(1, 2, Ok(()));
    script.found("n", Some(model(&[(1, 1)])));
    script.lifecycle.refuse_commands();
    let now = script.now();
    let actions = script.lifecycle.abandon_loads(now);
    assert_eq!(script.show(actions), "retire 1:[2]");
    assert_eq!(script.retired(1, 2), "failed 1");
    assert!(script.lifecycle.is_idle());
    assert_eq!(script.loaded(1, 1, Ok(())), "");
    assert_eq!(script.planned(2, &[1]), "");
    assert_eq!(script.found("o", Some(model(&[(1, 1)]))), "");
    assert_eq!(script.states("m"), [(1, "ready 0".into()), (2, "unloaded".into())]);
}

/// One load looks at its files once more, after its copies have been built; another one after its configuration was
/// refused.
#[test]
fn files_that_have_changed_during_an_abandoned_load_have_no_effect() {
    let mut script = serving(POLLS);
    for (generation, name) in [(1, "n"), (2, "o")] {
        script.load(generation, name);
        script.found(name, Some(model(&[(1, 1)])));
    }
    script.planned(1, &[1]);
    assert_eq!(script.loaded(1, 1, Ok(())), "check n");
    assert_eq!(script.not_planned(2, NoVersionCause::Refused, Error::invalid("bad")), "check o");
    script.lifecycle.refuse_commands();
    let now = script.now();
    let actions = script.lifecycle.abandon_loads(now);
    assert_eq!(script.show(actions), "retire 1:[1]");
    let changed = || model(&[(1, 2)]).files;
    for generation in [1, 2] {
        let actions = script.lifecycle.checked(Generation(generation), Some(changed()), now);
        assert_eq!(script.show(actions), "");
    }
    assert_eq!(script.retired(1, 1), "failed 1");
    assert!(script.lifecycle.is_idle(), "nothing is left of the load");
    assert!(!script.log.iter().any(|line| line.contains("loaded again")), "{:?}", script.log);
}

#[test]
fn a_stop_discards_a_load_whose_files_have_changed_and_says_nothing_of_another_one() {
    let mut script = serving(POLLS);
    script.load(1, "n");
    script.found("n", Some(model(&[(1, 1)])));
    script.planned(1, &[1]);
    assert_eq!(script.loaded(1, 1, Ok(())), "check n");
    script.lifecycle.refuse_commands();
    let (files, now) = (model(&[(1, 2)]).files, script.now());
    let actions = script.lifecycle.checked(Generation(1), Some(files), now);
    assert_eq!(script.show(actions), "retire 1:[1]");
    assert_eq!(script.retired(1, 1), "failed 1");
    assert!(script.lifecycle.is_idle());
    assert!(!script.log.iter().any(|line| line.contains("loaded again")), "{:?}", script.log);
}

#[test]
fn a_load_of_several_namespaces_that_is_abandoned_ends_when_its_copies_have() {
    let mut script = Script::new(OPTIONS);
    let key = |namespace: &str| ModelKey { namespace: Some(namespace.into()), name: "m".into() };
    script.load(0, "m");
    let models = vec![(key("/r1"), model(&[(1, 1)])), (key("/r2"), model(&[(1, 1)]))];
    let actions = script.lifecycle.found(&"m".into(), Ok(models), script.now());
    assert_eq!(script.show(actions), "plan /r1::m 0, plan /r2::m 1");
    script.planned(0, &[1, 2]);
    script.loaded(0, 1, Ok(()));
    script.lifecycle.refuse_commands();
    let now = script.now();
    let actions = script.lifecycle.abandon_loads(now);
    assert_eq!(script.show(actions), "retire 0:[1]");
    assert_eq!(script.retired(0, 1), "failed 0");
    assert!(script.lifecycle.is_idle(), "the other model was still being planned");
}

pub(crate) const POLLS: LifecycleOptions = LifecycleOptions { polls: true, ..OPTIONS };

#[test]
fn a_listing_acts_on_changes_that_have_settled() {
    let mut script = serving(POLLS);
    let changed = || listing(Some(model(&[(1, 2)])));
    assert_eq!(script.polled(10, listing(Some(model(&[(1, 1)])))), (String::new(), None));
    assert_eq!(script.polled(20, changed()), (String::new(), Some(22)));
    assert_eq!(script.polled(22, changed()), ("plan m 1".into(), None));
    assert_eq!(script.polled(23, listing(None)), (String::new(), None), "the model is busy");
    script.planned(1, &[1]);
    assert_eq!(script.loaded(1, 1, Ok(())), "check m");
    let torn = script.lifecycle.checked(Generation(1), Some(model(&[(1, 3)]).files), script.now());
    assert_eq!(script.show(torn), "retire 1:[1]");
    assert_eq!(script.retired(1, 1), "failed 1");
    assert_eq!(script.states("m"), [(1, "ready 0".into())]);
    assert_eq!(script.polled(24, listing(Some(model(&[(1, 3)])))), (String::new(), Some(25)));
    assert_eq!(script.polled(25, listing(Some(model(&[(1, 3)])))), ("plan m 2".into(), None));
}

#[test]
fn a_model_that_is_gone_is_unloaded_and_forgotten_but_not_one_that_cannot_be_seen() {
    let mut script = serving(POLLS);
    let unreadable = || ModelListing { unreadable: [Name::new("/models")].into(), ..ModelListing::default() };
    for secs in [10, 20, 30] {
        assert_eq!(script.polled(secs, unreadable()), (String::new(), None));
    }
    assert_eq!(script.polled(40, listing(None)), (String::new(), Some(42)));
    assert_eq!(script.polled(42, listing(None)), ("retire 0:[1] unloads".into(), None));
    script.retired(0, 1);
    script.polled(43, listing(None));
    assert_eq!(script.lifecycle.models().count(), 0);
}

#[test]
fn a_model_in_two_repositories_is_unloaded_and_told_once() {
    let mut script = serving(POLLS);
    let twice = || listing(Some(FoundModel { places: vec![Arc::default(); 2], ..FoundModel::default() }));
    script.polled(10, twice());
    assert_eq!(script.polled(12, twice()).0, "retire 0:[1] unloads");
    script.retired(0, 1);
    assert_eq!(script.polled(20, twice()), (String::new(), None));
    let lines = script.log.iter().filter(|line| line.contains("not unique across")).count();
    assert_eq!(lines, 1);
    assert_eq!(script.polled(30, listing(Some(model(&[(1, 1)])))).1, Some(32));
    assert_eq!(script.polled(32, listing(Some(model(&[(1, 1)])))).0, "plan m 1");
}
