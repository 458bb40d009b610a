//! The access log of the HTTP endpoint, and the times that a client asks for.
use std::sync::Mutex;

use frontend::access::{AccessEntry, AccessLog, RequestTimes};
use testing::fixtures;

use super::*;

/// Keeps the entries of every second request, or of all.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    skips: bool,
    asked: Mutex<usize>,
    entries: Mutex<Vec<AccessEntry>>,
}

impl AccessLog for Entries {
    fn samples(&self) -> bool {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        !self.skips || (*asked).is_multiple_of(2)
    }

    fn write(&self, entry: AccessEntry) {
        self.entries.lock().unwrap().push(entry);
    }
}

impl Entries {
    /// The only entry, as soon as there is one.
    pub(crate) fn only(&self) -> AccessEntry {
        let mut only = None;
        eventually("an entry", || {
            let mut entries = self.entries.lock().unwrap();
            assert!(entries.len() < 2, "{entries:?}");
            only = entries.pop();
            only.is_some()
        });
        only.unwrap()
    }
}

fn options(log: &Arc<Entries>) -> http::HttpOptions {
    http::HttpOptions { access_log: Some(log.clone()), ..http::HttpOptions::default() }
}

fn with_id() -> Vec<u8> {
    let text = String::from_utf8(ones(3)).unwrap();
    text.replacen('{', r#"{"id":"r7","#, 1).into_bytes()
}

#[test]
fn an_inference_is_logged_with_its_model_id_sizes_times_and_client() {
    let log = Arc::<Entries>::default();
    let server = Server::start(Gate::opened(), options(&log));
    let mut connection = server.connect();
    let body = with_id();
    let path = format!("{INFER}?secret=x");
    let answer = connection.ask("POST", &path, &[("Authorization", "secret")], &body).unwrap();
    assert_eq!(answer.status, 200);
    let entry = log.only();
    assert_eq!((entry.protocol, &*entry.method), ("http", "POST /v2/models/id/infer"));
    assert_eq!((&*entry.model, entry.version, &*entry.request_id), ("id", Some(1), "r7"));
    assert_eq!(entry.status, Some(200));
    assert_eq!(entry.request_bytes, body.len() as u64);
    assert_eq!(entry.response_bytes, answer.body.len() as u64);
    let times = entry.times.queue.unwrap() + entry.times.compute().unwrap();
    assert!(times > Duration::ZERO && times <= entry.total, "{entry:?}");
    assert!(entry.peer.unwrap().ip().is_loopback());
    assert!(!format!("{entry:?}").contains("secret"));
}

#[test]
fn what_is_no_inference_and_what_is_refused_is_logged_too() {
    let log = Arc::<Entries>::default();
    let server = Server::start(Gate::opened(), options(&log));
    let mut connection = server.connect();
    let mut logged = |method: &str, path: &str, body: &[u8]| {
        connection.ask(method, path, &[], body).unwrap();
        let entry = log.only();
        assert_eq!(entry.times, RequestTimes::default());
        (entry.method, entry.model.to_string(), entry.request_id.to_string(), entry.status)
    };
    let none = String::new;
    assert_eq!(logged("GET", "/v2", b""), ("GET /v2".into(), none(), none(), Some(200)));
    let unknown = logged("POST", "/v2/models/x/infer", &with_id());
    assert_eq!(unknown, ("POST /v2/models/x/infer".into(), none(), none(), Some(404)));
    let wrong = String::from_utf8(with_id()).unwrap().replace("\"IN\"", "\"X\"");
    let refused = logged("POST", INFER, wrong.as_bytes());
    assert_eq!(refused, ("POST /v2/models/id/infer".into(), "id".into(), "r7".into(), Some(400)));
    let long = format!("/v2/{}", "x".repeat(1000));
    assert_eq!(logged("GET", &long, b"").0.len(), 256);
}

#[test]
fn a_request_that_its_client_gives_up_has_no_status() {
    let log = Arc::<Entries>::default();
    let gate = Gate::shut();
    let server = Server::start(gate.clone(), options(&log));
    let mut connection = server.connect();
    connection.send(&request("POST", INFER, &[], &with_id())).unwrap();
    assert!(gate.wait_for(1, TIMEOUT));
    connection.reset().unwrap();
    let entry = log.only();
    assert_eq!((entry.status, &*entry.model, &*entry.request_id), (None, "id", "r7"));
    gate.open();
}

#[test]
fn only_requests_that_the_log_samples_are_logged() {
    let log = Arc::new(Entries { skips: true, ..Entries::default() });
    let server = Server::start(Gate::opened(), options(&log));
    let mut connection = server.connect();
    infer(&mut connection, &[], &ones(1));
    assert_live(&mut connection);
    assert_eq!(log.only().method, "GET /v2/health/live");
}

#[test]
fn a_stream_of_events_is_logged_at_its_end_with_all_its_bytes() {
    let log = Arc::<Entries>::default();
    let repository = Repository::golden().unwrap();
    let options = http::HttpOptions { access_log: Some(log.clone()), ..http::HttpOptions::default() };
    let server = Server::of(repository, vec![Arc::new(fixtures::Python)], options);
    let mut connection = server.connect();
    let body = br#"{"id":"r","text_input":"hi","n":3}"#;
    let answer = connection.ask("POST", "/v2/models/gens/generate_stream", &[], body).unwrap();
    let entry = log.only();
    assert_eq!((entry.status, &*entry.model), (Some(answer.status), "gens"), "{}", answer.text());
    assert_eq!(entry.request_id, "r");
    assert_eq!(entry.response_bytes, answer.body.len() as u64);
    assert!(entry.times.compute().is_some());
}

#[test]
fn a_client_gets_the_times_of_its_request_if_it_prefers_them() {
    let server = Server::usual();
    let mut connection = server.connect();
    assert_eq!(infer(&mut connection, &[], &ones(1)).header("server-timing"), None);
    let answer = infer(&mut connection, &[("Prefer", "server-timing")], &ones(1));
    let timing = answer.header("server-timing").unwrap();
    let phases: Vec<_> = timing.split(", ").map(|phase| phase.split_once(";dur=").unwrap()).collect();
    let names: Vec<_> = phases.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["queue", "compute_input", "compute_infer", "compute_output", "total"]);
    let millis: Vec<f64> = phases.iter().map(|(_, millis)| millis.parse().unwrap()).collect();
    assert!(millis[..4].iter().sum::<f64>() <= millis[4] + 0.002, "{timing}");
}
