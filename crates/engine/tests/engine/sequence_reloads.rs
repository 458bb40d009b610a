//! Reloads of an ensemble and of its members while requests of a sequence are on their way to the member that has the
//! sequence: all of them come to one copy of it, in their order.
use std::{collections::BTreeSet, num::NonZeroU64};

use engine::{Engine, EngineOptions, ModelControl, StartupModels};
use inference::{ResponseStream, SequenceId, SequencePosition};
use repository::LoadParameters;

use crate::{
    ensemble_sequences::{SEQUENCE, backend, result},
    ensembles::chain,
    support::{ECHO, Native, Repository, TIMEOUT, answer, request, start},
};

fn repository() -> Repository {
    Repository::new()
        .model("late", &format!("{ECHO} instance_group {{ count: 4 }}"), &["1"])
        .model("sequence", &format!("{ECHO} {SEQUENCE}"), &["1"])
        .model("e", &chain(&["late", "sequence"], ""), &["1"])
}

async fn serve(repository: &Repository, backend: Native) -> Engine {
    let control = ModelControl::Explicit(StartupModels::Named(BTreeSet::from(["e".into()])));
    let engine = start(EngineOptions { control, ..repository.options() }, backend).await;
    engine.load_models().await.unwrap();
    engine
}

async fn load(engine: &Engine, name: &str) {
    engine.repository().load(name, LoadParameters::default()).await.unwrap();
}

/// Sends a request of the sequence 7 whose value is its place, from 0 on.
fn ask(engine: &Engine, place: u8) -> ResponseStream {
    let id = NonZeroU64::new(7).map(SequenceId::Number);
    let sequence = SequencePosition { id, start: place == 0, end: place == 3 };
    let request = inference::Request { sequence, ..request(place) };
    engine.model("e", None).unwrap().infer(request).unwrap()
}

/// Sends four requests of a sequence, and calls `change` after the first and after the second. All of them leave the first
/// step in the reverse order.
async fn judge(repository: Repository, change: impl AsyncFn(&Engine, Repository, u8) -> Repository) {
    let (backend, held, seen) = backend();
    let engine = serve(&repository, backend).await;
    let mut repository = repository;
    let (mut streams, mut executions) = (Vec::new(), Vec::new());
    for place in 0..4 {
        streams.push(ask(&engine, place));
        executions.push(held.recv_timeout(TIMEOUT).unwrap());
        if place < 2 {
            repository = change(&engine, repository, place).await;
        }
    }
    executions.into_iter().rev().for_each(answer);
    for (place, stream) in (0..).zip(streams) {
        assert_eq!(result(stream).await, Ok(place));
    }
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_of_the_member_parts_no_sequence() {
    judge(repository(), async |engine, repository, place| {
        let repository = repository.file("sequence/1/weights", [place]);
        load(engine, "sequence").await;
        repository
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_of_the_ensemble_changes_no_order() {
    judge(repository(), async |engine, repository, place| {
        let more = format!("parameters {{ key: 'copy' value: {{ string_value: '{place}' }} }}");
        let repository = repository.file("e/config.pbtxt", chain(&["late", "sequence"], &more));
        load(engine, "e").await;
        repository
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_of_both_changes_no_order() {
    judge(repository(), async |engine, repository, place| {
        let more = format!("parameters {{ key: 'copy' value: {{ string_value: '{place}' }} }}");
        let repository = repository.file("e/config.pbtxt", chain(&["late", "sequence"], &more));
        let repository = repository.file("sequence/1/weights", [place]);
        load(engine, "e").await;
        load(engine, "sequence").await;
        repository
    })
    .await;
}
