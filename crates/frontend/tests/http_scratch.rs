//! scratch
#![allow(missing_docs)]
use std::sync::Arc;
use engine::{Engine, MetricsOptions, ServerMetadata};
use nereid_frontend::{drain::Drain, forward::HeaderForward, http, listen, restrict::{Category, Restrictions}};
use testing::{fixtures::Python, golden::{self, Exchange}, compare};

#[test]
fn goldens() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let repository = testing::Repository::golden().unwrap();
    let options = engine::Options {
        server: ServerMetadata { name: "triton".into(), version: "2.51.0".into(), extensions: ["classification","sequence","model_repository","model_repository(unload_dependents)","schedule_policy","model_configuration","system_shared_memory","cuda_shared_memory","binary_tensor_data","parameters","statistics","trace","logging"].map(String::from).to_vec() },
        repositories: vec![repository.path().into()],
        strict_readiness: false, load_threads: 2, load_retries: 0, auto_complete: true, config_name: None, backend_settings: vec![],
        metrics: MetricsOptions { counter_latencies: true, host: false }, hold_until_queued: 0,
    };
    let engine = runtime.block_on(Engine::start(options, vec![Arc::new(Python)])).unwrap();
    let mut restrictions = Restrictions::default();
    restrictions.require(Category::ModelRepository, "adminkey", "secret");
    restrictions.require(Category::Statistics, "statkey", "s2");
    let start = |options: http::Options| {
        let listener = listen::bind("127.0.0.1", 0, false).unwrap();
        let address = listener.local_addr().unwrap();
        let service = Arc::new(http::HttpService::new(engine.clone(), options));
        runtime.spawn(http::serve(listener, service, Drain::new(), http::IDLE));
        address
    };
    let plain = start(http::Options::default());
    let restricted = start(http::Options { restrictions, ..http::Options::default() });
    let forwarding = start(http::Options { forward: Some(HeaderForward::new("my_.*|sequence_id|priority|triton_.*").unwrap()), ..http::Options::default() });
    let (mut good, mut bad) = (0, 0);
    for record in golden::records() {
        let Exchange::Http { request, response } = &record.exchange else { continue };
        if record.name.starts_with("sm_") || record.name.starts_with("vx_") { continue }
        let address = match record.name.get(..4) { Some("rst_") => restricted, Some("fwd_") => forwarding, Some("mc_u") => plain, _ => plain };
        let mut connection = testing::http::Connection::open(address).unwrap();
        let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method, request.path).into_bytes();
        for (name, value) in &request.headers { bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes()); }
        bytes.extend_from_slice(b"\r\n"); bytes.extend_from_slice(&request.body);
        connection.send(&bytes).unwrap();
        let got = match connection.receive(&request.method) { Ok(got) => got, Err(error) => { println!("## {}: {error}", record.name); bad += 1; continue } };
        let mut why = vec![];
        if got.status != response.status { why.push(format!("status {} expected {}", got.status, response.status)); }
        let strip = |headers: &[(String, String)]| headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("content-length")).cloned().collect::<Vec<_>>();
        if strip(&got.headers) != strip(&response.headers) && !(response.headers.iter().any(|(_, v)| v == "text/plain") && got.header("content-type") == Some("application/json")) { why.push(format!("headers {:?} expected {:?}", got.headers, response.headers)); }
        let (a, b) = (String::from_utf8_lossy(&response.body), got.text());
        let (a, b) = if record.name.contains("stat") { (compare::without_measures(&a), compare::without_measures(&b)) } else { (a.into_owned(), b) };
        if let Some(difference) = compare::difference(&a, &b) { why.push(difference); }
        if response.kept_open {
            if connection.ask("GET", "/v2/health/live", &[], b"").map(|r| r.status).ok() != Some(200) { why.push("connection unusable".into()); }
        } else if !connection.is_closed_within(std::time::Duration::from_secs(2)) { why.push("not closed".into()); }
        if why.is_empty() { good += 1 } else { bad += 1; println!("## {}: {}", record.name, why.join("; ")); }
    }
    println!("good {good} bad {bad}");
}
