//! Requests that a browser sends for web pages, on every HTTP port.
use std::{net::SocketAddr, sync::Arc};

use engine::{ModelControl, StartupModels};
use frontend::{
    http::{
        self, HttpEndpoint, OriginRules, PortOptions, SageMakerOptions, SageMakerService, VertexAiOptions,
        VertexAiService,
    },
    metrics::MetricsService,
    port::{BoundSocket, ClientLimits, ConnectionPermits, Drain},
};
use testing::{
    Gate, Identity, Repository,
    http::{Connection, Response},
};

use crate::{Server, access_log::Entries, assert_in_step};

const EVIL: (&str, &str) = ("Origin", "http://evil.example");
const LAB: (&str, &str) = ("Origin", "http://lab.example");
const CROSS_SITE: (&str, &str) = ("Sec-Fetch-Site", "cross-site");

fn lab_only() -> OriginRules {
    let mut rules = OriginRules::default();
    rules.allow_origin(LAB.1).unwrap();
    rules
}

/// A port of `service` with these rules.
pub(crate) fn open<S: HttpEndpoint>(server: &Server, service: S, rules: OriginRules) -> SocketAddr {
    let listener = BoundSocket::bind("127.0.0.1", 0, false).unwrap().listen().unwrap();
    let address = listener.address().unwrap().port().unwrap();
    let port = PortOptions {
        origin_rules: Arc::new(rules),
        ..PortOptions::plain(ClientLimits::default(), ConnectionPermits::unlimited())
    };
    server.runtime.spawn(http::serve(listener, Arc::new(service), Drain::new(), port));
    address
}

/// Every HTTP port of a server with these rules, each with a request that it answers with 200.
fn ports(server: &Server, rules: &OriginRules) -> [(&'static str, SocketAddr, &'static str); 4] {
    let kserve = || http::HttpService::new(server.engine.clone(), http::HttpOptions::default());
    let vertex_ai = VertexAiOptions {
        predict_route: "/predict".into(),
        health_route: "/health".into(),
        default_model: "id".into(),
    };
    let metrics = MetricsService::new(server.engine.clone(), true);
    [
        ("KServe", open(server, kserve(), rules.clone()), "/v2/health/live"),
        ("metrics", open(server, metrics, rules.clone()), "/metrics"),
        (
            "SageMaker",
            open(server, SageMakerService::new(kserve(), SageMakerOptions::default()), rules.clone()),
            "/ping",
        ),
        (
            "Vertex AI",
            open(server, VertexAiService::new(kserve(), None, vertex_ai), rules.clone()),
            "/health",
        ),
    ]
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    Connection::open(address).unwrap().ask(method, path, headers, b"").unwrap()
}

#[test]
fn pages_of_other_sites_are_refused_on_every_port() {
    let server = Server::usual();
    for (port, address, path) in ports(&server, &OriginRules::default()) {
        let answer = ask(address, "GET", path, &[EVIL]);
        let text = r#"{"error":"a web page of the origin 'http://evil.example' sent the request: it is not one of --http-allowed-origins"}"#;
        assert_eq!((answer.status, answer.text().as_str()), (403, text), "{port}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{port}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{port}");
        let answer = ask(address, "GET", path, &[CROSS_SITE]);
        let text = r#"{"error":"a web page of another site sent the request: --http-allowed-origins does not allow all origins"}"#;
        assert_eq!((answer.status, answer.text().as_str()), (403, text), "{port}");
        assert_eq!(ask(address, "GET", path, &[]).status, 200, "{port}");
        let own = [("Origin", "http://localhost"), ("Sec-Fetch-Site", "same-origin")];
        let answer = ask(address, "GET", path, &own);
        assert_eq!((answer.status, answer.header("vary")), (200, None), "{port}");
    }
}

#[test]
fn a_page_loads_no_model() {
    let repository = Repository::empty().unwrap();
    repository.add("id", [("config.pbtxt", &*Identity::config(""))]).unwrap();
    let control = ModelControl::Explicit(StartupModels::Named(["id".to_owned()].into()));
    let backend = Arc::new(Identity::behind(Gate::opened()));
    let server = Server::controlled(control, repository, vec![backend], http::HttpOptions::default());
    let mut connection = server.connect();
    // A page may send this content type without asking before.
    let headers = [EVIL, ("Content-Type", "text/plain")];
    let body = br#"{"parameters":{"config":"{}","file:1/model.py":"aW1wb3J0IG9z"}}"#;
    let answer = connection.ask("POST", "/v2/repository/models/new/load", &headers, body).unwrap();
    assert_eq!(answer.status, 403);
    assert_in_step(&mut connection);
    let answer = connection.ask("POST", "/v2/repository/models/id/unload", &headers, b"").unwrap();
    assert_eq!(answer.status, 403);
    assert_in_step(&mut connection);
}

#[test]
fn an_allowed_page_may_ask_and_read_on_every_port() {
    let server = Server::usual();
    for (port, address, path) in ports(&server, &lab_only()) {
        let asked = [
            LAB,
            CROSS_SITE,
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "x-api-key,content-type"),
        ];
        let answer = ask(address, "OPTIONS", path, &asked);
        assert_eq!((answer.status, answer.body.len()), (204, 0), "{port}");
        for (name, value) in [
            ("access-control-allow-origin", LAB.1),
            ("access-control-allow-methods", "GET, HEAD, POST, DELETE"),
            ("access-control-allow-headers", "x-api-key,content-type"),
            ("access-control-max-age", "600"),
            ("vary", "Origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{port}");
        }
        let answer = ask(address, "GET", path, &[LAB, CROSS_SITE]);
        assert_eq!(answer.status, 200, "{port}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(LAB.1), "{port}");
        assert_eq!(answer.header("access-control-expose-headers"), Some("*"), "{port}");
        assert_eq!(ask(address, "GET", path, &[EVIL]).status, 403, "{port}");
        assert_eq!(ask(address, "OPTIONS", path, &[EVIL, asked[2]]).status, 403, "{port}");
    }
    let mut any = OriginRules::default();
    any.allow_origin("*").unwrap();
    for (port, address, path) in ports(&server, &any) {
        let answer = ask(address, "GET", path, &[EVIL, CROSS_SITE]);
        let origin = answer.header("access-control-allow-origin");
        assert_eq!((answer.status, origin, answer.header("vary")), (200, Some("*"), None), "{port}");
    }
}

#[test]
fn a_limited_host_holds_on_every_port() {
    let server = Server::usual();
    for (allowed, status) in [("localhost", 200), ("models.example", 403)] {
        let mut rules = OriginRules::default();
        rules.allow_host(allowed).unwrap();
        for (port, address, path) in ports(&server, &rules) {
            let answer = ask(address, "GET", path, &[]);
            assert_eq!(answer.status, status, "{port}");
            if status == 403 {
                let text = r#"{"error":"the host 'localhost' is not one of --http-allowed-hosts"}"#;
                assert_eq!(answer.text(), text, "{port}");
            }
        }
    }
}

#[test]
fn the_status_page_works_in_a_browser_that_opens_it_from_the_server() {
    let server = Server::usual();
    let opened = [("Sec-Fetch-Site", "none"), ("Sec-Fetch-Mode", "navigate")];
    assert_eq!(ask(server.address, "GET", "/status", &opened).status, 200);
    let own = [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "cors")];
    for path in ["/status/page.js", "/status/page.css", "/v2/explain", "/docs/page.js", "/openapi.json"] {
        assert_eq!(ask(server.address, "GET", path, &own).status, 200, "{path}");
    }
}

#[test]
fn a_refused_page_is_in_the_access_log() {
    let log = Arc::<Entries>::default();
    let options = http::HttpOptions { access_log: Some(log.clone()), ..http::HttpOptions::default() };
    let server = Server::start(Gate::opened(), options);
    assert_eq!(ask(server.address, "GET", "/v2", &[EVIL]).status, 403);
    let entry = log.only();
    assert_eq!((entry.method.as_str(), entry.status), ("GET /v2", Some(403)));
    assert!(entry.peer.is_some());
}
