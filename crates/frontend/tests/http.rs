//! The HTTP and metrics endpoints on real sockets: connections and bodies, and how both end.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

#[path = "http/access_log.rs"]
mod access_log;
#[path = "http/early_answers.rs"]
mod early_answers;
#[path = "http/generate.rs"]
mod generate;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/sagemaker.rs"]
mod sagemaker;
#[path = "http/status.rs"]
mod status;
#[path = "http/versions.rs"]
mod versions;
#[path = "http/vertex_ai.rs"]
mod vertex_ai;
#[path = "http/web_pages.rs"]
mod web_pages;

use std::{io::Write, net::SocketAddr, sync::Arc, time::Duration};

use engine::{Engine, MetricsOptions, ModelControl, ServerMetadata};
use frontend::{
    access::{ApiKeys, Category, Restrictions, api_keys::digest_text},
    http::{self, HttpService, PortOptions},
    metrics::MetricsService,
    port::{BodyPace, BoundSocket, ClientLimits, ConnectionPermits, Drain},
};
use inference::backend::Backend;
use testing::{
    Gate, Identity, Repository, eventually,
    http::{Connection, Response, TIMEOUT, request},
};
use tokio::{runtime::Runtime, task::JoinHandle};

/// A server. Usually it has the model `id`: it returns an INT32 input of any length, and runs one request at a time.
struct Server {
    runtime: Runtime,
    engine: Engine,
    service: Arc<HttpService>,
    address: SocketAddr,
    drain: Drain,
    serving: JoinHandle<Result<(), vocabulary::Error>>,
    _repository: Repository,
}

impl Server {
    fn start(gate: Arc<Gate>, options: http::HttpOptions) -> Self {
        let repository = Repository::empty().unwrap();
        repository.add("id", [("config.pbtxt", &*Identity::config(""))]).unwrap();
        Self::of(repository, vec![Arc::new(Identity::behind(gate))], options)
    }

    fn of(repository: Repository, backends: Vec<Arc<dyn Backend>>, options: http::HttpOptions) -> Self {
        Self::controlled(ModelControl::None, repository, backends, options)
    }

    fn controlled(
        control: ModelControl,
        repository: Repository,
        backends: Vec<Arc<dyn Backend>>,
        options: http::HttpOptions,
    ) -> Self {
        let runtime = Runtime::new().unwrap();
        let engine_options = engine::EngineOptions {
            control,
            namespacing: false,
            sequence_limit: std::time::Duration::from_secs(60),
            server: ServerMetadata {
                name: "nereid".into(),
                version: "2.73.0".into(),
                extensions: Vec::new(),
            },
            repositories: vec![repository.path().into()],
            readiness: Default::default(),
            load_threads: 1,
            load_retries: 0,
            auto_complete: true,
            config_name: None,
            agent_directory: Default::default(),
            backend_settings: Vec::new(),
            on_demand: None,
            limits: host::MemoryLimits::default(),
            metrics: MetricsOptions { host: false, ..MetricsOptions::default() },
            hold_until_queued: 0,
            hold_until_backlogged: 0,
            rate_limit: None,
            host_policies: Default::default(),
            load_policy: Default::default(),
        };
        let engine = runtime.block_on(Engine::start(engine_options, backends)).unwrap();
        let listener = BoundSocket::bind("127.0.0.1", 0, false).unwrap().listen().unwrap();
        let (address, drain) = (listener.address().unwrap().port().unwrap(), Drain::new());
        let limits = options.limits;
        let options = http::HttpOptions { drain: drain.clone(), ..options };
        let service = Arc::new(HttpService::new(engine.clone(), options));
        let permits = ConnectionPermits::unlimited();
        let serving = runtime.spawn(http::serve(
            listener,
            service.clone(),
            drain.clone(),
            PortOptions::plain(limits, permits),
        ));
        Self { runtime, engine, service, address, drain, serving, _repository: repository }
    }

    fn usual() -> Self {
        Self::start(Gate::opened(), http::HttpOptions::default())
    }

    fn behind(gate: Arc<Gate>) -> Self {
        Self::start(gate, http::HttpOptions::default())
    }

    fn connect(&self) -> Connection {
        Connection::open(self.address).unwrap()
    }

    /// Waits until `condition` holds. Panics if it never holds.
    fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        eventually(what, || condition(self));
    }
}

/// Options with these limits. All others have their defaults.
fn limited(limits: ClientLimits) -> http::HttpOptions {
    http::HttpOptions { limits, ..http::HttpOptions::default() }
}

/// Options with these API keys: the key, which is also its name, an API and the models of each.
fn keyed(keys: [(&str, &str, &str); 3]) -> http::HttpOptions {
    let entries = keys.map(|(key, api, models)| {
        let digest = digest_text(key);
        format!(r#"{{"name":"{key}","sha256":"{digest}","apis":["{api}"],"models":["{models}"]}}"#)
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, r#"{{"keys":[{}]}}"#, entries.join(",")).unwrap();
    let api_keys = Some(ApiKeys::new(file.path().into()).unwrap());
    http::HttpOptions { api_keys, ..http::HttpOptions::default() }
}

const INFER: &str = "/v2/models/id/infer";

/// Method, path, headers and body of a request, and the status and text of its refusal.
type Refusal<'r> = (&'r str, &'r str, &'r [(&'r str, &'r str)], &'r [u8], u16, &'r str);

/// A request with this many ones.
fn ones(count: usize) -> Vec<u8> {
    let data = vec!["1"; count].join(",");
    let input = format!(r#"{{"name":"IN","datatype":"INT32","shape":[{count}],"data":[{data}]}}"#);
    format!(r#"{{"inputs":[{input}]}}"#).into_bytes()
}

fn infer(connection: &mut Connection, headers: &[(&str, &str)], body: &[u8]) -> Response {
    connection.ask("POST", INFER, headers, body).unwrap()
}

/// Checks that the connection still works.
fn assert_live(connection: &mut Connection) {
    assert_eq!(connection.ask("GET", "/v2/health/live", &[], b"").unwrap().status, 200);
}

/// Checks that the next response on the connection answers the next request.
fn assert_in_step(connection: &mut Connection) {
    let answer = connection.ask("GET", "/v2/models/id", &[], b"").unwrap();
    assert!(answer.text().starts_with(r#"{"name":"id""#), "{}", answer.text());
}

#[test]
fn an_inference_is_answered_with_the_headers_of_the_reference() {
    let server = Server::usual();
    let mut connection = server.connect();
    let answer = infer(&mut connection, &[], &ones(2));
    assert_eq!(answer.status_line, "HTTP/1.1 200 OK");
    let expected = r#"{"model_name":"id","model_version":"1","outputs":[{"name":"OUT","datatype":"INT32","shape":[2],"data":[1,1]}]}"#;
    assert_eq!(answer.text(), expected);
    let length = expected.len().to_string();
    let headers = [("Content-Type", "application/json"), ("Content-Length", &length)];
    assert_eq!(answer.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_in_step(&mut connection);
}

#[test]
fn a_binary_inference_does_not_copy_its_tensors() {
    let server = Server::usual();
    let mut connection = server.connect();
    let json = concat!(
        r#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[50000],"parameters":{"binary_data_size":200000}}],"#,
        r#""parameters":{"binary_data_output":true}}"#
    );
    let tensor: Vec<u8> = (0..50_000_i32).flat_map(i32::to_le_bytes).collect();
    let body = [json.as_bytes(), &tensor].concat();
    let length = json.len().to_string();
    let answer = infer(&mut connection, &[("Inference-Header-Content-Length", &length)], &body);
    let json_len: usize = answer.header("Inference-Header-Content-Length").unwrap().parse().unwrap();
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert!(answer.body[..json_len].ends_with(br#""parameters":{"binary_data_size":200000}}]}"#));
    assert_eq!(answer.body[json_len..], tensor);
    assert_in_step(&mut connection);
}

#[test]
fn a_head_is_a_get_without_a_body() {
    let server = Server::usual();
    let mut connection = server.connect();
    let get = connection.ask("GET", "/v2/models/id", &[], b"").unwrap();
    let head = connection.ask("HEAD", "/v2/models/id", &[], b"").unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, get.header("content-length")));
    assert_eq!(connection.ask("HEAD", INFER, &[], b"").unwrap().status_line, "HTTP/1.1 405 Not Allowed");
    assert_in_step(&mut connection);
}

#[test]
fn pipelined_requests_are_all_answered_in_order() {
    let server = Server::usual();
    let mut connection = server.connect();
    let mut bytes = Vec::new();
    for (method, path, body) in
        [("GET", "/v2", vec![]), ("POST", INFER, ones(1)), ("GET", "/v2/health/live", vec![])]
    {
        bytes.extend(request(method, path, &[], &body));
    }
    connection.send(&bytes).unwrap();
    assert!(connection.receive("GET").unwrap().text().contains("nereid"));
    assert!(connection.receive("POST").unwrap().text().contains("OUT"));
    assert_eq!(connection.receive("GET").unwrap().text(), "");
}

#[test]
fn an_http_1_0_client_with_keep_alive_gets_content_lengths() {
    let server = Server::usual();
    let mut connection = server.connect();
    for _ in 0..2 {
        connection.send(b"GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap();
        let answer = connection.receive("GET").unwrap();
        assert_eq!(
            (answer.status_line.as_str(), answer.header("content-length")),
            ("HTTP/1.0 200 OK", Some("0"))
        );
    }
    connection.send(b"GET /v2/health/live HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(connection.receive("GET").unwrap().status, 200);
    assert!(connection.is_closed_within(TIMEOUT));
}

#[test]
fn a_response_confirms_that_the_client_wants_to_close() {
    let server = Server::usual();
    let mut connection = server.connect();
    let answer = connection.ask("GET", "/v2/health/live", &[("Connection", "close")], b"").unwrap();
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(connection.is_closed_within(TIMEOUT));
}

#[test]
fn a_connection_is_usable_after_errors() {
    let server = Server::usual();
    let mut connection = server.connect();
    let large = vec![b'x'; 300_000];
    let table: [Refusal; 9] = [
        ("POST", "/nope", &[], &large, 404, r#"{"error":"Not Found"}"#),
        ("GET", "/v2/health", &[], b"", 404, r#"{"error":"Not Found"}"#),
        ("PUT", "/v2/logging", &[], b"{}", 405, r#"{"error":"Method Not Allowed"}"#),
        (
            "POST",
            "/v2/models/x/infer",
            &[],
            &large,
            404,
            r#"{"error":"Request for unknown model: 'x' is not found"}"#,
        ),
        (
            "POST",
            INFER,
            &[("Content-Encoding", "br")],
            b"x",
            501,
            r#"{"error":"Unsupported compression type"}"#,
        ),
        (
            "POST",
            INFER,
            &[("Content-Encoding", "gzip")],
            b"",
            400,
            r#"{"error":"nothing to be decompressed"}"#,
        ),
        (
            "POST",
            INFER,
            &[("Content-Encoding", "gzip")],
            b"no gzip",
            400,
            r#"{"error":"failed to decompress request"}"#,
        ),
        (
            "POST",
            "/v2/models/id/generate",
            &[("Content-Encoding", "gzip")],
            &large,
            400,
            r#"{"error":"Unsupported content-encoding, only 'identity' is supported."}"#,
        ),
        (
            "POST",
            "/v2/repository/r/models/id/load",
            &[],
            b"{}",
            501,
            r#"{"error":"'repository_name' specification is not supported"}"#,
        ),
    ];
    for (method, path, headers, body, status, text) in table {
        let answer = connection.ask(method, path, headers, body).unwrap();
        assert_eq!((answer.status, &*answer.text()), (status, text), "{method} {path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("accept-encoding").is_some(), text.contains("Unsupported compression"));
        assert_in_step(&mut connection);
    }
}

#[test]
fn the_list_of_models_contains_their_versions() {
    let server = Server::usual();
    let answer = server.connect().ask("GET", "/v2/models", &[], b"").unwrap();
    let expected = r#"{"models":[{"name":"id","versions":[{"version":"1","state":"READY"}]}]}"#;
    assert_eq!((answer.status, &*answer.text()), (200, expected));
}

#[test]
fn a_body_that_inflates_beyond_the_limit_is_refused_and_others_are_served() {
    let options = http::HttpOptions { max_input_size: 1 << 20, ..http::HttpOptions::default() };
    let server = Server::start(Gate::opened(), options);
    let mut connection = server.connect();
    let text = r#"{"error":"Decompressed data size exceeds the maximum allowed value of 1048576 bytes. Use --http-max-input-size to increase the limit."}"#;
    let zeros = |count| gzip(&vec![0; count]);
    for bomb in [zeros((1 << 20) + 1), zeros(8 << 20), gzip(&[0; 1 << 20]).repeat(50)] {
        let answer = connection.ask("POST", INFER, &[("Content-Encoding", "gzip")], &bomb).unwrap();
        assert_eq!((answer.status, &*answer.text()), (400, text));
        assert_in_step(&mut connection);
    }
}

#[test]
fn a_long_request_is_answered_like_a_short_one() {
    let server = Server::usual();
    let mut connection = server.connect();
    // The body is long enough for the decode pool, plain and compressed.
    let data = vec!["-17"; 100_000].join(",");
    let json =
        format!(r#"{{"inputs":[{{"name":"IN","datatype":"INT32","shape":[100000],"data":[{data}]}}]}}"#);
    for (headers, body) in
        [(&[][..], json.clone().into_bytes()), (&[("Content-Encoding", "gzip")][..], gzip(json.as_bytes()))]
    {
        let answer = connection.ask("POST", INFER, headers, &body).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().contains(&data));
    }
    let wrong = json.replace("INT32", "UINT8");
    let answer = connection.ask("POST", INFER, &[], wrong.as_bytes()).unwrap();
    let text = "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer: input 'IN' has a \
                number of another kind at [0], where UINT8 is needed";
    assert_eq!((answer.status, &*answer.text()), (500, &*format!(r#"{{"error":"{text}"}}"#)));
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_fragment_of_a_path_is_left_out() {
    let server = Server::usual();
    let mut connection = server.connect();
    for path in ["/v2/health/live#x", "/v2/health/live#", "/v2/health/live#/v2/nope"] {
        assert_eq!(connection.ask("GET", path, &[], b"").unwrap().status, 200, "{path}");
    }
    assert_eq!(connection.ask("GET", "/v2/health/live%23", &[], b"").unwrap().status, 404);
}

#[test]
fn names_in_paths_are_decoded() {
    let server = Server::usual();
    let mut connection = server.connect();
    let answer = connection.ask("GET", "/v2/models/%69d/versions/1/", &[], b"").unwrap();
    assert!(answer.text().starts_with(r#"{"name":"id","versions":["1"]"#), "{}", answer.text());
    let answer = connection.ask("GET", "/v2/models/a%20b?x=%69", &[], b"").unwrap();
    assert_eq!(answer.text(), r#"{"error":"Request for unknown model: 'a b' is not found"}"#);
}

#[test]
fn a_chunked_body_is_joined_wherever_it_is_cut() {
    let server = Server::usual();
    let mut connection = server.connect();
    let mut bytes = format!(
        "POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"
    )
    .into_bytes();
    for chunk in ones(40).chunks(5) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    connection.send(&bytes).unwrap();
    assert_eq!(connection.receive("POST").unwrap().status, 200);
}

#[test]
fn too_many_chunks_end_the_connection() {
    let server = Server::usual();
    let mut connection = server.connect();
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.send(head.as_bytes()).unwrap();
    // One chunk more than allowed, and no last chunk.
    connection.send("1\r\n \r\n".repeat((1 << 16) + 1).as_bytes()).unwrap();
    let answer = connection.receive("POST").unwrap();
    assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
    assert!(connection.is_closed_within(TIMEOUT));
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let server = Server::usual();
    let mut connection = server.connect();
    let body = ones(1);
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.send(head.as_bytes()).unwrap();
    assert_eq!(connection.receive("POST").unwrap().status_line, "HTTP/1.1 100 Continue");
    connection.send(&body).unwrap();
    assert_eq!(connection.receive("POST").unwrap().status, 200);
}

#[test]
fn an_invalid_request_ends_only_its_connection() {
    let server = Server::usual();
    for garbage in [
        &b"FOO\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
        b"GET /v2/models/\xff HTTP/1.1\r\n\r\n",
    ] {
        let mut connection = server.connect();
        connection.send(garbage).unwrap();
        connection.rest().unwrap();
    }
    let mut connection = server.connect();
    let block = format!("GET /v2 HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    // The server may close the connection before it has read everything.
    let _ = connection.send(block.as_bytes());
    connection.rest().unwrap();
    assert_in_step(&mut server.connect());
}

#[test]
fn json_beyond_the_limit_is_refused_before_it_is_read() {
    let options = http::HttpOptions { max_input_size: 1000, ..http::HttpOptions::default() };
    let server = Server::start(Gate::opened(), options);
    let mut connection = server.connect();
    let text = |what: &str, rest: &str| {
        format!(r#"{{"error":"{what}1000 bytes{rest}. Use --http-max-input-size to increase the limit."}}"#)
    };
    let body = ones(1000);
    let json =
        format!("request JSON size of {} bytes exceeds the maximum allowed input size of ", body.len());
    assert_eq!(infer(&mut connection, &[], &body).text(), text(&json, ""));
    let header = ("Inference-Header-Content-Length", "1001");
    let json = "request JSON size of 1001 bytes exceeds the maximum allowed input size of ";
    assert_eq!(infer(&mut connection, &[header], &body).text(), text(json, ""));
    let raw = format!(
        "Raw input has a byte_size ({} bytes) that exceeds the maximum allowed value of ",
        body.len()
    );
    let header = ("Inference-Header-Content-Length", "0");
    assert_eq!(infer(&mut connection, &[header], &body).text(), text(&raw, ""));

    let json = r#"{"inputs":[{"name":"IN","datatype":"INT32","shape":[500],"parameters":{"binary_data_size":2000}}]}"#;
    let length = json.len().to_string();
    let body = [json.as_bytes(), &[0; 2000]].concat();
    let header = ("Inference-Header-Content-Length", length.as_str());
    assert_eq!(infer(&mut connection, &[header], &body).status, 200, "binary tensors are not limited");
    assert_in_step(&mut connection);
}

#[test]
fn a_whole_body_can_be_limited_too() {
    let options = limited(ClientLimits { max_request_bytes: 1000, ..ClientLimits::default() });
    let server = Server::start(Gate::opened(), options);
    let answer = infer(&mut server.connect(), &[("Inference-Header-Content-Length", "5")], &[b' '; 1001]);
    let expected = r#"{"error":"request body of 1001 bytes exceeds the maximum of 1000 bytes. Use --max-request-byte-size to increase the limit."}"#;
    assert_eq!((answer.status, &*answer.text()), (400, expected));
}

#[test]
fn only_responses_that_become_shorter_are_compressed() {
    let server = Server::usual();
    let mut connection = server.connect();
    let accept = [("Accept-Encoding", "gzip, deflate, br")];
    let short = infer(&mut connection, &accept, &ones(10));
    assert_eq!(short.header("content-encoding"), None);
    let long = infer(&mut connection, &accept, &ones(1000));
    assert_eq!(long.header("content-encoding"), Some("gzip"));
    assert!(long.body.starts_with(&[0x1f, 0x8b]) && long.body.len() < 200);
    assert_eq!(infer(&mut connection, &[], &ones(1000)).header("content-encoding"), None);
    assert_in_step(&mut connection);
}

#[test]
fn a_restricted_part_needs_its_header() {
    let mut restrictions = Restrictions::default();
    restrictions.require(Category::ModelRepository, "adminkey", "secret");
    let server =
        Server::start(Gate::opened(), http::HttpOptions { restrictions, ..http::HttpOptions::default() });
    let mut connection = server.connect();
    let mut index = |method: &str, headers: &[(&str, &str)]| {
        let answer = connection.ask(method, "/v2/repository/index", headers, b"").unwrap();
        (answer.status, answer.text())
    };
    let denied = r#"{"error":"This API is restricted, expecting header 'adminkey'"}"#;
    assert_eq!(index("POST", &[]), (403, denied.into()));
    assert_eq!(index("GET", &[("AdminKey", "Secret")]), (403, denied.into()));
    let ready = r#"[{"name":"id","version":"1","state":"READY"}]"#;
    assert_eq!(index("POST", &[("AdminKey", "secret")]), (200, ready.into()));
}

#[test]
fn a_disconnected_client_cancels_its_request() {
    let gate = Gate::shut();
    let server = Server::behind(gate.clone());
    let mut first = server.connect();
    first.send(&request("POST", INFER, &[], &ones(1))).unwrap();
    assert!(gate.wait_for(1, TIMEOUT));
    let mut second = server.connect();
    second.send(&request("POST", INFER, &[], &ones(1))).unwrap();
    server.until("the second request is queued", |server| server.engine.in_flight() == 2);
    second.reset().unwrap();
    server.until("the second request is given up", |server| server.engine.in_flight() == 1);
    gate.open();
    assert_eq!(first.receive("POST").unwrap().status, 200);
    assert_eq!(gate.arrived(), 1, "nobody computed for a client that had gone");
}

#[test]
fn an_announced_stop_makes_each_response_the_last_of_its_connection() {
    let server = Server::behind(Gate::opened());
    let mut idle = server.connect();
    assert_eq!(idle.ask("GET", "/v2", &[], b"").unwrap().header("Connection"), None);
    server.drain.announce();
    for mut connection in [idle, server.connect()] {
        let response = connection.ask("GET", "/v2", &[], b"").unwrap();
        assert_eq!((response.status, response.header("Connection")), (200, Some("close")));
        assert!(connection.is_closed_within(TIMEOUT));
    }
    assert!(!server.serving.is_finished());
}

#[test]
fn draining_closes_idle_connections_at_once_and_busy_ones_after_their_answer() {
    let gate = Gate::shut();
    let server = Server::behind(gate.clone());
    let (mut fresh, mut idle, mut busy) = (server.connect(), server.connect(), server.connect());
    assert_in_step(&mut idle);
    busy.send(&request("POST", INFER, &[], &ones(1))).unwrap();
    assert!(gate.wait_for(1, TIMEOUT));
    server.until("all connections are counted", |server| server.drain.open() == 3);

    server.drain.begin();
    assert!(idle.is_closed_within(TIMEOUT));
    assert!(fresh.is_closed_within(TIMEOUT));
    server.until("only the busy connection is left", |server| server.drain.open() == 1);
    server.until("nobody listens any more", |server| Connection::open(server.address).is_err());
    assert!(!server.serving.is_finished());

    gate.open();
    let answer = busy.receive("POST").unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(busy.is_closed_within(TIMEOUT));
    let Server { runtime, serving, drain, .. } = server;
    runtime.block_on(serving).unwrap().unwrap();
    assert_eq!(drain.open(), 0);
}

#[test]
fn an_idle_connection_is_closed_but_never_a_waiting_one() {
    let gate = Gate::shut();
    let server = Server::start(
        gate.clone(),
        limited(ClientLimits {
            idle_timeout: Some(Duration::from_millis(5)),
            header_timeout: None,
            ..ClientLimits::default()
        }),
    );
    let mut waiting = server.connect();
    // On a slow machine, a connection may be idle for too long before its request.
    server.until("a request that waits", |server| {
        waiting = server.connect();
        let is_sent = waiting.send(&request("POST", INFER, &[], &ones(1))).is_ok();
        is_sent && gate.wait_for(1, Duration::from_secs(1))
    });
    for _ in 0..3 {
        let mut halfway = server.connect();
        // The server may already have closed the connection.
        let _ = halfway.send(b"GET /v2 HTT");
        assert!(halfway.is_closed_within(TIMEOUT));
    }
    gate.open();
    assert_eq!(waiting.receive("POST").unwrap().status, 200);
    assert!(waiting.is_closed_within(TIMEOUT));
}

#[test]
fn a_connection_without_buffers_goes_on_with_the_next_byte() {
    let options = limited(ClientLimits {
        buffers_kept: Duration::ZERO,
        header_timeout: Some(TIMEOUT),
        ..ClientLimits::default()
    });
    let server = Server::start(Gate::opened(), options);
    let (mut connection, mut silent, mut ended) = (server.connect(), server.connect(), server.connect());
    for _ in 0..20 {
        assert_in_step(&mut connection);
        assert_eq!(connection.ask("POST", INFER, &[], &ones(3)).unwrap().status, 200);
        // Byte by byte, and two at once.
        for byte in request("GET", "/v2", &[], b"") {
            connection.send(&[byte]).unwrap();
        }
        assert_eq!(connection.receive("GET").unwrap().status, 200);
        let two = [request("GET", "/v2", &[], b""), request("POST", INFER, &[], &ones(1))].concat();
        connection.send(&two).unwrap();
        assert_eq!(connection.receive("GET").unwrap().status, 200);
        assert_eq!(connection.receive("POST").unwrap().status, 200);
    }
    assert_in_step(&mut silent);
    assert_in_step(&mut ended);
    ended.finish().unwrap();
    assert!(ended.is_closed_within(TIMEOUT));
    server.until("an ended connection is gone", |server| server.drain.open() == 2);
    server.drain.begin();
    assert!(silent.is_closed_within(TIMEOUT) && connection.is_closed_within(TIMEOUT));
}

#[test]
fn a_connection_without_buffers_is_closed_when_it_has_been_idle() {
    let server = Server::start(
        Gate::opened(),
        limited(ClientLimits {
            buffers_kept: Duration::ZERO,
            idle_timeout: Some(Duration::from_millis(200)),
            ..ClientLimits::default()
        }),
    );
    let mut connection = server.connect();
    connection.ask("GET", "/v2", &[], b"").unwrap();
    assert!(connection.is_closed_within(TIMEOUT));
}

#[test]
fn a_body_that_stops_coming_ends_the_connection() {
    let options = limited(ClientLimits {
        body_pace: Some(BodyPace { period: Duration::from_millis(5), min_bytes: 1 }),
        ..ClientLimits::default()
    });
    let server = Server::start(Gate::opened(), options);
    let mut connection = server.connect();
    connection.send(&request("POST", INFER, &[("Content-Length", "100")], b"")).unwrap();
    let answer = connection.receive("POST").unwrap();
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
    assert!(connection.is_closed_within(TIMEOUT));
}

#[test]
fn the_metrics_port_knows_one_path() {
    let server = Server::usual();
    let listener = BoundSocket::bind("127.0.0.1", 0, false).unwrap().listen().unwrap();
    let address = listener.address().unwrap().port().unwrap();
    let service = Arc::new(MetricsService::new(server.engine.clone(), true));
    let permits = ConnectionPermits::unlimited();
    server.runtime.spawn(http::serve(
        listener,
        service,
        Drain::new(),
        PortOptions::plain(ClientLimits::default(), permits),
    ));
    let mut connection = Connection::open(address).unwrap();
    for path in ["/metrics", "/metrics/"] {
        let answer = connection.ask("GET", path, &[], b"").unwrap();
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; charset=utf-8")));
        assert!(answer.text().contains(r#"nv_inference_request_success{model="id",version="1"} 0"#));
    }
    assert_eq!(connection.ask("POST", "/metrics", &[], b"").unwrap().status, 405);
    assert_eq!(connection.ask("GET", "/nope", &[], b"").unwrap().status, 404);
}
