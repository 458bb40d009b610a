//! Which version answers says so, also if it has been replaced and only ends its sequences.
use engine::StartupModels;
use repository::LoadParameters;

use super::*;

const SEQUENCES: &str = "max_batch_size: 1 sequence_batching { max_sequence_idle_microseconds: 60000000
    control_input { name: 'START' control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } }";

fn ask(server: &Server, path: &str, body: &str) -> serde_json::Value {
    let answer = server.connect().ask("POST", path, &[], body.as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str(&answer.text()).unwrap()
}

fn infer(server: &Server, parameters: &str) -> serde_json::Value {
    let input = r#"{"name":"IN","datatype":"INT32","shape":[1,1],"data":[1]}"#;
    ask(server, INFER, &format!(r#"{{"parameters":{{{parameters}}},"inputs":[{input}]}}"#))
}

#[test]
fn a_retired_version_that_answers_a_sequence_names_itself() {
    let repository = Repository::empty().unwrap();
    repository.add("id", [("config.pbtxt", &*Identity::config(SEQUENCES))]).unwrap();
    let next = repository.path().join("id/2");
    let control = ModelControl::Explicit(StartupModels::Named(["id".to_owned()].into()));
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Identity::behind(Gate::opened()))];
    let server = Server::controlled(control, repository, backends, http::HttpOptions::default());
    assert_eq!(infer(&server, r#""sequence_id":1,"sequence_start":true"#)["model_version"], "1");
    std::fs::create_dir(next).unwrap();
    server.runtime.block_on(server.engine.repository().load("id", LoadParameters::default())).unwrap();
    assert_eq!(infer(&server, r#""sequence_id":1"#)["model_version"], "1");
    let generated = ask(&server, "/v2/models/id/generate", r#"{"IN":1,"sequence_id":1}"#);
    assert_eq!(generated["model_version"], "1");
    assert_eq!(infer(&server, r#""sequence_id":2,"sequence_start":true"#)["model_version"], "2");
}
