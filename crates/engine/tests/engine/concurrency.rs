//! Tests of how many requests run at the same time: those of different models, and those of one model with several
//! instances.
use std::sync::mpsc;

use engine::Engine;
use inference::{backend::Execution, metrics::MetricsForm};

use crate::support::{Begun, ECHO, Native, Repository, TIMEOUT, answer, ask, echo, held, value};

/// A backend whose batches wait for the test, with the values that they carry.
fn gated() -> (Native, mpsc::Receiver<Begun<Vec<u8>>>) {
    let values =
        |executions: &[Execution]| executions.iter().map(|execution| value(&execution.request)).collect();
    held(echo(), values, answer)
}

fn with_instances(count: u32) -> String {
    format!("{ECHO} instance_group {{ count: {count} kind: KIND_CPU }}")
}

/// The number of requests of a model that wait for an instance.
fn waiting(engine: &Engine, model: &str) -> u64 {
    let prefix = format!("nv_inference_pending_request_count{{model=\"{model}\",");
    let metrics = engine.metrics(MetricsForm::Prometheus);
    let line = metrics.lines().find(|line| line.starts_with(&prefix)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn requests_for_two_models_run_at_once() {
    let (backend, begun) = gated();
    let repository = Repository::new().model("m0", &with_instances(1), &["1"]);
    let engine = repository.model("m1", &with_instances(1), &["1"]).serve(backend).await;
    let streams = [("m0", 10), ("m1", 11)].map(|(model, value)| ask(&engine, model, value));
    // Neither batch continues before both have begun.
    let mut running = [(); 2].map(|()| begun.recv_timeout(TIMEOUT).unwrap());
    running.sort_by(|one, other| one.model.cmp(&other.model));
    assert_eq!([&running[0].model[..], &running[1].model], ["m0", "m1"]);
    assert_eq!([&running[0].seen[..], &running[1].seen], [[10], [11]]);
    drop(running);
    for stream in streams {
        stream.only().await.unwrap();
    }
}

#[tokio::test]
async fn three_instances_run_three_requests_while_the_fourth_waits_and_another_model_goes_on() {
    let (backend, begun) = gated();
    let repository = Repository::new().model("m0", &with_instances(1), &["1"]);
    let engine = repository.model("m1", &with_instances(3), &["1"]).serve(backend).await;
    let next = || begun.recv_timeout(TIMEOUT).unwrap();

    let streams: Vec<_> = (1..=4).map(|value| ask(&engine, "m1", value)).collect();
    let mut running: Vec<_> = (0..3).map(|_| next()).collect();
    let mut values: Vec<_> = running.iter().flat_map(|batch| batch.seen.clone()).collect();
    values.sort_unstable();
    assert_eq!(values, [1, 2, 3]);
    assert_eq!(waiting(&engine, "m1"), 1);

    // The other model answers one request after the other, and the fourth request still waits.
    for value in 5..10 {
        let stream = ask(&engine, "m0", value);
        let batch = next();
        assert_eq!((&batch.model[..], &batch.seen[..]), ("m0", &[value][..]));
        batch.end();
        stream.only().await.unwrap();
        assert_eq!(waiting(&engine, "m1"), 1);
    }

    let instance = running.remove(1).end();
    let fourth = next();
    assert_eq!((&fourth.thread, &fourth.seen[..]), (&instance, &[4][..]));
    running.push(fourth);
    drop(running);
    for (stream, value) in streams.into_iter().zip(1..) {
        let response = stream.only().await.unwrap();
        assert_eq!(response.output("OUT").unwrap().host().unwrap().contiguous()[..], [value]);
    }
}
