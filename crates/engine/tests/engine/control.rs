//! Tests of models that come and go: explicit loads and unloads, reloads beside running requests, polling.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    num::NonZeroU64,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use engine::{Engine, EngineOptions, IndexEntry, Model, ModelControl, ModelState, Polling, StartupModels};
use inference::{Plugins, SequenceId, SequencePosition, agent::AgentFinder, backend::Backend};
use parking_lot::Mutex;
use repository::LoadParameters;
use testing::{Agents, Gate};
use vocabulary::{Error, ErrorCode, Name};

use crate::support::{
    self, ECHO, Repository, TIMEOUT, answer, ask, echo, held, index, options, request, serves, start, value,
};

/// Control mode `explicit` without models of the start.
fn explicit(options: EngineOptions) -> EngineOptions {
    let control = ModelControl::Explicit(StartupModels::Named(BTreeSet::new()));
    EngineOptions { control, ..options }
}

async fn load(engine: &Engine, name: &str) -> Result<(), Error> {
    engine.repository().load(name, LoadParameters::default()).await
}

/// Waits until the models are as the test expects.
async fn until(engine: &Engine, expected: &[&str]) {
    let mut found = Vec::new();
    support::until(&format!("{expected:?}"), || {
        let next = index(engine);
        if next != found {
            eprintln!("{next:?}");
            found = next;
        }
        found == expected
    })
    .await;
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_by_calls() {
    let repository = Repository::new().model("m", ECHO, &["1"]).model("n", ECHO, &["1"]);
    let engine = start(explicit(repository.options()), echo()).await;
    let entry = |name: &str| IndexEntry {
        name: Name::new(name),
        namespace: None,
        version: None,
        state: None,
        reason: String::new(),
    };
    assert_eq!(engine.index(false).await, [entry("m"), entry("n")]);
    assert_eq!(engine.index(true).await, []);
    load(&engine, "m").await.unwrap();
    assert!(serves(&engine, "m").await);
    engine.repository().unload("m").await.unwrap();
    until(&engine, &["m 1 UNAVAILABLE unloaded"]).await;
    assert!(engine.ready().await.unwrap(), "an unloaded model is no reason to wait");
    assert_eq!(engine.model("m", None).unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(engine.model("m", Some(1)).unwrap_err().code, ErrorCode::Unavailable);
    fs::remove_dir_all(repository.path().join("m")).unwrap();
    assert_eq!(engine.index(false).await, [entry("n")], "a record goes with its directory");
}

#[tokio::test]
async fn a_load_before_an_unload_is_complete_before_it() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = start(explicit(repository.options()), echo()).await;
    for _ in 0..50 {
        let (loaded, unloaded) = tokio::join!(load(&engine, "m"), engine.repository().unload("m"));
        loaded.unwrap();
        unloaded.unwrap();
        assert_eq!(engine.model("m", None).unwrap_err().code, ErrorCode::NotFound);
    }
}

#[tokio::test]
async fn models_of_the_start_are_named_or_all() {
    let repository = Repository::new().model("m", ECHO, &["1"]).model("n", ECHO, &["1"]);
    let named = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        EngineOptions { control: ModelControl::Explicit(StartupModels::Named(names)), ..repository.options() }
    };
    let engine = start(named(&["n"]), echo()).await;
    assert_eq!((index(&engine), engine.all_loaded()), (vec!["n 1 READY".to_owned()], true));
    let engine = start(named(&["n", "nobody"]), echo()).await;
    assert!(!engine.all_loaded());
    let control = ModelControl::Explicit(StartupModels::All);
    let engine = start(EngineOptions { control, ..repository.options() }, echo()).await;
    assert_eq!(index(&engine), ["m 1 READY", "n 1 READY"]);
}

#[tokio::test]
async fn names_that_are_no_directories_are_refused() {
    let engine = start(explicit(Repository::new().options()), echo()).await;
    for (name, text) in [
        ("", "Model name cannot be empty. Please enter a valid name to deploy."),
        (" ", "Model name cannot be empty. Please enter a valid name to deploy."),
        (" ..", "invalid model name ' ..', model name must not contain path traversal characters"),
        ("..", "invalid model name '..', model name must not contain path traversal characters"),
        ("a/b", "invalid model name 'a/b', model name must not contain path traversal characters"),
    ] {
        let error = load(&engine, name).await.unwrap_err();
        assert_eq!((error.code, &*error.message), (ErrorCode::InvalidArgument, text));
    }
    let long = "m".repeat(1025);
    let text = "the name of the model has 1025 bytes, and at most 1024 are allowed";
    for refused in [load(&engine, &long).await, engine.repository().unload(&long).await] {
        let error = refused.unwrap_err();
        assert_eq!((error.code, &*error.message), (ErrorCode::InvalidArgument, text));
    }
}

#[tokio::test]
async fn a_reload_lets_accepted_requests_finish_on_the_old_copy() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let (backend, begun) = held(echo(), |batch| value(&batch[0].request), answer);
    let engine = start(explicit(repository.options()), backend).await;
    load(&engine, "m").await.unwrap();
    let old = engine.model("m", None).unwrap();
    let running = ask(&engine, "m", 1);
    let first = begun.recv().unwrap();
    let repository = repository.file("m/1/weights", "new");
    load(&engine, "m").await.unwrap();
    let new = engine.model("m", None).unwrap();
    assert!(!Arc::ptr_eq(&old, &new));
    let other = ask(&engine, "m", 2);
    let second = begun.recv().unwrap();
    assert_eq!((first.seen, second.seen), (1, 2));
    second.end();
    other.only().await.unwrap();
    assert_eq!(engine.in_flight(), 1, "the request of the old copy counts");
    assert!(engine.in_flight_by_version().values().eq([&1]), "and has the name of its model");
    first.end();
    running.only().await.unwrap();
    drop(old);
    drop(repository);
}

/// Waits until a copy takes no more requests: then only the test holds it.
async fn ended(copy: &Arc<Model>) {
    support::until("the end of the copy", || Arc::strong_count(copy) == 1).await;
}

#[tokio::test]
async fn a_request_that_comes_to_a_copy_which_has_ended_is_answered_by_what_serves() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = start(explicit(repository.options()), echo()).await;
    load(&engine, "m").await.unwrap();
    let old = engine.model("m", None).unwrap();
    let asked = |version| inference::Request { model_version: version, ..request(42) };
    let repository = repository.file("m/1/weights", "new");
    load(&engine, "m").await.unwrap();
    ended(&old).await;
    for version in [None, Some(1)] {
        old.infer(asked(version)).unwrap().only().await.unwrap();
    }
    let repository = repository.model("m", ECHO, &["2"]);
    load(&engine, "m").await.unwrap();
    until(&engine, &["m 1 UNAVAILABLE unloaded", "m 2 READY"]).await;
    old.infer(asked(None)).unwrap().only().await.unwrap();
    let refused = old.infer(asked(Some(1))).unwrap_err();
    assert_eq!(refused.message, "Request for unknown model: 'm' version 1 is not at ready state");
    engine.repository().unload("m").await.unwrap();
    let refused = old.infer(asked(None)).unwrap_err();
    assert_eq!(refused.message, "Request for unknown model: 'm' has no available versions");
    drop(repository);
}

#[tokio::test]
async fn a_failed_reload_leaves_what_serves() {
    let repository = Repository::new().model("m", ECHO, &["1", "2"]);
    let broken = Arc::new(Mutex::new(false));
    let backend = echo().open({
        let broken = broken.clone();
        move |source| match source.version {
            2 if *broken.lock() => Err(Error::internal("out of luck")),
            _ => Ok(()),
        }
    });
    let config = format!("{ECHO} version_policy {{ all {{}} }}");
    let repository = repository.file("m/config.pbtxt", &config);
    let engine = start(explicit(repository.options()), backend).await;
    load(&engine, "m").await.unwrap();
    let before = [1, 2].map(|version| engine.model("m", Some(version)).unwrap());
    *broken.lock() = true;
    let repository = repository.file("m/labels.txt", "new");
    let error = load(&engine, "m").await.unwrap_err();
    assert_eq!(
        (error.code, &*error.message),
        (
            ErrorCode::InvalidArgument,
            "load failed for model 'm': version 2 is at UNAVAILABLE state: Internal: out of luck;\n"
        )
    );
    for (version, before) in [1, 2].into_iter().zip(&before) {
        assert!(Arc::ptr_eq(before, &engine.model("m", Some(version)).unwrap()));
    }
    assert!(engine.ready().await.unwrap() && serves(&engine, "m").await);
    *broken.lock() = false;
    load(&engine, "m").await.unwrap();
    assert!(!Arc::ptr_eq(&before[0], &engine.model("m", Some(1)).unwrap()), "it is tried again");
    drop(repository);
}

#[tokio::test]
async fn only_what_has_changed_is_built_again() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let backend = echo().open({
        let opened = opened.clone();
        move |source| {
            opened.lock().push(source.version);
            Ok(())
        }
    });
    let all = format!("{ECHO} version_policy {{ all {{}} }}");
    let mut repository = Repository::new().model("m", &all, &["1", "2"]);
    let engine = start(EngineOptions { load_threads: 1, ..explicit(repository.options()) }, backend).await;
    let steps: [(&str, &str, &[i64]); 6] = [
        ("m/config.pbtxt", &all, &[1, 2]),
        ("m/2/weights", "a", &[2]),
        ("m/3/weights", "a", &[3]),
        ("m/labels.txt", "a", &[1, 2, 3]),
        ("m/__pycache__/x.pyc", "a", &[]),
        ("m/config.pbtxt", &format!("{ECHO} version_policy {{ specific {{ versions: [2, 3] }} }}"), &[]),
    ];
    for (file, content, expected) in steps {
        repository = repository.file(file, content);
        load(&engine, "m").await.unwrap();
        assert_eq!(std::mem::take(&mut *opened.lock()), expected, "{file}");
    }
    assert_eq!(engine.ready_versions("m"), [2, 3]);
}

#[tokio::test]
async fn a_copy_whose_backend_has_panicked_is_built_again_though_nothing_has_changed() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let backend = echo().execute(|_, batch| {
        for execution in batch.executions {
            if value(&execution.request) == 13 { panic!("out of luck") } else { answer(execution) }
        }
    });
    let engine = start(explicit(repository.options()), backend).await;
    load(&engine, "m").await.unwrap();
    assert!(ask(&engine, "m", 13).only().await.is_err());
    until(&engine, &["m 1 UNAVAILABLE Internal: the backend of model 'm' version 1 panicked: out of luck"])
        .await;
    load(&engine, "m").await.unwrap();
    assert!(serves(&engine, "m").await);
}

#[tokio::test]
async fn a_load_may_bring_a_configuration_and_files() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let seen = Arc::new(Mutex::new(PathBuf::new()));
    let backend = echo().open({
        let seen = seen.clone();
        move |source| {
            *seen.lock() = source.version_directory.clone();
            Ok(())
        }
    });
    let engine = start(explicit(repository.options()), backend).await;
    let config = r#"{"backend":"echo","max_batch_size":2,"input":[{"name":"IN","data_type":"TYPE_UINT8","dims":[-1]}],
        "output":[{"name":"OUT","data_type":"TYPE_UINT8","dims":[-1]}]}"#;
    let given = |files: &[(&str, &'static str)]| LoadParameters {
        config: Some(config.to_owned()),
        files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).into())).collect(),
    };
    let rows = || engine.model("m", None).unwrap().config().max_rows();
    engine.repository().load("m", given(&[])).await.unwrap();
    assert_eq!(rows(), 2);
    load(&engine, "m").await.unwrap();
    assert_eq!(rows(), 2, "the files have not changed");
    engine.repository().load("m", given(&[("7/weights", "abc")])).await.unwrap();
    assert_eq!(engine.ready_versions("m"), [7]);
    let directory = seen.lock().clone();
    assert_eq!(fs::read_to_string(directory.join("weights")).unwrap(), "abc");
    load(&engine, "m").await.unwrap();
    assert_eq!((rows(), engine.ready_versions("m")), (8, vec![1]), "the repository is newer");
    engine.stop(TIMEOUT).await.unwrap();
    assert!(!directory.exists());
    let text = "failed to load 'm', failed to poll from model repository: ";
    let engine = start(explicit(repository.options()), echo()).await;
    let no_config = LoadParameters { config: None, ..given(&[("1/x", "")]) };
    let error = engine.repository().load("m", no_config).await.unwrap_err();
    assert_eq!(
        error.message,
        format!("{text}Load parameter 'config' must be specified for model file override")
    );
    let error = engine.repository().load("m", given(&[("../x", "")])).await.unwrap_err();
    assert!(error.message.ends_with("must stay within model directory."), "{error}");
}

#[tokio::test]
async fn an_engine_may_refuse_loads_with_a_configuration_or_files() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let mut options = explicit(repository.options());
    options.load_policy.refuse_overrides = true;
    let engine = start(options, echo()).await;
    let config = Some(r#"{"backend":"echo"}"#.to_owned());
    let files = vec![("1/weights".to_owned(), "abc".into())];
    for given in [
        LoadParameters { config: config.clone(), files: Vec::new() },
        LoadParameters { config: None, files: files.clone() },
        LoadParameters { config, files },
    ] {
        let error = engine.repository().load("m", given).await.unwrap_err();
        let text = "Unsupported: failed to load 'm', the server takes no configuration or files with a load \
                    (--allow-load-overrides=false)";
        assert_eq!(error.with_code(), text);
    }
    assert!(engine.ready_versions("m").is_empty());
    load(&engine, "m").await.unwrap();
    assert_eq!(engine.ready_versions("m"), [1]);
}

#[tokio::test]
async fn agents_of_both_copies_are_told_all_actions() {
    let config = format!("{ECHO} model_repository_agents {{ agents {{ name: 'a' }} }}");
    let repository = Repository::new().model("m", &config, &["1"]);
    let agents = Agents::default().with_idle("a");
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(echo())];
    let finder: Option<Arc<dyn AgentFinder>> = Some(Arc::new(agents.clone()));
    let plugins = Plugins { backends, agents: finder, ..Plugins::default() };
    let engine = Engine::start(explicit(repository.options()), plugins).await.unwrap();
    load(&engine, "m").await.unwrap();
    assert_eq!(agents.notifications(), ["a LOAD", "a LOAD_COMPLETE"]);
    let repository = repository.file("m/1/weights", "new");
    load(&engine, "m").await.unwrap();
    engine.stop(TIMEOUT).await.unwrap();
    let told = agents.notifications();
    assert_eq!(told[2], "a LOAD");
    let count = |action: &str| told.iter().filter(|line| **line == format!("a {action}")).count();
    assert_eq!(["LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"].map(count), [2; 4], "{told:?}");
    drop(repository);
}

#[tokio::test]
async fn a_load_builds_a_new_copy_if_the_files_of_the_backend_have_changed() {
    let repository = Repository::new().model("m", ECHO, &["1", "2"]).model("n", ECHO, &["1"]);
    let repository = repository.file("m/config.pbtxt", format!("{ECHO} version_policy {{ all {{}} }}"));
    let (code, opened) = (Arc::new(AtomicU32::new(1)), Arc::new(AtomicU32::new(0)));
    let backend = echo().code(&code).open({
        let opened = opened.clone();
        move |_| {
            opened.fetch_add(1, SeqCst);
            Ok(())
        }
    });
    let engine = start(explicit(repository.options()), backend).await;
    let load_both = async || {
        for name in ["m", "n"] {
            load(&engine, name).await.unwrap();
        }
        opened.load(SeqCst)
    };
    assert_eq!(load_both().await, 3);
    assert_eq!(load_both().await, 3, "nothing has changed");
    code.store(2, SeqCst);
    load(&engine, "n").await.unwrap();
    assert_eq!(opened.load(SeqCst), 4, "the other model stays as it is");
    assert_eq!(load_both().await, 6);
    assert_eq!(load_both().await, 6);
}

#[tokio::test]
async fn loads_at_run_time_have_as_many_threads_as_allowed() {
    for threads in [1, 4] {
        let names: Vec<_> = (0..6).map(|number| format!("m{number}")).collect();
        let repository =
            names.iter().fold(Repository::new(), |repository, name| repository.model(name, ECHO, &["1"]));
        let gate = Gate::shut();
        let backend = echo().open({
            let gate = gate.clone();
            move |_| {
                gate.pass();
                Ok(())
            }
        });
        let options = EngineOptions { load_threads: threads, ..explicit(repository.options()) };
        let engine = start(options, backend).await;
        let loads: Vec<_> = names
            .iter()
            .map(|name| {
                let (engine, name) = (engine.clone(), name.clone());
                tokio::spawn(async move { load(&engine, &name).await })
            })
            .collect();
        let waiting = gate.clone();
        assert!(tokio::task::spawn_blocking(move || waiting.wait_for(threads, TIMEOUT)).await.unwrap());
        assert_eq!(gate.arrived(), threads);
        gate.open();
        for load in loads {
            load.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn models_of_one_name_in_two_repositories_need_namespaces() {
    let [one, two] = [1, 2].map(|_| Repository::new().model("m", ECHO, &["1"]));
    let paths = vec![one.path().to_path_buf(), two.path().to_path_buf()];
    let engine = start(explicit(options(paths.clone())), echo()).await;
    let error = load(&engine, "m").await.unwrap_err();
    assert!(error.message.ends_with(": model appears in two or more repositories"), "{error}");
    let engine = start(EngineOptions { namespacing: true, ..explicit(options(paths)) }, echo()).await;
    load(&engine, "m").await.unwrap();
    assert_eq!(index(&engine), ["m 1 READY", "m 1 READY"]);
    let error = engine.model("m", None).unwrap_err();
    assert_eq!(
        error.message,
        "There are 2 identifiers of model 'm' in global map, model namespace must be provided to resolve ambiguity."
    );
    engine.repository().unload("m").await.unwrap();
    fs::remove_dir_all(two.path().join("m")).unwrap();
    load(&engine, "m").await.unwrap();
    // The other one is forgotten with its directory, when it has ended.
    while engine.index(false).await.len() > 1 {}
    assert!(serves(&engine, "m").await);
}

#[tokio::test]
async fn repositories_come_and_go_and_may_give_models_other_names() {
    // The name in the configuration is that of the directory.
    let config = format!("name: 'm' {ECHO}");
    let [first, second] = [1, 2].map(|_| Repository::new().model("m", &config, &["1"]));
    let engine = start(explicit(first.options()), echo()).await;
    let mapped = BTreeMap::from([(Name::new("other"), "m".to_owned())]);
    engine.repository().register(second.path().into(), mapped).await.unwrap();
    load(&engine, "other").await.unwrap();
    load(&engine, "m").await.unwrap();
    assert_eq!(index(&engine), ["m 1 READY", "other 1 READY"]);
    assert_eq!(engine.model("other", None).unwrap().config().name, Name::new("other"));
    engine.repository().unregister(second.path().into()).await.unwrap();
    assert!(serves(&engine, "other").await, "its models stay");
    assert!(load(&engine, "other").await.is_err());
}

#[tokio::test]
async fn a_directory_may_have_two_names_which_other_repositories_do_not_take() {
    let second = Repository::new().model("m", ECHO, &["2"]);
    let first = Repository::new().model("m", ECHO, &["1"]).model("other", ECHO, &["1"]);
    let engine = start(explicit(first.options()), echo()).await;
    let mapped = BTreeMap::from(["m", "other"].map(|model| (Name::new(model), "m".to_owned())));
    engine.repository().register(second.path().into(), mapped).await.unwrap();
    for name in ["m", "other"] {
        load(&engine, name).await.unwrap();
    }
    assert_eq!(index(&engine), ["m 2 READY", "other 2 READY"]);
    engine.repository().unregister(second.path().into()).await.unwrap();
    load(&engine, "m").await.unwrap();
    assert_eq!(engine.model("m", None).unwrap().version(), 1, "the name is free again");
}

fn polling(options: EngineOptions) -> EngineOptions {
    let polling = Polling { period: Duration::from_millis(2), settle: Duration::from_millis(1) };
    EngineOptions { control: ModelControl::Poll(polling), ..options }
}

#[tokio::test]
async fn a_polled_repository_is_followed() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = start(polling(repository.options()), echo()).await;
    assert_eq!(index(&engine), ["m 1 READY"]);
    let repository = repository.model("n", ECHO, &["1"]);
    until(&engine, &["m 1 READY", "n 1 READY"]).await;
    let repository = repository.model("m", ECHO, &["2"]);
    until(&engine, &["m 1 UNAVAILABLE unloaded", "m 2 READY", "n 1 READY"]).await;
    fs::remove_dir_all(repository.path().join("n")).unwrap();
    until(&engine, &["m 1 UNAVAILABLE unloaded", "m 2 READY"]).await;
    let error = load(&engine, "m").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    let away = repository.path().with_extension("away");
    fs::rename(repository.path(), &away).unwrap();
    let looks = engine.repository().poll();
    looks.await.unwrap();
    engine.repository().poll().await.unwrap();
    assert!(serves(&engine, "m").await, "what cannot be read is not gone");
    fs::rename(&away, repository.path()).unwrap();
}

#[tokio::test]
async fn a_look_that_is_asked_for_returns_after_the_loads() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let once = Polling { period: Duration::ZERO, settle: Duration::ZERO };
    let options = EngineOptions { control: ModelControl::Poll(once), ..repository.options() };
    let engine = start(options, echo()).await;
    let repository = repository.model("n", ECHO, &["1"]);
    engine.repository().poll().await.unwrap();
    assert_eq!(index(&engine), ["m 1 READY", "n 1 READY"]);
    drop(repository);
}

#[tokio::test]
async fn without_a_control_mode_nothing_changes() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = repository.serve(echo()).await;
    for refused in [load(&engine, "m").await, engine.repository().unload("m").await] {
        assert_eq!(
            refused.unwrap_err().message,
            "explicit model load / unload is not allowed if polling is enabled. Model control mode 'explicit' allows it (--model-control-mode=explicit)"
        );
    }
    assert_eq!(engine.repository().poll().await.unwrap_err().code, ErrorCode::Unavailable);
    let refused = engine.repository().register("/x".into(), BTreeMap::new()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unsupported);
    let state = engine.known_models(false)[0].state;
    assert_eq!(state, Some(ModelState::Ready));
}

const SEQUENCES: &str = "sequence_batching { max_sequence_idle_microseconds: 60000000 control_input {
    name: 'START' control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } }";

/// A request of a sequence: the first, one in between, or the last.
fn step(id: u64, start: bool, end: bool) -> inference::Request {
    let id = NonZeroU64::new(id).map(SequenceId::Number);
    inference::Request { sequence: SequencePosition { id, start, end }, ..request(42) }
}

/// Sends a request of a sequence. Returns its error, if it has one.
async fn ask_step(engine: &Engine, version: Option<i64>, request: inference::Request) -> Result<(), String> {
    let text = |error: Error| error.message.into_owned();
    let request = inference::Request { model_version: version, ..request };
    let response = engine.model("m", version).and_then(|model| model.infer(request)).map_err(text)?;
    response.only().await.map(drop).map_err(text)
}

const NO_START: &str = "inference request for sequence 2 to model 'm' must specify the START flag on the first request of the sequence";

#[tokio::test]
async fn running_sequences_stay_with_the_copy_that_has_their_state() {
    let repository = Repository::new().model("m", &format!("{ECHO} {SEQUENCES}"), &["1"]);
    let engine = start(explicit(repository.options()), echo()).await;
    load(&engine, "m").await.unwrap();
    let first = Arc::downgrade(&engine.model("m", None).unwrap());
    ask_step(&engine, None, step(1, true, false)).await.unwrap();
    let mut repository = repository;
    for content in ["a", "b"] {
        repository = repository.file("m/1/weights", content);
        load(&engine, "m").await.unwrap();
    }
    // Only the first of the three copies knows the sequence.
    ask_step(&engine, None, step(1, false, false)).await.unwrap();
    ask_step(&engine, Some(1), step(1, false, false)).await.unwrap();
    let old = first.upgrade().unwrap();
    assert_eq!(ask_step(&engine, None, step(2, false, false)).await, Err(NO_START.to_owned()));
    // A new sequence begins on the new copy, even if the request was on its way to the old one.
    old.infer(step(2, true, false)).unwrap().only().await.unwrap();
    ask_step(&engine, None, step(2, false, true)).await.unwrap();
    drop(old);
    ask_step(&engine, None, step(1, false, true)).await.unwrap();
    support::until("the end of the first copy", || first.strong_count() == 0).await;
    drop(repository);
}

#[tokio::test]
async fn sequences_of_a_version_that_the_policy_retires_go_on() {
    let repository = Repository::new().model("m", &format!("{ECHO} {SEQUENCES}"), &["1"]);
    let engine = start(explicit(repository.options()), echo()).await;
    load(&engine, "m").await.unwrap();
    ask_step(&engine, None, step(1, true, false)).await.unwrap();
    let repository = repository.model("m", &format!("{ECHO} {SEQUENCES}"), &["2"]);
    load(&engine, "m").await.unwrap();
    assert_eq!(index(&engine), ["m 1 UNLOADING", "m 2 READY"]);
    assert!(engine.ready().await.unwrap() && engine.ready_here().unwrap(), "the new version serves");
    let slots = engine.explain(Some(("m", Some(1))), |_| true).unwrap().models.remove(0);
    assert_eq!(slots.served.unwrap().sequences.unwrap().slots.len(), 1);
    for version in [None, Some(1)] {
        ask_step(&engine, version, step(1, false, false)).await.unwrap();
    }
    for (id, starts, version) in [(1, false, 1), (3, true, 2)] {
        let model = engine.model("m", None).unwrap();
        let mut responses = model.infer(step(id, starts, false)).unwrap();
        responses.take_only().await.unwrap();
        assert_eq!((model.version(), model.version_of(&responses)), (2, version));
    }
    let refused = ask_step(&engine, Some(1), step(2, true, false)).await;
    assert_eq!(refused.unwrap_err(), "Request for unknown model: 'm' version 1 is not at ready state");
    ask_step(&engine, None, step(2, true, true)).await.unwrap();
    ask_step(&engine, Some(1), step(1, false, true)).await.unwrap();
    until(&engine, &["m 1 UNAVAILABLE unloaded", "m 2 READY"]).await;
    drop(repository);
}

#[tokio::test]
async fn sequences_hold_neither_an_unload_nor_the_end_of_the_server_up() {
    let repository = Repository::new().model("m", &format!("{ECHO} {SEQUENCES}"), &["1"]);
    let engine = start(explicit(repository.options()), echo()).await;
    load(&engine, "m").await.unwrap();
    ask_step(&engine, None, step(1, true, false)).await.unwrap();
    engine.repository().unload("m").await.unwrap();
    until(&engine, &["m 1 UNAVAILABLE unloaded"]).await;
    load(&engine, "m").await.unwrap();
    ask_step(&engine, None, step(1, true, false)).await.unwrap();
    let repository = repository.file("m/1/weights", "a");
    load(&engine, "m").await.unwrap();
    ask_step(&engine, None, step(1, false, false)).await.unwrap();
    engine.stop(TIMEOUT).await.unwrap();
    drop(repository);
}

#[tokio::test]
async fn the_old_copy_ends_when_its_time_is_over() {
    let repository = Repository::new().model("m", &format!("{ECHO} {SEQUENCES}"), &["1"]);
    let options = EngineOptions { sequence_limit: Duration::ZERO, ..explicit(repository.options()) };
    let engine = start(options, echo()).await;
    load(&engine, "m").await.unwrap();
    let first = Arc::downgrade(&engine.model("m", None).unwrap());
    ask_step(&engine, None, step(2, true, false)).await.unwrap();
    let repository = repository.file("m/1/weights", "a");
    load(&engine, "m").await.unwrap();
    support::until("the end of the first copy", || first.strong_count() == 0).await;
    assert_eq!(ask_step(&engine, None, step(2, false, false)).await, Err(NO_START.to_owned()));
    drop(repository);
}
