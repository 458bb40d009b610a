//! What a backend sees of the server, of its model and instance, and of a request, and what it may decide.
use serde_json::{Value, json};
use testing::plugins::Kind;

use crate::plugins::place::{Place, Running, parameters};

/// What the backend reports about a request with these parameters.
fn seen(running: &Running, model: &str, parameters: &Value) -> Value {
    let request = json!({
        "id": "the id", "parameters": parameters,
        "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1, 2], "data": [3, 4]}]
    });
    let (status, answer) = running.infer(model, &request);
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(answer["outputs"][0]["data"][0].as_str().unwrap()).unwrap()
}

#[test]
fn a_backend_sees_its_paths_and_the_request() {
    let place = Place::with(&[(Kind::Backend, "config")])
        .model("m", "backend: 'config' instance_group [ { name: 'group' kind: KIND_CPU count: 1 } ]");
    let running = place.serve(&["--backend-config=config,colour=blue"]);
    let parameters = json!({"int": 7, "text": "a \"b\"", "truth": true, "real": 1.5, "timeout": 5_000_000});
    let seen = seen(&running, "m", &parameters);
    let part =
        |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), seen[key].clone())).collect::<Value>();
    assert_eq!(
        part(&[
            "backend",
            "backend_state",
            "backend_artifact_type",
            "model",
            "version",
            "model_artifact_type"
        ]),
        json!({
            "backend": "config", "backend_state": "state of the backend", "backend_artifact_type": 0,
            "model": "m", "version": 1, "model_artifact_type": 0
        })
    );
    assert_eq!(
        part(&["instance", "kind", "device", "passive", "instance_state", "profiles", "secondary_devices"]),
        json!({
            "instance": "group_0", "kind": "CPU", "device": 0, "passive": false,
            "instance_state": "state of the instance", "profiles": [], "secondary_devices": []
        })
    );
    assert_eq!(
        part(&["id", "flags", "timeout_us", "cancelled", "traced", "requested_outputs"]),
        json!({
            "id": "the id", "flags": 0, "timeout_us": 5_000_000, "cancelled": false, "traced": false,
            "requested_outputs": ["SEEN"]
        })
    );
    let asked = &seen["parameters"];
    assert_eq!(
        [&asked["int"], &asked["text"], &asked["truth"], &asked["real"]],
        [&json!(7), &json!("a \"b\""), &json!(true), &json!(1.5)]
    );
    assert_eq!(
        seen["inputs"],
        json!([{
            "bytes": 8, "name": "INPUT", "datatype": "INT32", "shape": [1, 2],
            "pieces": [{"bytes": 8, "memory": "CPU"}]
        }])
    );
    assert_eq!(seen["backend_config"]["cmdline"]["colour"], "blue");
    assert_eq!(seen["host_policy"], json!({"cpu": {}}));
    let ends_with = |key: &str, end: &str| seen[key].as_str().is_some_and(|path| path.ends_with(end));
    assert!(ends_with("backend_location", "/config") && ends_with("model_location", "/m"), "{seen}");
    running.stop();
}

#[test]
fn a_backend_completes_the_configuration_unless_the_operator_forbids_it() {
    let place = Place::with(&[(Kind::Backend, "config")]).model("m", "backend: 'config'");
    let running = place.serve(&[]);
    let (status, config) = running.get("/v2/models/m/config");
    assert_eq!(
        (status, &config["max_batch_size"], &config["output"][0]["name"]),
        (200, &json!(4), &json!("SEEN"))
    );
    assert_eq!(seen(&running, "m", &json!({}))["model_config"]["input"][0]["name"], "INPUT");
    running.stop();

    let running = place.serve(&["--disable-auto-complete-config"]);
    let (_, config) = running.get("/v2/models/m/config");
    assert_eq!((&config["max_batch_size"], &config["output"]), (&json!(0), &json!([])));
    running.stop();
}

#[test]
fn a_backend_says_how_many_instances_it_prefers() {
    let place = Place::with(&[(Kind::Backend, "config")]).model("m", "backend: 'config'");
    let running = place
        .serve(&["--backend-config=config,preferred_kind=cpu", "--backend-config=config,preferred_count=3"]);
    let (_, config) = running.get("/v2/models/m/config");
    let group = &config["instance_group"][0];
    assert_eq!((&group["kind"], &group["count"]), (&json!("KIND_CPU"), &json!(3)), "{config}");
    running.stop();
}

/// The initialization of each of the three instances ends only when all three have begun.
#[test]
fn instances_are_initialized_in_parallel_if_the_backend_allows_it() {
    let config = format!(
        "backend: 'config' instance_group [ {{ kind: KIND_CPU count: 3 }} ] {}",
        parameters(&[("rendezvous", "3")])
    );
    let place = Place::with(&[(Kind::Backend, "config")]).model("m", &config);
    let running = place.serve(&["--backend-config=config,parallel=true"]);
    assert_eq!(running.get("/v2/models/m/ready").0, 200);
    running.stop();
}
