//! What the endpoint tells of its work, whom it tells, and the files of its page.
use super::*;

fn explained(server: &Server, path: &str) -> serde_json::Value {
    let answer = server.connect().ask("GET", path, &[], b"").unwrap();
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")), "{}", answer.text());
    serde_json::from_str(&answer.text()).unwrap()
}

#[test]
fn what_runs_and_what_waits_is_told() {
    let gate = Gate::shut();
    let server = Server::behind(gate.clone());
    let mut callers: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for caller in &mut callers {
        caller.send(&request("POST", INFER, &[], &ones(2))).unwrap();
    }
    let of_model = "/v2/models/id/versions/1/explain";
    server.until("two requests wait", |server| {
        explained(server, of_model)["models"][0]["queue"]["requests"] == 2
    });
    let model = &explained(&server, of_model)["models"][0];
    assert_eq!((&model["state"], &model["in_flight"]), (&"READY".into(), &3.into()));
    assert_eq!((&model["instances"]["count"], &model["instances"]["busy"]), (&1.into(), &1.into()));
    assert!(model["queue"]["oldest_seconds"].as_f64().unwrap() > 0.0, "{model}");
    assert!(model["queue"]["bytes"].as_u64().unwrap() >= 16, "{model}");
    gate.open();
    for caller in &mut callers {
        assert_eq!(caller.receive("POST").unwrap().status, 200);
    }
    let whole = explained(&server, "/v2/explain");
    let model = &whole["models"][0];
    assert_eq!((&whole["models_left_out"], &model["requests"]["succeeded"]), (&0.into(), &3.into()));
    assert_eq!(model["batches"]["ends"], serde_json::json!({ "unbatched": 3 }));
    assert!(whole.get("log").is_none(), "no line is kept");
}

#[test]
fn pages_and_a_header_tell_the_own_version_and_metadata_the_one_of_triton() {
    let (server, own) = (Server::usual(), env!("CARGO_PKG_VERSION"));
    let metadata = server.connect().ask("GET", "/v2", &[], b"").unwrap();
    let follows: serde_json::Value = serde_json::from_str(&metadata.text()).unwrap();
    assert_ne!(follows["version"], own, "the protocol has the version that clients look for");
    assert_eq!(metadata.header("nereid-version"), Some(own));
    let status = &explained(&server, "/v2/explain")["server"];
    assert_eq!((&status["nereid_version"], &status["version"]), (&own.into(), &follows["version"]));
    let described = server.connect().ask("GET", "/openapi.json", &[], b"").unwrap();
    let described: serde_json::Value = serde_json::from_str(&described.text()).unwrap();
    assert_eq!((&described["info"]["title"], &described["info"]["version"]), (&"Nereid".into(), &own.into()));
}

#[test]
fn an_unknown_model_is_not_found() {
    let server = Server::usual();
    for (path, text) in [
        ("/v2/models/x/explain", r#"{"error":"Request for unknown model: 'x' is not found"}"#),
        (
            "/v2/models/id/versions/7/explain",
            r#"{"error":"Request for unknown model: 'id' version 7 is not found"}"#,
        ),
    ] {
        let answer = server.connect().ask("GET", path, &[], b"").unwrap();
        assert_eq!((answer.status, answer.text()), (404, text.into()));
    }
}

#[test]
fn models_are_found_by_a_part_of_their_names() {
    let server = Server::usual();
    let names = |path: &str| {
        let whole = explained(&server, path);
        let models = whole["models"].as_array().unwrap().iter();
        models.map(|model| model["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = names("/v2/explain");
    assert!(all.contains(&"id".to_owned()));
    assert_eq!(names("/v2/explain?name="), all);
    assert!(names("/v2/explain?name=ID").contains(&"id".to_owned()));
    assert_eq!(names("/v2/explain?name=nothing%20like%20it"), Vec::<String>::new());
    let refused = server.connect().ask("GET", "/v2/explain?name=a&name=b", &[], b"").unwrap();
    assert_eq!(
        (refused.status, refused.text()),
        (400, r#"{"error":"the query has the parameter 'name' more than once"}"#.into())
    );
}

#[test]
fn each_api_whose_facts_are_repeated_must_permit() {
    for category in [Category::Status, Category::Statistics, Category::ModelRepository] {
        let mut restrictions = Restrictions::default();
        restrictions.require(category, "key", "secret");
        let server =
            Server::start(Gate::opened(), http::HttpOptions { restrictions, ..http::HttpOptions::default() });
        let status = |path: &str, headers: &[(&str, &str)]| {
            server.connect().ask("GET", path, headers, b"").unwrap().status
        };
        for path in ["/v2/explain", "/v2/models/id/explain"] {
            assert_eq!((status(path, &[]), status(path, &[("key", "secret")])), (403, 200), "{category:?}");
        }
        assert_eq!(status("/status", &[]), 200, "the page tells nothing");
    }
}

#[test]
fn the_page_has_a_policy_and_can_be_switched_off() {
    let server = Server::usual();
    for (path, kind) in
        [("/status", "text/html"), ("/status/page.css", "text/css"), ("/status/page.js", "text/javascript")]
    {
        let answer = server.connect().ask("GET", path, &[], b"").unwrap();
        assert!(answer.header("content-type").unwrap().starts_with(kind), "{path}");
        assert!(
            answer.header("content-security-policy").unwrap().starts_with("default-src 'none';"),
            "{path}"
        );
    }
    let moved = server.connect().ask("GET", "/status/", &[], b"").unwrap();
    assert_eq!((moved.status, moved.header("location")), (308, Some("../status")));
    let off = Server::start(
        Gate::opened(),
        http::HttpOptions { shows_status: false, ..http::HttpOptions::default() },
    );
    for path in ["/status", "/status/page.js", "/v2/explain", "/v2/models/id/explain"] {
        assert_eq!(off.connect().ask("GET", path, &[], b"").unwrap().status, 404, "{path}");
    }
}
