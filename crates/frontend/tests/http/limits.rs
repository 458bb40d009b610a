//! The limits of JSON bodies of administrative requests.
use std::sync::Arc;

use engine::{ModelControl, StartupModels};
use nereid_frontend::http::{self, HttpService, SageMakerOptions, SageMakerService};
use shared_memory::{ClientRegions, RegionLimits, SharedMemoryOptions};
use testing::{
    Gate, Identity, Repository,
    http::{Connection, request},
};

use crate::{Server, web_pages::open};

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
