//! Errors of a backend: the client always gets an error, and the server continues to serve.
use serde_json::json;
use testing::plugins::Kind;

use crate::plugins::place::{Place, Running, copying, ints, parameters};

/// The client's response to a request with which the backend fails in this way.
fn misbehave(running: &Running, way: &str) -> (u16, String) {
    let mut request = ints("INPUT", &[1, 2]);
    request["parameters"] = json!({"fail_at": way});
    let (status, answer) = running.infer("m", &request);
    (status, answer.to_string())
}

#[test]
fn every_failure_of_an_execution_gives_an_error_and_the_next_request_succeeds() {
    let place = Place::with(&[(Kind::Backend, "failing")]).model("m", &copying("failing", ""));
    let running = place.serve(&[]);
    // The way, the status, and a text that the response contains.
    for (way, status, content) in [
        ("execute", 400, "failed as wanted: execute"),
        ("response", 400, "failed as wanted: response"),
        ("forget", 500, "error"),
        ("forget_later", 500, "error"),
        ("drop", 500, "error"),
        ("odd_order", 200, "[1,2]"),
        ("twice", 200, "[1,2]"),
        ("factory", 200, "[1,2]"),
        ("reschedule", 200, "[1,2]"),
        ("short_output", 500, "error"),
        ("wrong_shape", 500, "error"),
        ("wrong_type", 500, "error"),
        ("unknown_output", 400, "unexpected inference output 'NO_SUCH_OUTPUT' for model 'm'"),
        ("output_twice", 400, "allocated buffer for output 'OUTPUT' already exists"),
        ("no_memory", 500, "error"),
        ("statistics", 200, "[1,2]"),
        ("null", 200, "[1,2]"),
    ] {
        let (got, answer) = misbehave(&running, way);
        assert!(
            got == status && answer.contains(content),
            "{way}: {got} {answer}\n{}",
            running.program.log()
        );
        let (status, answer) = running.infer("m", &ints("INPUT", &[3]));
        assert_eq!((status, &answer["outputs"][0]["data"]), (200, &json!([3])), "after {way}");
    }
    running.stop();
}

#[test]
fn a_model_that_fails_to_load_is_unavailable_for_its_backends_reason() {
    let mut place = Place::with(&[(Kind::Backend, "failing")]).model("good", &copying("failing", ""));
    let ways = ["model_initialize", "instance_initialize", "set_config"];
    for way in ways {
        place = place.model(way, &copying("failing", &parameters(&[("fail_at", way)])));
    }
    let running = place.serve(&["--exit-on-error=false"]);
    let (_, index) = running.post("/v2/repository/index", &json!({}));
    for way in ways {
        let model = index.as_array().unwrap().iter().find(|model| model["name"] == way).unwrap();
        let reason = model["reason"].as_str().unwrap_or_default();
        let words =
            if way == "set_config" { "no_such_field".to_owned() } else { format!("failed as wanted: {way}") };
        assert!(model["state"] == "UNAVAILABLE" && reason.contains(&words), "{way}: {model}");
    }
    assert_eq!(running.infer("good", &ints("INPUT", &[3])).0, 200);
    running.stop();
}

#[test]
fn a_backend_that_fails_to_finalize_is_unloaded() {
    let mut place = Place::with(&[(Kind::Backend, "failing")]);
    let ways = ["model_finalize", "instance_finalize"];
    for way in ways {
        place = place.model(way, &copying("failing", &parameters(&[("fail_at", way)])));
    }
    let running = place.serve(&[]);
    for way in ways {
        assert_eq!(running.infer(way, &ints("INPUT", &[3])).0, 200);
    }
    running.stop();
}

/// The backend never returns from its own finalization.
const HANGS: &str = "--backend-config=failing,fail_at=hang_finalize";

/// The exit status of a server with an exit timeout of one second, whose backend never returns from a function at its end.
fn exit_of_hanging(rest: &str, arguments: &[&str]) -> Option<i32> {
    let place = Place::with(&[(Kind::Backend, "failing")]).model("m", &copying("failing", rest));
    let running = place.serve(&[&["--exit-timeout-secs=1"], arguments].concat());
    assert_eq!(running.infer("m", &ints("INPUT", &[3])).0, 200);
    running.program.terminate().unwrap().code()
}

#[test]
fn a_backend_that_hangs_while_its_model_is_finalized_does_not_keep_the_server_from_ending() {
    let rest = parameters(&[("fail_at", "hang_model_finalize")]);
    assert_eq!(exit_of_hanging(&rest, &[]), Some(1));
}

#[test]
fn a_backend_that_hangs_while_it_is_finalized_does_not_keep_the_server_from_ending() {
    // All models have ended in order.
    assert_eq!(exit_of_hanging("", &[HANGS]), Some(0));
}

#[test]
fn a_backend_that_hangs_while_it_is_finalized_does_not_keep_a_server_that_cannot_start_from_ending() {
    let rest = parameters(&[("fail_at", "model_initialize")]);
    let place = Place::with(&[(Kind::Backend, "failing")]).model("m", &copying("failing", &rest));
    assert_eq!(place.program(&["--exit-timeout-secs=1", HANGS]).wait().unwrap().code(), Some(1));
}

#[test]
fn a_backend_that_fails_to_initialize_serves_no_model() {
    let place = Place::with(&[(Kind::Backend, "failing")]).model("m", &copying("failing", ""));
    let running = place.serve(&["--exit-on-error=false", "--backend-config=failing,fail_at=initialize"]);
    assert_eq!(running.get("/v2/models/m/ready").0, 400);
    let (_, index) = running.post("/v2/repository/index", &json!({}));
    let reason = index[0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("failed as wanted: initialize"), "{index}");
    running.stop();
}

#[test]
fn a_backend_without_the_attributes_function_has_none() {
    let place = Place::with(&[(Kind::Backend, "failing")]).model("m", &copying("failing", ""));
    let running = place.serve(&["--backend-config=failing,fail_at=attribute"]);
    assert_eq!(running.infer("m", &ints("INPUT", &[3])).0, 200);
    running.stop();
}
