//! The limits of JSON bodies of administrative requests, and of what is not read or is too long.
use std::sync::Arc;

use engine::{ModelControl, StartupModels};
use frontend::http::{self, HttpService, SageMakerOptions, SageMakerService};
use shared_memory::{ClientRegions, RegionLimits, SharedMemoryOptions};
use testing::{
    Gate, Identity, Repository,
    http::{Connection, request},
};

use crate::{INFER, Server, infer, ones, web_pages::open};

const LIMIT: usize = 4 << 20;

#[test]
fn only_requests_that_run_or_load_a_model_may_have_long_json() {
    let repository = Repository::empty().unwrap();
    repository.add("id", [("config.pbtxt", &*Identity::config(""))]).unwrap();
    let limits = RegionLimits { regions: 9, bytes: 1 << 20 };
    let regions = ClientRegions::allowed(SharedMemoryOptions { limits, in_place: false });
    let options = || http::HttpOptions { regions: regions.clone(), ..http::HttpOptions::default() };
    let control = ModelControl::Explicit(StartupModels::Named(["id".to_owned()].into()));
    let backend = Arc::new(Identity::behind(Gate::opened()));
    let server = Server::controlled(control, repository, vec![backend], options());
    let sagemaker = HttpService::new(server.engine.clone(), options());
    let sagemaker = SageMakerService::new(sagemaker, SageMakerOptions::default());
    let sagemaker = open(&server, sagemaker, Default::default());

    let long = vec![b' '; LIMIT + 1];
    let text = r#"{"error":"request JSON size of 4194305 bytes exceeds the maximum of 4194304 bytes for a request that neither runs nor loads a model."}"#;
    let refused = |address, path: &str| {
        // The client waits for the server's word before it sends the body.
        let headers = [("Content-Length", "4194305"), ("Expect", "100-continue")];
        let mut connection = Connection::open(address).unwrap();
        connection.send(&request("POST", path, &headers, b"")).unwrap();
        let answer = connection.receive("POST").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (400, text), "{path}");
        let mut connection = Connection::open(address).unwrap();
        let answer = connection.ask("POST", path, &[], &long[..LIMIT]).unwrap();
        assert!(!answer.text().contains("exceeds"), "{path}: {}", answer.text());
    };
    for path in [
        "/v2/repository/index",
        "/v2/repository/models/id/unload",
        "/v2/trace/setting",
        "/v2/systemsharedmemory/region/r/register",
        "/v2/cudasharedmemory/region/r/register",
    ] {
        refused(server.address, path);
    }
    refused(sagemaker, "/models");

    for path in ["/v2/repository/models/id/load", "/v2/models/id/infer", "/v2/models/id/generate"] {
        let answer = server.connect().ask("POST", path, &[], &long).unwrap();
        assert!(!answer.text().contains("exceeds"), "{path}: {}", answer.text());
    }
}

#[test]
fn what_a_load_becomes_is_reserved_before() {
    const ROOM: usize = 100_000;
    let repository = Repository::empty().unwrap();
    repository.add("id", [("config.pbtxt", &*Identity::config(""))]).unwrap();
    let control = ModelControl::Explicit(StartupModels::Named(["id".to_owned()].into()));
    let backend = Arc::new(Identity::behind(Gate::opened()));
    let server = Server::controlled(control, repository, vec![backend], http::HttpOptions::default());
    let budget = server.engine.inflight_bytes();
    let load = |parameters: &str| {
        let body = format!(r#"{{"parameters":{{{parameters}}}}}"#);
        let mut connection = server.connect();
        connection.ask("POST", "/v2/repository/models/id/load", &[], body.as_bytes()).unwrap()
    };
    let file = format!(r#""file:1/x":"{}""#, "A".repeat(6 * ROOM / 10));
    let config = format!(r#""config":"{{{}}}""#, " ".repeat(ROOM / 1000));
    let held = budget.reserve(budget.limit() - ROOM).unwrap();
    for (parameters, wanted) in [(&file, 60_030), (&config, 102 * proto::json::MOST_FOR_A_BYTE)] {
        let refused = load(parameters);
        let text = format!("the server has no room for {wanted} more bytes of requests");
        assert!(refused.status == 503 && refused.text().contains(&text), "{}", refused.text());
    }
    assert_eq!(budget.used(), budget.limit() - ROOM);
    drop(held);
    for parameters in [&file, &config] {
        let answer = load(parameters).text();
        assert!(!answer.contains("no room"), "{answer}");
    }
    server.until("nothing counts any more", |_| budget.used() == 0);
}

/// A request whose input has so many bytes, and whose output is wanted as bytes.
fn bytes_both_ways(len: usize) -> Vec<u8> {
    let parameters = format!(r#""parameters":{{"binary_data_size":{len}}}"#);
    let input = format!(r#"{{"name":"IN","datatype":"INT32","shape":[{}],{parameters}}}"#, len / 4);
    let json =
        format!(r#"{{"inputs":[{input}],"outputs":[{{"name":"OUT","parameters":{{"binary_data":true}}}}]}}"#);
    let length = json.len().to_string();
    let body = [json.as_bytes(), &vec![7; len]].concat();
    request("POST", INFER, &[("Inference-Header-Content-Length", &length)], &body)
}

#[test]
fn an_answer_counts_until_its_client_has_read_it() {
    const LEN: usize = 16 << 20;
    let server = Server::usual();
    let budget = server.engine.inflight_bytes();
    let mut connection = Connection::open_with_small_buffer(server.address).unwrap();
    connection.send(&bytes_both_ways(LEN)).unwrap();
    server.until("the request has ended and its answer counts", |server| {
        server.engine.in_flight() == 0 && budget.used() > LEN
    });
    assert_eq!(infer(&mut server.connect(), &[], &ones(1)).status, 200);
    let counted = budget.used();
    assert!((LEN..LEN + 4096).contains(&counted), "{counted}");
    assert!(connection.receive("POST").unwrap().body.ends_with(&[7; LEN]));
    server.until("the answer counts no more", |_| budget.used() == 0);
}

#[test]
fn a_long_answer_is_the_text_of_all_its_elements() {
    let server = Server::usual();
    let (count, data) = (50_000, vec!["1"; 50_000].join(","));
    let answer = infer(&mut server.connect(), &[], &ones(count));
    let output = format!(r#"{{"name":"OUT","datatype":"INT32","shape":[{count}],"data":[{data}]}}"#);
    assert_eq!(answer.text(), format!(r#"{{"model_name":"id","model_version":"1","outputs":[{output}]}}"#));
    let body = format!(r#"{{"IN":[{data}]}}"#);
    let answer = server.connect().ask("POST", "/v2/models/id/generate", &[], body.as_bytes()).unwrap();
    assert_eq!(answer.text(), format!(r#"{{"OUT":[{data}],"model_name":"id","model_version":"1"}}"#));
    let path = "/v2/models/id/generate_stream";
    let answer = server.connect().ask("POST", path, &[], body.as_bytes()).unwrap();
    let expected = format!("data: {{\"OUT\":[{data}],\"model_name\":\"id\",\"model_version\":\"1\"}}\n\n");
    assert_eq!(answer.text(), expected);
    server.until("nothing counts any more", |server| server.engine.inflight_bytes().used() == 0);
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    let server = Server::usual();
    let longest = "i".repeat(64 << 10);
    let refused = |body: String, what: &str| {
        let answer = infer(&mut server.connect(), &[], body.as_bytes());
        let text = format!(r#"{{"error":"{what} has 65537 bytes, and at most 65536 are allowed"}}"#);
        assert_eq!((answer.status, answer.text()), (400, text));
    };
    let input = r#"{"name":"IN","datatype":"INT32","shape":[1],"data":[1]}"#;
    let of = |id: &str| format!(r#"{{"id":"{id}","inputs":[{input}]}}"#);
    assert_eq!(infer(&mut server.connect(), &[], of(&longest).as_bytes()).status, 200);
    refused(of(&format!("{longest}i")), "the id of the request");
    let name = input.replace("IN", &format!("{longest}i"));
    refused(format!(r#"{{"inputs":[{name}]}}"#), "the name of an input");
    let output = format!(r#"{{"inputs":[{input}],"outputs":[{{"name":"{longest}i"}}]}}"#);
    refused(output, "the name of an output");
    let parameter = format!(r#"{{"inputs":[{input}],"parameters":{{"{longest}i":1}}}}"#);
    refused(parameter, "the key of a parameter");
    let body = format!(r#"{{"IN":1,"id":"{longest}i"}}"#);
    let answer = server.connect().ask("POST", "/v2/models/id/generate", &[], body.as_bytes()).unwrap();
    assert!(answer.text().contains("the id of the request has 65537 bytes"), "{}", answer.text());
}
