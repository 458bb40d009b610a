//! Tests of host policies: instances run only on the processors of their policy.
use std::{
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    thread,
};

use engine::EngineOptions;
use host::{HostPolicy, ProcessorSet};
use rustix::{
    process::getpriority_process,
    thread::{CpuSet, sched_getaffinity},
};

use crate::support::{ECHO, Native, Repository, answer, echo, index, serves, start};

/// What a test records on an instance's thread.
struct Seen {
    affinity: CpuSet,
    nice: i32,
    thread: Option<String>,
    /// The thread budget in the instance's specification.
    budget: Option<NonZeroUsize>,
}

fn seen(budget: Option<NonZeroUsize>) -> Seen {
    let thread = thread::current().name().map(str::to_owned);
    let nice = getpriority_process(None).unwrap();
    Seen { affinity: sched_getaffinity(None).unwrap(), nice, thread, budget }
}

/// A backend whose instances may change threads, and report where they were built and ran.
fn reporting() -> (Native, mpsc::Receiver<Seen>) {
    let (tell, told) = mpsc::channel();
    let tell = Arc::new(parking_lot::Mutex::new(tell));
    let at_work = tell.clone();
    let backend = echo()
        .mobile()
        .build(move |_, spec| {
            tell.lock().send(seen(Some(spec.threads))).unwrap();
            Ok(())
        })
        .execute(move |_, batch| {
            at_work.lock().send(seen(None)).unwrap();
            batch.executions.into_iter().for_each(answer);
        });
    (backend, told)
}

fn bound(repository: &Repository, policy: &str, settings: HostPolicy) -> EngineOptions {
    let mut options = repository.options();
    options.host_policies.insert(policy.to_owned(), settings);
    options
}

/// The last processor that this process may use.
fn one_processor() -> usize {
    let usable = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).rfind(|&processor| usable.is_set(processor)).unwrap()
}

fn cores(text: &str) -> HostPolicy {
    HostPolicy { cpu_cores: Some(ProcessorSet::parse(text).unwrap()), ..HostPolicy::default() }
}

#[tokio::test]
async fn an_instance_is_built_and_runs_on_the_processors_of_its_policy_only() {
    let mine = one_processor();
    let before = sched_getaffinity(None).unwrap();
    let group = "instance_group { count: 1 host_policy: 'corner' }";
    let repository = Repository::new().model("m", &format!("{ECHO} {group}"), &["1"]);
    let (backend, told) = reporting();
    let engine = start(bound(&repository, "corner", cores(&mine.to_string())), backend).await;
    // The executions are short enough for callers' threads, if the policy allowed that.
    for _ in 0..200 {
        assert!(serves(&engine, "m").await);
    }
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!(told.len(), 201);
    assert_eq!(told[0].budget, Some(NonZeroUsize::MIN));
    for Seen { affinity, thread, .. } in told {
        assert_eq!((affinity.count(), affinity.is_set(mine)), (1, true));
        assert_eq!(thread.as_deref(), Some("m_0_0"));
    }
    assert_eq!(sched_getaffinity(None).unwrap(), before);
}

#[tokio::test]
async fn a_policy_that_nobody_has_set_changes_nothing() {
    let group = "instance_group { count: 1 host_policy: 'elsewhere' }";
    let repository = Repository::new().model("m", &format!("{ECHO} {group}"), &["1"]);
    let (backend, told) = reporting();
    let engine = start(bound(&repository, "corner", cores("0")), backend).await;
    assert!(serves(&engine, "m").await);
    let process = sched_getaffinity(None).unwrap();
    assert!(told.try_iter().all(|seen| seen.affinity == process));
}

#[tokio::test]
async fn groups_without_a_policy_get_that_of_their_kind() {
    let mine = one_processor();
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let (backend, told) = reporting();
    let _engine = start(bound(&repository, "cpu", cores(&mine.to_string())), backend).await;
    let built: Vec<_> = told.try_iter().collect();
    assert!(!built.is_empty());
    assert!(built.iter().all(|seen| seen.affinity.count() == 1 && seen.affinity.is_set(mine)));
}

#[tokio::test]
async fn a_policy_that_cannot_be_satisfied_fails_the_model_and_is_named() {
    let group = |policy: &str| format!("{ECHO} instance_group {{ count: 1 host_policy: '{policy}' }}");
    let repository = Repository::new().model("a", &group("far"), &["1"]).model("b", &group("many"), &["1"]);
    let mut options =
        bound(&repository, "far", HostPolicy { numa_node: Some(4095), ..HostPolicy::default() });
    options.host_policies.insert("many".to_owned(), cores("1023"));
    let engine = start(options, echo()).await;
    let [a, b] = &index(&engine)[..] else { panic!("two lines: {:?}", index(&engine)) };
    assert_eq!(
        a,
        "a 1 UNAVAILABLE Invalid argument: failed to apply host policy 'far' to instance 'a_0_0': this host has no NUMA \
         node 4095"
    );
    assert!(
        b.starts_with(
            "b 1 UNAVAILABLE Invalid argument: failed to apply host policy 'many' to instance 'b_0_0': "
        ),
        "{b}"
    );
}

#[tokio::test]
async fn only_models_of_minimum_priority_run_at_nice_19() {
    for (priority, nice) in [("PRIORITY_MIN", 19), ("PRIORITY_MAX", 0), ("PRIORITY_DEFAULT", 0)] {
        let config = format!("{ECHO} optimization {{ priority: {priority} }}");
        let repository = Repository::new().model("m", &config, &["1"]);
        let (backend, told) = reporting();
        let engine = start(repository.options(), backend).await;
        // The executions are short enough for callers' threads, which keep their own priority.
        for _ in 0..200 {
            assert!(serves(&engine, "m").await);
        }
        let told: Vec<_> = told.try_iter().map(|seen| seen.nice).collect();
        assert!(told.len() > 200);
        let own = getpriority_process(None).unwrap();
        assert!(told.iter().all(|&seen| seen == nice.max(own)), "{priority}: {told:?}");
    }
}
