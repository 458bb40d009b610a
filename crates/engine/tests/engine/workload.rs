//! How much a server says that it has to do.
use engine::{ModelWorkload, ServerWorkload};
use inference::metrics::MetricsForm;

use crate::{
    ensembles::chain,
    stopping::gated,
    support::{ECHO, Repository, ask, echo},
};

#[tokio::test]
async fn what_runs_and_what_waits_is_told_of_each_model_that_is_not_idle() {
    let (backend, begun, go_on) = gated();
    let repository =
        ["m", "idle", "secret"].iter().fold(Repository::new(), |all, name| all.model(name, ECHO, &["1"]));
    let engine = repository.serve(backend).await;
    let asked: Vec<_> = ["m", "m", "m", "secret"].map(|model| ask(&engine, model, 1)).into();
    (0..2).for_each(|_| begun.recv().unwrap());
    let workload = engine.workload(|name| name != "secret");
    assert_eq!((workload.requests_in_flight, workload.requests_waiting), (4, 2));
    assert!(workload.busy_share > 0.0 && workload.busy_share <= 1.0, "{workload:?}");
    let [ModelWorkload { name, version, requests_in_flight, requests_waiting, queued_work, busy_share }] =
        &workload.models[..]
    else {
        panic!("{workload:?}");
    };
    assert_eq!((&name[..], *version, *requests_in_flight, *requests_waiting), ("m", 1, 3, 2));
    assert_eq!(*queued_work, None, "nothing was executed yet");
    assert!(busy_share.is_some_and(|share| share > 0.0));

    let metrics = engine.metrics(MetricsForm::Prometheus);
    assert!(metrics.contains("nereid_requests_in_flight{model=\"m\",version=\"1\"} 3\n"), "{metrics}");
    assert!(metrics.contains("nereid_instance_busy_ratio{model=\"idle\",version=\"1\"} 0\n"), "{metrics}");

    (0..4).for_each(|_| go_on.send(()).unwrap());
    for stream in asked {
        stream.only().await.unwrap();
    }
    let workload = engine.workload(|_| true);
    assert_eq!((workload.requests_in_flight, workload.requests_waiting), (0, 0));
    let names: Vec<_> = workload.models.iter().map(|model| &model.name[..]).collect();
    assert_eq!(names, ["m", "secret"], "they were busy a moment ago");
}

#[tokio::test]
async fn a_server_without_work_has_no_load() {
    let engine = Repository::new().model("m", ECHO, &["1"]).model("e", &chain(&["m", "m"], ""), &["1"]);
    let engine = engine.serve(echo()).await;
    engine.load_models().await.unwrap();
    assert_eq!(engine.workload(|_| true), ServerWorkload::default());
}
