//! What backends report, and what the server asks them, besides responses: statistics, memory and readiness, as clients
//! see them.
use serde_json::{Value, json};
use testing::{
    eventually,
    grpc::{self, framed},
    plugins::Kind,
    schema,
};
use tokio::runtime::Runtime;

use crate::plugins::place::{Place, Running, STREAM, copying, ints, parameters, question, repeating, stream};

/// The response to one gRPC message.
fn call(running: &Running, method: &str, request: &Value) -> Value {
    let path = format!("/inference.GRPCInferenceService/{method}");
    let (asked, answered) = schema::method(&path).unwrap();
    let message = framed(&schema::encode(&asked, request).unwrap());
    let (messages, status) = Runtime::new()
        .unwrap()
        .block_on(async { grpc::Connection::open(running.grpc).await?.unary(&path, &[], message).await })
        .unwrap();
    assert_eq!(status.name(), "OK", "{}", status.message);
    schema::decode(&answered, &messages[0]).unwrap()
}

/// The counts of this kind of response, by position in the stream.
fn counts(statistics: &Value, what: &str) -> Vec<(String, u64)> {
    let all = statistics["response_stats"].as_object().unwrap();
    let each = all.iter().map(|(index, one)| (index.clone(), one[what]["count"].as_u64().unwrap()));
    each.filter(|(_, count)| *count > 0).collect()
}

fn at(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|(index, count)| ((*index).to_owned(), *count)).collect()
}

#[test]
fn responses_that_a_backend_reports_are_counted_by_their_position() {
    let place = Place::with(&[(Kind::Backend, "repeat")])
        .model("m", &repeating(""))
        .model("silent", &repeating(&parameters(&[("own_statistics", "false")])));
    let running = place.serve(&[]);
    assert_eq!(stream(&running, "m", &[5, 6, 7]).len(), 3);
    assert_eq!(stream(&running, "m", &[8]).len(), 1);
    assert_eq!(stream(&running, "silent", &[8]).len(), 1);

    let statistics = running.statistics("m");
    let expected = at(&[("0", 2), ("1", 1), ("2", 1)]);
    for what in ["success", "compute_infer", "compute_output"] {
        assert_eq!(counts(&statistics, what), expected, "{what}: {statistics}");
    }
    for what in ["fail", "empty_response", "cancel"] {
        assert_eq!(counts(&statistics, what), [], "{what}: {statistics}");
    }
    assert_eq!(running.statistics("silent")["response_stats"], json!({}));

    let shown = call(&running, "ModelStatistics", &json!({"name": "m"}));
    let success = &shown["model_stats"][0]["response_stats"]["0"]["success"]["count"];
    assert_eq!(success, "2", "{shown}");
    running.stop();
}

#[test]
fn a_cancelled_response_is_counted_as_cancelled() {
    let place = Place::with(&[(Kind::Backend, "repeat")])
        .model("m", &repeating(&parameters(&[("until_cancelled", "true")])));
    let running = place.serve(&[]);
    // The client disconnects after its first response.
    Runtime::new()
        .unwrap()
        .block_on(async {
            let connection = grpc::Connection::open(running.grpc).await?;
            let mut call = connection.call(STREAM, &[]).await?;
            call.send(question("m", &[5]));
            call.next().await
        })
        .unwrap();
    let mut statistics = Value::Null;
    eventually("the cancellation", || {
        statistics = running.statistics("m");
        !counts(&statistics, "cancel").is_empty()
    });
    assert_eq!(counts(&statistics, "success"), at(&[("0", 1)]), "{statistics}");
    assert_eq!(counts(&statistics, "cancel"), at(&[("1", 1)]), "{statistics}");
    running.stop();
}

#[test]
fn memory_that_a_backend_reports_is_shown_as_the_sum_of_the_model_and_its_instances() {
    let two = format!("{} instance_group [ {{ kind: KIND_CPU }} ]", parameters(&[("memory", "true")]));
    let place = Place::with(&[(Kind::Backend, "identity")])
        .model("m", &copying("identity", &two))
        .model("silent", &copying("identity", ""));
    let running = place.serve(&[]);
    assert_eq!(
        running.statistics("m")["memory_usage"],
        json!([
            {"type": "CPU", "id": 0, "byte_size": 264},
            {"type": "CPU_PINNED", "id": 0, "byte_size": 14}
        ])
    );
    assert_eq!(running.statistics("silent")["memory_usage"], json!([]));
    let shown = call(&running, "ModelStatistics", &json!({"name": "m"}));
    assert_eq!(
        shown["model_stats"][0]["memory_usage"],
        json!([{"type": "CPU", "byte_size": "264"}, {"type": "CPU_PINNED", "byte_size": "14"}])
    );
    running.stop();
}

#[test]
fn a_backend_may_say_that_its_instances_are_not_ready() {
    let place = Place::with(&[(Kind::Backend, "failing"), (Kind::Backend, "identity")])
        .model("well", &copying("failing", ""))
        .model("unasked", &copying("identity", ""))
        .model("unwell", &copying("failing", &parameters(&[("fail_at", "ready")])));
    let running = place.serve(&["--log-verbose=1"]);
    for (model, ready) in [("well", true), ("unasked", true), ("unwell", false)] {
        let (status, answer) = running.get(&format!("/v2/models/{model}/ready"));
        assert_eq!(status, if ready { 200 } else { 400 }, "{model}: {answer}");
        let answer = call(&running, "ModelReady", &json!({"name": model}));
        assert_eq!(answer["ready"].as_bool().unwrap_or_default(), ready, "{model}: {answer}");
    }
    running.program.wait_for("Model 'unwell' version 1 is not ready: failed as wanted: ready");
    // With strict readiness the server is ready only if all its models are ready. It serves requests all the same.
    assert_eq!(running.get("/v2/health/ready").0, 400);
    assert_eq!(call(&running, "ServerReady", &json!({})).get("ready"), None);
    assert_eq!(running.infer("unwell", &ints("INPUT", &[3])).0, 200);
    running.stop();
}
