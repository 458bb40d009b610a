//! Tests of loading, from a configuration to instances: what a backend receives, what it may complete, and what happens
//! when it fails.
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use config::Scheduling;
use host::usable_processors;
use inference::{BackendSetting, backend::InstanceDevice};
use parking_lot::Mutex;
use proto::model_config::SchedulingChoice;
use vocabulary::Error;

use crate::support::{ECHO, Rendezvous, Repository, TIMEOUT, answer, ask, echo, index, serves, start};

#[tokio::test]
async fn an_instance_that_cannot_be_built_fails_its_version() {
    let repository = Repository::new()
        .model("m", &format!("{ECHO} instance_group {{ count: 3 }}"), &["1"])
        .model("other", ECHO, &["1"]);
    let backend = echo().build(|_, spec| match spec.name.as_str() {
        "m_0_1" => Err(Error::internal("out of luck")),
        _ => Ok(()),
    });
    let engine = repository.serve(backend).await;
    assert_eq!(index(&engine), ["m 1 UNAVAILABLE Internal: out of luck", "other 1 READY"]);
    assert!(serves(&engine, "other").await);
}

#[tokio::test]
async fn a_backend_that_panics_fails_the_version_it_was_loading() {
    let repository =
        Repository::new().model("a", ECHO, &["1"]).model("b", ECHO, &["1"]).model("c", ECHO, &["1"]);
    let backend = echo()
        .open(|source| if source.name == "a" { panic!("in open") } else { Ok(()) })
        .build(|config, _| if config.name == "b" { panic!("in instance") } else { Ok(()) });
    let engine = repository.serve(backend).await;
    let [a, b, c] = &index(&engine)[..] else { panic!("three lines: {:?}", index(&engine)) };
    assert!(a.starts_with("a 1 UNAVAILABLE Internal: the backend panicked while loading the model"), "{a}");
    assert!(a.contains("in open"), "{a}");
    assert_eq!(b, "b 1 UNAVAILABLE Internal: the backend panicked while building instance 'b_0'");
    assert_eq!(c, "c 1 READY");
}

#[tokio::test]
async fn a_backend_that_is_not_there_is_named() {
    let repository = Repository::new().model("m.nowhere", "", &["1"]);
    let engine = repository.serve(echo()).await;
    assert_eq!(
        index(&engine),
        [
            "m.nowhere 1 UNAVAILABLE Invalid argument: unable to find backend library for backend 'nowhere', try \
          specifying runtime on the model configuration."
        ]
    );
}

#[tokio::test]
async fn labels_are_read_line_by_line() {
    let labelled = ECHO.replace("output {", "output { label_filename: 'lists/labels.txt'");
    let repository = Repository::new()
        .model("m", &labelled, &["1"])
        .file("m/lists/labels.txt", "cat\ndog\r\n\nbird")
        .model("none", &labelled, &["1"])
        .model("odd", &labelled, &["1"])
        .file("odd/lists/labels.txt", b"caf\xe9");
    let engine = repository.serve(echo()).await;
    let labels = engine.model("m", None).unwrap().config().outputs[0].labels.clone();
    assert_eq!(*labels, ["cat", "dog", "", "bird"]);
    let [_, none, odd] = &index(&engine)[..] else { panic!("three lines: {:?}", index(&engine)) };
    let failed = |name: &str| {
        let path = repository.path().join(name).join("lists/labels.txt");
        format!("{name} 1 UNAVAILABLE Internal: failed to open text file for read {}: ", path.display())
    };
    assert_eq!(*none, failed("none") + "No such file or directory");
    assert!(odd.starts_with(&failed("odd")) && odd.contains("UTF-8"), "{odd}");
}

#[tokio::test]
async fn a_load_is_tried_as_often_as_allowed() {
    for (retries, attempts, line) in
        [(2, 3, "m 1 READY"), (5, 3, "m 1 READY"), (1, 2, "m 1 UNAVAILABLE Internal: not yet")]
    {
        let repository = Repository::new().model("m", ECHO, &["1"]);
        let made = Arc::new(AtomicUsize::new(0));
        let backend = echo().open({
            let made = made.clone();
            move |_| if made.fetch_add(1, SeqCst) < 2 { Err(Error::internal("not yet")) } else { Ok(()) }
        });
        let mut options = repository.options();
        options.load_retries = retries;
        let engine = start(options, backend).await;
        assert_eq!((index(&engine), made.load(SeqCst)), (vec![line.to_owned()], attempts));
    }
}

#[tokio::test]
async fn as_many_models_load_at_a_time_as_there_are_threads() {
    let repository = ["a", "b", "c", "d"]
        .iter()
        .fold(Repository::new(), |repository, name| repository.model(name, ECHO, &["1"]));
    // Two loads that wait for each other can only finish if they run at the same time. The order of loads is open.
    let begun = AtomicUsize::new(0);
    let meetings = [Rendezvous::of(2), Rendezvous::of(2)];
    let mut options = repository.options();
    options.load_threads = 2;
    let backend = echo().open(move |_| {
        let rendezvous = &meetings[begun.fetch_add(1, SeqCst) / 2];
        if rendezvous.join(TIMEOUT) { Ok(()) } else { Err(Error::internal("nobody came")) }
    });
    let engine = start(options, backend).await;
    assert_eq!(index(&engine), ["a 1 READY", "b 1 READY", "c 1 READY", "d 1 READY"]);
}

#[tokio::test]
async fn one_load_thread_loads_one_model_at_a_time() {
    let repository = ["a", "b", "c"].iter().fold(Repository::new(), |repository, name| {
        repository.model(name, &format!("{ECHO} version_policy {{ all {{}} }}"), &["1", "2"])
    });
    let (loading, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gauge = (loading.clone(), most.clone());
    let backend = echo().open(move |_| {
        gauge.1.fetch_max(gauge.0.fetch_add(1, SeqCst) + 1, SeqCst);
        // Lets another load begin, which must not happen.
        (0..100).for_each(|_| thread::yield_now());
        gauge.0.fetch_sub(1, SeqCst);
        Ok(())
    });
    let mut options = repository.options();
    options.load_threads = 1;
    let engine = start(options, backend).await;
    assert_eq!(engine.known_models(true).len(), 6);
    assert_eq!((most.load(SeqCst), loading.load(SeqCst)), (1, 0));
}

#[tokio::test]
async fn a_backend_sees_its_settings_over_those_for_all() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let setting = |(backend, key, value): (Option<&str>, &str, &str)| BackendSetting {
        backend: backend.map(str::to_owned),
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let mut options = repository.options();
    options.backend_settings = [
        (Some("echo"), "own", "first"),
        (None, "own", "for all"),
        (None, "shared", "for all"),
        (Some("other"), "foreign", "x"),
        (Some("echo"), "twice", "1"),
        (Some("echo"), "twice", "2"),
    ]
    .map(setting)
    .into();
    let seen = Arc::new(Mutex::new(None));
    let backend = echo().open({
        let seen = seen.clone();
        move |source| {
            *seen.lock() = Some(source.clone());
            Ok(())
        }
    });
    start(options, backend).await;
    let source = seen.lock().take().unwrap();
    let expected = [("own", "first"), ("shared", "for all"), ("twice", "2")];
    assert_eq!(
        source.settings,
        BTreeMap::from(expected.map(|(key, value)| (key.to_owned(), value.to_owned())))
    );
    assert_eq!((source.name.as_str(), source.version), ("m", 1));
    assert_eq!(source.model_directory, repository.path().join("m"));
    assert_eq!(source.version_directory, repository.path().join("m/1"));
    assert_eq!(source.declared.name, "m");
}

#[tokio::test]
async fn a_backend_may_complete_only_some_fields() {
    let repository = Repository::new().model("m", "backend: 'echo' instance_group { count: 2 }", &["1"]);
    let backend = echo().complete(|config| {
        let tensors = proto::text::parse(
            format!("{ECHO} dynamic_batching {{}} model_transaction_policy {{ decoupled: true }}").as_bytes(),
        );
        let completed = tensors.unwrap().config;
        *config = proto::ModelConfig { name: "renamed".to_owned(), backend: "other".to_owned(), ..completed };
        config.metric_tags.insert("not".to_owned(), "taken".to_owned());
        Ok(())
    });
    let engine = repository.serve(backend).await;
    let model = engine.model("m", None).unwrap();
    let config = model.config();
    assert_eq!((config.name.as_str(), &config.backend[..]), ("m", "echo"));
    assert_eq!((config.max_rows(), config.inputs.len(), config.outputs.len()), (8, 1, 1));
    assert!(matches!(config.scheduling, Scheduling::Dynamic(_)) && config.decoupled);
    assert_eq!(config.instance_groups[0].count, NonZeroUsize::new(2).unwrap());
    assert!(config.metric_tags.is_empty());
    assert!(matches!(model.shown().scheduling_choice, Some(SchedulingChoice::DynamicBatching(_))));
}

#[tokio::test]
async fn a_contradiction_that_a_backend_finds_is_the_reason() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = repository.serve(echo().complete(|_| Err(Error::invalid("'IN' is not in the file")))).await;
    assert_eq!(index(&engine), ["m 1 UNAVAILABLE Invalid argument: 'IN' is not in the file"]);
}

#[tokio::test]
async fn in_strict_mode_nothing_is_completed() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let called = Arc::new(AtomicBool::new(false));
    let backend = echo().complete({
        let called = called.clone();
        move |_| {
            called.store(true, SeqCst);
            Ok(())
        }
    });
    let mut options = repository.options();
    options.auto_complete = false;
    let engine = start(options, backend.clone()).await;
    assert!(serves(&engine, "m").await && !called.load(SeqCst));
    repository.serve(backend).await;
    assert!(called.load(SeqCst), "otherwise it is");
}

#[tokio::test]
async fn instances_are_named_and_share_the_processors() {
    let groups = "instance_group { count: 2 } instance_group { name: 'own' count: 1 kind: KIND_MODEL }";
    let repository =
        Repository::new().model("m", &format!("{ECHO} {groups}"), &["1"]).model("one", ECHO, &["1"]);
    let built = Arc::new(Mutex::new(Vec::new()));
    let backend = echo().build({
        let built = built.clone();
        move |_, spec| {
            built.lock().push((spec.name.to_string(), spec.device, spec.threads.get()));
            Ok(())
        }
    });
    repository.serve(backend).await;
    let mut built = std::mem::take(&mut *built.lock());
    built.sort_by(|one, other| one.0.cmp(&other.0));
    let all = usable_processors().get();
    let share = (all / 3).max(1);
    let expected = [
        ("m_0_0", InstanceDevice::Cpu, share),
        ("m_0_1", InstanceDevice::Cpu, share),
        ("one_0", InstanceDevice::Cpu, all),
        ("own_0", InstanceDevice::Model, share),
    ];
    assert_eq!(built, expected.map(|(name, device, threads)| (name.to_owned(), device, threads)));
}

#[tokio::test]
async fn a_batcher_holds_its_first_requests_until_a_number_has_arrived() {
    let repository = Repository::new().model("m", &format!("{ECHO} dynamic_batching {{}}"), &["1"]);
    let (sender, batches) = mpsc::channel();
    let backend = echo().execute(move |_, batch| {
        sender.send(batch.executions.len()).unwrap();
        batch.executions.into_iter().for_each(answer);
    });
    let mut options = repository.options();
    options.hold_until_queued = 3;
    let engine = start(options, backend).await;
    let held = [ask(&engine, "m", 1), ask(&engine, "m", 2)];
    assert_eq!(engine.in_flight(), 2);
    let third = ask(&engine, "m", 3);
    for stream in held.into_iter().chain([third]) {
        stream.only().await.unwrap();
    }
    ask(&engine, "m", 4).only().await.unwrap();
    assert_eq!(batches.try_iter().collect::<Vec<_>>(), [3, 1]);
}
