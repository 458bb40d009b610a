//! Repository agents in shared libraries.
use std::{fs, path::Path};

use serde_json::{Value, json};
use testing::plugins::{Kind, Plugin};

use crate::plugins::place::{Place, Running, copying, ints};

const PLUGINS: [(Kind, &str); 2] = [(Kind::Backend, "identity"), (Kind::RepoAgent, "agent")];

/// A model that the agent manages with these parameters.
fn with_agent(pairs: &[(&str, &str)]) -> String {
    let each = |(key, value): &(&str, &str)| format!("parameters {{ key: '{key}' value: '{value}' }}");
    let parameters: String = pairs.iter().map(each).collect();
    copying("identity", &format!("model_repository_agents {{ agents [ {{ name: 'agent' {parameters} }} ] }}"))
}

fn answers(running: &Running, model: &str) -> bool {
    running.infer(model, &ints("INPUT0", &[3])).0 == 200
}

#[test]
fn an_agent_is_told_each_action_of_its_model() {
    let place = Place::with(&PLUGINS);
    let log = place.path("log");
    let place = place.model("m", &with_agent(&[("log", log.to_str().unwrap())]));
    let running = place.serve(&[]);
    assert!(answers(&running, "m"));
    running.stop();
    let calls = fs::read_to_string(log).unwrap();
    assert_eq!(
        calls.lines().collect::<Vec<_>>(),
        [
            "model_initialize m",
            "LOAD m with configuration",
            "LOAD_COMPLETE m",
            "UNLOAD m",
            "UNLOAD_COMPLETE m",
            "model_finalize m"
        ]
    );
}

#[test]
fn an_agent_that_fails_prevents_the_load_and_is_told_the_failure() {
    let place = Place::with(&PLUGINS);
    let log = place.path("log");
    let place = place
        .model("m", &with_agent(&[("log", log.to_str().unwrap()), ("fail_at", "LOAD")]))
        .model("good", &copying("identity", ""));
    let running = place.serve(&["--exit-on-error=false"]);
    assert!(answers(&running, "good") && !answers(&running, "m"));
    let (_, index) = running.post("/v2/repository/index", &json!({}));
    let model = index.as_array().unwrap().iter().find(|model| model["name"] == "m").unwrap();
    assert!(model["reason"].as_str().unwrap_or_default().contains("failed as wanted: LOAD"), "{index}");
    running.stop();
    assert!(!fs::read_to_string(log).unwrap().contains("LOAD_COMPLETE"));
}

#[test]
fn an_agent_that_fails_later_changes_nothing() {
    let mut place = Place::with(&PLUGINS);
    let actions = ["LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE", "model_finalize"];
    for action in actions {
        place = place.model(action, &with_agent(&[("fail_at", action)]));
    }
    let running = place.serve(&[]);
    for action in actions {
        assert!(answers(&running, action), "{action}");
    }
    running.stop();
}

/// The backend of the model lies in the directory of its files, which is outside of the repository.
#[test]
fn a_model_is_served_from_where_its_agent_has_put_it() {
    let elsewhere = Place::with(&[]).model("m", "");
    let real = elsewhere.directory_of("m");
    Plugin::new(Kind::Backend, "identity").build(&real.join("1")).unwrap();
    let place = Place::with(&[(Kind::RepoAgent, "agent")])
        .model("m", &with_agent(&[("relocate", real.to_str().unwrap())]));
    let running = place.serve(&[]);
    assert!(answers(&running, "m"));
    running.stop();
}

#[test]
fn an_agent_may_write_files_anew_in_a_directory_that_ends_with_the_model() {
    for release in ["true", "false"] {
        let agent = "model_repository_agents { agents [ { name: 'agent'
            parameters { key: 'file' value: '1/word' } parameters { key: 'text' value: 'new' }";
        let config =
            format!("backend: 'config' {agent} parameters {{ key: 'release' value: '{release}' }} }} ] }}");
        let place = Place::with(&[(Kind::Backend, "config"), (Kind::RepoAgent, "agent")]).model("m", &config);
        fs::write(place.directory_of("m").join("1/word"), "old").unwrap();
        let running = place.serve(&[]);
        let (status, answer) = running.infer("m", &ints("INPUT", &[3]));
        assert_eq!(status, 200, "{answer}");
        let seen: Value = serde_json::from_str(answer["outputs"][0]["data"][0].as_str().unwrap()).unwrap();
        let location = Path::new(seen["model_location"].as_str().unwrap()).to_owned();
        assert_ne!(location, place.directory_of("m"));
        assert_eq!(fs::read_to_string(location.join("1/word")).unwrap(), "new");
        running.stop();
        assert!(!location.exists(), "{} is left", location.display());
        assert_eq!(fs::read_to_string(place.directory_of("m").join("1/word")).unwrap(), "old");
    }
}
