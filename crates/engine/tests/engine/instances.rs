//! Tests of updates that change only the instances of a model: nothing else is built anew, and nobody waits.
use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU32, NonZeroU64},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use engine::{Engine, EngineOptions, ModelControl, RateLimitResource, StartupModels};
use inference::{SequenceId, SequencePosition};
use parking_lot::Mutex;
use repository::LoadParameters;
use vocabulary::Error;

use crate::support::{
    Begun, ECHO, Native, Repository, TIMEOUT, answer, ask, echo, held, index, request, serves, start, until,
    value,
};

/// How often the backend has opened a version, and built an instance.
#[derive(Clone, Default)]
struct Built {
    versions: Arc<AtomicUsize>,
    instances: Arc<AtomicUsize>,
}

impl Built {
    fn count(&self, backend: Native) -> Native {
        let Self { versions, instances } = self.clone();
        backend
            .open(move |_| {
                versions.fetch_add(1, SeqCst);
                Ok(())
            })
            .build(move |_, _| {
                instances.fetch_add(1, SeqCst);
                Ok(())
            })
    }

    fn counts(&self) -> (usize, usize) {
        (self.versions.load(SeqCst), self.instances.load(SeqCst))
    }
}

/// The names of the threads of this process.
fn thread_names() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    threads.filter_map(|thread| Some(name(thread.ok()?).ok()?.trim().to_owned())).collect()
}

#[tokio::test]
async fn idle_instances_that_may_change_threads_have_none() {
    let mut repository = Repository::new();
    for model in 0..20 {
        repository = repository.model(&format!("idle{model}"), ECHO, &["1"]);
    }
    let engine = repository.serve(echo().mobile()).await;
    let is_of_instance = |name: &String| name.starts_with("idle");
    until("the threads that have built them", || !thread_names().iter().any(is_of_instance)).await;
    for model in 0..20 {
        assert!(serves(&engine, &format!("idle{model}")).await);
    }
    assert!(!thread_names().iter().any(is_of_instance));
}

fn group(count: usize) -> String {
    format!("instance_group {{ count: {count} kind: KIND_CPU }}")
}

fn explicit(repository: &Repository) -> EngineOptions {
    let control = ModelControl::Explicit(StartupModels::Named(BTreeSet::new()));
    EngineOptions { control, ..repository.options() }
}

/// A model with these instances, and its engine.
async fn serve(backend: Native, config: &str, instances: &str) -> (Repository, Engine) {
    let repository = Repository::new().model("m", &format!("{config} {instances}"), &["1"]);
    let engine = start(explicit(&repository), backend).await;
    load(&engine).await.unwrap();
    (repository, engine)
}

async fn load(engine: &Engine) -> Result<(), Error> {
    engine.repository().load("m", LoadParameters::default()).await
}

/// Changes the instances of the model.
async fn update(
    repository: Repository,
    engine: &Engine,
    config: &str,
    instances: &str,
) -> (Repository, Result<(), Error>) {
    let repository = repository.file("m/config.pbtxt", format!("{config} {instances}"));
    let updated = load(engine).await;
    (repository, updated)
}

/// Waits until so many instances exist.
async fn exist(instances: &AtomicUsize, count: usize) {
    until(&format!("{count} instances"), || instances.load(SeqCst) == count).await;
}

fn shown_instances(engine: &Engine) -> Vec<i32> {
    let model = engine.model("m", None).unwrap();
    model.shown().instance_group.iter().map(|group| group.count).collect()
}

#[tokio::test]
async fn instances_are_added_and_removed_and_the_rest_stays() {
    let (built, backend) = (Built::default(), echo());
    let existing = backend.instances();
    let (repository, engine) = serve(built.count(backend), ECHO, &group(1)).await;
    assert!(serves(&engine, "m").await);
    assert_eq!(built.counts(), (1, 1));
    let (repository, updated) = update(repository, &engine, ECHO, &group(3)).await;
    updated.unwrap();
    assert_eq!((built.counts(), existing.load(SeqCst)), ((1, 3), 3));
    assert_eq!(shown_instances(&engine), [3]);
    assert!(serves(&engine, "m").await);
    let (repository, updated) = update(repository, &engine, ECHO, &group(2)).await;
    updated.unwrap();
    exist(&existing, 2).await;
    assert!(serves(&engine, "m").await);
    let statistics = engine.statistics(Some("m"), None).unwrap().remove(0);
    assert_eq!(statistics.totals.inference_count, 3, "the statistics go on");
    // A number that has become free is used again.
    let (_repository, updated) = update(repository, &engine, ECHO, &group(4)).await;
    updated.unwrap();
    assert_eq!((built.counts(), existing.load(SeqCst)), ((1, 5), 4));
    assert!(serves(&engine, "m").await);
    engine.repository().unload("m").await.unwrap();
    exist(&existing, 0).await;
}

#[tokio::test]
async fn the_rows_that_the_backend_allows_a_request_stay() {
    let built = Built::default();
    let limit = |engine: &Engine| engine.model("m", None).unwrap().config().request_limit();
    let (repository, engine) = serve(built.count(echo().request_rows(16)), ECHO, &group(1)).await;
    assert_eq!(limit(&engine), NonZeroU32::new(16));
    let (_repository, updated) = update(repository, &engine, ECHO, &group(2)).await;
    updated.unwrap();
    assert_eq!((built.counts(), limit(&engine)), ((1, 2), NonZeroU32::new(16)));
}

#[tokio::test]
async fn a_group_with_another_name_is_the_same_and_one_with_another_kind_is_not() {
    let (built, backend) = (Built::default(), echo());
    let existing = backend.instances();
    let (repository, engine) = serve(built.count(backend), ECHO, &group(2)).await;
    let two =
        "instance_group { name: 'x' count: 1 kind: KIND_CPU } instance_group { name: 'y' kind: KIND_CPU }";
    let (repository, updated) = update(repository, &engine, ECHO, two).await;
    updated.unwrap();
    assert_eq!((built.counts(), shown_instances(&engine)), ((1, 2), vec![1, 1]));
    let model = "instance_group { count: 2 kind: KIND_MODEL }";
    let (repository, updated) = update(repository, &engine, ECHO, model).await;
    updated.unwrap();
    exist(&existing, 2).await;
    assert_eq!(built.counts(), (1, 4));
    let passive = format!("{model} instance_group {{ count: 1 kind: KIND_CPU passive: true }}");
    let (repository, updated) = update(repository, &engine, ECHO, &passive).await;
    updated.unwrap();
    assert_eq!((built.counts(), existing.load(SeqCst)), ((1, 5), 3));
    let (_repository, updated) = update(repository, &engine, ECHO, model).await;
    updated.unwrap();
    exist(&existing, 2).await;
    assert!(serves(&engine, "m").await);
}

#[tokio::test]
async fn another_difference_is_a_reload() {
    let built = Built::default();
    let (repository, engine) = serve(built.count(echo()), ECHO, &group(1)).await;
    let (repository, updated) =
        update(repository, &engine, &format!("{ECHO} dynamic_batching {{}}"), &group(2)).await;
    updated.unwrap();
    assert_eq!(built.counts(), (2, 3));
    let repository = repository.file("m/1/weights", "new");
    let (_repository, updated) =
        update(repository, &engine, &format!("{ECHO} dynamic_batching {{}}"), &group(1)).await;
    updated.unwrap();
    assert_eq!(built.counts(), (3, 4));
}

#[tokio::test]
async fn idle_instances_leave_first_and_a_busy_one_finishes_what_it_does() {
    let backend = echo();
    let existing = backend.instances();
    let (backend, begun) = held(backend, |batch| value(&batch[0].request), answer);
    let (repository, engine) = serve(backend, ECHO, &group(3)).await;
    let (one, first) = (ask(&engine, "m", 1), begun.recv().unwrap());
    let (repository, updated) = update(repository, &engine, ECHO, &group(1)).await;
    updated.unwrap();
    exist(&existing, 1).await;
    let busy = first.thread;
    // Requests of the old and of the new copy run on the instance that has remained.
    let two = ask(&engine, "m", 2);
    first.end();
    one.only().await.unwrap();
    let second = begun.recv().unwrap();
    assert_eq!((second.seen, second.thread), (2, busy));
    // Now the only instance is busy. It leaves when the other one has begun.
    let (_repository, updated) =
        update(repository, &engine, ECHO, "instance_group { kind: KIND_MODEL }").await;
    updated.unwrap();
    assert_eq!(existing.load(SeqCst), 2);
    let (three, third) = (ask(&engine, "m", 3), begun.recv().unwrap());
    assert_ne!(third.thread, busy);
    second.end();
    two.only().await.unwrap();
    exist(&existing, 1).await;
    third.end();
    three.only().await.unwrap();
    assert_eq!(engine.in_flight(), 0);
}

#[tokio::test]
async fn an_instance_that_cannot_be_built_changes_nothing_in_any_version() {
    let versions = format!("{ECHO} version_policy {{ all {{}} }}");
    let backend = echo();
    let existing = backend.instances();
    let built = Arc::new(Mutex::new(BTreeMap::new()));
    let backend = backend.build({
        let built = built.clone();
        move |_, spec| {
            // The second version builds its instances later than the first, or beside it: one of both fails.
            let mut built = built.lock();
            *built.entry(spec.name.to_string()).or_insert(0) += 1;
            if built[&*spec.name] == 2 && spec.name.ends_with("_1") {
                Err(Error::internal("no room"))
            } else {
                Ok(())
            }
        }
    });
    let repository = Repository::new().model("m", &format!("{versions} {}", group(1)), &["1", "2"]);
    let engine = start(explicit(&repository), backend).await;
    load(&engine).await.unwrap();
    let before = [1, 2].map(|version| engine.model("m", Some(version)).unwrap());
    let (_repository, updated) = update(repository, &engine, &versions, &group(2)).await;
    let error = updated.unwrap_err();
    assert!(error.message.contains("no room"), "{error}");
    exist(&existing, 2).await;
    assert_eq!(index(&engine), ["m 1 READY", "m 2 READY"]);
    for (version, before) in (1..).zip(before) {
        assert!(Arc::ptr_eq(&engine.model("m", Some(version)).unwrap(), &before));
    }
    assert_eq!(shown_instances(&engine), [1]);
    assert!(serves(&engine, "m").await);
}

#[tokio::test]
async fn an_update_whose_needs_exceed_the_resources_is_refused() {
    let needing = |count: usize, units: u32| {
        format!(
            "instance_group {{ count: {count} kind: KIND_CPU rate_limiter {{ resources {{ name: 'R' count: {units} }} }} }}"
        )
    };
    let repository = Repository::new().model("m", &format!("{ECHO} {}", needing(1, 2)), &["1"]);
    let resource = RateLimitResource { name: "R".to_owned(), count: 3, device: None };
    let options = EngineOptions { rate_limit: Some(vec![resource]), ..explicit(&repository) };
    let backend = echo();
    let existing = backend.instances();
    let engine = start(options, backend).await;
    load(&engine).await.unwrap();
    let (repository, updated) = update(repository, &engine, ECHO, &needing(1, 4)).await;
    assert!(updated.unwrap_err().message.contains("Resource count for \"R\" is limited to 3"));
    assert!(serves(&engine, "m").await);
    let (repository, updated) = update(repository, &engine, ECHO, &needing(2, 3)).await;
    updated.unwrap();
    exist(&existing, 2).await;
    for _ in 0..5 {
        assert!(serves(&engine, "m").await);
    }
    let (_repository, updated) = update(repository, &engine, ECHO, &group(1)).await;
    updated.unwrap();
    exist(&existing, 1).await;
    assert!(serves(&engine, "m").await);
}

/// A model of sequences. The held batches report the request's value.
const SEQUENCES: &str = "backend: 'echo' max_batch_size: 8
    input { name: 'IN' data_type: TYPE_UINT8 dims: -1 } output { name: 'OUT' data_type: TYPE_UINT8 dims: -1 }
    sequence_batching { max_sequence_idle_microseconds: 60000000 control_input { name: 'START'
        control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } STRATEGY }";

async fn step(
    engine: &Engine,
    begun: &std::sync::mpsc::Receiver<Begun<u8>>,
    id: u64,
    end: bool,
) -> std::thread::ThreadId {
    let sequence = SequencePosition { id: NonZeroU64::new(id).map(SequenceId::Number), start: false, end };
    sent(engine, begun, id, sequence).await
}

async fn sent(
    engine: &Engine,
    begun: &std::sync::mpsc::Receiver<Begun<u8>>,
    id: u64,
    sequence: SequencePosition,
) -> std::thread::ThreadId {
    let mut request = request(u8::try_from(id).unwrap());
    request.sequence = sequence;
    let answered = engine.model("m", None).unwrap().infer(request).unwrap();
    let running = begun.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(u64::from(running.seen), id);
    let thread = running.end();
    answered.only().await.unwrap();
    thread
}

#[tokio::test]
async fn sequences_stay_on_their_instances_which_leave_after_them() {
    for strategy in ["direct {}", "oldest { max_candidate_sequences: 2 }"] {
        let config = SEQUENCES.replace("STRATEGY", strategy);
        let backend = echo();
        let existing = backend.instances();
        let (backend, begun) = held(backend, |batch| value(&batch[0].request), answer);
        let one = config.replace("max_batch_size: 8", "max_batch_size: 1");
        let (repository, engine) = serve(backend, &one, &group(2)).await;
        let start = |id| SequencePosition {
            id: NonZeroU64::new(id).map(SequenceId::Number),
            start: true,
            end: false,
        };
        let mut threads = BTreeMap::new();
        for id in [1, 2] {
            threads.insert(id, sent(&engine, &begun, id, start(id)).await);
        }
        // Both sequences go on, wherever they are, and one instance waits for the end of its own.
        let (repository, updated) = update(repository, &engine, &one, &group(1)).await;
        updated.unwrap();
        for _ in 0..3 {
            for id in [1, 2] {
                assert_eq!(step(&engine, &begun, id, false).await, threads[&id], "{strategy}");
            }
        }
        for id in [1, 2] {
            assert_eq!(step(&engine, &begun, id, true).await, threads[&id]);
        }
        exist(&existing, 1).await;
        let remaining = sent(&engine, &begun, 3, start(3)).await;
        // A new instance takes new sequences; the old one keeps its sequence.
        let (_repository, updated) =
            update(repository, &engine, &one, "instance_group { kind: KIND_MODEL }").await;
        updated.unwrap();
        let other = sent(&engine, &begun, 4, start(4)).await;
        assert_ne!(other, remaining);
        assert_eq!(existing.load(SeqCst), 2);
        assert_eq!(step(&engine, &begun, 3, true).await, remaining);
        exist(&existing, 1).await;
        assert_eq!(step(&engine, &begun, 4, true).await, other);
    }
}

#[tokio::test]
async fn requests_of_all_copies_end_before_the_executor_does() {
    let backend = echo();
    let existing = backend.instances();
    let (backend, begun) = held(backend, |batch| value(&batch[0].request), answer);
    let (mut repository, engine) = serve(backend, ECHO, &group(1)).await;
    let mut running = Vec::new();
    for count in 2..5 {
        running.push((ask(&engine, "m", count), begun.recv().unwrap()));
        let (again, updated) = update(repository, &engine, ECHO, &group(usize::from(count))).await;
        updated.unwrap();
        repository = again;
    }
    engine.repository().unload("m").await.unwrap();
    assert_eq!(engine.in_flight(), 3);
    for (answered, begun) in running {
        assert_eq!(existing.load(SeqCst), 4, "instances end after the last request");
        begun.end();
        answered.only().await.unwrap();
    }
    exist(&existing, 0).await;
}
