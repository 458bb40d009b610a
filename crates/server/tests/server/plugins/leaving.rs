//! Instances and models that end while their backend still holds requests, responses or response factories.
use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use testing::{eventually, grpc, plugins::Kind, schema};
use tokio::runtime::Runtime;

use crate::plugins::place::{Place, Running, STREAM, parameters, question, repeating, stream};

const EXPLICIT: &str = "--model-control-mode=explicit";

/// So many responses of a slow model take more than seven seconds.
const MANY: [i32; 24] = [7; 24];

fn slow() -> (&'static str, &'static str) {
    ("delay_ms", "300")
}

/// How many instances of the model the backend has been told to finalize.
fn finalized(running: &Running, model: &str) -> usize {
    let words = format!("instance {model}_");
    let log = running.program.log();
    log.lines().filter(|line| line.contains(&words) && line.contains("is being finalized")).count()
}

fn change(running: &Running, model: &str, what: &str) {
    let (status, answer) = running.post(&format!("/v2/repository/models/{model}/{what}"), &json!({}));
    assert_eq!(status, 200, "{answer}");
}

fn replace_in_config(place: &Place, model: &str, old: &str, new: &str) {
    let config = place.directory_of(model).join("config.pbtxt");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(old), "{text}");
    fs::write(config, text.replace(old, new)).unwrap();
}

/// A stream that has asked a model.
struct OpenStream {
    call: grpc::Call,
    _connection: grpc::Connection,
}

impl OpenStream {
    async fn open(running: &Running, model: &str, values: &[i32]) -> Self {
        let connection = grpc::Connection::open(running.grpc).await.unwrap();
        let call = connection.call(STREAM, &[]).await.unwrap();
        call.send(question(model, values));
        Self { call, _connection: connection }
    }

    /// Takes the next response, which is no error.
    async fn next(&mut self) {
        let message = self.call.next().await.unwrap().expect("the stream has not ended");
        let response = schema::decode("inference.ModelStreamInferResponse", &message).unwrap();
        assert_eq!(response["error_message"], Value::Null, "{response}");
    }
}

/// An update replaces the only instance. The old one has a stream, and the new one serves meanwhile.
#[test]
fn an_instance_that_leaves_is_finalized_after_its_stream_has_ended() {
    let rest = parameters(&[slow(), ("until_cancelled", "true")]);
    let place = Place::with(&[(Kind::Backend, "repeat")]).model("m", &repeating(&rest));
    let running = place.serve(&[EXPLICIT, "--load-model=m"]);
    Runtime::new().unwrap().block_on(async {
        let mut stream = OpenStream::open(&running, "m", &MANY).await;
        stream.next().await;
        replace_in_config(&place, "m", "kind: KIND_CPU", "kind: KIND_CPU host_policy: 'other'");
        change(&running, "m", "load");
        running.program.wait_for("updating the instances of 'm' version 1");
        let mut other = OpenStream::open(&running, "m", &[1]).await;
        other.next().await;
        drop(other);
        for _ in 1..MANY.len() {
            stream.next().await;
        }
        assert_eq!(finalized(&running, "m"), 0, "{}", running.program.log());
    });
    eventually("the end of the instance", || finalized(&running, "m") == 1);
    running.stop();
}

/// The backend of `m` holds the factory of an answered request as long as the file exists. Meanwhile another model answers
/// many requests, and is unloaded.
fn end_while_a_factory_is_held(place: &Place, file: &Path, end: impl FnOnce(&Running)) {
    fs::write(file, "").unwrap();
    let running = place.serve(&[EXPLICIT, "--load-model=m", "--load-model=n"]);
    assert_eq!(stream(&running, "m", &[1]).len(), 1);
    end(&running);
    assert_eq!(stream(&running, "n", &MANY).len(), MANY.len());
    change(&running, "n", "unload");
    eventually("the end of the other model", || finalized(&running, "n") == 1);
    assert_eq!(finalized(&running, "m"), 0, "{}", running.program.log());
    fs::remove_file(file).unwrap();
    eventually("the end of the instance", || finalized(&running, "m") == 1);
    running.stop();
}

fn holding() -> (Place, PathBuf) {
    let place = Place::with(&[(Kind::Backend, "repeat")]);
    let file = place.path("held");
    let held = parameters(&[("held_by", file.to_str().unwrap())]);
    let place = place.model("m", &repeating(&held)).model("n", &repeating(&parameters(&[slow()])));
    (place, file)
}

#[test]
fn an_unloaded_model_is_finalized_after_its_backend_has_released_everything() {
    let (place, file) = holding();
    end_while_a_factory_is_held(&place, &file, |running| change(running, "m", "unload"));
}

#[test]
fn a_reloaded_model_is_finalized_after_its_backend_has_released_everything() {
    let (place, file) = holding();
    end_while_a_factory_is_held(&place, &file, |running| {
        replace_in_config(&place, "m", "key: 'held_by'", "key: 'not_held_by'");
        change(running, "m", "load");
        assert_eq!(stream(running, "m", &[1]).len(), 1, "the new copy serves");
    });
}

/// Only the stop of the server has a limit, which is shorter than its exit timeout.
#[test]
fn a_backend_that_never_releases_does_not_keep_the_server_from_an_orderly_end() {
    let (place, file) = holding();
    fs::write(&file, "").unwrap();
    let running = place.serve(&[EXPLICIT, "--load-model=m"]);
    assert_eq!(stream(&running, "m", &[1]).len(), 1);
    let program = running.program;
    let status = program.terminate().unwrap();
    assert!(status.success(), "{status}");
}
